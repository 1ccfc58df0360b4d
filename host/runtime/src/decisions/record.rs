//! One job of a key as one line: why it ran, its decisions, and what came of it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tracing::Span;
use trueup_capabilities::clock::{Clock as _, SystemClock};
use trueup_capabilities::meter::{Change, Effects};
use trueup_capabilities::{Host, Identity};
use trueup_journal::Journal;

use super::cause::Cause;
use super::fields::is_zero;
use super::file;
use super::pending::{TimedCause, Why};
use super::spans;

/// The version of the lines.
pub const FORMAT: u32 = 1;

/// So many objects that a job created, and so many that it destroyed, are named; all are counted, and the journal names all.
pub const EFFECTS_MAX: usize = 50;

/// One job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the lines: [`FORMAT`].
    pub format: u32,
    /// `namespace/name`.
    pub key: String,
    /// Why it ran, in the order in which it was taken in; never empty.
    pub causes: Vec<TimedCause>,
    /// So many more reasons there were.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_causes: usize,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Jobs of this key in a row that had failed before.
    #[serde(default, skip_serializing_if = "is_none_before")]
    pub failures_before: u32,
    /// Its decisions, in order; none where what should be can't be said, or nothing was left of the key.
    pub decisions: Vec<Made>,
    /// What came of it.
    pub came: Came,
    /// What it brought about.
    pub effects: Effected,
}

fn is_none_before(failures: &u32) -> bool {
    *failures == 0
}

/// One decision: a call of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// `GUEST/KEY#N`.
    pub id: String,
    /// Number of the call's entry in the journal of the instance.
    pub n: Option<u64>,
    /// `interface.function`.
    pub call: String,
    /// All of what it is about is to be removed: the key is gone, or an earlier UID of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removes: bool,
    /// Name of the guest.
    pub guest: String,
    /// Its version.
    pub version: String,
    /// `sha256:` and its digest.
    pub digest: String,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Questions that it asked.
    pub asked: u32,
    /// What it said where it did not end well, or what became of it; none: it ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The file that it was recorded in, as the host knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<PathBuf>,
    /// Its trace, where it was traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum Came {
    /// Everything is as it should be.
    True,
    /// The key is gone, and so is all of its.
    Gone,
    /// It was ended while it slept: for a newer input or version, or for a stop.
    Interrupted,
    /// It failed and is tried again.
    Failed {
        /// One line.
        error: String,
    },
    /// The guest failed, not what it asked.
    Fault {
        /// One line.
        error: String,
    },
    /// What should be can't be said: no guest was called, and nothing changes until the input does.
    Refused {
        /// One line.
        error: String,
    },
}

/// What a job brought about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effected {
    /// How many objects were created.
    pub created: u64,
    /// How many objects were destroyed.
    pub destroyed: u64,
    /// The first of those created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub created_objects: Vec<Created>,
    /// The first of those destroyed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destroyed_objects: Vec<Destroyed>,
}

/// An object that was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// `backend`, `frontend`, `bind` or `server`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub identifier: String,
}

/// An object that was destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destroyed {
    /// As in [`Created`].
    pub kind: String,
    /// Its name, where this job created it too; else the journal has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its identifier.
    pub identifier: String,
}

impl Effected {
    fn new(effects: Effects, changes: &[Change]) -> Self {
        let mut effected = Self {
            created: effects.created,
            destroyed: effects.destroyed,
            ..Self::default()
        };
        for change in changes {
            match change {
                Change::Created { kind, name, identifier } => {
                    if effected.created_objects.len() < EFFECTS_MAX {
                        effected.created_objects.push(Created {
                            kind: (*kind).to_owned(),
                            name: name.clone(),
                            identifier: identifier.clone(),
                        });
                    }
                }
                Change::Destroyed { kind, identifier } => {
                    if effected.destroyed_objects.len() < EFFECTS_MAX {
                        let created = &effected.created_objects;
                        let name = created.iter().find(|made| made.identifier == *identifier);
                        effected.destroyed_objects.push(Destroyed {
                            kind: (*kind).to_owned(),
                            name: name.map(|made| made.name.clone()),
                            identifier: identifier.clone(),
                        });
                    }
                }
            }
        }
        effected
    }
}

