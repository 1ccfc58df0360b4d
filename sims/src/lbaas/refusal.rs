//! An error in the Engine's shape.

use std::collections::BTreeMap;

use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::base::refusal::{Refuse, answer};

/// Why a request is not carried out.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// By field, what is wrong with it.
    pub(super) validation: BTreeMap<String, String>,
    /// The methods that the path has; empty if the method is not the problem.
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

impl Refuse for Refusal {
    fn unreadable(message: String) -> Self {
        Self::bad_request(message)
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
        let mut response = answer(self.status, error, self.retry_after_s);
        if !self.allow.is_empty() {
            let allow = HeaderValue::from_static(self.allow);
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response
    }
}
