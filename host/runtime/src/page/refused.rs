//! Why a request has no answer.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Why there is no answer, in one line.
pub(super) struct Refused(pub(super) StatusCode, pub(super) String);

impl Refused {
    pub(super) fn not_found(why: String) -> Self {
        Self(StatusCode::NOT_FOUND, why)
    }
}

/// Something that cannot be read any more.
impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self(StatusCode::CONFLICT, why)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Failure {
            error: String,
        }
        (self.0, Json(Failure { error: self.1 })).into_response()
    }
}

/// Reads files on a blocking thread.
pub(super) async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refused> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}
