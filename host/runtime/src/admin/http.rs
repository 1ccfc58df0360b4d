//! What holds for every answer, and whom the admin address answers at all.
//!
//! A page that a browser loaded from elsewhere can send requests to loopback. It can't read the answers, since nothing here
//! allows it to; unless its own name is made to point at loopback (DNS rebinding), so a request over TCP must say that it
//! is for this machine. And nothing is changed by a request that a page could send.

use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::Serialize;

use crate::control::Failure;
use crate::page::local_only::check_host;
use crate::swap::ManageError;

/// What every answer carries, unless it says otherwise itself: nothing of it is run, framed, kept or handed on.
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

/// An answer that is no success.
pub(crate) fn failed(status: StatusCode, error: String) -> Response {
    (status, Json(Failure { error })).into_response()
}

/// What a manager of guests said.
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

/// The same routes, with the headers.
pub(crate) fn secured(routes: Router) -> Router {
    routes.layer(middleware::map_response(with_headers))
}

/// The same routes, with a failure for what is not there. Before anything else: a layer is around what is there when it is
/// put on.
pub(crate) fn complete(routes: Router) -> Router {
    routes.fallback(async || failed(StatusCode::NOT_FOUND, "there is nothing at this path".to_owned()))
}

/// The same for an address that a browser can reach: reads alone, and only where the request is for this machine.
pub(super) fn read_only(routes: Router) -> Router {
    routes.layer(middleware::from_fn(only_reads))
}

/// As [`read_only`], where requests come over TCP.
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
