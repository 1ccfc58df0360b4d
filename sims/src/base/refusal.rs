//! Answers that are errors.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An error as one API shapes it.
pub(crate) trait Refuse: IntoResponse + From<JsonRejection> + Send {
    /// Refuses a request whose body could not be read.
    fn unreadable(message: String) -> Self;
}

/// The answer to a refused request. Both APIs put the error under `error`.
pub(crate) fn answer(status: StatusCode, error: Value, retry_after_s: Option<u64>) -> Response {
    let mut response = (status, Json(json!({"error": error}))).into_response();
    if let Some(seconds) = retry_after_s {
        let value = HeaderValue::from(seconds);
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

/// The seconds of `Retry-After` if the rate limit ends in `wait_ns`: rounded up, at least 1.
pub(crate) fn retry_after_s(wait_ns: u64) -> u64 {
    wait_ns.div_ceil(1_000_000_000).max(1)
}

/// The text of a status, for a fault that gives no message.
pub(crate) fn usual_message(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("fault")
}
