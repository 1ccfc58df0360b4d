//! Formats endpoints and errors of NEGs for people.

use std::fmt::Write as _;

use trueup_base::text;

use super::{Endpoint, Error, NegRef};

/// How many endpoints of one operation a line names. It counts the others; JSON has all.
pub const ENDPOINTS_NAMED_MAX: usize = 5;

/// `10.0.0.1:8080 (vm-1)`, or with both families `10.0.0.1+[fd00::1]:8080 (vm-1)`. Leaves out empty parts.
pub fn endpoint(endpoint: &Endpoint) -> String {
    let Endpoint { ip, ipv6, port, node } = endpoint;
    let mut text = ip.clone();
    if !ipv6.is_empty() {
        let plus = if ip.is_empty() { "" } else { "+" };
        // Writing to a String can't fail.
        let _ = write!(text, "{plus}[{ipv6}]");
    }
    if !port.is_empty() {
        let _ = write!(text, ":{port}");
    }
    if !node.is_empty() {
        let _ = write!(text, " ({node})");
    }
    text
}

/// The first endpoints, and how many more there are.
pub fn endpoints(of: &[Endpoint]) -> String {
    let mut text: Vec<String> = of.iter().take(ENDPOINTS_NAMED_MAX).map(endpoint).collect();
    let more = of.len().saturating_sub(ENDPOINTS_NAMED_MAX);
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    text.join(", ")
}

/// An error of the API about this NEG, if it is known, in an operator's words. Cut to size, since a guest may fill a
/// whole answer.
pub fn in_words(error: &Error, of: Option<&NegRef>) -> String {
    text::error(match error {
        Error::NotFound => {
            let neg = of.map_or_else(
                || "the NEG".to_owned(),
                |NegRef { name, zone }| format!("NEG `{name}` in zone `{zone}`"),
            );
            format!("Compute Engine does not know {neg}, or not any more")
        }
        Error::RateLimited(Some(ms)) => format!("Compute Engine limits the rate of requests, for {ms} ms from now"),
        Error::RateLimited(None) => "Compute Engine limits the rate of requests".to_owned(),
        Error::Unauthorized => "Compute Engine refuses the credentials: check those of [backend.neg]".to_owned(),
        Error::Refused((status, text)) => format!("Compute Engine refuses it: {status} {text}"),
        Error::Unavailable(text) => format!("Compute Engine is not available: {text}"),
        Error::AccessDenied(text) => format!("access denied: {text}; see `grants` in [guests.neg]"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neg::order::tests::endpoint as of;

    #[test]
    fn endpoints_are_short_and_what_is_empty_is_left_out() {
        let all = [
            of("10.0.0.1", "", "80", "vm-1"),
            of("10.0.0.1", "fd00::1", "80", "vm-1"),
            of("", "fd00::1", "80", ""),
            of("10.0.0.1", "", "", ""),
        ];
        assert_eq!(
            endpoints(&all),
            "10.0.0.1:80 (vm-1), 10.0.0.1+[fd00::1]:80 (vm-1), [fd00::1]:80, 10.0.0.1"
        );
        let many = vec![of("10.0.0.1", "", "", ""); ENDPOINTS_NAMED_MAX + 2];
        assert!(endpoints(&many).ends_with("10.0.0.1, and 2 more"));
        assert_eq!(endpoints(&[]), "");
    }
}
