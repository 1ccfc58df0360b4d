//! Replaying: answers come from the recording, and the guest's actions are compared with it, entry by entry.
//!
//! The first divergence is kept, and from then on every question is refused, since later differences follow from the
//! first. If the recording itself has no more to compare (it ends inside a call, or the call was cut short by deadline,
//! memory or cancellation), the guest is stopped at its next question; this is not a divergence.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::compare::{Args, compare_args, compare_endings};
use super::{RecordedCall, TapeError};
use crate::accepted::Accepted;
use crate::divergence::{Asked, Divergence, Outcome};
use crate::entry::{Ask, Ending, Entry, Event};
use crate::reader::Segment;

#[derive(Debug)]
pub(super) struct Replay {
    /// Without rollbacks: they concern the entries' validity, not the guest's behaviour.
    entries: Vec<Entry>,
    /// The number of entries in the recording, including its header.
    recorded: u64,
    /// The next entry to use.
    at: usize,
    phase: Phase,
    /// Number of the entry after the last.
    end_n: u64,
    same_guest: bool,
    /// Accepted differences.
    accepted: Arc<Accepted>,
    /// The number of questions and results with only accepted differences.
    accepted_count: u64,
    calls: u64,
    /// The first deviation from the recording.
    found: Option<Outcome>,
    /// Why less could be compared than expected.
    short: Option<String>,
    /// The arguments of the current question.
    args: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// `init` and `restore`.
    Starting {
        ended: bool,
    },
    Between,
    /// Inside a call; `ended`: the recording has no further answers for it.
    InCall {
        name: String,
        n: u64,
        ended: bool,
    },
}

/// The content of the recording at a question's place.
enum Found {
    /// `accepted`: the question differs from the recorded one as rules allow.
    Answer {
        accepted: bool,
    },
    Unanswered,
    Ended,
    Otherwise(Outcome),
}

impl Replay {
    pub(super) fn new(segment: Segment, digest: &str, accepted: Arc<Accepted>) -> Self {
        Self {
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
            accepted,
            accepted_count: 0,
            calls: 0,
            found: None,
            short: None,
            args: Vec::new(),
        }
    }

