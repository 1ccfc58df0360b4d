//! What a host knows in an election, and how each answer of the API server changes it.
//!
//! No I/O and no clock: requests are made by `run.rs`, moments and wall-clock times are arguments. The
//! property test drives many of these against a model of the API server in a time of its own.
//!
//! ```text
//! next -> Observe ........ observed | failed
//!      -> Acquire, Renew . draft -> wrote | conflicted | failed
//! ```

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest as _, Sha256};
use trueup_capabilities::fence::Moment;

use super::decide::{Action, Facts, Me, Seen, Why, decide};
use super::record::{RELEASED_SECONDS, Record, kept};
use super::settings::{Settings, Times};

/// Between two renewals, or two looks, there is up to such a part more than the retry period.
const JITTER: f64 = 0.2;

/// After a conflict the Lease is looked at at once: who wrote has finished. So many in a row, and then at the usual
/// pace, since a server that answers nothing else is broken.
const CONFLICTS_AT_ONCE_MAX: u32 = 3;

/// News of a change that come closer on each other make one look: a Lease is not worth more requests.
const LOOKS_APART: Duration = Duration::from_millis(50);

/// One host's side of an election.
#[derive(Debug)]
pub struct Campaign {
    namespace: String,
    name: String,
    identity: String,
    times: Times,
    chance: ChaCha8Rng,
    /// The object, as it was read or answered last; none: there is none, or nobody looked yet.
    lease: Option<Lease>,
    /// What it says, and since when. None: nobody looked yet.
    seen: Option<Seen>,
    /// Whether `seen` may be no longer so.
    doubtful: bool,
    claim: Option<Timestamp>,
    /// The version of the object that the claim was made on.
    claimed_on: Option<String>,
    /// The time that was written last, so that the next one differs however the wall clock goes.
    written: Option<Timestamp>,
    renewed: Option<Moment>,
    /// When this host began to lead, by the wall clock.
    leading_since: Option<Timestamp>,
    due: Moment,
    looked: Option<Moment>,
    conflicts: u32,
}

