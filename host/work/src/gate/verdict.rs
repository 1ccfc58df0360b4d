//! The gate's findings, and the line that reports them.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trueup_base::text::counted;

use super::Mode;

/// The maximum number of unreadable recordings that are named. All are counted.
const PASSED_OVER_NAMED_MAX: usize = 5;

/// The gate's findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Name and version.
    pub candidate: String,
    /// How much was allowed to differ.
    pub mode: Mode,
    /// Whether the candidate may be activated.
    pub passed: bool,
    /// Recordings that were replayed, or, without a replay, from which the candidate was started.
    pub recordings: u64,
    /// Calls in these recordings.
    pub calls_read: u64,
    /// Calls in which every result and every write (in the mode `strict`: every request) was as recorded, or
    /// accepted.
    pub identical: u64,
    /// Calls that differ: the first one of each recording.
    pub differ: u64,
    /// Calls in which the candidate read what was never recorded. The recording can't show what it decides.
    #[serde(default)]
    pub undecided: u64,
    /// Calls after one that differs or is undecided, which would begin in another state.
    pub not_compared: u64,
    /// Reads of identical calls that one side made more often than the other.
    #[serde(default)]
    pub reads_differ: u64,
    /// The first of these, in words. Absent if there is none.
    pub first_read: Option<String>,
    /// The newest recording's first undecided call. Absent if there is none.
    pub first_undecided: Option<FirstDifference>,
    /// Recordings of other versions, which were not replayed.
    #[serde(default)]
    pub by_others: u64,
    /// The candidate refused recorded settings, and decided with its own from then on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_settings: bool,
    /// Requests and results of identical recordings that differ only in accepted fields.
    pub accepted: u64,
    /// The newest recording's first difference.
    pub first: Option<FirstDifference>,
    /// Why the candidate does not start from what the active version recorded. It then never passes.
    pub refused: Option<String>,
    /// Why not everything was replayed.
    pub given_up: Option<String>,
    /// Recordings that could not be read.
    pub passed_over: u64,
    /// The errors of the first of these.
    pub passed_over_why: Vec<String>,
}

/// The first difference of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstDifference {
    /// The key of the recording.
    pub key: String,
    /// The entry.
    pub n: u64,
    /// The difference, on one line, in the words of `trueup replay`.
    pub what: String,
    /// The recording.
    pub file: PathBuf,
}

impl fmt::Display for FirstDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, what, file, .. } = self;
        write!(f, "the first in `{key}` {what} (`{}`)", file.display())
    }
}

impl Verdict {
    /// Notes why not everything is replayed. The first reason counts.
    pub(super) fn give_up(&mut self, why: String) {
        self.given_up.get_or_insert(why);
    }

    /// Notes a recording that can't be read: that does not refuse a candidate, but must be reported.
    pub(super) fn pass_over(&mut self, why: String) {
        self.passed_over += 1;
        if self.passed_over_why.len() < PASSED_OVER_NAMED_MAX {
            self.passed_over_why.push(why);
        }
    }

    /// Whether no further recording could improve the verdict.
    pub(super) fn is_over(&self) -> bool {
        self.refused.is_some() || self.given_up.is_some()
    }

    pub(super) fn decide(&mut self) {
        self.passed = self.refused.is_none()
            && match self.mode {
                Mode::Identical | Mode::Strict => {
                    self.differ == 0 && self.given_up.is_none() && !self.compared_nothing()
                }
                Mode::Report | Mode::Off => true,
            };
    }

    /// Whether there are recorded calls of this guest but none was decided, so that nothing is known of the
    /// candidate. A guest that was never called has decided nothing that could differ.
    fn compared_nothing(&self) -> bool {
        self.identical + self.differ == 0 && (self.undecided > 0 || self.by_others > 0)
    }

