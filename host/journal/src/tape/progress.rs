//! How far a replay has come in its recording, what it has found, and how questions and results compare under the
//! rules: the same for a replay entry by entry, which is all here, and for a comparison of decisions.
//!
//! The first divergence is kept, and from then on every question is refused, since later differences follow from the
//! first. If the recording itself has no more to compare (it ends inside a call, or the call was cut short by deadline,
//! memory or cancellation), the guest is stopped at its next question; this is not a divergence.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::questions::OnePart;
use super::{TapeError, unwritable};
use crate::accepted::{Accepted, result_of};
use crate::difference::{Difference, differences_under};
use crate::divergence::{Asked, Divergence, Outcome, Reads, Tally};
use crate::entry::{Ask, Call, Ending, Entry, Event, first_asks};
use crate::reader::Segment;

#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Without rollbacks: they concern the entries' validity, not the guest's behaviour.
    entries: Vec<Entry>,
    /// The number of entries in the recording, including its header.
    recorded: u64,
    /// The next entry to use.
    pub(super) at: usize,
    phase: Phase,
    /// The recording has no further answers for the current call, or for the start.
    ended: bool,
    /// Number of the entry after the last.
    end_n: u64,
    same_guest: bool,
    /// Accepted differences.
    pub(super) accepted: Arc<Accepted>,
    /// The number of questions and results with only accepted differences.
    pub(super) accepted_count: u64,
    calls: u64,
    /// Reads that only one side asked.
    pub(super) reads: Reads,
    /// The first deviation from the recording.
    found: Option<Outcome>,
    /// Why less could be compared than expected.
    short: Option<String>,
}

#[derive(Debug, Default)]
enum Phase {
    /// `init` and `restore`.
    #[default]
    Starting,
    Between,
    InCall {
        name: String,
        n: u64,
    },
}

impl Progress {
    pub(super) fn new(segment: Segment, digest: &str, accepted: Arc<Accepted>) -> Self {
        let is_kept = |entry: &Entry| !matches!(entry.event, Event::RolledBack(_));
        Self {
            same_guest: segment.header.digest == digest,
            end_n: segment.next_n(),
            recorded: segment.entries.len() as u64 + 1,
            entries: segment.entries.into_iter().filter(is_kept).collect(),
            accepted,
            ..Self::default()
        }
    }

    /// The next entry to use.
    fn entry(&self) -> Option<&Entry> {
        self.entries.get(self.at)
    }

    /// The unused questions of the current call.
    pub(super) fn asks_left(&self) -> &[Entry] {
        first_asks(self.entries.get(self.at..).unwrap_or_default())
    }

    /// The number of the next entry, or of the one after the last.
    pub(super) fn next_n(&self) -> u64 {
        self.entry().map_or(self.end_n, |entry| entry.n)
    }

    /// Whether the guest may ask now: inside a call, or while it starts.
    pub(super) fn check_may_ask(&self) -> Result<(), TapeError> {
        if self.found.is_some() {
            return Err(TapeError::Diverged);
        }
        match self.phase {
            Phase::Between => Err(TapeError::Misplaced("a question outside any call")),
            _ if self.ended => Err(TapeError::Ended),
            _ => Ok(()),
        }
    }

    /// Continues with later entries and resets the counts: the outcome is that of these entries.
    pub(super) fn feed(&mut self, entries: Vec<Entry>) -> Result<(), TapeError> {
        if !self.may_begin_call() || self.at < self.entries.len() {
            let misplaced = "a replay goes on only where it was the same so far";
            return Err(TapeError::Misplaced(misplaced));
        }
        if let Some(last) = entries.last() {
            self.end_n = last.n.saturating_add(1);
        }
        self.recorded = entries.len() as u64;
        self.entries = entries;
        (self.at, self.calls, self.accepted_count) = (0, 0, 0);
        self.reads = Reads::default();
        self.short = None;
        Ok(())
    }

    /// Whether the guest is between two calls, and was the same so far.
    pub(super) fn may_begin_call(&self) -> bool {
        self.found.is_none() && !self.ended && self.in_call().is_none()
    }

    /// Begins the recorded call that the next entry holds, and returns it with its number. `None` if it holds none.
    pub(super) fn begin_call(&mut self) -> Option<(u64, Call)> {
        let entry = self.entry()?;
        let (n, call) = (entry.n, entry.call()?.clone());
        self.at += 1;
        let name = call.name.clone();
        self.phase = Phase::InCall { name, n };
        Some((n, call))
    }

