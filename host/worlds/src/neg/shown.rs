//! Formats endpoints and errors of NEGs for people.

use trueup_base::text;
use trueup_capabilities::neg::NegRef;
pub use trueup_capabilities::neg::shown::{ENDPOINTS_NAMED_MAX, are_twins, endpoint, endpoints, in_words};

use super::guest::Error;

/// An error of the guest, in an operator's words. `unknown`: the NEG that the backend did not know. Cut to size, since
/// a guest may fill a whole answer.
pub(crate) fn describe(error: &Error, unknown: Option<&NegRef>) -> String {
    match error {
        Error::InvalidInput(text) => text::error(format!("invalid input: {text}")),
        Error::Api(error) => in_words(error, unknown),
    }
}
