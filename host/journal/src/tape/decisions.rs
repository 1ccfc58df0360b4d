//! Compares decisions: answers come from the recording by question, not by position, and only the guest's writes and
//! results are compared with it.
//!
//! ```text
//! means (time, randomness, timers): the recorded answer to the same question, else the host's
//! read:  a recorded answer to the same question, if possible one given after the same writes; if none is left,
//!        the call is undecided
//! write: must be the object's next recorded write, which gives the answer; else the guest decides differently
//! end:   no recorded write is left, and the result is the recorded one
//! ```

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::compare::{Args, compare_endings, compare_values};
use super::questions::{Found, Hand, Kind, OnePart, Questions, parts_of};
use super::replay::{Phase, why_short};
use super::{RecordedCall, TapeError};
use crate::accepted::Accepted;
use crate::divergence::{Asked, Divergence, Outcome, Reads};
use crate::entry::{Ending, Entry, Event};
use crate::reader::Segment;

#[derive(Debug)]
pub(super) struct Decisions {
    /// Without rollbacks: they concern the entries' validity, not the guest's behaviour.
    entries: Vec<Entry>,
    /// The number of entries in the recording, including its header.
    recorded: u64,
    /// The entry after the questions of the current call: how it ended.
    at: usize,
    phase: Phase,
    /// The recorded questions of the current call.
    hand: Hand,
    questions: Questions,
    /// Number of the entry after the last.
    end_n: u64,
    same_guest: bool,
    accepted: Arc<Accepted>,
    accepted_count: u64,
    calls: u64,
    reads: Reads,
    found: Option<Outcome>,
    /// Why less could be compared than expected.
    short: Option<String>,
}

/// Why a question has no recorded answer.
enum Missing {
    /// The recording ends here.
    Ended,
    Otherwise(Outcome),
}

/// A recorded answer with its entry; without an answer, the call was cut at this question.
type Recorded = (u64, Option<Box<RawValue>>);

impl Decisions {
    pub(super) fn new(segment: Segment, digest: &str, accepted: Arc<Accepted>, questions: Questions) -> Self {
        let mut decisions = Self {
            same_guest: segment.header.digest == digest,
            end_n: segment.next_n(),
            recorded: segment.entries.len() as u64 + 1,
            entries: segment
                .entries
                .into_iter()
                .filter(|entry| !matches!(entry.event, Event::RolledBack(_)))
                .collect(),
            at: 0,
            phase: Phase::Starting { ended: false },
            hand: Hand::default(),
            questions,
            accepted,
            accepted_count: 0,
            calls: 0,
            reads: Reads::default(),
            found: None,
            short: None,
        };
        decisions.take_in_hand();
        decisions
    }

    /// Takes the questions from here on as those of the current call.
    fn take_in_hand(&mut self) {
        let left = self.entries.get(self.at..).unwrap_or_default();
        let is_question = |entry: &&Entry| matches!(entry.event, Event::Ask(_));
        let count = left.iter().take_while(is_question).count();
        self.hand = Hand::of(left.get(..count).unwrap_or_default(), self.questions);
        self.at += count;
    }

