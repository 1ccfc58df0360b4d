//! An error in Compute Engine's shape.

use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::base::refusal::{Refuse, answer};

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// What clients tell refusals apart by: `notFound`, `invalid`, `quotaExceeded`.
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) retry_after_s: Option<u64>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.to_owned(),
            message: message.into(),
            retry_after_s: None,
        }
    }

    /// A field with an invalid value.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    /// A field of the body with an invalid value, and why it is.
    pub(super) fn invalid_field(field: &str, value: &Value, why: &str) -> Self {
        let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        Self::invalid(format!("Invalid value for field '{field}': '{value}'. {why}"))
    }

    /// A field that is missing.
    pub(super) fn required(field: &str) -> Self {
        let message = format!("Required field '{field}' not specified");
        Self::new(StatusCode::BAD_REQUEST, "required", message)
    }

    /// A resource that does not exist; `path` begins with `projects/`.
    pub(super) fn not_found(path: &str) -> Self {
        let message = format!("The resource '{path}' was not found");
        Self::new(StatusCode::NOT_FOUND, "notFound", message)
    }

    /// A path or a method that the API does not have.
    pub(super) fn nowhere() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "notFound",
            "The requested URL was not found on this server.",
        )
    }

    /// A resource that exists already; `path` begins with `projects/`.
    pub(super) fn already_exists(path: &str) -> Self {
        let message = format!("The resource '{path}' already exists");
        Self::new(StatusCode::CONFLICT, "alreadyExists", message)
    }

    /// The usual reason with a status.
    pub(super) fn usual_reason(status: StatusCode) -> &'static str {
        match status.as_u16() {
            400 => "invalid",
            401 => "authError",
            403 => "forbidden",
            404 => "notFound",
            409 => "alreadyExists",
            412 => "conditionNotMet",
            429 => "rateLimitExceeded",
            500..=599 => "backendError",
            _ => "badRequest",
        }
    }

    fn domain(&self) -> &'static str {
        match self.reason.as_str() {
            "rateLimitExceeded" | "userRateLimitExceeded" | "quotaExceeded" => "usageLimits",
            _ => "global",
        }
    }
}

impl Refuse for Refusal {
    fn unreadable(message: String) -> Self {
        Self::invalid(message)
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), "parseError", rejection.body_text())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let one = json!({"message": self.message, "domain": self.domain(), "reason": self.reason});
        let error = json!({"code": self.status.as_u16(), "message": self.message, "errors": [one]});
        let mut response = answer(self.status, error, self.retry_after_s);
        if self.status == StatusCode::UNAUTHORIZED {
            let realm = HeaderValue::from_static("Bearer realm=\"https://accounts.google.com/\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, realm);
        }
        response
    }
}
