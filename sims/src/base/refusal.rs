//! Answers that are errors.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The member that one API has beside `code` and `message`.
    pub(crate) member: Option<(&'static str, Value)>,
    pub(crate) retry_after_s: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            member: None,
            retry_after_s: None,
        }
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

/// Both APIs put the error under `error`.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut error = json!({"code": self.status.as_u16(), "message": self.message});
        if let (Some((name, value)), Some(error)) = (self.member, error.as_object_mut()) {
            error.insert(name.to_owned(), value);
        }
        let mut response = (self.status, Json(json!({"error": error}))).into_response();
        if let Some(seconds) = self.retry_after_s {
            let value = HeaderValue::from(seconds);
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        response
    }
}
