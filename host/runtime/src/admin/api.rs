//! `/v1/...`: everything the commands show, as JSON. Lists have a limit and say when they are cut.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path as Of, Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use trueup_capabilities::audit;
use trueup_work::board::{KeyShown, KeyState};
use trueup_work::decisions::{self, ExplainError, Wanted};
use trueup_work::swap::Manager;

use super::{Reads, answer, failed, status};

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
        .route("/v1/explain/{*key}", get(explain))
        .route("/v1/guests", get(guests))
        .route("/v1/guests/{guest}/history", get(history))
        .route("/v1/guests/{guest}/shadow", get(shadow))
        .route("/v1/ipam", get(pods))
        .route("/v1/audit", get(audit_lines))
        .route("/v1/journals", get(journals))
        .route("/v1/config", get(config))
}

/// The paths, for clients other than browsers that open the address without one.
const PATHS: &str = "/ui/                       recordings, as a page
/healthz /readyz           health; ?verbose shows every check
/metrics                   in Prometheus' text format
/v1/status                 everything at a glance
/v1/keys /v1/keys/KEY      keys; ?state= ?limit= ?after= ?guest=
/v1/explain/KEY            why what was done about a key was done; ?guest= ?last= ?decision=
/v1/guests                 guests; /v1/guests/NAME/history, /v1/guests/NAME/shadow
/v1/ipam                   pod addresses
/v1/audit                  the last lines of the audit log; ?limit=
/v1/journals               recordings; ?limit=
/v1/config                 the configuration in force
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

async fn status_now(State(reads): Shared) -> Response {
    Json(status::status(&reads)).into_response()
}

async fn config(State(reads): Shared) -> Response {
    Json(&reads.config).into_response()
}

/// An answer to an invalid query.
fn misused(error: impl Into<String>) -> Response {
    failed(StatusCode::BAD_REQUEST, error.into())
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
    #[expect(clippy::result_large_err, reason = "it is answered at once")]
    fn limit(&self) -> Result<usize, Response> {
        match self.limit {
            None => Ok(LIMIT),
            Some(limit @ 1..=LIMIT_MAX) => Ok(limit),
            Some(limit) => Err(misused(format!(
                "`limit` was {limit}, must be a whole number from 1 to {LIMIT_MAX}"
            ))),
        }
    }
}

/// A query, or what is invalid about it.
type Asked = Result<Query<Part>, QueryRejection>;

#[expect(clippy::result_large_err, reason = "it is answered at once")]
fn part(asked: Asked) -> Result<(Part, usize), Response> {
    let Query(part) = asked.map_err(|rejection| misused(rejection.body_text()))?;
    let limit = part.limit()?;
    Ok((part, limit))
}

async fn keys(State(reads): Shared, asked: Asked) -> Result<Response, Response> {
    let (part, limit) = part(asked)?;
    let keys = match part.state.as_deref() {
        None => reads.board.keys(None, &part.after, limit),
        Some(TROUBLE) => reads.board.keys_in_trouble(&part.after, limit),
        Some(name) => {
            let state = KeyState::named(name).ok_or_else(|| {
                let known = KeyState::ALL.map(KeyState::name).join(", ");
                misused(format!("`state` was `{name}`, must be one of {known}, or {TROUBLE}"))
            })?;
            reads.board.keys(Some(state), &part.after, limit)
        }
    };
    Ok(Json(keys).into_response())
}

/// Selects the guest, if several guests have a key with that name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Whose {
    guest: Option<String>,
}

/// A `/` in a key may be escaped: `default%2Fweb`. The guest's name may precede the key: `lbaas/default/web`.
async fn key(
    State(reads): Shared,
    Of(key): Of<String>,
    asked: Result<Query<Whose>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(Whose { guest }) = asked.map_err(|rejection| misused(rejection.body_text()))?;
    Ok(Json(key_named(&reads, key, guest)?).into_response())
}

/// The key with that name, of that guest or of the only one that has it.
#[expect(clippy::result_large_err, reason = "it is answered at once")]
pub(crate) fn key_named(reads: &Reads, key: String, guest: Option<String>) -> Result<KeyShown, Response> {
    let mut found: Vec<KeyShown> = match &guest {
        Some(guest) => reads.board.key(guest, &key).into_iter().collect(),
        None => reads.board.keys_named(&key),
    };
    if let (true, None, Some((guest, key))) = (found.is_empty(), &guest, key.split_once('/')) {
        found.extend(reads.board.key(guest, key));
    }
    if found.len() > 1 {
        let guests: Vec<&str> = found.iter().map(|shown| shown.guest.as_str()).collect();
        let guests = guests.join(", ");
        return Err(misused(format!(
            "`{key}` is a key of several guests: name one with `?guest=`, of {guests}"
        )));
    }
    let unknown = || failed(StatusCode::NOT_FOUND, format!("no key `{key}` is known to this host"));
    found.pop().ok_or_else(unknown)
}

/// Selects what to explain about a key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Why {
    /// The guest that owns the key. If absent: the only guest that has decided about it.
    guest: Option<String>,
    /// How many of the last jobs.
    last: usize,
    /// If present: the job of this decision instead.
    decision: Option<u64>,
}

impl Default for Why {
    fn default() -> Self {
        Self {
            guest: None,
            last: 1,
            decision: None,
        }
    }
}

