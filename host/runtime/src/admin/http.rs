//! What holds for every answer, and whom the admin address answers at all.
//!
//! A page that a browser loaded from elsewhere can send requests to loopback. It can't read the answers, since nothing here
//! allows it to; unless its own name is made to point at loopback (DNS rebinding), so a request over TCP must say that it
//! is for this machine. And nothing is changed by a request that a page could send.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::Serialize;

use crate::control::Failure;
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
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(is_this_machine) {
        return next.run(request).await;
    }
    let error = format!(
        "the request is for host `{}`, must be for `localhost` or a loopback address",
        crate::text::line(host.unwrap_or_default())
    );
    failed(StatusCode::MISDIRECTED_REQUEST, error)
}

/// Whether a `Host` names this machine, with or without a port.
fn is_this_machine(host: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    let address = bare
        .parse::<IpAddr>()
        .or_else(|_| host.parse::<SocketAddr>().map(|at| at.ip()));
    address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_for_this_machine_where_it_names_loopback() {
        for host in [
            "localhost",
            "LOCALHOST:9482",
            "127.0.0.1",
            "127.0.0.1:9482",
            "127.1.2.3:1",
            "[::1]",
            "[::1]:9482",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9482",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:9482:1",
            "192.0.2.1:9482",
            "0.0.0.0:9482",
            "[::]:9482",
            "localhost:port",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
