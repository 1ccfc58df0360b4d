//! The state of one guest instance on the host's side. It also holds the parts of `wasi` that do not depend on the
//! cargo feature of that name.

use serde_json::value::RawValue;
use trueup_journal::{By, Journal, Tape, TapeError};

use crate::backends::Backends;
use crate::grants::Grants;
use crate::guard::Refused;
use crate::identity::Identity;
use crate::meter::{CHANGES_MAX, Change, Limits, Meter, Unapplied};
use crate::neg;
use crate::quota::Blast;
use crate::timers::Timers;
use crate::wasi::Slot;

/// The state of one guest instance. It outlives the instance: after a trap the next instance gets it.
pub struct Host {
    /// The guest instance.
    pub identity: Identity,
    /// Records, replays, or does neither.
    pub tape: Tape,
    /// What the guest may access.
    pub grants: Grants,
    /// Answer the guest's requests.
    pub backends: Backends,
    /// The usage of the limits.
    pub meter: Meter,
    /// The wake-ups that the instance requested.
    pub timers: Timers,
    /// What was created and destroyed since the caller last took it, in order; at most [`CHANGES_MAX`].
    pub changes: Vec<Change>,
    /// What the backend failed to apply when the guest last saw it, since the caller last took it.
    pub unapplied: Unapplied,
    /// The other guest's request that the next call answers; `None` if there is none. That call takes it.
    pub by: Option<By>,
    /// What the next call is about, for its recording: see [`trueup_journal::Call::about`]. That call takes it.
    pub about: Option<String>,
    pub(crate) blast: Blast,
    pub(crate) refused: Refused,
    /// Whether the desired state of the next calls is that nothing remains. If so, the call may destroy everything, and
    /// `destroy_percent` does not apply; `destroy_max` does.
    pub removing: bool,
    /// How many objects the next call destroys in all, if its guest said so before.
    pub foreseen: Option<u64>,
    /// The last output of the running call, on one line, that may explain why it ended: the text of a panic, or the
    /// last line that it printed to stderr.
    pub last_words: Option<String>,
    /// When the running call began. With a request's number, it identifies the request for good.
    pub(crate) began: neg::Began,
    /// WASI state of the running instance; `None` until first used.
    pub(crate) wasi: Slot,
}

/// Implemented by a store's data for linking.
pub trait HasHost: Send + 'static {
    /// The host of this store's guest.
    fn host(&mut self) -> &mut Host;
}

/// Returns true for an import of WASI, whether or not it is provided.
pub fn is_wasi(import: &str) -> bool {
    import.starts_with("wasi:")
}

impl Host {
    /// A host for one instance without any requests yet.
    pub fn new(identity: Identity, tape: Tape, grants: Grants, backends: Backends, limits: Limits) -> Self {
        Self {
            identity,
            tape,
            grants,
            backends,
            meter: Meter::new(limits),
            timers: Timers::default(),
            changes: Vec::new(),
            unapplied: Unapplied::new(),
            by: None,
            about: None,
            blast: Blast::default(),
            refused: Refused::default(),
            removing: false,
            foreseen: None,
            last_words: None,
            began: neg::Began::default(),
            wasi: Slot::default(),
        }
    }

    /// An instance begins: drops the previous one's WASI state and timers. Ids count from 1 again, as in a replay of
    /// what is recorded from here on.
    pub fn begin_instance(&mut self) {
        self.wasi = Slot::default();
        self.timers = Timers::default();
    }

    /// Begins a call of the guest: resets the meter, and records the call on the tape. A replay has it already.
    ///
    /// # Errors
    /// If the tape can't record the call; then the caller must not make it.
    pub fn begin_call(&mut self, at_ms: u64, name: &str, args: &RawValue) -> Result<(), TapeError> {
        let entry = self.tape.journal().map(Journal::next_n);
        self.begin(entry, neg::Began::Entry(at_ms));
        let (by, about) = (self.by.take(), self.about.take());
        if self.tape.is_replay() {
            self.backends.clock.at_least_ms(at_ms);
            return Ok(());
        }
        let of = (by.as_ref(), about.as_deref());
        self.tape.begin_call_by(at_ms, name, args, of)
    }

    /// How many objects of an Engine the last call left to this instance; `None` if it did not look.
    pub fn left(&self) -> Option<u64> {
        self.blast.left
    }

    /// Begins a call without an entry of its own (`init`, `restore`, `snapshot`).
    pub fn begin_unrecorded_call(&mut self) {
        self.begin(None, neg::Began::Unrecorded(self.backends.clock.now_ms()));
    }

    fn begin(&mut self, entry: Option<u64>, began: neg::Began) {
        self.meter.begin_call(!self.tape.is_replay());
        self.last_words = None;
        self.blast = Blast::default();
        self.began = began;
        self.refused = Refused::default();
        self.refused.entry = entry;
        self.begin_wasi_call();
    }

    /// Stores what a call changed.
    pub(crate) fn changed(&mut self, changes: impl Iterator<Item = Change>) {
        let room = CHANGES_MAX.saturating_sub(self.changes.len());
        self.changes.extend(changes.take(room));
    }

    /// Reports once what the finished call dropped.
    pub fn report_dropped(&self, call: &str) {
        let used = &self.meter.used;
        if used.log_lines_dropped > 0 || used.metric_lines_dropped > 0 {
            tracing::warn!(
                guest = %self.identity.guest, version = %self.identity.version, instance = %self.identity.instance,
                "`{call}` wrote more than it may: {} lines of log and {} lines of metrics were dropped",
                used.log_lines_dropped, used.metric_lines_dropped,
            );
        }
    }

    /// Counts a metric of the host about this guest.
    pub(crate) fn count(&self, name: &str) {
        self.backends.metrics.count(name, &[("guest", &self.identity.guest)], 1);
    }
}
