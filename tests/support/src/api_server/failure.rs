//! The `Status` objects of an API server's refusals, in Kubernetes' own words.
//!
//! Only the words: other modules decide what to refuse.

use serde_json::{Value, json};

use super::kinds::Kind;

/// A refusal: the HTTP status, and its `Status` object.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The HTTP status.
    pub code: u16,
    /// The reason for programs, such as `NotFound`.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// The subject of the refusal; null if there is none.
    pub details: Value,
    /// Where an expired list may continue, if the caller accepts the present objects for the rest.
    pub proceed: Option<String>,
}

/// One invalid field.
#[derive(Clone, Debug)]
pub struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

impl Cause {
    /// An invalid value.
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value}: {why}"),
        }
    }

    /// A missing value.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self {
            reason: "FieldValueRequired",
            field: field.into(),
            message,
        }
    }

    /// A value that is not allowed.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {why}"),
        }
    }

    /// A value outside the allowed ones.
    pub fn unsupported(field: impl Into<String>, value: &Value, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|value| format!("\"{value}\"")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!("Unsupported value: {value}: supported values: {}", known.join(", ")),
        }
    }

    /// A value that another item already has.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            field: field.into(),
            message: format!("Duplicate value: {value}"),
        }
    }
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            proceed: None,
        }
    }

    fn about(code: u16, reason: &'static str, kind: &Kind, name: &str, message: String) -> Self {
        let mut details = json!({ "name": name, "kind": kind.plural });
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        Self {
            details,
            ..Self::new(code, reason, message)
        }
    }

    /// There is no such object.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::about(
            404,
            "NotFound",
            kind,
            name,
            format!("{} \"{name}\" not found", kind.qualified()),
        )
    }

    /// The object already exists.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified());
        Self::about(409, "AlreadyExists", kind, name, message)
    }

    /// Another client wrote first.
    pub fn conflict(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict_because(kind, name, why)
    }

    /// The object does not match the caller's precondition.
    pub fn conflict_because(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.qualified()
        );
        Self::about(409, "Conflict", kind, name, message)
    }

    /// The object is invalid.
    pub fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let said: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let said = match said.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let dot = if kind.group.is_empty() { "" } else { "." };
        let message = format!("{}{dot}{} \"{name}\" is invalid: {said}", kind.kind, kind.group);
        let mut failure = Self::about(422, "Invalid", kind, name, message);
        failure.details["kind"] = json!(kind.kind);
        failure.details["causes"] = causes
            .iter()
            .map(|cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field }))
            .collect();
        failure
    }

    /// The request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The patch is malformed.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// The server does not know the caller.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// The caller may not do that to this object.
    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() {
            String::new()
        } else {
            format!(" \"{name}\"")
        };
        let message = format!("{}{subject} is forbidden: {why}", kind.qualified());
        Self::about(403, "Forbidden", kind, name, message)
    }

    /// Nothing is at this path.
    pub fn no_such_path() -> Self {
        Self {
            details: json!({}),
            ..Self::new(404, "NotFound", "the server could not find the requested resource")
        }
    }

    /// The resource does not support this method.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self {
            details: json!({}),
            ..Self::new(405, "MethodNotAllowed", message)
        }
    }

    /// The server does not support the requested form of answers.
    pub fn not_acceptable(offered: &str) -> Self {
        let message = format!("only the following media types are accepted: {offered}");
        Self::new(406, "NotAcceptable", message)
    }

    /// The server does not support the form of the request.
    pub fn unsupported_media(offered: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {offered}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// The body is longer than the server reads.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// The history before this is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A watch can't start at `asked`, since the history starts after `oldest`.
    pub fn too_old(asked: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    /// The caller asks for a version that this server has not reached.
    pub fn too_new(asked: u64, newest: u64) -> Self {
        let mut failure = Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {newest}"),
        );
        failure.details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        failure
    }

    /// A fault from a test, in the words of its HTTP status.
    pub fn of_code(code: u16, retry_after_s: Option<u64>) -> Self {
        let (reason, message) = match code {
            401 => return Self::unauthorized(),
            403 => ("Forbidden", "forbidden: the test wants it so"),
            409 => (
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            410 => ("Expired", "The resourceVersion for the provided list is too old."),
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            500 => ("InternalError", "Internal error occurred: the test wants it so"),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "Timeout: request did not complete within the allotted timeout",
            ),
            _ => ("", "an error on the server has prevented the request from succeeding"),
        };
        let mut failure = Self::new(code, reason, message);
        if let Some(seconds) = retry_after_s {
            failure.details = json!({ "retryAfterSeconds": seconds });
        }
        failure
    }

    /// How long to wait before the next try, if the server sets that.
    pub fn retry_after_s(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if let Some(proceed) = &self.proceed {
            status["metadata"]["continue"] = json!(proceed);
        }
        status
    }
}
