//! What a host knows in an election, and how each answer of the API server changes it.
//!
//! No I/O and no clock: `run.rs` makes the requests, moments and wall-clock times are arguments. It never uses another
//! host's clock: `renewTime` is for people. The property test drives many of these against a model of the API server in
//! simulated time.
//!
//! ```text
//! leading:     renew deadline over -> give up     another holds it -> give up
//!              a renewal is due    -> renew       else             -> hold on
//! not leading: a look is due       -> observe     no holder, its holder's time over, or mine of before -> acquire
//!              else                -> wait
//!
//! Observe ........ observed | failed
//! Acquire, Renew . draft -> wrote | conflicted | failed
//! ```

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest as _, Sha256};
use trueup_base::fence::Moment;

use super::record::{RELEASED_SECONDS, Record, kept};
use super::settings::Settings;

/// The pause between two renewals, or two looks, is longer than the retry period by up to this fraction.
const JITTER: f64 = 0.2;

/// After a conflict the host looks at the Lease at once: the other writer has finished. After this many conflicts in
/// a row it looks at the usual pace, since a server that answers nothing else is broken.
const CONFLICTS_AT_ONCE_MAX: u32 = 3;

/// Watch events that are closer together cause one look: a Lease is not worth more requests.
const LOOKS_APART: Duration = Duration::from_millis(50);

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Look at the Lease: nothing is known of it, or what is known may be outdated.
    Observe,
    /// Write this host into the Lease as the holder.
    Acquire,
    /// Renew the Lease for another lease duration.
    Renew,
    /// Keep leading, and decide again at this moment.
    HoldOn(Moment),
    /// Keep waiting, and decide again at this moment.
    WaitUntil(Moment),
    /// Stop leading.
    GiveUp(Why),
}

/// Why a host stops leading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No renewal succeeded before the renew deadline.
    Late,
    /// The Lease names another holder.
    Taken,
}

/// The Lease as this host saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it said. For a deleted Lease: a record without holder that lasts for as long as its last writer may act.
    pub record: Record,
    /// Whether the object exists.
    pub exists: bool,
    /// When this host first saw that record, by its own clock.
    pub since: Moment,
}

/// One host's side of an election.
#[derive(Debug)]
pub struct Campaign {
    settings: Settings,
    chance: ChaCha8Rng,
    /// The object as it was last read or answered. `None` if there is none, or the host has not looked yet.
    lease: Option<Lease>,
    /// What it says, and since when. `None` if the host has not looked yet.
    seen: Option<Seen>,
    /// Whether `seen` may be outdated.
    doubtful: bool,
    /// The acquire time that this process last wrote or tried to write.
    claim: Option<Timestamp>,
    /// The version of the object on which the claim was made.
    claimed_on: Option<String>,
    /// The last written time, so that the next one differs whatever the wall clock does.
    written: Option<Timestamp>,
    /// When the last successful renewal was sent, by which this host leads. `None` if it does not lead.
    renewed: Option<Moment>,
    /// When this host began to lead, by the wall clock.
    leading_since: Option<Timestamp>,
    /// When the next renewal, or the next look, is due.
    due: Moment,
    looked: Option<Moment>,
    conflicts: u32,
}