impl Campaign {
    /// A host that knows nothing yet. The seed and the identity make its pauses its own.
    pub fn new(settings: &Settings, seed: u64, now: Moment) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        hash.update(settings.identity.as_bytes());
        Self {
            namespace: settings.namespace.clone(),
            name: settings.name.clone(),
            identity: settings.identity.clone(),
            times: settings.times,
            chance: ChaCha8Rng::from_seed(hash.finalize().into()),
            lease: None,
            seen: None,
            doubtful: false,
            claim: None,
            claimed_on: None,
            written: None,
            renewed: None,
            leading_since: None,
            due: now,
            looked: None,
            conflicts: 0,
        }
    }

    /// What to do next.
    pub fn next(&self, now: Moment) -> Action {
        let facts = Facts {
            seen: self.seen.as_ref().filter(|_| !self.doubtful),
            me: self.me(),
            renewed: self.renewed,
            due: self.due,
        };
        decide(&facts, now, &self.times)
    }

    /// Since when this host leads, by the wall clock; none: it doesn't.
    pub fn leading_since(&self) -> Option<Timestamp> {
        self.leading_since.filter(|_| self.renewed.is_some())
    }

    /// Before this moment the host may act, by its last successful renewal. None: it does not lead.
    pub fn acts_until(&self) -> Option<Moment> {
        self.renewed.map(|renewed| renewed + self.times.acting())
    }

    /// When this host stops leading unless a renewal succeeds. None: it does not lead.
    pub fn renew_deadline(&self) -> Option<Moment> {
        self.renewed.map(|renewed| renewed + self.times.renew_deadline)
    }

    /// The Lease as it was seen last; none: not yet.
    pub fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }

    /// Whether what was seen last was written by this process.
    pub fn is_mine(&self) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| seen.exists && self.me().wrote(&seen.record))
    }

    /// Whether this process ever tried to become the holder.
    pub fn has_claimed(&self) -> bool {
        self.claim.is_some()
    }

    /// The Lease is as this says; none: there is none. `now` is when the answer was there.
    pub fn observed(&mut self, now: Moment, lease: Option<Lease>) {
        self.due = self.later(now);
        self.looked = Some(now);
        self.note(now, lease);
    }

    /// The Lease to write, as the holder. A later answer to an earlier draft is told by its version.
    pub fn draft(&mut self, wall: Timestamp) -> Lease {
        let now = self.next_written(wall);
        let version = self
            .lease
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.clone());
        let before = self.seen.as_ref().map(|seen| &seen.record);
        let was_mine = before.is_some_and(|record| self.me().wrote(record));
        // An earlier draft on the same version may be the Lease by now, or become it yet: it is to be known as mine then.
        // As with client-go, a holder that takes its own Lease again acquired it when it did so first.
        let same_claim = was_mine || self.renewed.is_some() || self.claimed_on == version;
        let claim = self.claim.filter(|_| same_claim).unwrap_or(now);
        let holder = before.and_then(|record| record.holder.as_deref());
        let transitions = before.map_or(0, |record| record.transitions);
        let is_from_another = self.lease.is_some() && holder != Some(self.identity.as_str());
        let transitions = transitions.saturating_add(i32::from(is_from_another));
        let seconds = u64::from(self.times.lease_duration_seconds().unsigned_abs());
        let record = Record {
            holder: Some(self.identity.clone()),
            lease_duration: Some(Duration::from_secs(seconds)),
            acquired: Some(claim),
            renewed: Some(now),
            transitions,
        };
        self.claim = Some(claim);
        self.claimed_on = version;
        self.written_into_lease(&record)
    }

    /// The Lease to write so that nobody waits for this host any more. Only where [`Campaign::is_mine`].
    pub fn release(&mut self, wall: Timestamp) -> Lease {
        let now = self.next_written(wall);
        let record = Record {
            holder: None,
            lease_duration: Some(Duration::from_secs(RELEASED_SECONDS.unsigned_abs().into())),
            acquired: Some(now),
            renewed: Some(now),
            transitions: self.seen.as_ref().map_or(0, |seen| seen.record.transitions),
        };
        self.written_into_lease(&record)
    }

    /// The draft that was sent at `sent` is the Lease now, as the server answered at `now`.
    pub fn wrote(&mut self, sent: Moment, now: Moment, lease: Lease, wall: Timestamp) {
        self.conflicts = 0;
        self.claimed_on.clone_from(&lease.metadata.resource_version);
        self.note(now, Some(lease));
        if now >= sent + self.times.renew_deadline {
            // The answer took so long that it says nothing about now. Look first.
            self.doubt(now);
            return;
        }
        // From when it was sent, not from now: whoever saw it first can't have done so before.
        self.due = self.later(sent).max(now);
        if self.renewed.is_none() {
            self.leading_since = Some(kept(wall));
        }
        self.renewed = Some(sent);
    }

    /// Somebody else wrote. That is news, not failure: look at once.
    pub fn conflicted(&mut self, now: Moment) {
        self.doubtful = true;
        self.conflicts = self.conflicts.saturating_add(1);
        self.due = if self.conflicts <= CONFLICTS_AT_ONCE_MAX {
            now
        } else {
            self.later(now)
        };
    }

    /// A request that was begun at `sent` failed, or got no answer. A write may have happened or not, or may yet.
    pub fn failed(&mut self, sent: Moment, now: Moment) {
        if self.claimed_on.is_none() {
            // A Lease that was to be new may come late: after another host had one, which somebody deleted. What it then
            // says is not by itself true, as it is of one that replaces a version that this host saw.
            self.claim = None;
        }
        self.doubtful = true;
        self.due = self.later(sent).max(now);
    }

    /// This host leads no more.
    pub fn gave_up(&mut self, why: Why, now: Moment) {
        self.renewed = None;
        self.leading_since = None;
        if why == Why::Late {
            self.doubt(now);
        }
    }

    /// Whether the Lease changed in a way that this host should look at at once. None: it was deleted.
    pub fn is_news(&self, lease: Option<&Lease>) -> bool {
        let Some(lease) = lease else {
            return true;
        };
        let Some(seen) = &self.seen else {
            return true;
        };
        let record = Record::of(lease);
        // This process' own writing is known from the answer to it.
        !self.me().wrote(&record) && (record.holder != seen.record.holder || record.acquired != seen.record.acquired)
    }

    /// The Lease changed: look, though it is not the time yet.
    pub fn hurry(&mut self, now: Moment) {
        let soonest = self.looked.map_or(now, |looked| now.max(looked + LOOKS_APART));
        self.doubtful = true;
        self.due = self.due.min(soonest);
    }

    fn me(&self) -> Me<'_> {
        Me {
            identity: &self.identity,
            claim: self.claim,
        }
    }

    fn doubt(&mut self, now: Moment) {
        self.doubtful = true;
        self.due = now;
    }

    /// Takes over what the Lease says. A record that was there already was seen first when it was seen first.
    fn note(&mut self, now: Moment, lease: Option<Lease>) {
        self.doubtful = false;
        let (exists, record) = match (&lease, &self.seen) {
            (Some(lease), _) => (true, Record::of(lease)),
            (None, Some(seen)) if seen.exists => (false, self.deleted(&seen.record)),
            (None, Some(seen)) => (false, seen.record.clone()),
            (None, None) => (false, Record::default()),
        };
        let since = match &self.seen {
            Some(seen) if seen.exists == exists && seen.record == record => seen.since,
            _ => now,
        };
        self.seen = Some(Seen { record, exists, since });
        self.lease = lease;
    }

    /// What binds this host when a Lease is gone: whoever wrote it last, of which this host need not have seen anything,
    /// may act for as long as any holder.
    fn deleted(&self, record: &Record) -> Record {
        Record {
            lease_duration: Some(
                self.times
                    .lease_duration
                    .max(record.holds_for(self.times.lease_duration)),
            ),
            transitions: record.transitions,
            ..Record::default()
        }
    }

    fn later(&mut self, from: Moment) -> Moment {
        let more = self.chance.random_range(0.0..JITTER);
        from + self.times.retry_period.mul_f64(1.0 + more)
    }

    /// The time to write: the wall clock's, but later than the one written before: whoever waits for a change must not
    /// take a renewal for the one before it, however the wall clock goes.
    fn next_written(&mut self, wall: Timestamp) -> Timestamp {
        let before = self.written.filter(|before| *before >= kept(wall));
        let next = before.and_then(|before| before.checked_add(SignedDuration::from_micros(1)).ok());
        let next = next.unwrap_or(kept(wall));
        self.written = Some(next);
        next
    }

    fn written_into_lease(&self, record: &Record) -> Lease {
        let mut lease = self.lease.clone().unwrap_or_default();
        lease.metadata.namespace = Some(self.namespace.clone());
        lease.metadata.name = Some(self.name.clone());
        record.put_into(&mut lease);
        lease
    }
}