/// A job in work.
#[derive(Debug)]
pub(crate) struct Decided {
    file: PathBuf,
    key: String,
    why: Why,
    failures_before: u32,
    began_ms: u64,
    began: Instant,
    made: Vec<Made>,
    /// The call that runs.
    open: Option<Begun>,
}

/// A call in work.
#[derive(Debug)]
struct Begun {
    made: Made,
    began: Instant,
    span: Span,
}

impl Decided {
    /// A job of `key` begins.
    pub(crate) fn new(state_dir: &Path, guest: &str, key: String, why: Why, failures_before: u32) -> Self {
        Self {
            file: file::path(state_dir, guest, &key),
            key,
            why,
            failures_before,
            began_ms: SystemClock.now_ms(),
            began: Instant::now(),
            made: Vec::new(),
            open: None,
        }
    }

    /// Nothing changed: the job only looks whether all is still as it should be.
    pub(crate) fn is_resync(&self) -> bool {
        matches!(
            self.why.causes.as_slice(),
            [TimedCause {
                cause: Cause::Resync,
                ..
            }]
        )
    }

    /// A call of the guest is about to begin, with what answers it: the span in which it is made.
    pub(crate) fn begin(&mut self, host: &Host, call: &str, removes: bool) -> Span {
        let begun = Begun::new(host, call, removes, &self.key, || self.why.words());
        let span = begun.span.clone();
        self.open = Some(begun);
        span
    }

    /// The call came back, whatever it said.
    pub(crate) fn asked(&mut self, questions: u32) {
        if let Some(open) = &mut self.open {
            open.made.asked = questions;
        }
    }

    /// It is known what the call came to. Nothing where none was begun.
    pub(crate) fn end_call(&mut self, error: Option<&str>) {
        if let Some(open) = self.open.take() {
            self.made.push(open.end(error));
        }
    }

    /// The job ended. A line that can't be written is missed by nobody but those who ask why: that is said in the log.
    pub(crate) fn end(self, came: Came, effects: Effects, changes: &[Change]) {
        let record = Record {
            format: FORMAT,
            key: self.key,
            causes: self.why.causes,
            more_causes: self.why.more,
            began_ms: self.began_ms,
            took_ms: elapsed_ms(self.began),
            failures_before: self.failures_before,
            decisions: self.made,
            came,
            effects: Effected::new(effects, changes),
        };
        if let Err(error) = file::append(&self.file, &record) {
            tracing::warn!(key = record.key, "why it was done is not kept: {error}");
        }
    }
}

impl Begun {
    /// A call of a guest is about to begin. `cause`: in a few words, asked for where it is traced.
    fn new(host: &Host, call: &str, removes: bool, key: &str, cause: impl FnOnce() -> String) -> Self {
        let identity = &host.identity;
        let journal = host.tape.journal();
        let n = journal.map(Journal::next_n);
        let id = super::id(identity, n);
        let span = spans::decision(host, call, key, cause);
        let Identity {
            guest, version, digest, ..
        } = identity.clone();
        let made = Made {
            id,
            n,
            call: call.to_owned(),
            removes,
            guest,
            version,
            digest,
            began_ms: SystemClock.now_ms(),
            took_ms: 0,
            asked: 0,
            error: None,
            recording: journal.and_then(Journal::segment_path).map(Path::to_owned),
            trace: spans::trace_of(&span),
        };
        Self {
            made,
            began: Instant::now(),
            span,
        }
    }

    /// It came to this; none: it ended well.
    fn end(self, error: Option<&str>) -> Made {
        spans::came(&self.span, error);
        Made {
            took_ms: elapsed_ms(self.began),
            error: error.map(str::to_owned),
            ..self.made
        }
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_created_is_named_up_to_a_limit_and_all_is_counted() {
        let created = |at: usize| Change::Created {
            kind: "server",
            name: format!("s{at}"),
            identifier: format!("id{at}"),
        };
        let mut changes: Vec<Change> = (0..EFFECTS_MAX + 3).map(created).collect();
        changes.push(Change::Destroyed {
            kind: "server",
            identifier: "id0".to_owned(),
        });
        let effects = Effects {
            created: 53,
            destroyed: 1,
        };
        let effected = Effected::new(effects, &changes);
        assert_eq!(
            (effected.created, effected.created_objects.len(), effected.destroyed),
            (53, EFFECTS_MAX, 1)
        );
        assert_eq!(effected.destroyed_objects[0].name.as_deref(), Some("s0"));
    }
}