impl Campaign {
    /// A host that knows nothing yet. The seed and the identity make its pauses differ from those of other hosts.
    pub fn new(settings: &Settings, seed: u64, now: Moment) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        hash.update(settings.identity.as_bytes());
        Self {
            settings: settings.clone(),
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

    /// The next action.
    pub fn next(&self, now: Moment) -> Action {
        let seen = self.seen.as_ref().filter(|_| !self.doubtful);
        match self.renewed {
            Some(renewed) => self.leading(seen, renewed, now),
            None => self.campaigning(seen, now),
        }
    }

    fn leading(&self, seen: Option<&Seen>, renewed: Moment, now: Moment) -> Action {
        // Before anything else: a process that was stopped for long finds here that it is too late, whatever it knew
        // before.
        let deadline = renewed + self.settings.times.renew_deadline;
        if now >= deadline {
            return Action::GiveUp(Why::Late);
        }
        let hold_on = Action::HoldOn(self.due.min(deadline));
        let is_due = now >= self.due;
        let Some(seen) = seen else {
            return if is_due { Action::Observe } else { hold_on };
        };
        let is_mine = self.is_own(&seen.record);
        if !is_mine && seen.record.holder.is_some() {
            return Action::GiveUp(Why::Taken);
        }
        // The Lease was deleted, or this host's name was removed. A host that knew of it does not act until its time
        // is over, so this host may write it again.
        let is_gone = !seen.exists || !is_mine;
        if is_gone || is_due { Action::Renew } else { hold_on }
    }

    fn campaigning(&self, seen: Option<&Seen>, now: Moment) -> Action {
        if now >= self.due {
            return Action::Observe;
        }
        let Some(seen) = seen else {
            return Action::WaitUntil(self.due);
        };
        // From this moment on, the holder that the record names does not act any more.
        let over_at = seen.since + seen.record.holds_for(self.settings.times.lease_duration);
        // What this process wrote binds only itself.
        if self.is_own(&seen.record) || now >= over_at {
            return Action::Acquire;
        }
        Action::WaitUntil(self.due.min(over_at))
    }

    /// Since when this host leads, by the wall clock. `None` if it does not lead.
    pub fn leading_since(&self) -> Option<Timestamp> {
        self.leading_since.filter(|_| self.renewed.is_some())
    }

    /// The host may act before this moment, by its last successful renewal. `None` if it does not lead.
    pub fn acts_until(&self) -> Option<Moment> {
        self.renewed.map(|renewed| renewed + self.settings.times.acting())
    }

    /// When this host stops leading unless a renewal succeeds. `None` if it does not lead.
    pub fn renew_deadline(&self) -> Option<Moment> {
        self.renewed.map(|renewed| renewed + self.settings.times.renew_deadline)
    }

    /// The Lease as it was last seen. `None` if it was not seen yet.
    pub fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }

    /// Whether this process wrote what was last seen.
    pub fn is_mine(&self) -> bool {
        let seen = self.seen.as_ref();
        seen.is_some_and(|seen| seen.exists && self.is_own(&seen.record))
    }

    /// Whether this process ever tried to become the holder.
    pub fn has_claimed(&self) -> bool {
        self.claim.is_some()
    }

    /// Takes in an observed Lease. `None` if there is none. `now` is when the answer arrived.
    pub fn observed(&mut self, now: Moment, lease: Option<Lease>) {
        self.due = self.later(now);
        self.looked = Some(now);
        self.note(now, lease);
    }

    /// The Lease to write, as the holder. Its version tells a late answer to an earlier draft apart.
    pub fn draft(&mut self, wall: Timestamp) -> Lease {
        let now = self.next_written(wall);
        let lease = self.lease.as_ref();
        let version = lease.and_then(|lease| lease.metadata.resource_version.clone());
        let before = self.seen.as_ref().map(|seen| &seen.record);
        let was_mine = before.is_some_and(|record| self.is_own(record));
        // An earlier draft on the same version may be the Lease now, or may still become it. This host must then
        // recognise it as its own. As with client-go, a holder that takes its own Lease again keeps its first acquire
        // time.
        let same_claim = was_mine || self.renewed.is_some() || self.claimed_on == version;
        let claim = self.claim.filter(|_| same_claim).unwrap_or(now);
        let holder = before.and_then(|record| record.holder.as_deref());
        let transitions = before.map_or(0, |record| record.transitions);
        let is_from_another = self.lease.is_some() && holder != Some(self.settings.identity.as_str());
        let transitions = transitions.saturating_add(i32::from(is_from_another));
        let seconds = u64::from(self.settings.times.lease_duration_seconds().unsigned_abs());
        let record = Record {
            holder: Some(self.settings.identity.clone()),
            lease_duration: Some(Duration::from_secs(seconds)),
            acquired: Some(claim),
            renewed: Some(now),
            transitions,
        };
        self.claim = Some(claim);
        self.claimed_on = version;
        self.written_into_lease(&record)
    }