    /// The recorded answer. `None` if the host must answer, whose clock and randomness are the same each time.
    pub(super) fn given<A, R>(&mut self, name: &str, args: &A) -> Result<Option<R>, TapeError>
    where
        A: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        if self.found.is_some() {
            return Err(TapeError::Diverged);
        }
        match self.phase {
            Phase::Between => return Err(TapeError::Misplaced("a question outside any call")),
            Phase::Starting { ended: true } | Phase::InCall { ended: true, .. } => return Err(TapeError::Ended),
            Phase::Starting { .. } | Phase::InCall { .. } => {}
        }
        let args = serde_json::to_value(args).map_err(|source| TapeError::Unwritable {
            name: name.to_owned(),
            source,
        })?;
        match self.answer(name, &args) {
            Ok(None) => Ok(None),
            Ok(Some((n, Some(answer)))) => serde_json::from_str(answer.get()).map(Some).map_err(|error| {
                let divergence = Divergence::Answer {
                    ask: name.to_owned(),
                    reason: error.to_string(),
                };
                self.diverge(Outcome::Diverged { n, divergence })
            }),
            Ok(Some((_, None))) | Err(Missing::Ended) => {
                self.cut_short();
                Err(TapeError::Ended)
            }
            Err(Missing::Otherwise(outcome)) => Err(self.diverge(outcome)),
        }
    }

    /// The recorded answer; for a list, one combined from its elements' answers. `None` if the host must answer.
    fn answer(&mut self, name: &str, args: &Value) -> Result<Option<Recorded>, Missing> {
        let question = (self.questions)(name);
        let mut from = self.ending_n();
        let mut answers = Vec::new();
        let parts = parts_of(&question, args.clone());
        let is_list = parts.first().is_none_or(|part| part.element.is_some());
        for part in parts {
            let found = match question.kind {
                // Arguments about time differ from the recorded ones; the recording tells which timer it is.
                Kind::Means => match self.hand.means(name, &part, name == "timers.schedule") {
                    Some(part) => (part.n, part.answer.clone()),
                    None => return Ok(None),
                },
                Kind::Read => match self.hand.read(name, &part) {
                    Found::Part(part) => (part.n, part.answer.clone()),
                    Found::Elsewhere(n) => return Err(self.undecided(name, args, Some(n))),
                    Found::Nothing => return Err(self.undecided(name, args, None)),
                },
                Kind::Write => self.write(name, &part, &part.object(&question), args)?,
            };
            let (n, Some(answer)) = found else {
                return Ok(Some(found));
            };
            from = n;
            answers.push(answer);
        }
        let answer = if is_list { joined(&answers) } else { answers.pop() };
        Ok(Some((from, answer)))
    }

    /// Compares a write with the object's next recorded one.
    fn write(&mut self, name: &str, part: &OnePart, object: &str, args: &Value) -> Result<Recorded, Missing> {
        let diverged = |n, divergence| Err(Missing::Otherwise(Outcome::Diverged { n, divergence }));
        let Some((at, recorded)) = self.hand.write(object) else {
            if self.is_cut() {
                return Err(self.undecided(name, args, None));
            }
            let asked = asked(name, args);
            return diverged(self.ending_n(), Divergence::Unrecorded { asked });
        };
        let n = recorded.n;
        if recorded.name != name {
            let recorded = recorded.shown();
            let asked = asked(name, args);
            return diverged(n, Divergence::Question { recorded, asked });
        }
        match compare_values(name, &recorded.asked, part, &self.accepted) {
            Args::Differ(divergence) => diverged(n, divergence),
            compared => {
                self.accepted_count += u64::from(compared == Args::Accepted);
                Ok((n, self.hand.take(at).and_then(|part| part.answer.clone())))
            }
        }
    }

    /// The recording can't tell how the world would have answered. If it was cut and all else was asked, it is just
    /// over.
    fn undecided(&self, name: &str, args: &Value, elsewhere: Option<u64>) -> Missing {
        if self.is_cut() && self.hand.unmade().is_none() {
            return Missing::Ended;
        }
        Missing::Otherwise(Outcome::AskedUnrecorded {
            n: self.ending_n(),
            asked: asked(name, args),
            elsewhere,
        })
    }

    /// As [`super::replay::Replay::feed`].
    pub(super) fn feed(&mut self, entries: Vec<Entry>) -> Result<(), TapeError> {
        let all_used = self.at >= self.entries.len();
        let ended = matches!(self.phase, Phase::Between | Phase::Starting { ended: false });
        if self.found.is_some() || !all_used || !ended {
            return Err(TapeError::Misplaced(
                "a replay goes on only where it was the same so far",
            ));
        }
        if let Some(last) = entries.last() {
            self.end_n = last.n.saturating_add(1);
        }
        self.recorded = entries.len() as u64;
        self.entries = entries;
        self.at = 0;
        self.calls = 0;
        self.accepted_count = 0;
        self.reads = Reads::default();
        self.short = None;
        Ok(())
    }

    pub(super) fn next_call(&mut self) -> Option<RecordedCall> {
        if self.found.is_some() || matches!(self.phase, Phase::InCall { .. } | Phase::Starting { ended: true }) {
            return None;
        }
        if let Some(outcome) = self.unmade() {
            self.found = Some(outcome);
            return None;
        }
        let entry = self.entries.get(self.at)?;
        let Event::Call(call) = &entry.event else { return None };
        let (n, call) = (entry.n, call.clone());
        self.at += 1;
        self.take_in_hand();
        self.phase = Phase::InCall {
            name: call.name.clone(),
            n,
            ended: false,
        };
        Some(RecordedCall {
            n,
            at_ms: call.at_ms,
            name: call.name,
            args: call.args,
        })
    }

    pub(super) fn end_call(&mut self, ending: &Ending) -> Result<(), TapeError> {
        if self.found.is_some() {
            return Err(TapeError::Diverged);
        }
        let Phase::InCall { name, ended, .. } = &self.phase else {
            return Err(TapeError::Misplaced("an ending outside any call"));
        };
        let recorded = self.entries.get(self.at).and_then(|entry| match &entry.event {
            Event::Ending(recorded) => Some(recorded),
            _ => None,
        });
        // A call that was stopped because the recording has no more of it did all that could be compared.
        if !ended {
            let (differs, accepted) = match recorded {
                Some(recorded) => compare_endings(name, recorded, ending, self.same_guest, &self.accepted),
                None => (None, false),
            };
            let n = self.ending_n();
            let outcome = match differs {
                // Its ending explains why it omitted the rest.
                Some(divergence @ Divergence::Ending { .. }) => Some(Outcome::Diverged { n, divergence }),
                differs => self
                    .unmade()
                    .or_else(|| differs.map(|divergence| Outcome::Diverged { n, divergence })),
            };
            if let Some(outcome) = outcome {
                return Err(self.diverge(outcome));
            }
            self.accepted_count += u64::from(accepted);
            self.reads.add(self.hand.differing_reads());
        }
        let has_ending = recorded.is_some();
        self.note_short();
        self.at += usize::from(has_ending);
        self.calls += 1;
        self.hand = Hand::default();
        self.phase = Phase::Between;
        Ok(())
    }

    pub(super) fn outcome(&self) -> Outcome {
        if let Some(found) = &self.found {
            return found.clone();
        }
        let (stopped, calls) = match &self.phase {
            Phase::Starting { ended } => (*ended, self.calls),
            Phase::Between => (false, self.calls),
            Phase::InCall { ended, .. } => (*ended, self.calls + 1),
        };
        let in_call = self.in_call();
        if let (Some(entry), false, None) = (self.entries.get(self.at), stopped, in_call) {
            return Outcome::Unused {
                n: entry.n,
                count: self.entries.len().saturating_sub(self.at) as u64,
                ending: None,
            };
        }
        let inside = in_call.filter(|_| !stopped);
        let inside = inside.map(|(name, n)| format!("the replay stopped inside `{name}` (entry {n})"));
        let (entries, accepted) = (self.recorded, self.accepted_count);
        let reads = (self.reads.count > 0).then(|| self.reads.clone());
        match self.short.clone().or(inside) {
            Some(why) => Outcome::IdenticalAsFarAsRecorded {
                calls,
                entries,
                accepted,
                reads,
                why,
            },
            None => Outcome::Identical {
                calls,
                entries,
                accepted,
                reads,
            },
        }
    }

    /// As [`super::replay::Replay::stop_at_end`].
    pub(super) fn stop_at_end(&mut self) -> bool {
        let at_end = self.found.is_none() && self.is_cut() && self.hand.is_used_up();
        if at_end {
            self.cut_short();
        }
        at_end
    }

    fn note_short(&mut self) {
        if let Some(why) = why_short(self.in_call(), self.entries.get(self.at)) {
            self.short.get_or_insert(why);
        }
    }

    /// Stops the guest here: the recording has no answer to its question.
    fn cut_short(&mut self) {
        self.note_short();
        if let Phase::Starting { ended } | Phase::InCall { ended, .. } = &mut self.phase {
            *ended = true;
        }
    }

    fn in_call(&self) -> Option<(&str, u64)> {
        match &self.phase {
            Phase::InCall { name, n, .. } => Some((name, *n)),
            Phase::Starting { .. } | Phase::Between => None,
        }
    }

    /// Whether the recording lacks the end of the current call.
    fn is_cut(&self) -> bool {
        self.in_call().is_some() && why_short(self.in_call(), self.entries.get(self.at)).is_some()
    }

    /// The entry of the recorded ending, or of what replaces it.
    fn ending_n(&self) -> u64 {
        self.entries.get(self.at).map_or(self.end_n, |entry| entry.n)
    }

    fn unmade(&self) -> Option<Outcome> {
        let (part, count) = self.hand.unmade()?;
        let recorded = part.shown();
        let divergence = Divergence::Unwritten { recorded, count };
        Some(Outcome::Diverged { n: part.n, divergence })
    }

    fn diverge(&mut self, outcome: Outcome) -> TapeError {
        self.found = Some(outcome);
        TapeError::Diverged
    }
}

fn asked(name: &str, args: &Value) -> Asked {
    Asked {
        name: name.to_owned(),
        args: args.to_string(),
    }
}

/// A list of these answers.
fn joined(answers: &[Box<RawValue>]) -> Option<Box<RawValue>> {
    let texts: Vec<&str> = answers.iter().map(|answer| answer.get()).collect();
    RawValue::from_string(format!("[{}]", texts.join(","))).ok()
}
