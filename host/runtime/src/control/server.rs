//! The server of the control socket: every read, and every change.

use std::path::Path;
use std::sync::Arc;

use axum::extract::{FromRequest, Path as Of, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use trueup_registry::Reference;
use trueup_work::board::Standing;
use trueup_work::kind::SetErrorState;
use trueup_work::setup::SetupError;
use trueup_work::socket::Place;
use trueup_work::swap::{Candidate, ManageError, Manager};

use super::{Approve, Approved, ErrorState, Promote, Reconcile, Rollback, StartShadow, Swap};
use crate::admin::{self, OwnUser, Reads, answer, failed};

/// A body consists of a few short texts.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The locked and bound socket.
pub(crate) struct Control {
    listener: UnixListener,
    /// Removes the socket file when the host exits.
    _place: Place,
}

/// Listens in a state folder.
///
/// # Errors
/// If the socket cannot be bound.
pub(crate) async fn listen(state_dir: &Path) -> Result<Control, SetupError> {
    let mut place = Place::take(&super::socket(state_dir)).await?;
    Ok(Control {
        listener: place.listen()?,
        _place: place,
    })
}

/// Serves until dropped.
pub(crate) async fn serve(
    control: Control,
    manager: Arc<Manager>,
    reads: Arc<Reads>,
    error_states: Option<mpsc::Sender<SetErrorState>>,
) {
    let changes = Router::new()
        .route("/v1/guests/{guest}/swap", post(swap))
        .route("/v1/guests/{guest}/rollback", post(rollback))
        .route("/v1/guests/{guest}/shadow", post(shadow_start).delete(shadow_stop))
        .route("/v1/guests/{guest}/shadow/promote", post(promote))
        .with_state(Arc::clone(&manager))
        .merge(
            Router::new()
                .route("/v1/approve", post(approve))
                .route("/v1/reconcile", post(reconcile))
                .with_state((manager, Arc::clone(&reads))),
        )
        .merge(
            Router::new()
                .route("/v1/negs/error-state", post(error_state))
                .with_state(error_states),
        )
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX));
    let routes = admin::secured(admin::complete(admin::routes(&reads).merge(changes)));
    let listener = OwnUser(control.listener);
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!("the control socket serves no more: {error}");
    }
}

/// A JSON body. Errors in it are reported in the common format.
struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => Err(failed(rejection.status(), rejection.body_text())),
        }
    }
}

fn reference(text: &str) -> Result<Reference, Box<Response>> {
    Reference::configured(text, Path::new("/")).map_err(|reason| {
        Box::new(failed(
            StatusCode::BAD_REQUEST,
            format!("use: was \"{text}\", {reason}"),
        ))
    })
}

async fn swap(State(manager): State<Arc<Manager>>, Of(guest): Of<String>, Body(body): Body<Swap>) -> Response {
    let candidate = match reference(&body.reference) {
        Ok(reference) => Candidate {
            reference,
            gate: body.gate,
            dry_run: body.dry_run,
            afresh: body.afresh,
        },
        Err(response) => return *response,
    };
    done(async move { manager.swap(&guest, candidate).await }).await
}

async fn rollback(State(manager): State<Arc<Manager>>, Of(guest): Of<String>, Body(body): Body<Rollback>) -> Response {
    done(async move { manager.rollback(&guest, body.to).await }).await
}

async fn shadow_start(
    State(manager): State<Arc<Manager>>,
    Of(guest): Of<String>,
    Body(body): Body<StartShadow>,
) -> Response {
    let reference = match reference(&body.reference) {
        Ok(reference) => reference,
        Err(response) => return *response,
    };
    let (strict, afresh) = (body.strict, body.afresh);
    done(async move { manager.shadow_start(&guest, &reference, strict, afresh).await }).await
}

async fn shadow_stop(State(manager): State<Arc<Manager>>, Of(guest): Of<String>) -> Response {
    answer(manager.shadow_stop(&guest))
}

async fn promote(State(manager): State<Arc<Manager>>, Of(guest): Of<String>, Body(body): Body<Promote>) -> Response {
    done(async move { manager.promote(&guest, body.after).await }).await
}

async fn approve(State((manager, reads)): State<(Arc<Manager>, Arc<Reads>)>, Body(body): Body<Approve>) -> Response {
    if let Standing::Standby { leader } = reads.board.standing() {
        let leads = leader.map_or_else(
            || "no host is known to lead".to_owned(),
            |leader| format!("`{leader}` leads: approve it there"),
        );
        let why = format!("this host is a standby, where nothing waits for an approval; {leads}");
        return failed(StatusCode::CONFLICT, why);
    }
    let approved = manager.approve(body.guest.as_deref());
    let shown = |(guest, waiting)| Approved { guest, waiting };
    answer(approved.map(|all| all.into_iter().map(shown).collect::<Vec<_>>()))
}

async fn reconcile(
    State((manager, reads)): State<(Arc<Manager>, Arc<Reads>)>,
    Body(Reconcile { key, guest }): Body<Reconcile>,
) -> Result<Response, Response> {
    let found = admin::api::key_named(&reads, key, guest)?;
    if let Err(error) = manager.reconcile(&found.guest, &found.key).await {
        return Ok(answer(Err::<(), _>(error)));
    }
    // As it is now: queued, or in work.
    let now = reads.board.key(&found.guest, &found.key).unwrap_or(found);
    Ok(Json(now).into_response())
}

async fn error_state(
    State(error_states): State<Option<mpsc::Sender<SetErrorState>>>,
    Body(ErrorState { key, on }): Body<ErrorState>,
) -> Response {
    let Some(error_states) = error_states else {
        return failed(
            StatusCode::NOT_FOUND,
            "this host has no NEGs: its configuration has no [guests.neg]".to_owned(),
        );
    };
    let (reply, replied) = oneshot::channel();
    let wish = SetErrorState {
        key: key.clone(),
        on,
        reply,
    };
    let stopping = || {
        failed(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the host stops: nothing was set".to_owned(),
        )
    };
    if error_states.send(wish).await.is_err() {
        return stopping();
    }
    match replied.await {
        Ok(Ok(())) => Json(ErrorState { key, on }).into_response(),
        Ok(Err(error)) => failed(StatusCode::NOT_FOUND, error),
        Err(_) => stopping(),
    }
}

/// Runs a change to its end, even if the client disconnects.
async fn done<T: Serialize + Send + 'static>(
    change: impl Future<Output = Result<T, ManageError>> + Send + 'static,
) -> Response {
    match tokio::spawn(change).await {
        Ok(done) => answer(done),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, format!("it ended badly: {error}")),
    }
}
