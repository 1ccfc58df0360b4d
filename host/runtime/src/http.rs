//! What every server of this crate shares: the form of an error, how a request is read, and which requests an address
//! accepts.
//!
//! A page loaded from elsewhere can send requests to loopback. It cannot read the answers, since no header allows it
//! to, unless its own name resolves to loopback (DNS rebinding). So a request over TCP must name this machine as its
//! host, and no request that a page could send changes anything.

use std::fmt::Display;

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trueup_base::local_only::check_host;
use trueup_work::swap::ManageError;

/// The body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// One line.
    pub(crate) error: String,
}

/// An answer as JSON, or why there is none.
pub(crate) type Answer<T> = Result<Json<T>, Refused>;

/// Why a request has no answer, in one line.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) StatusCode, pub(crate) String);

impl Refused {
    /// The request is invalid.
    pub(crate) fn bad_request(why: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, why.into())
    }

    /// What the request names does not exist.
    pub(crate) fn not_found(why: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, why.into())
    }

    /// What was read before is not there any more.
    pub(crate) fn changed(why: String) -> Self {
        Self(StatusCode::CONFLICT, why)
    }

    /// The host can't answer now.
    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, why.into())
    }

    /// The host failed.
    pub(crate) fn internal(why: impl Display) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
    }
}

impl From<ManageError> for Refused {
    fn from(error: ManageError) -> Self {
        let status = match error {
            ManageError::NotFound(_) => StatusCode::NOT_FOUND,
            ManageError::Busy(_) => StatusCode::CONFLICT,
            ManageError::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(Failure { error: self.1 })).into_response()
    }
}

/// The parameters of a request's query.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let read = Query::from_request_parts(parts, state).await;
        let Query(params) = read.map_err(|why| Refused(why.status(), why.body_text()))?;
        Ok(Self(params))
    }
}

/// The JSON body of a request.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let read = Json::from_request(request, state).await;
        let Json(body) = read.map_err(|why| Refused(why.status(), why.body_text()))?;
        Ok(Self(body))
    }
}

/// Reads files on a blocking thread.
pub(crate) async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refused> {
    tokio::task::spawn_blocking(work).await.map_err(Refused::internal)
}

/// Headers of every answer that does not set its own: a browser must not run, frame, cache or forward it.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CONTENT_SECURITY_POLICY, NOTHING),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A browser loads nothing into an answer, and shows it in no frame.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// The same routes with the security headers.
pub(crate) fn secured(routes: Router) -> Router {
    routes.layer(middleware::map_response(async |mut response: Response| {
        for (name, value) in HEADERS {
            let header = response.headers_mut().entry(name);
            header.or_insert(HeaderValue::from_static(value));
        }
        response
    }))
}

/// The same routes with a "not found" answer. Call this first: a layer wraps only the routes that exist when it is
/// added.
pub(crate) fn complete(routes: Router) -> Router {
    routes.fallback(async || Refused::not_found("there is nothing at this path"))
}

/// For an address that a browser can reach: only reads, and only requests that name this machine.
pub(crate) fn read_only(routes: Router) -> Router {
    routes.layer(middleware::from_fn(async |request: Request, next: Next| {
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return next.run(request).await;
        }
        let error = "nothing is changed here: use the `trueup` commands, which ask the host's control socket";
        let refused = Refused(StatusCode::METHOD_NOT_ALLOWED, error.to_owned());
        ([(header::ALLOW, "GET, HEAD")], refused).into_response()
    }))
}

/// Like [`read_only`], for requests over TCP.
pub(crate) fn local(routes: Router) -> Router {
    routes.layer(middleware::from_fn(
        async |request: Request, next: Next| match check_host(request.headers()) {
            Ok(()) => next.run(request).await,
            Err(why) => Refused(StatusCode::FORBIDDEN, why).into_response(),
        },
    ))
}