    /// The Lease to write so that no other host waits for this one any more. Only if [`Campaign::is_mine`].
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
        if now >= sent + self.settings.times.renew_deadline {
            // The answer took so long that it says nothing about now. Look first.
            self.doubt(now);
            return;
        }
        // Counted from when it was sent, not from now: no other host can have seen it before.
        self.due = self.later(sent).max(now);
        if self.renewed.is_none() {
            self.leading_since = Some(kept(wall));
        }
        self.renewed = Some(sent);
    }

    /// Another writer changed the Lease. That is not a failure: look at once.
    pub fn conflicted(&mut self, now: Moment) {
        self.doubtful = true;
        self.conflicts = self.conflicts.saturating_add(1);
        self.due = match self.conflicts <= CONFLICTS_AT_ONCE_MAX {
            true => now,
            false => self.later(now),
        };
    }

    /// A request that was begun at `sent` failed, or got no answer. A write may or may not have happened, or may
    /// still happen.
    pub fn failed(&mut self, sent: Moment, now: Moment) {
        if self.claimed_on.is_none() {
            // A write that creates the Lease may arrive late: after another host had one that was then deleted. What
            // the Lease then says is not valid by itself, unlike that of one that replaces a version that this host
            // saw.
            self.claim = None;
        }
        self.doubtful = true;
        self.due = self.later(sent).max(now);
    }

    /// This host no longer leads.
    pub fn gave_up(&mut self, why: Why, now: Moment) {
        self.renewed = None;
        self.leading_since = None;
        if why == Why::Late {
            self.doubt(now);
        }
    }

    /// Whether this host should look at once because of this change of the Lease. `None` if it was deleted.
    pub fn is_news(&self, lease: Option<&Lease>) -> bool {
        let (Some(lease), Some(seen)) = (lease, &self.seen) else {
            return true;
        };
        let record = Record::of(lease);
        // This process knows its own writes from their answers.
        !self.is_own(&record) && (record.holder != seen.record.holder || record.acquired != seen.record.acquired)
    }

    /// The Lease changed: look before the usual time.
    pub fn hurry(&mut self, now: Moment) {
        let soonest = self.looked.map_or(now, |looked| now.max(looked + LOOKS_APART));
        self.doubtful = true;
        self.due = self.due.min(soonest);
    }

    /// Whether this process wrote the record. The name alone is not enough: another process may have the same.
    fn is_own(&self, record: &Record) -> bool {
        let is_named = record.holder.as_deref() == Some(&*self.settings.identity);
        is_named && record.acquired.is_some() && record.acquired == self.claim
    }

    fn doubt(&mut self, now: Moment) {
        self.doubtful = true;
        self.due = now;
    }

    /// Takes over what the Lease says. A record that is unchanged keeps the time at which it was first seen.
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

    /// The record that binds this host after a Lease was deleted. Its last writer, whose record this host need not
    /// have seen, may act for as long as any holder.
    fn deleted(&self, record: &Record) -> Record {
        let usual = self.settings.times.lease_duration;
        Record {
            lease_duration: Some(usual.max(record.holds_for(usual))),
            transitions: record.transitions,
            ..Record::default()
        }
    }

    fn later(&mut self, from: Moment) -> Moment {
        let more = self.chance.random_range(0.0..JITTER);
        from + self.settings.times.retry_period.mul_f64(1.0 + more)
    }

    /// The time to write: the wall clock's, but later than the last one written. An observer that waits for a change
    /// must not mistake a renewal for the one before it, whatever the wall clock does.
    fn next_written(&mut self, wall: Timestamp) -> Timestamp {
        let before = self.written.filter(|before| *before >= kept(wall));
        let next = before.and_then(|before| before.checked_add(SignedDuration::from_micros(1)).ok());
        let next = next.unwrap_or(kept(wall));
        self.written = Some(next);
        next
    }

    fn written_into_lease(&self, record: &Record) -> Lease {
        let mut lease = self.lease.clone().unwrap_or_default();
        lease.metadata.namespace = Some(self.settings.namespace.clone());
        lease.metadata.name = Some(self.settings.name.clone());
        record.put_into(&mut lease);
        lease
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Times;
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    fn time(text: &str) -> Option<Timestamp> {
        Some(text.parse().unwrap())
    }

    fn held_by(holder: &str, acquired: &str) -> Record {
        Record {
            holder: Some(holder.to_owned()),
            lease_duration: Some(Duration::from_secs(20)),
            acquired: time(acquired),
            renewed: time(acquired),
            transitions: 0,
        }
    }

    const MINE: &str = "2026-01-01T00:00:00Z";
    const NOT_MINE: &str = "2026-02-02T00:00:00Z";

    /// The record was first seen at 100 s, and the next request is due at 102 s.
    fn campaign(record: Option<(Record, bool)>, renewed: Option<u64>) -> Campaign {
        let settings = Settings {
            namespace: "default".to_owned(),
            name: "trueup".to_owned(),
            identity: "me".to_owned(),
            times: Times::default(),
        };
        let seen = record.map(|(record, exists)| Seen {
            record,
            exists,
            since: at(100),
        });
        Campaign {
            seen,
            claim: time(MINE),
            renewed: renewed.map(at),
            due: at(102),
            ..Campaign::new(&settings, 0, at(0))
        }
    }

    #[track_caller]
    fn check(record: Option<(Record, bool)>, renewed: Option<u64>, now: u64, expected: Action) {
        let campaign = campaign(record, renewed);
        assert_eq!(campaign.next(at(now)), expected, "{campaign:?}");
    }

    fn mine() -> Option<(Record, bool)> {
        Some((held_by("me", MINE), true))
    }

    fn anothers() -> Option<(Record, bool)> {
        Some((held_by("another", NOT_MINE), true))
    }

    #[test]
    fn who_does_not_know_looks_when_it_is_time() {
        check(None, None, 101, Action::WaitUntil(at(102)));
        check(None, None, 102, Action::Observe);
        check(None, Some(99), 101, Action::HoldOn(at(102)));
        check(None, Some(99), 102, Action::Observe);
    }

    #[test]
    fn a_lease_without_a_holder_is_free() {
        check(Some((Record::default(), false)), None, 101, Action::Acquire);
        check(Some((Record::default(), true)), None, 101, Action::Acquire);
        let given_back = Record {
            holder: None,
            lease_duration: Some(Duration::from_secs(1)),
            ..held_by("", NOT_MINE)
        };
        check(Some((given_back, true)), None, 100, Action::Acquire);
    }

    #[test]
    fn anothers_lease_is_free_when_its_own_time_is_over_by_my_clock() {
        check(anothers(), None, 101, Action::WaitUntil(at(102)));
        check(anothers(), None, 119, Action::Observe);
        let seen = |now, due| {
            let campaign = Campaign {
                claim: None,
                due: at(due),
                ..campaign(anothers(), None)
            };
            campaign.next(at(now))
        };
        assert_eq!(
            seen(119, 121),
            Action::WaitUntil(at(120)),
            "what the record says, not what this host would say"
        );
        assert_eq!(seen(120, 121), Action::Acquire);
    }

    #[test]
    fn a_lease_that_was_deleted_is_not_free_before_its_time() {
        let deleted = Record {
            lease_duration: Some(Duration::from_secs(15)),
            ..Record::default()
        };
        check(Some((deleted.clone(), false)), None, 101, Action::WaitUntil(at(102)));
        check(Some((deleted, false)), Some(100), 101, Action::Renew);
    }

    #[test]
    fn a_name_taken_out_by_a_third_party_frees_nothing_before_its_time() {
        let cleared = Record {
            holder: None,
            ..held_by("", NOT_MINE)
        };
        check(Some((cleared.clone(), true)), None, 101, Action::WaitUntil(at(102)));
        check(Some((cleared, true)), Some(99), 101, Action::Renew);
    }

    #[test]
    fn my_name_in_a_record_that_i_did_not_write_is_anothers() {
        let twin = Some((held_by("me", NOT_MINE), true));
        check(twin.clone(), None, 101, Action::WaitUntil(at(102)));
        check(twin, Some(99), 101, Action::GiveUp(Why::Taken));
    }

    #[test]
    fn a_holder_renews_when_it_is_time_and_else_holds_on() {
        check(mine(), Some(100), 101, Action::HoldOn(at(102)));
        check(mine(), Some(100), 102, Action::Renew);
        check(mine(), Some(91), 100, Action::HoldOn(at(101)));
    }

    #[test]
    fn a_holder_whose_lease_was_deleted_writes_it_again_at_once() {
        check(Some((held_by("me", MINE), false)), Some(100), 101, Action::Renew);
    }

    #[test]
    fn a_holder_gives_up_at_its_deadline_whatever_else_is_known() {
        check(mine(), Some(91), 101, Action::GiveUp(Why::Late));
        check(None, Some(91), 101, Action::GiveUp(Why::Late));
        check(anothers(), Some(91), 101, Action::GiveUp(Why::Late));
        check(mine(), Some(1), 5000, Action::GiveUp(Why::Late));
    }

    #[test]
    fn a_holder_gives_up_when_another_holds_it() {
        check(anothers(), Some(100), 101, Action::GiveUp(Why::Taken));
    }

    #[test]
    fn a_host_that_gave_up_looks_first_and_takes_a_free_lease_again() {
        check(None, None, 102, Action::Observe);
        check(mine(), None, 101, Action::Acquire);
        check(anothers(), None, 101, Action::WaitUntil(at(102)));
    }
}