    /// Compares an ending with the recorded one, which follows the unused questions. `None` if the call was stopped
    /// because the recording has no more of it: it did all that could be compared.
    pub(super) fn compare_ending(&mut self, ending: &Ending) -> Result<Option<Result<(), Divergence>>, TapeError> {
        if self.found.is_some() {
            return Err(TapeError::Diverged);
        }
        let Some((name, _)) = self.in_call() else {
            return Err(TapeError::Misplaced("an ending outside any call"));
        };
        if self.ended {
            return Ok(None);
        }
        let recorded = self.entries.get(self.at + self.asks_left().len());
        let compared = match recorded.map(|entry| &entry.event) {
            Some(Event::Ending(recorded)) => compare_endings(name, recorded, ending, self.same_guest, &self.accepted),
            _ => Ok(0),
        };
        Ok(Some(compared.map(|accepted| self.accepted_count += accepted)))
    }

    /// Ends the current call, whose questions are all used.
    pub(super) fn leave_call(&mut self) {
        self.note_short();
        let has_ending = matches!(self.entry().map(|entry| &entry.event), Some(Event::Ending(_)));
        self.at += usize::from(has_ending);
        self.calls += 1;
        (self.phase, self.ended) = (Phase::Between, false);
    }

    /// The outcome so far. `in_order`: the questions of a call are used one by one, so that the next entry is unused
    /// inside a call, too.
    pub(super) fn outcome(&self, in_order: bool) -> Outcome {
        if let Some(found) = &self.found {
            return found.clone();
        }
        let stopped = self.ended;
        let in_call = self.in_call();
        if let Some(entry) = self.entry()
            && !stopped
            && (in_order || in_call.is_none())
        {
            return Outcome::Unused {
                n: entry.n,
                count: self.entries.len().saturating_sub(self.at) as u64,
                ending: None,
            };
        }
        let inside = in_call.filter(|_| !stopped);
        let inside = inside.map(|(name, n)| format!("the replay stopped inside `{name}` (entry {n})"));
        let tally = Tally {
            calls: self.calls + u64::from(in_call.is_some()),
            entries: self.recorded,
            accepted: self.accepted_count,
            reads: (self.reads.count > 0).then(|| self.reads.clone()),
        };
        match self.short.clone().or(inside) {
            Some(why) => Outcome::IdenticalAsFarAsRecorded { tally, why },
            None => Outcome::Identical(tally),
        }
    }

    /// Stops the guest if the recording has no more of the current call.
    pub(super) fn stop_at_end(&mut self) -> bool {
        let at_end = self.found.is_none() && self.is_cut();
        if at_end {
            self.cut_short();
        }
        at_end
    }

    /// Whether the recording lacks the end of the current call.
    pub(super) fn is_cut(&self) -> bool {
        self.in_call().is_some() && why_short(self.in_call(), self.entry()).is_some()
    }

    /// Stops the guest here: the recording has no answer to its question.
    fn cut_short(&mut self) {
        self.note_short();
        self.ended = true;
    }

    /// Ends the call at a question without a recorded answer.
    pub(super) fn stop(&mut self, missing: Missing) -> TapeError {
        match missing {
            Missing::Otherwise(outcome) => self.diverge(outcome),
            Missing::Ended => {
                self.cut_short();
                TapeError::Ended
            }
        }
    }

    /// Keeps the first deviation.
    pub(super) fn diverge(&mut self, outcome: Outcome) -> TapeError {
        self.found = Some(outcome);
        TapeError::Diverged
    }

    fn note_short(&mut self) {
        if let Some(why) = why_short(self.in_call(), self.entry()) {
            self.short.get_or_insert(why);
        }
    }

    fn in_call(&self) -> Option<(&str, u64)> {
        match &self.phase {
            Phase::InCall { name, n, .. } => Some((name, *n)),
            Phase::Starting | Phase::Between => None,
        }
    }

    // Entry by entry: the same questions in the same order.

    /// The recorded answer, or why the guest gets none.
    pub(super) fn answer<R: DeserializeOwned>(&mut self, name: &str, args: &impl Serialize) -> Result<R, TapeError> {
        self.check_may_ask()?;
        let args = serde_json::to_vec(args).map_err(unwritable(name))?;
        let (answer, accepted) = self.look_up(name, &args).map_err(|missing| self.stop(missing))?;
        self.accepted_count += accepted;
        self.at += 1;
        Ok(answer)
    }

