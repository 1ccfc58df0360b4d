//! `/healthz` and `/readyz`, as in Kubernetes: one line for each check. `?verbose` also shows the checks that pass.
//!
//! A host is healthy while its loops run; an unhealthy host should be restarted. A host is ready when it has what it
//! needs to act. A standby is ready, since it could act at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use trueup_work::status::Role;

use super::Reads;

/// One check: its name, and additional information if it passes, or why it fails.
pub(super) struct Check(String, Result<Option<String>, String>);

impl Check {
    fn new(name: impl Into<String>, why_not: Option<String>) -> Self {
        Self(name.into(), why_not.map_or(Ok(None), Err))
    }

    fn passed(name: &str, note: &str) -> Self {
        Self(name.to_owned(), Ok(Some(note.to_owned())))
    }

    fn line(&self) -> String {
        let Self(name, outcome) = self;
        match outcome {
            Err(why) => format!("[-]{name} failed: {}\n", trueup_base::text::line(why)),
            Ok(Some(note)) => format!("[+]{name} ok: {note}\n"),
            Ok(None) => format!("[+]{name} ok\n"),
        }
    }
}

/// One check for each loop.
pub(super) fn loops(reads: &Reads) -> Vec<Check> {
    let late = reads.host_status.late();
    let check = |name: &'static str| {
        let late = late.iter().find(|(late, _)| *late == name);
        let why = late.map(|(_, silent)| format!("it did not go round for {} s", silent.as_secs()));
        Check::new(format!("loop-{name}"), why)
    };
    reads.host_status.beating().into_iter().map(check).collect()
}

fn ready(reads: &Reads) -> Vec<Check> {
    let host_status = &reads.host_status;
    let not = |is_so: bool, why: &str| (!is_so).then(|| why.to_owned());
    let is_loaded = reads.manager.get().is_some();
    let mut checks = vec![
        Check::new("guests", not(is_loaded, "they are not loaded yet")),
        Check::new("backends", not(is_loaded, "what guests ask is not connected yet")),
    ];
    let (role, leader) = host_status.role();
    if host_status.facts().source.is_some() {
        checks.push(match role {
            Role::Standby => Check::passed("source", "a standby need not know it"),
            _ => Check::new("source", not(host_status.is_synced(), "it was not looked at yet")),
        });
    }
    if host_status.facts().pods.is_some() {
        checks.push(Check::new("pod-addresses", host_status.pods_wait()));
    }
    if role != Role::Alone {
        let leads = leader.map(|leader| format!(", `{}` leads", trueup_base::text::line(&leader)));
        let text = format!("{role}{}", leads.unwrap_or_default());
        checks.push(Check::passed("standing", &text));
    }
    let stays = !host_status.is_stopping();
    checks.push(Check::new("stopping", not(stays, "its work ends, then it exits")));
    checks.extend(loops(reads));
    checks
}

/// The reasons why the host is not ready.
pub(super) fn why_not_ready(reads: &Reads) -> Vec<String> {
    let why = |Check(name, outcome)| Some(format!("{name}: {}", outcome.err()?));
    ready(reads).into_iter().filter_map(why).collect()
}

pub(super) async fn healthz(State(reads): State<Arc<Reads>>, query: Query<BTreeMap<String, String>>) -> Response {
    let mut checks = vec![Check::new("ping", None)];
    checks.extend(loops(&reads));
    response("healthz", &checks, &query, "ok")
}

pub(super) async fn readyz(State(reads): State<Arc<Reads>>, query: Query<BTreeMap<String, String>>) -> Response {
    let is_standby = reads.host_status.role().0 == Role::Standby;
    let ok = if is_standby { "ok: standby" } else { "ok" };
    response("readyz", &ready(&reads), &query, ok)
}

fn response(what: &str, checks: &[Check], query: &BTreeMap<String, String>, ok: &str) -> Response {
    let verbose = query.get("verbose");
    let is_verbose = verbose.is_some_and(|value| value != "false" && value != "0");
    let passed = checks.iter().all(|Check(_, outcome)| outcome.is_ok());
    let lines: String = checks.iter().map(Check::line).collect();
    let (status, body) = match (passed, is_verbose) {
        (true, false) => (StatusCode::OK, format!("{ok}\n")),
        (true, true) => (StatusCode::OK, format!("{lines}{what} check passed\n")),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, format!("{lines}{what} check failed\n")),
    };
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}
