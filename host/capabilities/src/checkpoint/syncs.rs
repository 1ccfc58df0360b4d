//! Tracks which changes are durable and which are lost, in a store that shares syncs.

use super::Error;

/// The state of waiting callers. Changes are counted from the store's opening.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    pub(super) written: u64,
    pub(super) durable: u64,
    /// The highest change that any caller waits for.
    pub(super) wanted: u64,
    /// Whether a sync is running.
    pub(super) is_running: bool,
    /// Why the changes after `durable` are lost. Every caller that asks for them or for later changes gets this error.
    pub(super) failed: Option<Error>,
    /// Changes after the first and up to the second number may be lost, whatever became durable later. If syncs failed
    /// several times, the range spans all failures. Callers in between are asked to check once more, which is harmless.
    lost: Option<(u64, u64)>,
}

impl Syncs {
    /// Gives up all changes that are not durable.
    pub(super) fn fail(&mut self, error: &Error) {
        let after = self.lost.map_or(self.durable, |(after, _)| after);
        self.lost = Some((after, self.written));
        self.failed = Some(error.clone());
    }

    /// Starts again with everything durable. This counts as a change, to distinguish it from what was lost.
    pub(super) fn renew(&mut self) {
        self.written += 1;
        self.durable = self.written;
        self.failed = None;
    }

    /// The answer for a caller that asks for the first `wanted` changes; `None` if it is not known yet.
    pub(super) fn answer(&self, wanted: u64) -> Option<Result<(), Error>> {
        let lost = self.lost.is_some_and(|(after, last)| after < wanted && wanted <= last);
        if lost {
            let why = self.failed.clone();
            return Some(Err(why.unwrap_or_else(|| {
                Error::Unavailable("the sync that covered this change failed".to_owned())
            })));
        }
        if wanted <= self.durable {
            return Some(Ok(()));
        }
        self.failed.clone().map(Err)
    }
}
