//! Replaying: answers come from the recording, and the guest's actions are compared with it, entry by entry.
//!
//! The first divergence is kept, and from then on every question is refused, since later differences follow from the
//! first. If the recording itself has no more to compare (it ends inside a call, or the call was cut short by deadline,
//! memory or cancellation), the guest is stopped at its next question; this is not a divergence.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TapeError;
use super::progress::{Missing, Progress, compare_args, given};
use crate::accepted::Accepted;
use crate::divergence::{Asked, Divergence, Outcome};
use crate::entry::{Call, Ending, Entry, Event};
use crate::reader::Segment;

#[derive(Debug)]
pub(super) struct Replay {
    pub(super) progress: Progress,
    /// The arguments of the current question.
    args: Vec<u8>,
}

impl Replay {
    pub(super) fn new(segment: Segment, digest: &str, accepted: Arc<Accepted>) -> Self {
        Self {
            progress: Progress::new(segment, digest, accepted),
            args: Vec::new(),
        }
    }

    pub(super) fn answer<A, R>(&mut self, name: &str, args: &A) -> Result<R, TapeError>
    where
        A: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        self.progress.check_may_ask()?;
        self.args.clear();
        serde_json::to_writer(&mut self.args, args).map_err(TapeError::unwritable(name))?;
        let found = self.look_up(name);
        let (answer, accepted) = found.map_err(|missing| self.progress.stop(missing))?;
        self.progress.accepted_count += accepted;
        self.progress.at += 1;
        Ok(answer)
    }

    /// The recorded answer to the current question, which must be that of the next entry; and 1 if it differs from the
    /// recorded one as rules allow, else 0.
    fn look_up<R: DeserializeOwned>(&mut self, name: &str) -> Result<(R, u64), Missing> {
        let asked = || Asked::new(name, String::from_utf8_lossy(&self.args));
        let Some(Entry { n, event }) = self.progress.entry() else {
            return Err(None);
        };
        let n = *n;
        let diverged = |divergence| Some(Outcome::Diverged { n, divergence });
        match event {
            Event::Ask(ask) if ask.name == name => {
                let accepted = compare_args(ask, &self.args, &self.progress.accepted).map_err(diverged)?;
                let Some(answer) = &ask.answer else {
                    // What ended the call at this question is in the next entry.
                    self.progress.at += 1;
                    return Err(None);
                };
                Ok((given(n, name, answer).map_err(Some)?, accepted))
            }
            Event::Ask(ask) => Err(diverged(Divergence::Question {
                recorded: Asked::new(&ask.name, ask.args.get()),
                asked: asked(),
            })),
            Event::Ending(Ending::Deadline(_) | Ending::Memory(_) | Ending::Cancelled(_)) => Err(None),
            _ => Err(Some(Outcome::AskedUnrecorded {
                n,
                asked: asked(),
                elsewhere: None,
            })),
        }
    }

    pub(super) fn next_call(&mut self) -> Option<(u64, Call)> {
        if !self.progress.may_begin_call() {
            return None;
        }
        let call = self.progress.begin_call();
        if call.is_none()
            && let Some(Entry { n, .. }) = self.progress.entry()
        {
            // Questions of `init` and `restore` in the recording that were not asked now.
            let outcome = self.unused(*n, None);
            self.progress.diverge(outcome);
        }
        call
    }

    pub(super) fn end_call(&mut self, ending: &Ending) -> Result<(), TapeError> {
        if let Some(compared) = self.progress.compare_ending(ending)? {
            let n = self.progress.next_n();
            if !self.progress.asks_left().is_empty() {
                let outcome = self.unused(n, compared.err());
                return Err(self.progress.diverge(outcome));
            }
            compared.map_err(|divergence| self.progress.diverge(Outcome::Diverged { n, divergence }))?;
        }
        self.progress.end_call();
        Ok(())
    }

    fn unused(&self, n: u64, ending: Option<Divergence>) -> Outcome {
        Outcome::Unused {
            n,
            count: self.progress.asks_left().len() as u64,
            ending: ending.map(Box::new),
        }
    }
}
