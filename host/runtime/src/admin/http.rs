//! Rules for every answer, and which requests the admin address accepts.
//!
//! A page loaded from elsewhere can send requests to loopback. It cannot read the answers, since no header allows it
//! to, unless its own name resolves to loopback (DNS rebinding). So a request over TCP must name this machine as its
//! host, and no request that a page could send changes anything.

use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use trueup_base::local_only::check_host;
use trueup_work::swap::ManageError;

/// The body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// One line.
    pub error: String,
}

/// Headers of every answer that does not set its own: a browser must not run, frame, cache or forward it.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    ),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// An error response.
pub(crate) fn failed(status: StatusCode, error: String) -> Response {
    (status, Json(Failure { error })).into_response()
}

/// The manager's answer as a response.
pub(crate) fn answer<T: Serialize>(answer: Result<T, ManageError>) -> Response {
    match answer {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => {
            let status = match error {
                ManageError::Unknown { .. } | ManageError::Nothing { .. } => StatusCode::NOT_FOUND,
                ManageError::Busy(_) => StatusCode::CONFLICT,
                ManageError::Refused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            };
            failed(status, error.to_string())
        }
    }
}

/// The same routes with the security headers.
pub(crate) fn secured(routes: Router) -> Router {
    routes.layer(middleware::map_response(with_headers))
}

/// The same routes with a "not found" answer. Call this first: a layer wraps only the routes that exist when it is
/// added.
pub(crate) fn complete(routes: Router) -> Router {
    routes.fallback(async || failed(StatusCode::NOT_FOUND, "there is nothing at this path".to_owned()))
}

/// For an address that a browser can reach: only reads, and only requests that name this machine.
pub(super) fn read_only(routes: Router) -> Router {
    routes.layer(middleware::from_fn(only_reads))
}

/// Like [`read_only`], for requests over TCP.
pub(super) fn local(routes: Router) -> Router {
    routes.layer(middleware::from_fn(only_for_this_machine))
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn only_reads(request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let error = "nothing is changed here: use the `trueup` commands, which ask the host's control socket".to_owned();
    let mut response = failed(StatusCode::METHOD_NOT_ALLOWED, error);
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

async fn only_for_this_machine(request: Request, next: Next) -> Response {
    match check_host(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => failed(StatusCode::FORBIDDEN, why),
    }
}