async fn explain(
    State(reads): Shared,
    Of(key): Of<String>,
    asked: Result<Query<Why>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(Why { guest, last, decision }) = asked.map_err(|rejection| misused(rejection.body_text()))?;
    if last > LIMIT {
        return Err(misused(format!(
            "`last` was {last}, must be a whole number up to {LIMIT}"
        )));
    }
    let state_dir = reads.board.facts().state_dir.clone();
    let wanted = Wanted {
        last,
        decision,
        since_ms: None,
    };
    let explain = move || decisions::explain(&state_dir, guest.as_deref(), &key, wanted);
    match slowly(&reads, explain).await? {
        Ok(mut explanation) => {
            let shown = reads.board.key(&explanation.guest, &explanation.key);
            explanation.now = shown.and_then(|shown| decisions::Now::of(&shown, &reads.board.source_problems()));
            Ok(Json(explanation).into_response())
        }
        Err(error @ ExplainError::Io(_)) => Err(failed(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        Err(unknown) => Err(failed(StatusCode::NOT_FOUND, unknown.to_string())),
    }
}

/// The manager, which does not exist until the guests are loaded.
#[expect(clippy::result_large_err, reason = "it is answered at once")]
fn manager(reads: &Reads) -> Result<&Arc<Manager>, Response> {
    let not_yet = || {
        failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "the guests are not loaded yet".to_owned(),
        )
    };
    reads.manager().ok_or_else(not_yet)
}

async fn guests(State(reads): Shared) -> Result<Response, Response> {
    Ok(Json(manager(&reads)?.standing()).into_response())
}

async fn history(State(reads): Shared, Of(guest): Of<String>) -> Result<Response, Response> {
    Ok(answer(manager(&reads)?.history(&guest)))
}

async fn shadow(State(reads): Shared, Of(guest): Of<String>) -> Result<Response, Response> {
    Ok(answer(manager(&reads)?.shadow_status(&guest)))
}

async fn pods(State(reads): Shared) -> Response {
    let Some(socket) = &reads.pods_socket else {
        return failed(StatusCode::NOT_FOUND, "this host gives no pod addresses".to_owned());
    };
    match trueup_worlds::ipam::show(socket, None).await {
        Ok(shown) => Json(shown).into_response(),
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, error),
    }
}

/// Reads files on a blocking thread.
async fn slowly<T: Send + 'static>(reads: &Reads, read: impl FnOnce() -> T + Send + 'static) -> Result<T, Response> {
    let gone = |error: String| failed(StatusCode::INTERNAL_SERVER_ERROR, error);
    let permit = Arc::clone(&reads.slow).acquire_owned().await;
    let permit = permit.map_err(|error| gone(error.to_string()))?;
    let read = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        read()
    });
    read.await.map_err(|error| gone(format!("reading: {error}")))
}

/// The last lines of the audit log.
#[derive(Debug, Serialize)]
struct AuditShown {
    /// Oldest first.
    lines: VecDeque<audit::Line>,
    /// The number of lines in the log.
    count: u64,
    /// Whether every byte of the log is unmodified.
    whole: bool,
}

async fn audit_lines(State(reads): Shared, asked: Asked) -> Result<Response, Response> {
    let (_, limit) = part(asked)?;
    let folder = reads.board.facts().state_dir.join("audit");
    let shown = slowly(&reads, move || {
        let mut lines = VecDeque::new();
        let verdict = audit::walk(&folder, |line| {
            if lines.len() == limit {
                lines.pop_front();
            }
            lines.push_back(line);
        })?;
        Ok::<_, audit::AuditError>(AuditShown {
            count: verdict.lines,
            whole: verdict.is_whole(),
            lines,
        })
    });
    Ok(match shown.await? {
        Ok(shown) => Json(shown).into_response(),
        Err(error) => failed(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{:#}", anyhow::Error::from(error)),
        ),
    })
}

/// The recordings of one instance.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct JournalShown {
    /// As in `[guests.NAME]`.
    guest: String,
    /// The name of the folder: the escaped key, such as `default%2Fweb`.
    instance: String,
    /// The folder.
    path: PathBuf,
    /// The number of files.
    files: usize,
    /// The total size.
    bytes: u64,
}

/// A part of the recordings.
#[derive(Debug, Serialize)]
struct JournalsShown {
    /// Sorted by guest and instance.
    journals: Vec<JournalShown>,
    /// Whether the list is cut.
    more: bool,
}

async fn journals(State(reads): Shared, asked: Asked) -> Result<Response, Response> {
    let (_, limit) = part(asked)?;
    let folder = reads.board.facts().state_dir.join("journals");
    let (mut all, more) = slowly(&reads, move || listed(&folder, limit)).await?;
    all.sort_by(|one, other| (&one.guest, &one.instance).cmp(&(&other.guest, &other.instance)));
    Ok(Json(JournalsShown { journals: all, more }).into_response())
}

/// The first journals by name, and whether there are more. A folder that is missing or disappears counts as empty.
fn listed(folder: &Path, limit: usize) -> (Vec<JournalShown>, bool) {
    let mut names = Vec::new();
    for guest in folders(folder) {
        for instance in folders(&guest) {
            names.push((guest.clone(), instance));
        }
    }
    names.sort();
    let more = names.len() > limit;
    names.truncate(limit);
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let shown = names.into_iter().map(|(guest, path)| {
        let files = std::fs::read_dir(&path).into_iter().flatten().flatten();
        let sizes: Vec<u64> = files.filter_map(|file| Some(file.metadata().ok()?.len())).collect();
        JournalShown {
            guest: name(&guest),
            instance: name(&path),
            files: sizes.len(),
            bytes: sizes.iter().sum(),
            path,
        }
    });
    (shown.collect(), more)
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}
