//! An answer that is an error, in the Engine's shape.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::rejection::JsonRejection,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// Why a request is not carried out.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// The problem of each field.
    pub(super) validation: BTreeMap<String, String>,
    /// The methods of the path, if this method is not among them.
    pub(super) allow: &'static str,
    pub(super) retry_after_s: Option<u64>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            validation: BTreeMap::new(),
            allow: "",
            retry_after_s: None,
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not found")
    }

    pub(super) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut error = json!({"code": self.status.as_u16(), "message": self.message});
        if let (false, Some(error)) = (self.validation.is_empty(), error.as_object_mut()) {
            error.insert("validation".to_owned(), json!(self.validation));
        }
        let mut response = (self.status, Json(json!({"error": error}))).into_response();
        let headers = response.headers_mut();
        if !self.allow.is_empty() {
            headers.insert(header::ALLOW, HeaderValue::from_static(self.allow));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
