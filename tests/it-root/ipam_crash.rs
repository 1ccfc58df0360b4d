//! The tests kill the host (`kill -9`) repeatedly while pods get and release addresses. After each restart, every pod
//! has the address from its answer, no pod has a released one, and no two pods share an address.
//!
//! `ipam_crash/rounds.rs` has the clients and their calls, `ipam_crash/ledger.rs` the rules. A faulty host in this
//! process shows that the ledger finds violations. The store's own tests cover the last bytes of a file after a crash,
//! and damage.

mod fake;
pub(crate) mod ledger;
mod oracle;
pub(crate) mod real;
pub(crate) mod rounds;

use ledger::{Answered, Asked, Key};
use real::{Config, Real};
use rounds::{ANSWERS_MAX, CLIENTS, Course, Host as _, Tally, done, drive};
use support::kills::{moments, seed};

/// How often to kill the host with each kind of store, unless the variable `KILL_TEST_MOMENTS` sets another number.
const KILLS: u32 = 50;

/// Makes kills hit whole checkpoints and entries alike.
const COMPACT_AFTER: u32 = 7;

/// The least number of answers for each kill.
const ANSWERS_MIN: usize = 5;

/// Runs the whole course on a host. The recordings must replay.
fn driven(config: Config, course: Course) -> (Real, Tally) {
    let host = Real::new(config);
    let tally = drive(&host, course).unwrap_or_else(|broken| panic!("{broken}\n{}", host.said()));
    println!("{config:?}: {tally:?}");
    (host, tally)
}

fn killed_and_killed(shared_sync: bool, cooling_period_ms: u64) {
    let config = Config {
        shared_sync,
        cooling_period_ms,
        compact_after: COMPACT_AFTER,
        limits: "",
    };
    let kills = moments(KILLS);
    let course = Course {
        seed: seed() + u64::from(shared_sync),
        rounds: kills,
        clients: CLIENTS,
        answers_max: ANSWERS_MAX,
        kills: true,
        failures: false,
        rests: cooling_period_ms > 0,
    };
    let (host, tally) = driven(config, course);
    // The test has covered its subject: interrupted work, both ways, and exhausted addresses.
    assert!(
        tally.answers > ANSWERS_MIN * kills as usize && tally.full > 0,
        "{tally:?}"
    );
    assert!(tally.held > 0 && tally.free > 0, "kills must hit work: {tally:?}");
    assert!(
        tally.spooled > 0 && tally.in_vain > 0 && tally.unrouted > 0,
        "{tally:?}"
    );

    // The recordings are complete, up to each kill.
    let replayed = host.replays().exits(0);
    let identical = replayed.stdout.lines().filter(|line| line.contains(": identical"));
    assert_eq!(identical.count(), host.recordings(), "{replayed}");
    assert!(host.recordings() > kills as usize, "{replayed}");
}

#[test]
fn no_answer_is_lost_and_no_address_given_twice_with_a_sync_each() {
    killed_and_killed(false, 0);
}

#[test]
fn no_answer_is_lost_and_no_address_given_twice_with_shared_syncs() {
    killed_and_killed(true, 15);
}

#[test]
fn a_guest_that_is_stopped_in_the_middle_of_calls_loses_nothing_either() {
    // The questions of a change: the time, and one write. If rests follow a whole checkpoint, there is one more write:
    // the guest stops between the two, and the caller gets no answer that it is done.
    let config = Config {
        shared_sync: true,
        cooling_period_ms: 15,
        compact_after: 2,
        limits: "imports_per_call = 2",
    };
    let course = Course {
        seed: seed(),
        rounds: 20,
        clients: CLIENTS,
        answers_max: ANSWERS_MAX,
        kills: true,
        failures: true,
        rests: true,
    };
    let (host, tally) = driven(config, course);
    assert!(tally.failures > 0, "the guest must be stopped: {tally:?}");
    host.replays().exits(0);
}

/// The one sequence that random tests miss: a DEL is stored, stopped before its answer, and undone only in the guest's
/// memory. A caller that then asks for an address gets the old one, and must keep it.
#[test]
fn what_is_answered_after_a_del_that_was_stopped_outlives_the_host() {
    let host = Real::new(Config {
        shared_sync: true,
        cooling_period_ms: 60_000,
        compact_after: 1,
        limits: "imports_per_call = 2",
    });
    host.start();
    let key = |container: &str| Key {
        network: "net".to_owned(),
        container: container.to_owned(),
        interface: "eth0".to_owned(),
    };
    let (one, other, third) = (key("c1"), key("c2"), key("c3"));
    let asked = |asked: Asked<'_>| done(host.socket(), &asked);
    assert!(matches!(asked(Asked::Add(&one)), Answered::Address(..)));
    assert!(matches!(asked(Asked::Add(&other)), Answered::Address(..)));
    // Too many entries: a whole checkpoint without the address, and then the rests, which is one question too many.
    assert!(matches!(asked(Asked::Del(&one)), Answered::Refused(11, _)));
    let told = asked(Asked::Add(&one));
    assert!(matches!(told, Answered::Address(..)), "{told}");
    host.kill();
    host.start();
    assert_eq!(asked(Asked::Check(&one)), told, "{}", host.said());
    assert_ne!(asked(Asked::Add(&third)), told);
    host.kill();
}
