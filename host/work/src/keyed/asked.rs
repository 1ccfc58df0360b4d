//! Puts keys that the operator asks for at the front of the queue.

use trueup_base::clock::{Clock as _, SystemClock};

use super::{Keyed, Reconciler};
use crate::decisions::Cause;
use crate::event::Event;

impl<W: Reconciler, T: FnMut(Event)> Keyed<W, T> {
    pub(super) fn take_asked(&mut self) {
        for (key, reply) in self.shared.active.asked.take() {
            // The operator may have gone; the key gets its turn all the same.
            let _ = reply.send(self.queue_first(&key));
        }
    }

    fn queue_first(&mut self, text: &str) -> Result<(), String> {
        if !self.acts.may() {
            return Err("this host does not act now: another one leads, or the lease is lost".to_owned());
        }
        let known = |key: &W::Key| self.controller.status(key).is_some() || self.world.is_desired(key);
        let key = text.parse::<W::Key>().ok().filter(known);
        let key = key.ok_or_else(|| format!("no key `{text}` is in its queue"))?;
        let cause = Cause::Resync { by_operator: true };
        self.pending.because(&key, SystemClock.now_ms(), cause);
        self.queue_anew(&key);
        self.controller.first(&key);
        Ok(())
    }
}
