//! Decides what a host does next about the Lease.
//!
//! Pure: takes what was seen of the Lease, when by this host's own clock, and whether this host leads; returns the
//! next step. It never uses another host's clock: `renewTime` is for people.
//!
//! ```text
//! leading:     renew deadline over -> give up     another holds it -> give up
//!              a renewal is due    -> renew       else             -> hold on
//! not leading: a look is due       -> observe     no holder, its holder's time over, or mine of before -> acquire
//!              else                -> wait
//! ```

use k8s_openapi::jiff::Timestamp;
use trueup_base::fence::Moment;

use super::record::Record;
use super::settings::Times;

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

impl Seen {
    /// From this moment on, the holder that this record names does not act any more.
    pub fn over_at(&self, times: &Times) -> Moment {
        self.since + self.record.holds_for(times.lease_duration)
    }
}

/// How this host recognises itself in a record. The name alone is not enough: another process may have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Me<'a> {
    /// The name.
    pub identity: &'a str,
    /// The acquire time that this process last wrote or tried to write.
    pub claim: Option<Timestamp>,
}

impl Me<'_> {
    /// Whether this process wrote the record.
    pub fn wrote(&self, record: &Record) -> bool {
        record.holder.as_deref() == Some(self.identity) && record.acquired.is_some() && record.acquired == self.claim
    }
}

/// The facts of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What was last seen. `None` if nothing was, or it may be outdated.
    pub seen: Option<&'a Seen>,
    /// This host.
    pub me: Me<'a>,
    /// When the last successful renewal was sent, by which this host leads. `None` if it does not lead.
    pub renewed: Option<Moment>,
    /// When the next renewal, or the next look, is due.
    pub due: Moment,
}

/// The next step.
pub fn decide(facts: &Facts<'_>, now: Moment, times: &Times) -> Action {
    match facts.renewed {
        Some(renewed) => leading(facts, renewed, now, times),
        None => campaigning(facts, now, times),
    }
}

fn leading(facts: &Facts<'_>, renewed: Moment, now: Moment, times: &Times) -> Action {
    // Before anything else: a process that was stopped for long finds here that it is too late, whatever it knew
    // before.
    let deadline = renewed + times.renew_deadline;
    if now >= deadline {
        return Action::GiveUp(Why::Late);
    }
    let hold_on = Action::HoldOn(facts.due.min(deadline));
    let is_due = now >= facts.due;
    let Some(seen) = facts.seen else {
        return if is_due { Action::Observe } else { hold_on };
    };
    let is_mine = facts.me.wrote(&seen.record);
    if !is_mine && seen.record.holder.is_some() {
        return Action::GiveUp(Why::Taken);
    }
    // The Lease was deleted, or this host's name was removed. A host that knew of it does not act until its time is
    // over, so this host may write it again.
    let is_gone = !seen.exists || !is_mine;
    if is_gone || is_due { Action::Renew } else { hold_on }
}

fn campaigning(facts: &Facts<'_>, now: Moment, times: &Times) -> Action {
    if now >= facts.due {
        return Action::Observe;
    }
    let Some(seen) = facts.seen else {
        return Action::WaitUntil(facts.due);
    };
    // What this process wrote binds only itself.
    let over_at = seen.over_at(times);
    if facts.me.wrote(&seen.record) || now >= over_at {
        return Action::Acquire;
    }
    Action::WaitUntil(facts.due.min(over_at))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    #[track_caller]
    fn check(record: Option<(Record, bool)>, renewed: Option<u64>, now: u64, expected: Action) {
        let seen = record.map(|(record, exists)| Seen {
            record,
            exists,
            since: at(100),
        });
        let me = Me {
            identity: "me",
            claim: time(MINE),
        };
        let facts = Facts {
            seen: seen.as_ref(),
            me,
            renewed: renewed.map(at),
            due: at(102),
        };
        assert_eq!(decide(&facts, at(now), &Times::default()), expected, "{facts:?}");
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
            let seen = Seen {
                record: held_by("another", NOT_MINE),
                exists: true,
                since: at(100),
            };
            let me = Me {
                identity: "me",
                claim: None,
            };
            let facts = Facts {
                seen: Some(&seen),
                me,
                renewed: None,
                due: at(due),
            };
            decide(&facts, at(now), &Times::default())
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
