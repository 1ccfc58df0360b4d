//! Formats endpoints and errors of NEGs for people.

use trueup_base::text;

use super::{Endpoint, Error, NegRef};

/// How many endpoints of one operation a line names. It counts the others; JSON has all.
pub const ENDPOINTS_NAMED_MAX: usize = 5;

/// `10.0.0.1:8080 (vm-1)`, or with both families `10.0.0.1+[fd00::1]:8080 (vm-1)`. Leaves out empty parts.
pub fn endpoint(endpoint: &Endpoint) -> String {
    let Endpoint { ip, ipv6, port, node } = endpoint;
    let plus = if ip.is_empty() { "" } else { "+" };
    let unless_empty = |text: &str, shown: String| if text.is_empty() { String::new() } else { shown };
    let ipv6 = unless_empty(ipv6, format!("{plus}[{ipv6}]"));
    let port = unless_empty(port, format!(":{port}"));
    let node = unless_empty(node, format!(" ({node})"));
    format!("{ip}{ipv6}{port}{node}")
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

/// Whether the two are the same endpoint, once with one address family and once with both. A migration turns one into
/// the other.
pub fn are_twins(one: &Endpoint, other: &Endpoint) -> bool {
    let is_dual = |endpoint: &Endpoint| !endpoint.ip.is_empty() && !endpoint.ipv6.is_empty();
    let (dual, single) = if is_dual(one) { (one, other) } else { (other, one) };
    let shares_one =
        (single.ip == dual.ip && single.ipv6.is_empty()) || (single.ipv6 == dual.ipv6 && single.ip.is_empty());
    is_dual(dual) && shares_one && dual.port == single.port && dual.node == single.node
}

/// An error of the API about this NEG, if it is known, in an operator's words. Cut to size, since a guest may fill a
/// whole answer.
pub fn in_words(error: &Error, of: Option<&NegRef>) -> String {
    text::error(match error {
        Error::NotFound => {
            let neg = of.map(|NegRef { name, zone }| format!("NEG `{name}` in zone `{zone}`"));
            let neg = neg.unwrap_or_else(|| "the NEG".to_owned());
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

    #[test]
    fn twins_are_one_endpoint_with_one_family_and_with_both() {
        let dual = of("10.0.0.1", "fd00::1", "80", "vm");
        let [v4, v6] = [of("10.0.0.1", "", "80", "vm"), of("", "fd00::1", "80", "vm")];
        for twin in [&v4, &v6] {
            assert!(are_twins(&dual, twin) && are_twins(twin, &dual));
        }
        for other in [
            &dual,
            &of("10.0.0.1", "", "81", "vm"),
            &of("10.0.0.1", "", "80", "vm-2"),
            &of("10.0.0.2", "", "80", "vm"),
            &of("", "", "80", "vm"),
        ] {
            assert!(!are_twins(&dual, other), "{other:?}");
        }
        assert!(!are_twins(&v4, &v6));
    }
}