    /// The recorded answer to the current question, which must be that of the next entry; and 1 if it differs from the
    /// recorded one as rules allow, else 0.
    fn look_up<R: DeserializeOwned>(&mut self, name: &str, args: &[u8]) -> Result<(R, u64), Missing> {
        let asked = || Asked::new(name, String::from_utf8_lossy(args));
        let Some(Entry { n, event }) = self.entry() else {
            return Err(Missing::Ended);
        };
        let n = *n;
        let diverged = |divergence| Missing::Otherwise(Outcome::Diverged { n, divergence });
        match event {
            Event::Ask(ask) if ask.name == name => {
                let accepted = compare_args(ask, args, &self.accepted).map_err(diverged)?;
                let Some(answer) = &ask.answer else {
                    // What ended the call at this question is in the next entry.
                    self.at += 1;
                    return Err(Missing::Ended);
                };
                Ok((given(n, name, answer).map_err(Missing::Otherwise)?, accepted))
            }
            Event::Ask(ask) => Err(diverged(Divergence::Question {
                recorded: Asked::new(&ask.name, ask.args.get()),
                asked: asked(),
            })),
            Event::Ending(Ending::Deadline(_) | Ending::Memory(_) | Ending::Cancelled(_)) => Err(Missing::Ended),
            _ => Err(Missing::Otherwise(Outcome::AskedUnrecorded {
                n,
                asked: asked(),
                elsewhere: None,
            })),
        }
    }

    /// The next recorded call, if the guest has asked everything before it.
    pub(super) fn next_call(&mut self) -> Option<(u64, Call)> {
        if !self.may_begin_call() {
            return None;
        }
        let call = self.begin_call();
        if call.is_none()
            && let Some(&Entry { n, .. }) = self.entry()
        {
            // Questions of `init` and `restore` in the recording that were not asked now.
            self.diverge(self.unused(n, None));
        }
        call
    }

    /// Compares how the call ended, after all its questions.
    pub(super) fn end_call(&mut self, ending: &Ending) -> Result<(), TapeError> {
        if let Some(compared) = self.compare_ending(ending)? {
            let n = self.next_n();
            if !self.asks_left().is_empty() {
                return Err(self.diverge(self.unused(n, compared.err())));
            }
            compared.map_err(|divergence| self.diverge(Outcome::Diverged { n, divergence }))?;
        }
        self.leave_call();
        Ok(())
    }

    fn unused(&self, n: u64, ending: Option<Divergence>) -> Outcome {
        Outcome::Unused {
            n,
            count: self.asks_left().len() as u64,
            ending: ending.map(Box::new),
        }
    }
}

/// Why a call, with the number of its entry, can't be compared to its end; `ending` is the entry after its recorded
/// questions. Without a call, the guest is starting.
fn why_short(in_call: Option<(&str, u64)>, ending: Option<&Entry>) -> Option<String> {
    let Some((name, begun)) = in_call else {
        return Some("the recording ends before the first call".to_owned());
    };
    let Some(entry) = ending else {
        return Some(format!("the recording ends inside `{name}` (entry {begun})"));
    };
    let Event::Ending(ending) = &entry.event else {
        return None;
    };
    let (how, text) = match ending {
        Ending::Deadline(text) => ("ended by its deadline", text),
        Ending::Memory(text) => ("ended by its memory limit", text),
        Ending::Cancelled(text) => ("cancelled", text),
        Ending::Result(_) | Ending::Trap(_) => return None,
    };
    Some(format!("`{name}` was {how} at entry {}: {text}", entry.n))
}

/// Why a question has no recorded answer.
pub(super) enum Missing {
    /// The recording ends here.
    Ended,
    Otherwise(Outcome),
}

/// How the arguments of a question, or the endings of a call, compare. `Ok`: they are the same (0), or they differ as
/// rules allow (1).
pub(super) type Compared = Result<u64, Divergence>;

/// Compare bytes first, since the same guest gives the same text; then values.
fn compare_args(ask: &Ask, replayed: &[u8], accepted: &Accepted) -> Compared {
    if ask.args.get().as_bytes() == replayed {
        return Ok(0);
    }
    let whole = |args| OnePart { args, element: None };
    let recorded = whole(value_of(ask.args.get().as_bytes()));
    compare_values(&ask.name, &recorded, &whole(value_of(replayed)), accepted)
}

