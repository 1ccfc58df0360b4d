//! What a kind of work needs before it can run, and what a check finds about it.
//!
//! A kind only lists its needs. `check` of `trueup-runtime` looks at each; a reload looks at those that can be looked
//! at beside a host that runs.

use std::fmt;

use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use trueup_base::text;
use trueup_capabilities::grants::Access;
use trueup_config::{AdminAt, Guest};
use trueup_instance::Worlds;
use trueup_sources::kubernetes::Right;

use crate::setup::SetupError;

/// What a kind of work needs.
#[derive(Default)]
pub struct Needs<'a> {
    /// Its guests as the host loads them: the section's name, the worlds that it may be of, and its settings with those
    /// that the host adds.
    pub guests: Vec<Named>,
    /// The first file or setting that can't be used.
    pub unusable: Option<SetupError>,
    /// What its guests will be refused. `None`: that follows from what they import.
    pub no_grants: Option<Vec<NoGrant>>,
    /// Its backends. None if something is unusable.
    pub looks: Vec<Probe<'a>>,
    /// Where a host listens for it: the key, and the address.
    pub listens: Vec<(&'static str, AdminAt)>,
    /// What it asks of a cluster beside reading it.
    pub rights: &'static [Right],
    /// URLs of its servers, whose clocks can be compared with this machine's.
    pub servers: Vec<String>,
}

/// A guest's section, the worlds that it may be of, and what the section says.
pub type Named = (&'static str, Worlds, Guest);

/// A grant that a guest needs and does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[guests.{guest}] has no grant to {access} {what} (`{add}`): its calls will be refused")]
pub struct NoGrant {
    /// The section in `[guests]`.
    pub guest: &'static str,
    /// Reading or changing.
    pub access: Access,
    /// What of: `any NEG`.
    pub what: String,
    /// What to add to `grants`.
    pub add: String,
}

impl NoGrant {
    /// `scopes`: as they stand in the list.
    pub fn new(guest: &'static str, access: Access, what: impl Into<String>, (name, scopes): (&str, &str)) -> Self {
        Self {
            guest,
            access,
            what: what.into(),
            add: format!("{name} = {{ {access} = [{scopes}] }}"),
        }
    }
}

/// Asks one backend for something that changes nothing.
pub struct Probe<'a> {
    /// What is asked, in a few words.
    pub check: String,
    /// What it is, or what is wrong.
    pub found: LocalBoxFuture<'a, Result<String, Problem>>,
    /// What is wrong with it where the source is a cluster. `None` unless it is simulated.
    pub on_cluster: Option<Problem>,
}

/// What is wrong, and what to type or to change next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// One line.
    pub text: String,
    /// The next step.
    pub next: String,
}

impl Problem {
    /// `error` in one line.
    pub fn new(error: impl fmt::Display, next: impl Into<String>) -> Self {
        Self {
            text: text::error(error.to_string().replace('\n', " ")),
            next: next.into(),
        }
    }
}

impl<'a> Probe<'a> {
    /// Asks when it is awaited.
    pub fn new(check: impl Into<String>, found: impl Future<Output = Result<String, Problem>> + 'a) -> Self {
        Self {
            check: check.into(),
            found: Box::pin(found),
            on_cluster: None,
        }
    }

    /// For a backend that the host itself is, or starts. `harm`: what a run does with it where the source is a cluster;
    /// `next`: how to use a real one.
    pub fn simulated(check: impl Into<String>, what: &'static str, (harm, next): (&str, &str)) -> Self {
        Self {
            on_cluster: Some(Problem::new(format!("{what}, but [source] is a cluster: {harm}"), next)),
            ..Self::new(check, async move { Ok(what.to_owned()) })
        }
    }
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// As it should be.
    Ok,
    /// A host can run, but an operator should know.
    Warning,
    /// A host can't run, or can't do all of its work.
    Failed,
}

/// What a check found about one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it is.
    pub mark: Mark,
    /// The same in words, on one line.
    pub text: String,
    /// What to type or to change next. `None` if it is as it should be.
    pub next: Option<String>,
}

impl Finding {
    /// It is as it should be.
    pub fn ok(check: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            mark: Mark::Ok,
            text: text.into(),
            next: None,
        }
    }

    /// It is not.
    pub fn wrong(check: impl Into<String>, mark: Mark, trouble: Problem) -> Self {
        Self {
            check: check.into(),
            mark,
            text: trouble.text,
            next: Some(trouble.next),
        }
    }

    /// It failed, or is as it should be.
    pub fn of(check: impl Into<String>, found: Result<String, Problem>) -> Self {
        match found {
            Ok(text) => Self::ok(check, text),
            Err(trouble) => Self::wrong(check, Mark::Failed, trouble),
        }
    }
}