    pub(super) fn answer<A, R>(&mut self, name: &str, args: &A) -> Result<R, TapeError>
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
        self.args.clear();
        serde_json::to_writer(&mut self.args, args).map_err(|source| TapeError::Unwritable {
            name: name.to_owned(),
            source,
        })?;
        match self.look_up(name) {
            Found::Answer { accepted } => {
                self.accepted_count += u64::from(accepted);
                self.take_answer()
            }
            Found::Unanswered => {
                self.at += 1;
                self.cut_short();
                Err(TapeError::Ended)
            }
            Found::Ended => {
                self.cut_short();
                Err(TapeError::Ended)
            }
            Found::Otherwise(outcome) => Err(self.diverge(outcome)),
        }
    }

    /// Compares the current question with the next entry.
    fn look_up(&self, name: &str) -> Found {
        let asked = || Asked {
            name: name.to_owned(),
            args: String::from_utf8_lossy(&self.args).into_owned(),
        };
        let Some(entry) = self.entries.get(self.at) else {
            return Found::Ended;
        };
        match &entry.event {
            Event::Ask(ask) if ask.name == name => match (compare_args(ask, &self.args, &self.accepted), &ask.answer) {
                (Args::Differ(divergence), _) => Found::Otherwise(Outcome::Diverged { n: entry.n, divergence }),
                (args, Some(_)) => Found::Answer {
                    accepted: args == Args::Accepted,
                },
                (_, None) => Found::Unanswered,
            },
            Event::Ask(ask) => {
                let recorded = Asked {
                    name: ask.name.clone(),
                    args: ask.args.get().to_owned(),
                };
                let divergence = Divergence::Question {
                    recorded,
                    asked: asked(),
                };
                Found::Otherwise(Outcome::Diverged { n: entry.n, divergence })
            }
            Event::Ending(Ending::Deadline(_) | Ending::Memory(_) | Ending::Cancelled(_)) => Found::Ended,
            Event::Ending(Ending::Result(_) | Ending::Trap(_))
            | Event::Call(_)
            | Event::Header(_)
            | Event::RolledBack(_) => Found::Otherwise(Outcome::AskedUnrecorded {
                n: entry.n,
                asked: asked(),
                elsewhere: None,
            }),
        }
    }

    /// Uses the answer in the entry that [`Replay::look_up`] found.
    fn take_answer<R: DeserializeOwned>(&mut self) -> Result<R, TapeError> {
        let Some(Entry {
            n,
            event:
                Event::Ask(Ask {
                    name,
                    answer: Some(answer),
                    ..
                }),
        }) = self.entries.get(self.at)
        else {
            return Err(TapeError::Misplaced("the recorded answer is gone"));
        };
        match serde_json::from_str(answer.get()) {
            Ok(answer) => {
                self.at += 1;
                Ok(answer)
            }
            Err(error) => {
                let divergence = Divergence::Answer {
                    ask: name.clone(),
                    reason: error.to_string(),
                };
                let outcome = Outcome::Diverged { n: *n, divergence };
                Err(self.diverge(outcome))
            }
        }
    }

    /// Continues with later entries and resets the counts: the outcome is that of these entries.
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
        self.short = None;
        Ok(())
    }

    pub(super) fn next_call(&mut self) -> Option<RecordedCall> {
        if self.found.is_some() || matches!(self.phase, Phase::InCall { .. } | Phase::Starting { ended: true }) {
            return None;
        }
        let entry = self.entries.get(self.at)?;
        match &entry.event {
            Event::Call(call) => {
                let (n, call) = (entry.n, call.clone());
                self.at += 1;
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
            // Questions of `init` and `restore` in the recording that were not asked now.
            _ => {
                self.found = Some(Outcome::Unused {
                    n: entry.n,
                    count: self.asks_left(),
                    ending: None,
                });
                None
            }
        }
    }

    pub(super) fn end_call(&mut self, ending: &Ending) -> Result<(), TapeError> {
        if self.found.is_some() {
            return Err(TapeError::Diverged);
        }
        let Phase::InCall { name, ended, .. } = &self.phase else {
            return Err(TapeError::Misplaced("an ending outside any call"));
        };
        let asks_left = self.asks_left();
        let recorded = self
            .entries
            .get(self.at + usize::try_from(asks_left).unwrap_or(usize::MAX));
        let recorded = recorded.and_then(|entry| match &entry.event {
            Event::Ending(recorded) => Some((entry.n, recorded)),
            _ => None,
        });
        // A call that was stopped because the recording has no more of it did all that could be compared.
        if !ended {
            let (differs, accepted) = match recorded {
                Some((_, recorded)) => compare_endings(name, recorded, ending, self.same_guest, &self.accepted),
                None => (None, false),
            };
            if asks_left > 0 {
                let n = self.entries.get(self.at).map_or(self.end_n, |entry| entry.n);
                let outcome = Outcome::Unused {
                    n,
                    count: asks_left,
                    ending: differs.map(Box::new),
                };
                return Err(self.diverge(outcome));
            }
            if let (Some((n, _)), Some(divergence)) = (recorded, differs) {
                return Err(self.diverge(Outcome::Diverged { n, divergence }));
            }
            self.accepted_count += u64::from(accepted);
        }
        if let Some(why) = self.why_short() {
            self.short.get_or_insert(why);
        }
        self.at += usize::from(recorded.is_some());
        self.calls += 1;
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
        let (entries, accepted) = (self.recorded, self.accepted_count);
        match (self.entries.get(self.at), &self.short) {
            (Some(entry), _) if !stopped => {
                let count = self.entries.len().saturating_sub(self.at) as u64;
                Outcome::Unused {
                    n: entry.n,
                    count,
                    ending: None,
                }
            }
            (_, Some(why)) => Outcome::IdenticalAsFarAsRecorded {
                calls,
                entries,
                accepted,
                reads: None,
                why: why.clone(),
            },
            (_, None) => match &self.phase {
                Phase::InCall { name, n, ended: false } => {
                    let why = format!("the replay stopped inside `{name}` (entry {n})");
                    Outcome::IdenticalAsFarAsRecorded {
                        calls,
                        entries,
                        accepted,
                        reads: None,
                        why,
                    }
                }
                _ => Outcome::Identical {
                    calls,
                    entries,
                    accepted,
                    reads: None,
                },
            },
        }
    }

    pub(super) fn stop_at_end(&mut self) -> bool {
        let at_end = self.found.is_none() && matches!(self.phase, Phase::InCall { .. }) && self.why_short().is_some();
        if at_end {
            self.cut_short();
        }
        at_end
    }

    /// Stops the guest here: the recording has no answer to its question.
    fn cut_short(&mut self) {
        if let Some(why) = self.why_short() {
            self.short.get_or_insert(why);
        }
        if let Phase::Starting { ended } | Phase::InCall { ended, .. } = &mut self.phase {
            *ended = true;
        }
    }

    /// Why the current call can't be compared to its end, with all its questions used.
    fn why_short(&self) -> Option<String> {
        let in_call = match &self.phase {
            Phase::InCall { name, n, .. } => Some((name.as_str(), *n)),
            Phase::Starting { .. } | Phase::Between => None,
        };
        why_short(in_call, self.entries.get(self.at))
    }

    /// The number of unused questions of the current call.
    fn asks_left(&self) -> u64 {
        let left = self.entries.iter().skip(self.at);
        left.take_while(|entry| matches!(entry.event, Event::Ask(_))).count() as u64
    }

    fn diverge(&mut self, outcome: Outcome) -> TapeError {
        self.found = Some(outcome);
        TapeError::Diverged
    }
}

/// Why a call, with the number of its entry, can't be compared to its end; `ending` is the entry after its recorded
/// questions. Without a call, the guest is starting.
pub(super) fn why_short(in_call: Option<(&str, u64)>, ending: Option<&Entry>) -> Option<String> {
    let Some((name, begun)) = in_call else {
        return Some("the recording ends before the first call".to_owned());
    };
    let Some(entry) = ending else {
        return Some(format!("the recording ends inside `{name}` (entry {begun})"));
    };
    match &entry.event {
        Event::Ending(Ending::Deadline(text)) => Some(format!(
            "`{name}` was ended by its deadline at entry {}: {text}",
            entry.n
        )),
        Event::Ending(Ending::Memory(text)) => Some(format!(
            "`{name}` was ended by its memory limit at entry {}: {text}",
            entry.n
        )),
        Event::Ending(Ending::Cancelled(text)) => Some(format!("`{name}` was cancelled at entry {}: {text}", entry.n)),
        _ => None,
    }
}
