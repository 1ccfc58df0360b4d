//! Compute Engine's errors.

use std::fmt::Display;

use axum::http::StatusCode;
use serde_json::{Value, json};

pub(super) use crate::base::refusal::Refusal;

impl Refusal {
    /// `reason` is what clients tell refusals apart by: `notFound`, `invalid`, `quotaExceeded`.
    pub(super) fn because(status: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        let domain = match reason {
            "rateLimitExceeded" | "userRateLimitExceeded" | "quotaExceeded" => "usageLimits",
            _ => "global",
        };
        let message = message.into();
        let one = json!({"message": message, "domain": domain, "reason": reason});
        Self {
            member: Some(("errors", json!([one]))),
            ..Self::new(status, message)
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::because(StatusCode::BAD_REQUEST, "invalid", message)
    }

    /// A field with an invalid value, and why it is.
    pub(super) fn invalid_value(field: &str, why: impl Display) -> Self {
        Self::invalid(format!("Invalid value for field '{field}': {why}"))
    }

    /// The same, with the value.
    pub(super) fn invalid_field(field: &str, value: &Value, why: &str) -> Self {
        let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        Self::invalid_value(field, format!("'{value}'. {why}"))
    }

    /// A field that is missing.
    pub(super) fn required(field: &str) -> Self {
        let message = format!("Required field '{field}' not specified");
        Self::because(StatusCode::BAD_REQUEST, "required", message)
    }

    /// A resource that does not exist; `path` begins with `projects/`.
    pub(super) fn no_resource(path: &str) -> Self {
        let message = format!("The resource '{path}' was not found");
        Self::because(StatusCode::NOT_FOUND, "notFound", message)
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
}
