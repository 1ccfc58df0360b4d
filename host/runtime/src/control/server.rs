//! The server of the control socket: every read, and every change.

use std::path::Path;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path as Of, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use tokio::sync::{mpsc, oneshot};
use trueup_registry::Reference;
use trueup_work::kind::SetErrorState;
use trueup_work::shadow::Status;
use trueup_work::status::{KeyShown, Role};
use trueup_work::swap::{Activated, Candidate, ManageError, Manager, Promotion};

use super::{Approve, Approved, ErrorState, Promote, Reconcile, Rollback, StartShadow, Swap};
use crate::admin::{self, OwnUser, Reads};
use crate::http::{self, Answer, Body, Refused};

/// A body consists of a few short texts.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What requests change.
struct Host {
    manager: Arc<Manager>,
    reads: Arc<Reads>,
    error_states: ErrorStates,
}

/// Takes error states of NEGs. `None`: the host has no NEGs.
type ErrorStates = Option<mpsc::Sender<SetErrorState>>;

type Shared = State<Arc<Host>>;

/// Serves until dropped.
pub(crate) async fn serve(listener: OwnUser, manager: Arc<Manager>, reads: Arc<Reads>, error_states: ErrorStates) {
    let reading = admin::routes(&reads);
    let changes = Router::new()
        .route("/v1/approve", post(approve))
        .route("/v1/guests/{guest}/swap", post(swap))
        .route("/v1/guests/{guest}/rollback", post(rollback))
        .route("/v1/guests/{guest}/shadow", post(shadow_start).delete(shadow_stop))
        .route("/v1/guests/{guest}/shadow/promote", post(promote))
        .route("/v1/reconcile", post(reconcile))
        .route("/v1/negs/error-state", post(error_state))
        .with_state(Arc::new(Host {
            manager,
            reads,
            error_states,
        }))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    let routes = http::secured(http::complete(reading.merge(changes)));
    admin::serve_own_user("the control socket", listener, routes).await;
}

fn reference(text: &str) -> Result<Reference, Refused> {
    let wrong = |reason| Refused::bad_request(format!("use: was \"{text}\", {reason}"));
    Reference::configured(text, Path::new("/")).map_err(wrong)
}

async fn swap(State(host): Shared, Of(guest): Of<String>, Body(body): Body<Swap>) -> Answer<Activated> {
    let candidate = Candidate {
        reference: reference(&body.reference)?,
        gate: body.gate,
        dry_run: body.dry_run,
        afresh: body.afresh,
    };
    done(async move { host.manager.swap(&guest, candidate).await }).await
}

async fn rollback(State(host): Shared, Of(guest): Of<String>, Body(body): Body<Rollback>) -> Answer<Activated> {
    done(async move { host.manager.rollback(&guest, body.to).await }).await
}

async fn shadow_start(State(host): Shared, Of(guest): Of<String>, Body(body): Body<StartShadow>) -> Answer<Status> {
    let reference = reference(&body.reference)?;
    done(async move {
        host.manager
            .shadow_start(&guest, &reference, body.strict, body.afresh)
            .await
    })
    .await
}

async fn shadow_stop(State(host): Shared, Of(guest): Of<String>) -> Answer<Status> {
    Ok(Json(host.manager.shadow_stop(&guest)?))
}

async fn promote(State(host): Shared, Of(guest): Of<String>, Body(body): Body<Promote>) -> Answer<Promotion> {
    done(async move { host.manager.promote(&guest, body.after).await }).await
}

async fn approve(State(host): Shared, Body(body): Body<Approve>) -> Answer<Vec<Approved>> {
    let approved = host.manager.approve(body.guest.as_deref())?;
    if approved.is_empty() {
        for_the_leader(&host, "nothing waits for an approval")?;
    }
    let shown = approved.into_iter().map(|(guest, waiting)| Approved { guest, waiting });
    Ok(Json(shown.collect()))
}

async fn reconcile(State(host): Shared, Body(body): Body<Reconcile>) -> Answer<KeyShown> {
    let found = admin::api::key_named(&host.reads, body.key, body.guest)?;
    if !host.reads.host_status.acts(&found.guest) {
        for_the_leader(&host, "no key is reconciled")?;
    }
    host.manager.reconcile(&found.guest, &found.key).await?;
    // As it is now: queued, or in work.
    let now = host.reads.host_status.key(&found.guest, &found.key);
    Ok(Json(now.unwrap_or(found)))
}

async fn error_state(State(host): Shared, Body(body): Body<ErrorState>) -> Answer<ErrorState> {
    let Some(error_states) = &host.error_states else {
        let why = "this host has no NEGs: its configuration has no [guests.neg]";
        return Err(Refused::not_found(why));
    };
    let (reply, replied) = oneshot::channel();
    let key = body.key.clone();
    let on = body.on;
    let stopping = || Refused::internal("the host stops: nothing was set");
    let sent = error_states.send(SetErrorState { key, on, reply }).await;
    sent.map_err(|_| stopping())?;
    let set = replied.await.map_err(|_| stopping())?;
    set.map_err(Refused::not_found)?;
    let outcome = if on { "on" } else { "off" };
    host.manager.audit("neg", "error-state", &body.key, outcome);
    Ok(Json(body))
}

/// Refuses what the host that leads alone can do.
fn for_the_leader(host: &Host, why_not: &str) -> Result<(), Refused> {
    let (Role::Standby, leader) = host.reads.host_status.role() else {
        return Ok(());
    };
    let leads = match leader {
        None => "no host is known to lead".to_owned(),
        Some(leader) => format!("`{leader}` leads: ask it"),
    };
    let why = format!("this host is a standby, where {why_not}; {leads}");
    Err(Refused(StatusCode::CONFLICT, why))
}

/// Runs a change to its end, even if the client disconnects.
async fn done<T: Send + 'static>(change: impl Future<Output = Result<T, ManageError>> + Send + 'static) -> Answer<T> {
    match tokio::spawn(change).await {
        Ok(done) => Ok(Json(done?)),
        Err(error) => Err(Refused::internal(format_args!("it ended badly: {error}"))),
    }
}
