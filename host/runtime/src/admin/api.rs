//! `/v1/...`: everything the commands show, as JSON. Lists have a limit and say when they are cut.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Path as Of, State};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trueup_capabilities::audit;
use trueup_work::decisions;
use trueup_work::shadow;
use trueup_work::status::{KeyShown, KeyState, KeysShown, Status};
use trueup_work::swap::{GuestStatus, Manager, Revision};
use trueup_worlds::ipam::Shown;

use super::{Reads, status};
use crate::folders::folders_in;
use crate::http::{Answer, Params, Refused, off_thread};

/// The default number of keys, lines or journals in one answer.
const LIMIT: usize = 1_000;

/// The maximum number in one answer: a few megabytes.
const LIMIT_MAX: usize = 10_000;

pub(super) fn routes() -> Router<Arc<Reads>> {
    Router::new()
        .route("/", get(paths))
        .route("/v1/status", get(status_now))
        .route("/v1/keys", get(keys))
        .route("/v1/keys/{*key}", get(key))
        .route("/v1/guests", get(guests))
        .route("/v1/guests/{guest}/history", get(history))
        .route("/v1/guests/{guest}/shadow", get(shadow))
        .route("/v1/ipam", get(pods))
        .route("/v1/audit", get(audit_lines))
        .route("/v1/journals", get(journals))
}

/// The paths, for clients other than browsers that open the address without one.
const PATHS: &str = "/ui/                       recordings, as a page
/healthz /readyz           health; ?verbose shows every check
/metrics                   in Prometheus' text format
/v1/status                 everything at a glance
/v1/keys /v1/keys/KEY      keys; ?state= ?limit= ?after= ?guest=
/v1/guests                 guests; /v1/guests/NAME/history, /v1/guests/NAME/shadow
/v1/ipam                   pod addresses
/v1/audit                  the last lines of the audit log; ?limit=
/v1/journals               recordings; ?limit=
";

async fn paths(headers: HeaderMap) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok());
    if accepted.is_some_and(|accepted| accepted.contains("text/html")) {
        return Redirect::to("/ui").into_response();
    }
    let text = format!("trueup {}\n\n{PATHS}", env!("CARGO_PKG_VERSION"));
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

type Shared = State<Arc<Reads>>;

async fn status_now(State(reads): Shared) -> Json<Status> {
    Json(status::status(&reads))
}

/// Which part of a list the client wants.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Part {
    limit: Option<usize>,
    after: String,
    /// `trouble` selects every key with an error, in any state.
    state: Option<String>,
}

/// The pseudo-state of every key with an error.
const TROUBLE: &str = "trouble";

impl Part {
    fn limit(&self) -> Result<usize, Refused> {
        match self.limit.unwrap_or(LIMIT) {
            limit @ 1..=LIMIT_MAX => Ok(limit),
            limit => Err(Refused::bad_request(format!(
                "`limit` was {limit}, must be a whole number from 1 to {LIMIT_MAX}"
            ))),
        }
    }
}

async fn keys(State(reads): Shared, Params(part): Params<Part>) -> Answer<KeysShown> {
    let limit = part.limit()?;
    Ok(Json(match part.state.as_deref() {
        None => reads.host_status.keys(None, &part.after, limit),
        Some(TROUBLE) => reads.host_status.keys_in_trouble(&part.after, limit),
        Some(name) => {
            let state = name.parse().map_err(|_| {
                let known: Vec<_> = KeyState::ALL.iter().map(|state| state.name()).collect();
                let known = known.join(", ");
                Refused::bad_request(format!("`state` was `{name}`, must be one of {known}, or {TROUBLE}"))
            })?;
            reads.host_status.keys(Some(state), &part.after, limit)
        }
    }))
}

/// Selects the guest, if several guests have a key with that name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OfGuest {
    guest: Option<String>,
}

/// A `/` in a key may be escaped: `default%2Fweb`. The guest's name may precede the key: `lbaas/default/web`.
async fn key(State(reads): Shared, Of(key): Of<String>, Params(of): Params<OfGuest>) -> Answer<KeyShown> {
    Ok(Json(key_named(&reads, key, of.guest)?))
}

