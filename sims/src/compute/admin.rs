//! The paths that tests use beside those of all servers. They need no token.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::calls::Compute;
use super::endpoint;
use super::neg::{Neg, NegSpec};
use super::operation::{Failure, Operation};
use super::refusal::Refusal;
use super::target::Zone;
use crate::base::admin::Body;
use crate::base::pipeline::{Pipeline, Service as _, now_ms};

pub(super) fn routes() -> Router<Arc<Pipeline<Compute>>> {
    Router::new()
        .route("/negs", get(get_negs))
        .route("/operations", get(get_operations).delete(forget_operations))
        .route("/settings", patch(patch_settings))
        .route("/behind", post(post_behind))
}

type Shared = State<Arc<Pipeline<Compute>>>;

/// Every NEG with its endpoints.
async fn get_negs(State(pipeline): Shared) -> Result<Json<Value>, Refusal> {
    let world = &pipeline.settled()?.world;
    let negs = world.negs.iter().map(|(path, neg)| {
        let endpoints: Vec<_> = neg.endpoints.values().map(|endpoint| endpoint.json(false)).collect();
        (path.clone(), json!({"id": neg.id, "endpoints": endpoints}))
    });
    let negs: Map<String, Value> = negs.collect();
    Ok(Json(json!({"negs": negs, "operations_pending": world.pending.len()})))
}

/// The ledger: every operation ever begun, in the order of arrival.
async fn get_operations(State(pipeline): Shared) -> Result<Json<Vec<Value>>, Refusal> {
    let compute = pipeline.settled()?;
    let ledger = compute.world.operations.values().map(Operation::ledger);
    Ok(Json(ledger.collect()))
}

/// Makes the API forget the finished operations.
async fn forget_operations(State(pipeline): Shared) -> Result<Json<Value>, Refusal> {
    let mut compute = pipeline.settled()?;
    let operations = compute.world.operations.values_mut();
    let finished = operations.filter(|operation| operation.is_done && !operation.is_forgotten);
    let forgotten = finished.map(|operation| operation.is_forgotten = true).count();
    compute.save()?;
    compute.changed.notify_waiters();
    Ok(Json(json!({"forgotten": forgotten})))
}

/// The settings that can change while the server runs. A missing one stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    operation_ms: Option<u64>,
    endpoints_max: Option<u32>,
}

async fn patch_settings(State(pipeline): Shared, body: Body<Changes>) -> Result<StatusCode, Refusal> {
    let Json(changes) = body?;
    let config = &mut pipeline.settled()?.config;
    config.operation_ms = changes.operation_ms.unwrap_or(config.operation_ms);
    config.endpoints_max = changes.endpoints_max.or(config.endpoints_max);
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
    let path = zone.neg_path(&behind.neg);
    let missing = || Refusal::no_resource(&path);
    if behind.delete {
        compute.world.negs.remove(&path).ok_or_else(missing)?;
    }
    if let Some(body) = &behind.insert {
        let spec = NegSpec::read(&zone, body)?;
        if spec.name != behind.neg {
            return Err(Refusal::invalid("`insert` has another name than `neg`"));
        }
        let neg = Neg::new(compute.world.next_id(), now_ms(), spec);
        compute.world.negs.insert(path.clone(), neg);
    }
    if !behind.remove.is_empty() || !behind.add.is_empty() {
        let neg = compute.world.negs.get_mut(&path).ok_or_else(missing)?;
        let remove = endpoint::read_list(&behind.remove, neg.spec.kind)?;
        let add = endpoint::read_list(&behind.add, neg.spec.kind)?;
        let impossible = |failure: Failure| Refusal::invalid(failure.message);
        neg.detach(&remove).map_err(impossible)?;
        neg.attach(&add).map_err(impossible)?;
    }
    compute.save()?;
    Ok(StatusCode::NO_CONTENT)
}
