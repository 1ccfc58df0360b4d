//! Joins the results of several load balancers into one answer, and words errors for the log.

use std::mem::discriminant;

use crate::bindings::exports::trueup::lbaas::reconciliation::Error;
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::bindings::trueup::lbaas::types::ObjectRef;
use crate::order;

/// How many resources a log line names; the caller gets all of them.
const NAMED_MAX: usize = 10;

/// The error of the whole call: the first one sets the case, and holds the refs of all errors of its case. `errors` are
/// in the order in which the load balancers were given.
pub fn joined(errors: Vec<Error>) -> Option<Error> {
    let mut errors = errors.into_iter();
    let mut first = errors.next()?;
    let case = discriminant(&first);
    if let Some(refs) = refs_of(&mut first) {
        for mut other in errors.filter(|other| discriminant(other) == case) {
            refs.extend(refs_of(&mut other).map(std::mem::take).unwrap_or_default());
        }
        refs.sort();
        refs.dedup();
    }
    Some(first)
}

fn refs_of(error: &mut Error) -> Option<&mut Vec<ObjectRef>> {
    match error {
        Error::Progressing(refs)
        | Error::RecoveryPending(refs)
        | Error::Failed(refs)
        | Error::NotDestroyable(refs)
        | Error::TimedOut(refs) => Some(refs),
        Error::InvalidInput(_) | Error::Api(_) => None,
    }
}

/// One line for the log.
pub fn words(error: &Error) -> String {
    match error {
        Error::InvalidInput(problem) => format!("invalid input: {problem}"),
        Error::Progressing(refs) => format!("not deployed yet: {}", named(refs)),
        Error::RecoveryPending(refs) => format!("reset and not recovered yet: {}", named(refs)),
        Error::Failed(refs) => format!("failed: {}", named(refs)),
        Error::NotDestroyable(refs) => format!("not destroyable: {}", named(refs)),
        Error::TimedOut(refs) => format!("timed out: {}", named(refs)),
        Error::Api(error) => api_words(error),
    }
}

/// One line for the log.
pub fn api_words(error: &ApiError) -> String {
    match error {
        ApiError::NotFound => "not found".to_owned(),
        ApiError::RateLimited(None) => "rate limited".to_owned(),
        ApiError::RateLimited(Some(ms)) => format!("rate limited for {ms} ms"),
        ApiError::Unauthorized => "unauthorized".to_owned(),
        ApiError::Refused((status, message)) => format!("refused with status {status}: {message}"),
        ApiError::Unavailable(message) => format!("unavailable: {message}"),
        ApiError::AccessDenied(message) => format!("access denied: {message}"),
    }
}

fn named(refs: &[ObjectRef]) -> String {
    if refs.is_empty() {
        return "nothing in particular".to_owned();
    }
    let word = |reference: &ObjectRef| format!("{} {}", order::word(reference.kind), reference.identifier);
    let named = refs.iter().take(NAMED_MAX).map(word).collect::<Vec<_>>().join(", ");
    match refs.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::trueup::lbaas::types::Kind;

    fn reference(identifier: &str) -> ObjectRef {
        ObjectRef {
            kind: Kind::Server,
            identifier: identifier.to_owned(),
        }
    }

    #[test]
    fn no_error_is_none() {
        assert_eq!(joined(Vec::new()), None);
    }

    #[test]
    fn the_first_decides_the_case_and_takes_all_refs_of_it_in_order() {
        let errors = vec![
            Error::TimedOut(vec![reference("s9")]),
            Error::NotDestroyable(vec![reference("s5")]),
            Error::Api(ApiError::NotFound),
            Error::TimedOut(vec![reference("s10"), reference("s9")]),
        ];
        assert_eq!(
            joined(errors.clone()),
            Some(Error::TimedOut(vec![reference("s10"), reference("s9")]))
        );
        assert_eq!(joined(errors[2..].to_vec()), Some(Error::Api(ApiError::NotFound)));
    }

    #[test]
    fn a_log_line_is_short_whatever_failed() {
        let refs: Vec<_> = (10..24).map(|n| reference(&format!("s{n}"))).collect();
        let line = words(&Error::TimedOut(refs));
        assert!(line.starts_with("timed out: server s10, server s11, "), "{line}");
        assert!(line.ends_with(", server s19 and 4 more"), "{line}");
        assert_eq!(words(&Error::TimedOut(Vec::new())), "timed out: nothing in particular");
        let api = words(&Error::Api(ApiError::Refused((409, "in use".to_owned()))));
        assert_eq!(api, "refused with status 409: in use");
    }
}
