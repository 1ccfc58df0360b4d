//! The routes of the page: `GET` requests with JSON answers, and the page itself.
//!
//! All addresses are relative, so the routes work under any prefix. `r` names a recording, and `n` a decision by the
//! number of any of its entries.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::NestedPathRejection;
use axum::extract::{NestedPath, Query, State};
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use trueup_base::local_only;

use super::against::{Against, Comparison};
use super::catalog::Recording;
use super::decision::{self, Lines, Part};
use super::difference::{self, ASKS_COMPARED_MAX};
use super::index::{Decision, Filter, Index, Outcome};
use super::newest::Newest;
use super::source::{Opened, Source};
use crate::http::{Answer, Refused, off_thread};

/// The maximum number of rows in an answer: several screens.
const ROWS_MAX: usize = 1000;

/// The maximum number of questions of a decision in an answer.
const ASKS_MAX: usize = 1000;

/// The maximum number of columns in the overview: no screen has more.
const COLUMNS_MAX: u64 = 2000;

/// How long an answer waits for the first rows of a new recording. Reading continues afterwards.
const FIRST_ROWS: Duration = Duration::from_millis(400);

/// How many files' notes are sent. The others are counted.
const NOTES_MAX: usize = 20;

const PAGE: &str = include_str!("assets/index.html");

