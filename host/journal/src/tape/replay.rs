//! Replaying: answers come from the recording, and the guest's actions are compared with it, entry by entry.
//!
//! The first divergence is kept, and from then on every question is refused, since later differences follow from the
//! first. If the recording itself has no more to compare (it ends inside a call, or the call was cut short by deadline,
//! memory or cancellation), the guest is stopped at its next question; this is not a divergence.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TapeError;
use super::progress::{Missing, Progress, compare_args, given};
use crate::divergence::{Asked, Divergence, Outcome};
use crate::entry::{Call, Ending, Entry, Event};

impl Progress {
    /// The recorded answer, or why the guest gets none.
    pub(super) fn answer<R: DeserializeOwned>(&mut self, name: &str, args: &impl Serialize) -> Result<R, TapeError> {
        self.check_may_ask()?;
        let args = serde_json::to_vec(args).map_err(TapeError::unwritable(name))?;
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
            return Err(None);
        };
        let n = *n;
        let diverged = |divergence| Some(Outcome::Diverged { n, divergence });
        match event {
            Event::Ask(ask) if ask.name == name => {
                let accepted = compare_args(ask, args, &self.accepted).map_err(diverged)?;
                let Some(answer) = &ask.answer else {
                    // What ended the call at this question is in the next entry.
                    self.at += 1;
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
