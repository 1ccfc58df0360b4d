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

use super::progress::{Missing, Progress, compare_values, given};
use super::questions::{CallQuestions, Kind, OnePart, Questions, parts_of};
use super::{Known, TapeError, unwritable};
use crate::accepted::Accepted;
use crate::divergence::{Asked, Divergence, Outcome};
use crate::entry::{Call, Ending};
use crate::reader::Segment;

#[derive(Debug)]
pub(super) struct Decisions {
    /// Where it is after the questions of the current call: at how that call ended.
    pub(super) progress: Progress,
    /// The recorded questions of the current call.
    recorded: CallQuestions,
    questions: Questions,
}

/// A recorded answer with its entry; without an answer, the call was cut at this question.
type Recorded = (u64, Option<Box<RawValue>>);

impl Decisions {
    pub(super) fn new(segment: Segment, digest: &str, accepted: Arc<Accepted>, questions: Questions) -> Self {
        let mut decisions = Self {
            progress: Progress::new(segment, digest, accepted),
            recorded: CallQuestions::default(),
            questions,
        };
        decisions.take_questions();
        decisions
    }

    /// Takes the questions from here on as those of the current call.
    fn take_questions(&mut self) {
        let asks = self.progress.asks_left();
        let count = asks.len();
        self.recorded = CallQuestions::of(asks, self.questions);
        self.progress.at += count;
    }

    /// The recorded answer. `None` if the host must answer, whose clock and randomness are the same each time.
    pub(super) fn given<R: DeserializeOwned>(&mut self, name: &str, args: &impl Serialize) -> Known<R> {
        self.progress.check_may_ask()?;
        let args = serde_json::to_value(args).map_err(unwritable(name))?;
        let found = self.answer(name, &args).and_then(|found| {
            let answer = found.map(|(n, answer)| given(n, name, &answer));
            answer.transpose().map_err(Missing::Otherwise)
        });
        found.map_err(|missing| self.progress.stop(missing))
    }

    /// The recorded answer; for a list, one combined from its elements' answers. `None` if the host must answer.
    fn answer(&mut self, name: &str, args: &Value) -> Result<Option<(u64, Box<RawValue>)>, Missing> {
        let question = (self.questions)(name);
        let mut from = self.progress.next_n();
        let mut answers = Vec::new();
        let parts = parts_of(&question, args.clone());
        let is_list = parts.first().is_none_or(|part| part.element.is_some());
        for part in parts {
            let found = match question.kind {
                // Arguments about time differ from the recorded ones; the recording tells which timer it is.
                Kind::Means => match self.recorded.means(name, &part, name == "timers.schedule") {
                    Some(part) => (part.n, part.answer.clone()),
                    None => return Ok(None),
                },
                Kind::Read => match self.recorded.read(name, &part) {
                    Ok(part) => (part.n, part.answer.clone()),
                    Err(elsewhere) => return Err(self.undecided(name, args, elsewhere)),
                },
                Kind::Write => self.write(name, &part, &part.object(&question), args)?,
            };
            let (n, Some(answer)) = found else {
                return Err(Missing::Ended);
            };
            from = n;
            answers.push(answer);
        }
        let answer = if is_list { joined(&answers) } else { answers.pop() };
        answer.map(|answer| Some((from, answer))).ok_or(Missing::Ended)
    }

    /// Compares a write with the object's next recorded one.
    fn write(&mut self, name: &str, part: &OnePart, object: &str, args: &Value) -> Result<Recorded, Missing> {
        let diverged = |n, divergence| Err(Missing::Otherwise(Outcome::Diverged { n, divergence }));
        let Some((at, recorded)) = self.recorded.write(object) else {
            if self.progress.is_cut() {
                return Err(self.undecided(name, args, None));
            }
            let asked = Asked::new(name, args.to_string());
            return diverged(self.progress.next_n(), Divergence::Unrecorded { asked });
        };
        let n = recorded.n;
        if recorded.name != name {
            let recorded = recorded.shown();
            let asked = Asked::new(name, args.to_string());
            return diverged(n, Divergence::Question { recorded, asked });
        }
        match compare_values(name, &recorded.asked, part, &self.progress.accepted) {
            Err(divergence) => diverged(n, divergence),
            Ok(accepted) => {
                self.progress.accepted_count += accepted;
                Ok((n, self.recorded.take(at).and_then(|part| part.answer.clone())))
            }
        }
    }

    /// The recording can't tell how the world would have answered. If it was cut and all else was asked, it is just
    /// over.
    fn undecided(&self, name: &str, args: &Value, elsewhere: Option<u64>) -> Missing {
        if self.progress.is_cut() && self.recorded.unmade().is_none() {
            return Missing::Ended;
        }
        Missing::Otherwise(Outcome::AskedUnrecorded {
            n: self.progress.next_n(),
            asked: Asked::new(name, args.to_string()),
            elsewhere,
        })
    }

    pub(super) fn next_call(&mut self) -> Option<(u64, Call)> {
        if !self.progress.may_begin_call() {
            return None;
        }
        if let Some(outcome) = self.unmade() {
            self.progress.diverge(outcome);
            return None;
        }
        let call = self.progress.begin_call()?;
        self.take_questions();
        Some(call)
    }

    pub(super) fn end_call(&mut self, ending: &Ending) -> Result<(), TapeError> {
        if let Some(compared) = self.progress.compare_ending(ending)? {
            let n = self.progress.next_n();
            let outcome = match compared {
                // Its ending explains why it omitted the rest.
                Err(divergence @ Divergence::Ending { .. }) => Some(Outcome::Diverged { n, divergence }),
                Err(divergence) => self.unmade().or(Some(Outcome::Diverged { n, divergence })),
                Ok(()) => self.unmade(),
            };
            if let Some(outcome) = outcome {
                return Err(self.progress.diverge(outcome));
            }
            self.progress.reads.add(self.recorded.differing_reads());
        }
        self.progress.leave_call();
        self.recorded = CallQuestions::default();
        Ok(())
    }

    /// As [`Progress::stop_at_end`].
    pub(super) fn stop_at_end(&mut self) -> bool {
        self.recorded.is_used_up() && self.progress.stop_at_end()
    }

    fn unmade(&self) -> Option<Outcome> {
        let (part, count) = self.recorded.unmade()?;
        let recorded = part.shown();
        let divergence = Divergence::Unwritten { recorded, count };
        Some(Outcome::Diverged { n: part.n, divergence })
    }
}

/// A list of these answers.
fn joined(answers: &[Box<RawValue>]) -> Option<Box<RawValue>> {
    let texts: Vec<&str> = answers.iter().map(|answer| answer.get()).collect();
    RawValue::from_string(format!("[{}]", texts.join(","))).ok()
}