/// The files of the page: name, type, text.
const FILES: [(&str, &str, &str); 8] = [
    ("/page.css", "text/css; charset=utf-8", include_str!("assets/page.css")),
    ("/page.js", JAVASCRIPT, include_str!("assets/page.js")),
    ("/list.js", JAVASCRIPT, include_str!("assets/list.js")),
    ("/detail.js", JAVASCRIPT, include_str!("assets/detail.js")),
    ("/status.js", JAVASCRIPT, include_str!("assets/status.js")),
    ("/json.js", JAVASCRIPT, include_str!("assets/json.js")),
    ("/basics.js", JAVASCRIPT, include_str!("assets/basics.js")),
    ("/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Addresses on the page are relative to its folder. Under a prefix without a trailing `/`, the page states the prefix.
/// It is taken from the routes, not from the request.
async fn page(prefix: Result<NestedPath, NestedPathRejection>) -> Response {
    let base = |prefix: NestedPath| format!("\n<base href=\"{}/\">", prefix.as_str().trim_end_matches('/'));
    let base = prefix.map(base).unwrap_or_default();
    let page = PAGE.replacen("<head>", &format!("<head>{base}"), 1);
    file("text/html; charset=utf-8", page)
}

/// One of [`FILES`], or the page.
fn file(kind: &'static str, text: impl IntoResponse) -> Response {
    // Another version of trueup may have another page at this address.
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
    (headers, text).into_response()
}

/// The page and its requests, for `/` or, with `Router::nest`, any prefix. Refuses everything that [`local_only`]
/// refuses.
pub fn router(source: Source) -> Router {
    let mut routes = Router::new()
        .route("/api/recordings", get(recordings))
        .route("/api/newest", get(newest))
        .route("/api/progress", get(progress_of))
        .route("/api/rows", get(rows))
        .route("/api/position", get(position))
        .route("/api/overview", get(overview))
        .route("/api/decision", get(one_decision))
        .route("/api/value", get(value))
        .route("/api/difference", get(compare))
        .route("/api/against", get(against));
    for (path, kind, text) in FILES {
        routes = routes.route(path, get(async move || file(kind, text)));
    }
    routes
        .route("/", get(page))
        .fallback(async |uri: Uri| Refused::not_found(format!("there is nothing at `{}`", uri.path().escape_default())))
        .layer(middleware::from_fn(local_only::guard))
        .with_state(source)
}

/// Adds the page to `routes` under `prefix`, such as `/ui`, with or without a trailing `/`.
pub fn under(prefix: &str, source: Source, routes: Router) -> Router {
    let page = prefix.to_owned();
    routes
        .nest(prefix, router(source))
        // The nested router has no such route.
        .route(&format!("{prefix}/"), get(async move || Redirect::permanent(&page)))
}

/// Serves the page until dropped.
///
/// # Errors
/// If the system refuses to serve.
pub async fn serve(listener: TcpListener, source: Source) -> std::io::Result<()> {
    axum::serve(listener, router(source)).await
}

/// Makes an answer from the index of a recording, on a blocking thread.
async fn answer(opened: Arc<Opened>, read: impl FnOnce(&Index) -> Value + Send + 'static) -> Answer<Value> {
    Ok(Json(off_thread(move || read(&opened.index())).await?))
}

/// The recording with this id. If it is unknown, searches the folders.
async fn open(source: &Source, id: &str) -> Result<Arc<Opened>, Refused> {
    let (source, named) = (source.clone(), id.to_owned());
    let unknown = || Refused::not_found(format!("there is no recording `{}`", id.escape_default()));
    let opened = off_thread(move || source.open(&named)).await?.ok_or_else(unknown)?;
    opened.look();
    Ok(opened)
}

async fn recordings(State(source): State<Source>) -> Answer<Value> {
    off_thread(move || {
        Json(json!({
            "recordings": source.recordings().values().map(Recording::listed).collect::<Vec<_>>(),
            "against": source.other_guest().map(Against::guest),
            // Whether `/v1/status` answers at the same address.
            "in_a_host": source.is_in_a_host(),
        }))
    })
    .await
}

#[derive(Deserialize)]
struct Within {
    /// One recording instead of all.
    r: Option<String>,
}

async fn newest(State(source): State<Source>, Query(asked): Query<Within>) -> Answer<Newest> {
    Ok(Json(source.newest(asked.r.as_deref()).await?))
}

/// The maximum number of segments in an answer, at least the number of decisions on a page. Of more, only the latest
/// are sent.
const SEGMENTS_MAX: usize = 2000;

/// How much of a recording is known: also the number of decisions, and of those that pass the filter.
fn progress(index: &Index, filter: &Filter) -> Value {
    let notes = || index.segments.iter().filter_map(|segment| segment.note.as_ref());
    let segments = index.segments.iter().take(SEGMENTS_MAX);
    json!({
        "generation": index.generation,
        "total": index.decisions.len(),
        "listed": index.count(filter),
        "read": index.read,
        "size": index.size,
        "is_read": index.is_read,
        "is_full": index.is_full,
        "names": index.names,
        "segments": segments.map(|segment| &segment.who).collect::<Vec<_>>(),
        "notes": notes().take(NOTES_MAX).collect::<Vec<_>>(),
        "more_notes": notes().count().saturating_sub(NOTES_MAX),
    })
}

/// Which decisions of a recording the browser wants. Each request reads the part that it needs.
#[derive(Deserialize)]
struct Listing {
    r: String,
    #[serde(flatten)]
    filter: Filter,
    /// Of the rows: the first one, and how many.
    #[serde(default)]
    from: usize,
    #[serde(default)]
    count: usize,
    /// Of a position: the decision with this entry, or the first one at this time or later.
    n: Option<u64>,
    at_ms: Option<u64>,
    /// Of the overview.
    #[serde(default)]
    columns: u64,
}

async fn progress_of(State(source): State<Source>, Query(asked): Query<Listing>) -> Answer<Value> {
    let opened = open(&source, &asked.r).await?;
    answer(opened, move |index| progress(index, &asked.filter)).await
}

async fn rows(State(source): State<Source>, Query(asked): Query<Listing>) -> Answer<Value> {
    let opened = open(&source, &asked.r).await?;
    let last = asked.from.saturating_add(asked.count.min(ROWS_MAX));
    wait_for(&opened, |index| index.decisions.len() >= last).await;
    answer(opened, move |index| {
        let listed = index.listed(&asked.filter).skip(asked.from);
        json!({
            "progress": progress(index, &asked.filter),
            "from": asked.from,
            "rows": listed.take(asked.count.min(ROWS_MAX)).collect::<Vec<_>>(),
        })
    })
    .await
}

/// Waits briefly until a recording has something to show.
async fn wait_for(opened: &Opened, is_there: impl Fn(&Index) -> bool) {
    let is_enough = |index: &Index| index.is_read || is_there(index);
    let waiting = async {
        while !is_enough(&opened.index()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // What is not there by then comes with a later answer.
    let _ = tokio::time::timeout(FIRST_ROWS, waiting).await;
}

/// The position of a decision in the list, or the position it would have: that of the first decision not before it.
async fn position(State(source): State<Source>, Query(asked): Query<Listing>) -> Answer<Value> {
    let opened = open(&source, &asked.r).await?;
    if let Some(n) = asked.n {
        wait_for(&opened, |index| index.decisions.last().is_some_and(|last| last.n > n)).await;
    }
    answer(opened, move |index| {
        let wanted = asked.n.and_then(|n| Some(index.decisions.get(index.holding(n)?)?.n));
        let is_before = |decision: &&Decision| match (wanted, asked.at_ms) {
            (Some(n), _) => decision.n < n,
            (None, Some(at_ms)) => decision.at_ms.is_none_or(|began| began < at_ms),
            (None, None) => false,
        };
        let position = index.listed(&asked.filter).take_while(is_before).count();
        let there = index.listed(&asked.filter).nth(position).map(|decision| decision.n);
        json!({
            "generation": index.generation,
            "position": position,
            // The first entry of the decision. Null if the filter excludes it, or if no decision has that entry.
            "n": there.filter(|n| asked.n.is_none() || wanted == Some(*n)),
            "listed": index.count(&asked.filter),
            // Until the whole recording has been read, a later answer may find the decision.
            "is_read": index.is_read,
        })
    })
    .await
}

/// The number of decisions per time column.
async fn overview(State(source): State<Source>, Query(asked): Query<Listing>) -> Answer<Value> {
    #[derive(Default, Clone, Serialize)]
    struct Column {
        ok: u32,
        /// Those that wrote something.
        writes: u32,
        error: u32,
        /// Those that trapped or met a limit.
        failed: u32,
    }
    let opened = open(&source, &asked.r).await?;
    answer(opened, move |index| {
        let times = || index.decisions.iter().filter_map(|decision| decision.at_ms);
        // Clocks may go backwards.
        let (from_ms, to_ms) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let count = asked.columns.clamp(1, COLUMNS_MAX);
        let span = (to_ms - from_ms).max(1);
        let mut columns = vec![Column::default(); usize::try_from(count).unwrap_or(1)];
        for decision in index.listed(&asked.filter) {
            let Some(at_ms) = decision.at_ms else { continue };
            let at = u128::from(at_ms - from_ms) * u128::from(count - 1) / u128::from(span);
            let column = usize::try_from(at).ok().and_then(|at| columns.get_mut(at));
            let Some(column) = column else { continue };
            match decision.outcome {
                Outcome::Ok | Outcome::Cancelled | Outcome::Open => {
                    column.ok += 1;
                    column.writes += u32::from(decision.writes > 0);
                }
                Outcome::Error => column.error += 1,
                Outcome::Trap | Outcome::Deadline | Outcome::Memory => column.failed += 1,
            }
        }
        json!({ "from_ms": from_ms, "to_ms": to_ms, "columns": columns })
    })
    .await
}

#[derive(Deserialize)]
struct One {
    r: String,
    n: u64,
    #[serde(default)]
    from: usize,
    /// All that an answer may hold, if it is missing.
    count: Option<usize>,
}

/// The decision with entry `n`, and its file.
async fn find(source: &Source, id: &str, n: u64) -> Result<(Arc<Opened>, Decision, PathBuf), Refused> {
    let opened = open(source, id).await?;
    wait_for(&opened, |index| index.decisions.last().is_some_and(|last| last.n > n)).await;
    let holding = |index: &Index| {
        let decision = index.decisions.get(index.holding(n)?)?;
        Some((decision.clone(), index.segment_of(decision)?.path.clone()))
    };
    let unknown = || Refused::not_found(format!("no decision holds entry {n}"));
    let (decision, path) = holding(&opened.index()).ok_or_else(unknown)?;
    Ok((opened, decision, path))
}

async fn one_decision(State(source): State<Source>, Query(asked): Query<One>) -> Answer<Value> {
    let (opened, decision, path) = find(&source, &asked.r, asked.n).await?;
    off_thread(move || {
        let count = asked.count.map_or(ASKS_MAX, |count| count.min(ASKS_MAX));
        let lines = Lines::read(&path, &decision, asked.from, count).map_err(Refused::changed)?;
        let header = (asked.from == 0).then(|| decision::shown_header(&path));
        let header = header.transpose().map_err(Refused::changed)?;
        let index = opened.index();
        let twin = index.twin(&decision);
        Ok(Json(json!({
            "row": decision,
            "name": index.name_of(&decision),
            "args": lines.shown_args(),
            "asks": lines.shown_asks(),
            // The position of the first of `asks`.
            "from": asked.from,
            "ending": lines.shown_ending(),
            "header": header,
            "file": path.display().to_string(),
            // A decision of another version with the same input.
            "twin": twin.map(|twin| json!({ "n": twin.n, "who": index.who(twin) })),
        })))
    })
    .await?
}

#[derive(Deserialize)]
struct Whole {
    r: String,
    n: u64,
    part: Part,
}

async fn value(State(source): State<Source>, Query(asked): Query<Whole>) -> Answer<decision::Value> {
    let (_, decision, path) = find(&source, &asked.r, asked.n).await?;
    let value = off_thread(move || decision::value(&path, &decision, asked.n, asked.part)).await?;
    Ok(Json(value.map_err(Refused::not_found)?))
}

#[derive(Deserialize)]
struct Two {
    r: String,
    a: u64,
    b: u64,
}

async fn compare(State(source): State<Source>, Query(asked): Query<Two>) -> Answer<impl Serialize> {
    #[derive(Serialize)]
    struct Sides {
        a: Value,
        b: Value,
        #[serde(flatten)]
        compared: difference::Compared,
    }
    let (opened, a, a_path) = find(&source, &asked.r, asked.a).await?;
    let (_, b, b_path) = find(&source, &asked.r, asked.b).await?;
    off_thread(move || {
        let a_lines = Lines::read(&a_path, &a, 0, ASKS_COMPARED_MAX).map_err(Refused::changed)?;
        let b_lines = Lines::read(&b_path, &b, 0, ASKS_COMPARED_MAX).map_err(Refused::changed)?;
        let index = opened.index();
        let side = |decision: &Decision| {
            json!({ "row": decision, "name": index.name_of(decision), "who": index.who(decision) })
        };
        let compared = difference::compare(&a_lines, &b_lines);
        let (a, b) = (side(&a), side(&b));
        Ok(Json(Sides { a, b, compared }))
    })
    .await?
}

#[derive(Deserialize)]
struct AgainstOf {
    r: String,
    /// A decision. Without it, the segment at this position.
    n: Option<u64>,
    segment: Option<usize>,
}

async fn against(State(source): State<Source>, Query(asked): Query<AgainstOf>) -> Answer<Comparison> {
    let Some(other) = source.other_guest() else {
        let why = "there is no other guest to hold it against; give one with `--against`";
        return Err(Refused::not_found(why));
    };
    if let Some(n) = asked.n {
        let (_, decision, path) = find(&source, &asked.r, n).await?;
        return Ok(Json(other.decision(&path, &decision).await));
    }
    let opened = open(&source, &asked.r).await?;
    let path = |at: usize| Some(opened.index().segments.get(at)?.path.clone());
    let none = || Refused::not_found("there is no such segment");
    let path = asked.segment.and_then(path).ok_or_else(none)?;
    let comparison = other.segment(&path).await;
    opened.compared(&path, comparison.diverged_at);
    Ok(Json(comparison))
}

#[cfg(test)]
mod tests;
