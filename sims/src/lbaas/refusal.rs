//! An error in the Engine's shape.

use std::collections::BTreeMap;

use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
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
    pub(super) retry_after_s: Option<u64>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            validation: BTreeMap::new(),
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
        answer(self.status, error, self.retry_after_s)
    }
}