    /// What helps if nothing could be compared: text to append. A swap has already waited for the active version.
    pub(crate) fn what_helps(&self, state_dir: &Path, guest: &str) -> &'static str {
        if self.passed || self.is_over() || !self.compared_nothing() {
            return "";
        }
        if self.undecided > 0 {
            return "; no recording can decide it, since it reads what the active version does not: test it with \
                    scenarios (`self_test`), then swap with `--gate report`";
        }
        let keys = std::fs::read_dir(trueup_journal::guest_dir(&state_dir.join("keys"), guest));
        match keys.map(|mut keys| keys.next().is_none()) {
            Ok(true) => "; there is no key that it could decide about: swap with `--gate report`",
            Ok(false) => "; `trueup reconcile KEY` has it decide at once, or swap with `--gate report`",
            // Such a guest is called when a pod or a Service changes.
            Err(_) => "; swap after its next call, or with `--gate report`",
        }
    }

    /// The command that shows the first difference again, for a candidate with this reference in the configuration or
    /// command. Empty if there is none. `config`: the file with its settings.
    pub fn shown_by(&self, reference: &str, afresh: bool, config: &str) -> String {
        let of_file = || reference.strip_prefix("file:");
        let guest = reference.strip_prefix("builtin:").or_else(of_file);
        let (Some(guest), Some(first)) = (guest, self.first.as_ref().or(self.first_undecided.as_ref())) else {
            return String::new();
        };
        let strict = if self.mode == Mode::Strict { " --strict" } else { "" };
        let afresh = if afresh { " --afresh" } else { "" };
        let config = match self.own_settings {
            true => format!("{}={config} ", trueup_config::CONFIG_ENV),
            false => String::new(),
        };
        let file = first.file.display();
        format!("; see `{config}trueup replay --guest {guest}{strict}{afresh} {file}`")
    }

    /// What was compared, or why nothing was.
    fn fmt_compared(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recordings = counted(self.recordings, "recording", "recordings");
        let calls = counted(self.identical + self.differ, "call", "calls");
        match (&self.refused, &self.first) {
            (Some(why), _) => write!(f, "refused: {why}"),
            (None, Some(first)) => {
                let differ = if self.differ == 1 { "differs" } else { "differ" };
                write!(f, "{} of {calls} in {recordings} {differ}; {first}", self.differ)
            }
            (None, None) if self.mode == Mode::Off => {
                let snapshots = counted(self.recordings, "snapshot", "snapshots");
                write!(f, "nothing replayed: the gate is off; started from {snapshots}")
            }
            (None, None) if self.recordings == 0 && self.given_up.is_some() => f.write_str("nothing replayed"),
            (None, None) if self.calls_read == 0 => {
                f.write_str("nothing replayed: the active version recorded no calls")
            }
            (None, None) if self.identical == 0 => write!(f, "nothing decided in {recordings}"),
            (None, None) => write!(f, "identical: {calls} in {recordings}"),
        }
    }
}

impl fmt::Display for Verdict {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_compared(f)?;
        if let Some(first) = &self.first_undecided {
            write!(f, "; {} undecided, {first}", counted(self.undecided, "call", "calls"))?;
        }
        if let Some(first) = &self.first_read {
            let differ = counted(self.reads_differ, "read differs", "reads differ");
            write!(f, "; {differ}, the first: {first}")?;
        }
        if self.own_settings {
            f.write_str("; decided with its own settings, since it refuses the recorded ones")?;
        }
        if self.accepted > 0 {
            let accepted = counted(self.accepted, "accepted difference", "accepted differences");
            write!(f, "; {accepted}")?;
        }
        if self.not_compared > 0 {
            let calls = counted(self.not_compared, "call", "calls");
            write!(f, "; {calls} after it not compared")?;
        }
        if let Some(why) = &self.given_up {
            write!(f, "; given up: {why}")?;
        }
        if let Some(why) = self.passed_over_why.first() {
            let passed_over = counted(self.passed_over, "recording", "recordings");
            write!(f, "; {passed_over} can't be read, the first: {why}")?;
        }
        Ok(())
    }
}