/// Compares the arguments of two questions of one name, each with at most one element of its list.
pub(super) fn compare_values(name: &str, recorded: &OnePart, replayed: &OnePart, accepted: &Accepted) -> Compared {
    let mut differences = differences_under("args", &recorded.args, &replayed.args);
    if let (Some((list, at, recorded)), Some((_, _, replayed))) = (&recorded.element, &replayed.element) {
        differences.extend(differences_under(&format!("args.{list}[{at}]"), recorded, replayed));
    }
    judged(differences, name, accepted).map_err(|differences| {
        let ask = name.to_owned();
        Divergence::Args { ask, differences }
    })
}

/// How the differences of an entry count under the rules.
///
/// # Errors
/// Those that no rule accepts.
fn judged(differences: Vec<Difference>, entry: &str, accepted: &Accepted) -> Result<u64, Vec<Difference>> {
    let differs = u64::from(!differences.is_empty());
    match accepted.left(entry, differences) {
        left if left.is_empty() => Ok(differs),
        left => Err(left),
    }
}

/// A recorded answer as the guest gets it, or how the replay diverges because it can't be given.
pub(super) fn given<R: DeserializeOwned>(n: u64, name: &str, answer: &RawValue) -> Result<R, Outcome> {
    serde_json::from_str(answer.get()).map_err(|error| {
        let divergence = Divergence::Answer {
            ask: name.to_owned(),
            reason: error.to_string(),
        };
        Outcome::Diverged { n, divergence }
    })
}

/// Compares two endings; they count as the same if they are not comparable: a recorded deadline, memory limit or
/// cancellation does not show what the guest would have done. Compares the texts of two traps only if it is the
/// `same_guest`.
fn compare_endings(call: &str, recorded: &Ending, replayed: &Ending, same_guest: bool, rules: &Accepted) -> Compared {
    match (recorded, replayed) {
        (Ending::Deadline(_) | Ending::Memory(_) | Ending::Cancelled(_), _) => Ok(0),
        (Ending::Trap(recorded), Ending::Trap(replayed)) if !same_guest || is_same_trap(recorded, replayed) => Ok(0),
        (Ending::Result(recorded), Ending::Result(replayed)) => {
            if recorded.get() == replayed.get() {
                return Ok(0);
            }
            let recorded = recorded.get().as_bytes();
            let replayed = replayed.get().as_bytes();
            let differences = differences_under("result", &value_of(recorded), &value_of(replayed));
            judged(differences, &result_of(call), rules).map_err(|differences| {
                let call = call.to_owned();
                Divergence::Result { call, differences }
            })
        }
        (recorded, replayed) => Err(Divergence::Ending {
            call: call.to_owned(),
            recorded: text_of(recorded),
            replayed: text_of(replayed),
        }),
    }
}

/// Whether two texts describe one trap. Functions may be listed differently than by the recording host, and recordings
/// of an older host may lack a panic's text.
fn is_same_trap(recorded: &str, replayed: &str) -> bool {
    const NO_TEXT: &str = "trapped: `unreachable`";
    // The name before it may be the guest's name in the configuration.
    fn of_call(text: &str) -> &str {
        text.split_once(" in `").map_or(text, |(_, call)| call)
    }
    fn cause(text: &str) -> Option<&str> {
        of_call(text).split(" (at ").next()
    }
    fn panic(text: &str) -> Option<&str> {
        let (place, what) = of_call(text).split_once("trapped: ")?;
        (what.starts_with("`unreachable`") || what.starts_with("panicked at ")).then_some(place)
    }
    let has_no_text = recorded.contains(NO_TEXT) || replayed.contains(NO_TEXT);
    cause(recorded) == cause(replayed)
        || (has_no_text && panic(recorded).is_some() && panic(recorded) == panic(replayed))
}

/// serde_json wrote both sides, so both parse; other text would be compared as text.
fn value_of(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(json)))
}

fn text_of(ending: &Ending) -> String {
    let (key, value) = ending.parts();
    match value {
        Ok(raw) => format!("{key} {}", raw.get()),
        Err(text) => format!("{key} {}", Value::from(text)),
    }
}