/// The key with that name, of that guest or of the only one that has it.
pub(crate) fn key_named(reads: &Reads, key: String, guest: Option<String>) -> Result<KeyShown, Refused> {
    let mut found: Vec<KeyShown> = match &guest {
        Some(guest) => reads.host_status.key(guest, &key).into_iter().collect(),
        None => reads.host_status.keys_named(&key),
    };
    if let (true, None, Some((guest, key))) = (found.is_empty(), &guest, key.split_once('/')) {
        found.extend(reads.host_status.key(guest, key));
    }
    if found.len() > 1 {
        let guests: Vec<String> = found.into_iter().map(|shown| shown.guest).collect();
        let guests = guests.join(", ");
        let why = format!("`{key}` is a key of several guests: name one with `?guest=`, of {guests}");
        return Err(Refused::bad_request(why));
    }
    found.pop().ok_or_else(|| {
        let known = reads.host_status.keys(None, "", LIMIT_MAX).keys.into_iter();
        let known: Vec<String> = known.map(|shown| shown.key).collect();
        let offered = match decisions::nearest(&key, &known).join(", ") {
            none if none.is_empty() => none,
            near => format!("; did you mean {near}?"),
        };
        Refused::not_found(format!("no key `{key}` is known to this host{offered}"))
    })
}

/// The manager, which does not exist until the guests are loaded.
fn manager(reads: &Reads) -> Result<&Arc<Manager>, Refused> {
    let manager = reads.manager.get();
    manager.ok_or_else(|| Refused::unavailable("the guests are not loaded yet"))
}

async fn guests(State(reads): Shared) -> Answer<Vec<GuestStatus>> {
    Ok(Json(manager(&reads)?.statuses()))
}

async fn history(State(reads): Shared, Of(guest): Of<String>) -> Answer<Vec<Revision>> {
    Ok(Json(manager(&reads)?.history(&guest)?))
}

async fn shadow(State(reads): Shared, Of(guest): Of<String>) -> Answer<shadow::Status> {
    Ok(Json(manager(&reads)?.shadow_status(&guest)?))
}

async fn pods(State(reads): Shared) -> Answer<Shown> {
    let Some(socket) = &reads.pods_socket else {
        return Err(Refused::not_found("this host gives no pod addresses"));
    };
    let shown = trueup_worlds::ipam::show(socket, None).await;
    Ok(Json(shown.map_err(Refused::unavailable)?))
}

/// Reads files on a blocking thread, a few requests at once.
async fn slowly<T: Send + 'static>(reads: &Reads, read: impl FnOnce() -> T + Send + 'static) -> Result<T, Refused> {
    let permit = Arc::clone(&reads.slow).acquire_owned().await;
    let permit = permit.map_err(Refused::internal)?;
    off_thread(move || {
        let _permit = permit;
        read()
    })
    .await
}

/// The last lines of the audit log.
#[derive(Serialize)]
struct AuditShown {
    /// Oldest first.
    lines: VecDeque<audit::Line>,
    /// The number of lines in the log.
    count: u64,
    /// Whether every byte of the log is unmodified.
    whole: bool,
}

async fn audit_lines(State(reads): Shared, Params(part): Params<Part>) -> Answer<AuditShown> {
    let limit = part.limit()?;
    let folder = reads.host_status.facts().state_dir.join("audit");
    slowly(&reads, move || {
        let mut lines = VecDeque::new();
        let walked = audit::walk(&folder, |line| {
            if lines.len() == limit {
                lines.pop_front();
            }
            lines.push_back(line);
        });
        let failed = |error| Refused::internal(format_args!("{:#}", anyhow::Error::from(error)));
        let verdict = walked.map_err(failed)?;
        let count = verdict.lines;
        let whole = verdict.is_whole();
        Ok(Json(AuditShown { lines, count, whole }))
    })
    .await?
}

async fn journals(State(reads): Shared, Params(part): Params<Part>) -> Answer<Value> {
    let limit = part.limit()?;
    let folder = reads.host_status.facts().state_dir.join("journals");
    Ok(Json(slowly(&reads, move || listed(&folder, limit)).await?))
}

/// The first journals, sorted by guest and instance, and whether there are more. A folder that is missing or disappears
/// counts as empty.
fn listed(folder: &Path, limit: usize) -> Value {
    let guests = folders_in(folder).unwrap_or_default();
    let mut instances = guests.iter().flat_map(|guest| folders_in(guest).unwrap_or_default());
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let shown = |path: PathBuf| {
        let files = std::fs::read_dir(&path).into_iter().flatten().flatten();
        let sizes: Vec<u64> = files.filter_map(|file| Some(file.metadata().ok()?.len())).collect();
        json!({
            "guest": path.parent().map(name),
            // The escaped key, such as `default%2Fweb`.
            "instance": name(&path),
            "path": path.display().to_string(),
            "files": sizes.len(),
            "bytes": sizes.iter().sum::<u64>(),
        })
    };
    let journals: Vec<Value> = instances.by_ref().take(limit).map(shown).collect();
    json!({ "journals": journals, "more": instances.next().is_some() })
}
