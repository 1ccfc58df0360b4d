//! The paths beside the API for tests and judges. They need no token.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::Changes;
use super::door::Door;
use super::endpoint::{self, Endpoint, NegType};
use super::faults::Fault;
use super::neg::Wish;
use super::operation::Failure;
use super::refusal::Refusal;
use super::target::Zone;
use super::traffic::Counters;
use super::world::World;
use crate::local_only::for_this_machine;

/// The routes.
pub(super) fn routes() -> Router<Arc<Door>> {
    Router::new()
        .route("/state", get(get_state).put(put_state))
        .route("/negs", get(get_negs))
        .route("/operations", get(get_operations).delete(forget_operations))
        .route("/requests", get(get_requests).delete(delete_requests))
        .route("/faults", get(get_faults).post(post_fault).delete(delete_faults))
        .route("/settings", patch(patch_settings).get(get_settings))
        .route("/behind", post(post_behind))
        .route_layer(middleware::from_fn(for_this_machine))
}

type Body<T> = Result<Json<T>, JsonRejection>;

async fn get_state(State(door): State<Arc<Door>>) -> Result<Json<World>, Refusal> {
    let mut inside = door.inside();
    inside.settle(door.clock.now_ms())?;
    Ok(Json(inside.world.clone()))
}

async fn put_state(State(door): State<Arc<Door>>, body: Body<World>) -> Result<StatusCode, Refusal> {
    let Json(world) = body?;
    let mut inside = door.inside();
    inside.world = world;
    inside.save()?;
    door.changed.notify_waiters();
    Ok(StatusCode::NO_CONTENT)
}

/// Every NEG with its current endpoints.
async fn get_negs(State(door): State<Arc<Door>>) -> Result<Json<Value>, Refusal> {
    let mut inside = door.inside();
    inside.settle(door.clock.now_ms())?;
    Ok(Json(inside.world.overview()))
}

/// The ledger: every operation so far, in the order of arrival.
async fn get_operations(State(door): State<Arc<Door>>) -> Result<Json<Vec<Value>>, Refusal> {
    let mut inside = door.inside();
    inside.settle(door.clock.now_ms())?;
    let ledger = inside.world.operations().map(|operation| operation.ledger());
    Ok(Json(ledger.collect()))
}

/// Makes the API forget the finished operations.
async fn forget_operations(State(door): State<Arc<Door>>) -> Result<Json<Value>, Refusal> {
    let forgotten = {
        let mut inside = door.inside();
        inside.settle(door.clock.now_ms())?;
        let forgotten = inside.world.forget();
        inside.save()?;
        forgotten
    };
    door.changed.notify_waiters();
    Ok(Json(json!({"forgotten": forgotten})))
}

async fn get_requests(State(door): State<Arc<Door>>) -> Json<Counters> {
    Json(door.traffic().counters.clone())
}

async fn delete_requests(State(door): State<Arc<Door>>) -> StatusCode {
    door.traffic().counters = Counters::default();
    StatusCode::NO_CONTENT
}

async fn get_faults(State(door): State<Arc<Door>>) -> Json<Vec<Fault>> {
    Json(door.inside().faults.left().to_vec())
}

async fn post_fault(State(door): State<Arc<Door>>, body: Body<Fault>) -> Result<StatusCode, Refusal> {
    let Json(fault) = body?;
    door.inside().faults.add(fault);
    Ok(StatusCode::CREATED)
}

async fn delete_faults(State(door): State<Arc<Door>>) -> StatusCode {
    door.inside().faults.clear();
    StatusCode::NO_CONTENT
}

async fn get_settings(State(door): State<Arc<Door>>) -> Json<Changes> {
    Json(Changes::from(&door.inside().config))
}

async fn patch_settings(State(door): State<Arc<Door>>, body: Body<Changes>) -> Result<Json<Changes>, Refusal> {
    let Json(changes) = body?;
    let answer = {
        let mut inside = door.inside();
        inside.settle(door.clock.now_ms())?;
        inside.config = inside.config.changed(changes).map_err(Refusal::invalid)?;
        Changes::from(&inside.config)
    };
    door.changed.notify_waiters();
    Ok(Json(answer))
}

/// A foreign change of a NEG, immediate and without an operation.
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

async fn post_behind(State(door): State<Arc<Door>>, body: Body<Behind>) -> Result<StatusCode, Refusal> {
    let Json(behind) = body?;
    let now_ms = door.clock.now_ms();
    let mut inside = door.inside();
    inside.settle(now_ms)?;
    let zone = Zone {
        project: behind.project,
        zone: behind.zone,
    };
    let missing = || Refusal::not_found(&zone.neg_path(&behind.neg));
    if behind.delete && !inside.world.delete_neg(&zone, &behind.neg) {
        return Err(missing());
    }
    if let Some(body) = &behind.insert {
        let wish = Wish::read(&zone, body)?;
        if wish.name != behind.neg {
            return Err(Refusal::invalid("`insert` has another name than `neg`"));
        }
        inside.world.put_neg(&zone, wish, now_ms);
    }
    if !behind.remove.is_empty() || !behind.add.is_empty() {
        let neg = inside.world.neg_mut(&zone, &behind.neg).ok_or_else(missing)?;
        let remove = read_all(&behind.remove, neg.wish.kind)?;
        let add = read_all(&behind.add, neg.wish.kind)?;
        let impossible = |failure: Failure| Refusal::invalid(failure.message);
        neg.detach(&remove).map_err(impossible)?;
        neg.attach(&add).map_err(impossible)?;
    }
    inside.save()?;
    Ok(StatusCode::NO_CONTENT)
}

fn read_all(sent: &[Value], kind: NegType) -> Result<Vec<Endpoint>, Refusal> {
    let read = |(index, sent)| endpoint::read(index, sent, kind);
    sent.iter().enumerate().map(read).collect()
}
