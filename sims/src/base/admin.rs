//! The paths that tests use beside the API. They need no token.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use trueup_base::local_only::for_this_machine;

use super::faults::{Fault, Faults};
use super::pipeline::{Counters, Pipeline, Service};
use super::refusal::Refusal;

/// A replaced state takes a few hundred bytes for each object, and may hold hundreds of thousands of them.
const STATE_BYTES_MAX: usize = 1 << 28;

type Shared<S> = State<Arc<Pipeline<S>>>;
/// The JSON of a request, or why it has none.
pub(crate) type Body<T> = Result<Json<T>, JsonRejection>;

pub(crate) fn routes<S: Service>() -> Router<Arc<Pipeline<S>>> {
    let faults = get(get_faults::<S>).post(post_fault::<S>).delete(delete_faults::<S>);
    Router::new()
        .route("/state", get(get_state::<S>).put(put_state::<S>))
        .route("/requests", get(get_requests::<S>).delete(delete_requests::<S>))
        .route("/faults", faults)
        .merge(S::admin_routes())
        .route_layer(middleware::from_fn(for_this_machine))
        .layer(DefaultBodyLimit::max(STATE_BYTES_MAX))
}

async fn get_state<S: Service>(State(pipeline): Shared<S>) -> Result<Json<S::State>, Refusal> {
    Ok(Json(pipeline.settled()?.state()))
}

async fn put_state<S: Service>(State(pipeline): Shared<S>, body: Body<S::State>) -> Result<StatusCode, Refusal> {
    let Json(state) = body?;
    pipeline.service().replace(state)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn get_requests<S: Service>(State(pipeline): Shared<S>) -> Response {
    Json(&pipeline.traffic().counters).into_response()
}

async fn delete_requests<S: Service>(State(pipeline): Shared<S>) -> StatusCode {
    let counters = &mut pipeline.traffic().counters;
    // Requests in flight stay known.
    *counters = Counters {
        requests_in_flight: counters.requests_in_flight,
        ..Counters::default()
    };
    StatusCode::NO_CONTENT
}

async fn get_faults<S: Service>(State(pipeline): Shared<S>) -> Response {
    Json(&pipeline.service().common().faults).into_response()
}

/// Everything due has settled before the new fault applies.
async fn post_fault<S: Service>(State(pipeline): Shared<S>, body: Body<Fault>) -> Result<StatusCode, Refusal> {
    let Json(fault) = body?;
    pipeline.settled()?.common().faults.add(fault);
    Ok(StatusCode::CREATED)
}

async fn delete_faults<S: Service>(State(pipeline): Shared<S>) -> Result<StatusCode, Refusal> {
    pipeline.settled()?.common().faults = Faults::new(Vec::new());
    Ok(StatusCode::NO_CONTENT)
}
