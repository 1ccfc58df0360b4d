//! Which changes of a store that shares syncs are durable, and which are lost.

use super::Error;

/// Who waits for which change. Changes are counted from the store's opening.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    pub(super) written: u64,
    pub(super) durable: u64,
    /// The highest that anybody waits for.
    pub(super) wanted: u64,
    /// Whether a sync is under way.
    pub(super) is_running: bool,
    /// Why the changes after `durable` are lost; told to all who ask for them or for what came later.
    pub(super) failed: Option<Error>,
    /// Changes after the first and up to the second number may be lost, whatever became durable later. Where syncs failed
    /// several times, what lies between the first and the last failure counts too: those who still ask are told once more
    /// to look again, which harms nothing.
    lost: Option<(u64, u64)>,
}

impl Syncs {
    /// Gives up what is not durable.
    pub(super) fn fail(&mut self, error: &Error) {
        let after = self.lost.map_or(self.durable, |(after, _)| after);
        self.lost = Some((after, self.written));
        self.failed = Some(error.clone());
    }

    /// A new beginning: all that is there is durable. It counts as a change, so that it is told from what was lost.
    pub(super) fn renew(&mut self) {
        self.written += 1;
        self.durable = self.written;
        self.failed = None;
    }

    /// What to tell somebody who asks for the first `wanted` changes; none where it is not known yet.
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
