//! The paths that tests use beside those of all servers. They need no token.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::Changes;
use super::endpoint::{self, Endpoint, NegType};
use super::neg::NegSpec;
use super::operation::Failure;
use super::refusal::Refusal;
use super::service::Compute;
use super::target::Zone;
use crate::base::pipeline::{Pipeline, now_ms};

pub(super) fn routes() -> Router<Arc<Pipeline<Compute>>> {
    Router::new()
        .route("/negs", get(get_negs))
        .route("/operations", get(get_operations).delete(forget_operations))
        .route("/settings", patch(patch_settings))
        .route("/behind", post(post_behind))
}

type Shared = State<Arc<Pipeline<Compute>>>;
type Body<T> = Result<Json<T>, JsonRejection>;

/// Every NEG with its endpoints.
async fn get_negs(State(pipeline): Shared) -> Result<Json<Value>, Refusal> {
    Ok(Json(pipeline.settled()?.world.overview()))
}

/// The ledger: every operation ever begun, in the order of arrival.
async fn get_operations(State(pipeline): Shared) -> Result<Json<Vec<Value>>, Refusal> {
    let compute = pipeline.settled()?;
    let ledger = compute.world.operations().map(|operation| operation.ledger());
    Ok(Json(ledger.collect()))
}

/// Makes the API forget the finished operations.
async fn forget_operations(State(pipeline): Shared) -> Result<Json<Value>, Refusal> {
    let mut compute = pipeline.settled()?;
    let forgotten = compute.world.forget_finished();
    compute.save()?;
    compute.changed.notify_waiters();
    Ok(Json(json!({"forgotten": forgotten})))
}

async fn patch_settings(State(pipeline): Shared, body: Body<Changes>) -> Result<StatusCode, Refusal> {
    let Json(changes) = body?;
    pipeline.settled()?.config.change(changes);
    Ok(StatusCode::NO_CONTENT)
}

/// What another client does to a NEG, at once and without an operation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Behind {
    project: String,
    zone: String,
    /// The NEG's name.
    neg: String,
    /// Deletes the NEG first.
    #[serde(default)]
    delete: bool,
    /// Then creates it: the body of an insertion.
    insert: Option<Value>,
    /// Then detaches these.
    #[serde(default)]
    remove: Vec<Value>,
    /// Then attaches these.
    #[serde(default)]
    add: Vec<Value>,
}

async fn post_behind(State(pipeline): Shared, body: Body<Behind>) -> Result<StatusCode, Refusal> {
    let Json(behind) = body?;
    let mut compute = pipeline.settled()?;
    let zone = Zone {
        project: behind.project,
        zone: behind.zone,
    };
    let missing = || Refusal::no_resource(&zone.neg_path(&behind.neg));
    if behind.delete && !compute.world.delete_neg(&zone, &behind.neg) {
        return Err(missing());
    }
    if let Some(body) = &behind.insert {
        let spec = NegSpec::read(&zone, body)?;
        if spec.name != behind.neg {
            return Err(Refusal::invalid("`insert` has another name than `neg`"));
        }
        let now_ms = now_ms();
        compute.world.put_neg(&zone, spec, now_ms);
    }
    if !behind.remove.is_empty() || !behind.add.is_empty() {
        let neg = compute.world.neg_mut(&zone, &behind.neg).ok_or_else(missing)?;
        let remove = read_all(&behind.remove, neg.spec.kind)?;
        let add = read_all(&behind.add, neg.spec.kind)?;
        let impossible = |failure: Failure| Refusal::invalid(failure.message);
        neg.detach(&remove).map_err(impossible)?;
        neg.attach(&add).map_err(impossible)?;
    }
    compute.save()?;
    Ok(StatusCode::NO_CONTENT)
}

fn read_all(sent: &[Value], kind: NegType) -> Result<Vec<Endpoint>, Refusal> {
    let read = |(index, sent)| endpoint::read(index, sent, kind);
    sent.iter().enumerate().map(read).collect()
}
