//! The states of a key, with a clock that the test sets.

use std::sync::Arc;

use trueup_base::clock::VirtualClock;
use trueup_capabilities::meter::Effects;

use super::*;

fn host_status() -> (Arc<VirtualClock>, Arc<HostStatus>) {
    let clock = Arc::new(VirtualClock::new(1_000));
    let facts = Facts {
        source: Some("manifests"),
        ..Facts::default()
    };
    (Arc::clone(&clock), HostStatus::with_clock(facts, clock))
}

fn ended(outcome: Outcome) -> Finished {
    Finished {
        outcome,
        took: None,
        error: None,
        failures: 0,
        again_in_ms: None,
        effects: Effects::default(),
        in_service: Vec::new(),
    }
}

fn failed(again_in_ms: u64) -> Finished {
    Finished {
        error: Some("the Engine is away".to_owned()),
        failures: 1,
        again_in_ms: Some(again_in_ms),
        ..ended(Outcome::Failed)
    }
}

fn state(host_status: &HostStatus, key: &str) -> KeyState {
    host_status.key("lbaas", key).unwrap().state
}

#[test]
fn the_time_to_effect_counts_from_the_first_change_to_the_first_success() {
    let (clock, host_status) = host_status();
    host_status.changed("lbaas", "a/b");
    clock.advance_ms(10);
    host_status.began("lbaas", "a/b");
    clock.advance_ms(10);
    host_status.finished("lbaas", "a/b", failed(100));
    clock.advance_ms(100);
    host_status.changed("lbaas", "a/b");
    host_status.began("lbaas", "a/b");
    // This change comes too late for the current work and counts separately.
    clock.advance_ms(5);
    host_status.changed("lbaas", "a/b");
    clock.advance_ms(5);
    host_status.finished("lbaas", "a/b", ended(Outcome::True));
    assert_eq!(state(&host_status, "a/b"), KeyState::Queued);
    let effect = |count, seconds: f64| {
        let Times {
            count: found,
            seconds: sum,
        } = host_status.status().total.change_to_effect;
        assert_eq!(found, count);
        assert!((sum - seconds).abs() < 1e-9, "{sum}");
    };
    effect(1, 0.130);
    host_status.began("lbaas", "a/b");
    clock.advance_ms(5);
    host_status.finished("lbaas", "a/b", ended(Outcome::True));
    assert_eq!(state(&host_status, "a/b"), KeyState::True);
    effect(2, 0.140);
    // A resync is not the effect of a change.
    host_status.began("lbaas", "a/b");
    host_status.finished("lbaas", "a/b", ended(Outcome::True));
    effect(2, 0.140);
    assert_eq!(host_status.status().total.decisions, 4);
}

#[test]
fn a_failed_key_waits_for_its_backoff_and_keeps_its_error_until_true() {
    let (clock, host_status) = host_status();
    host_status.changed("lbaas", "a/b");
    host_status.changed("lbaas", "a/c");
    clock.advance_ms(7);
    let queue = || host_status.status().queue.unwrap();
    assert_eq!((queue().ready, queue().oldest_waiting_ms), (2, 7));
    host_status.began("lbaas", "a/b");
    assert_eq!((queue().ready, queue().running), (1, 1));
    host_status.finished("lbaas", "a/b", failed(50));
    assert_eq!((queue().ready, queue().delayed), (1, 1));
    let key = host_status.key("lbaas", "a/b").unwrap();
    assert_eq!((key.state, key.next_try_in_ms), (KeyState::Failed, Some(50)));
    clock.advance_ms(60);
    assert_eq!((queue().ready, queue().delayed, queue().oldest_waiting_ms), (2, 0, 67));
    host_status.began("lbaas", "a/b");
    let in_trouble = || host_status.status().in_trouble;
    assert_eq!(
        in_trouble()[0].state,
        KeyState::Running,
        "in trouble while it is tried again"
    );
    host_status.finished("lbaas", "a/b", ended(Outcome::True));
    assert_eq!(in_trouble(), []);
    assert_eq!(host_status.key("lbaas", "a/b").unwrap().error, None);
}

#[test]
fn keys_that_are_set_aside_held_or_refused_wait_for_nothing() {
    let (_clock, host_status) = host_status();
    for key in ["a/a", "a/b", "a/c"] {
        host_status.changed("lbaas", key);
    }
    host_status.set_aside("lbaas", "a/a", "it trapped", 5);
    host_status.held("lbaas", "a/b");
    host_status.refused("lbaas", "a/c", "no nodePort");
    let status = host_status.status();
    assert_eq!(status.queue.unwrap(), QueueShown::default());
    let count = |state| status.keys[&state];
    assert_eq!(
        [KeyState::SetAside, KeyState::Held, KeyState::Failed, KeyState::True].map(count),
        [1, 1, 1, 0]
    );
    let in_trouble: Vec<_> = status.in_trouble.iter().map(|key| key.key.as_str()).collect();
    assert_eq!(in_trouble, ["a/a", "a/c"]);
}

#[test]
fn keys_that_are_gone_are_kept_for_a_while_and_those_that_came_back_stay() {
    let (_clock, host_status) = host_status();
    for index in 0..GONE_MAX + 10 {
        let key = format!("a/{index:04}");
        host_status.began("lbaas", &key);
        host_status.finished("lbaas", &key, ended(Outcome::Gone));
        if index == 3 {
            host_status.changed("lbaas", &key);
        }
    }
    let status = host_status.status();
    assert_eq!(status.keys[&KeyState::Gone], GONE_MAX);
    assert_eq!(state(&host_status, "a/0003"), KeyState::Queued);
    assert_eq!(host_status.key("lbaas", "a/0000"), None);
}

#[test]
fn a_queued_key_for_which_nothing_is_left_to_do_waits_no_longer() {
    let (_clock, host_status) = host_status();
    host_status.changed("neg", "a/b/80");
    host_status.gone("neg", "a/b/80");
    // Not of a key that is unknown.
    host_status.gone("neg", "a/c/80");
    let status = host_status.status();
    assert_eq!(status.queue.unwrap(), QueueShown::default());
    assert_eq!((status.keys[&KeyState::Gone], status.keys[&KeyState::Queued]), (1, 0));
    assert_eq!(host_status.key("neg", "a/c/80"), None);
}

#[test]
fn keys_come_in_pages() {
    let (_clock, host_status) = host_status();
    for key in ["a/a", "a/b", "b/a"] {
        host_status.changed("lbaas", key);
    }
    host_status.held("lbaas", "a/b");
    let names = |shown: &KeysShown| -> Vec<String> { shown.keys.iter().map(|key| key.key.clone()).collect() };
    let first = host_status.keys(None, "", 2);
    assert_eq!(
        (names(&first), first.next.as_deref()),
        (vec!["a/a".to_owned(), "a/b".to_owned()], Some("lbaas/a/b"))
    );
    let rest = host_status.keys(None, "lbaas/a/b", 2);
    assert_eq!((names(&rest), rest.next), (vec!["b/a".to_owned()], None));
    assert_eq!(names(&host_status.keys(Some(KeyState::Queued), "", 9)), ["a/a", "b/a"]);
    assert_eq!(names(&host_status.keys_in_trouble("", 9)), Vec::<String>::new());
}

#[test]
fn two_guests_may_have_keys_of_one_name_and_are_counted_apart() {
    let (_clock, host_status) = host_status();
    let key = "nftables/node-a";
    host_status.began("lbaas", key);
    host_status.finished("lbaas", key, ended(Outcome::True));
    host_status.set_aside("nftables", key, "it trapped", 5);
    let states: Vec<_> = host_status
        .keys_named(key)
        .into_iter()
        .map(|it| (it.guest, it.state))
        .collect();
    let expected = [("lbaas", KeyState::True), ("nftables", KeyState::SetAside)];
    assert_eq!(states, expected.map(|(guest, state)| (guest.to_owned(), state)));
    assert_eq!(host_status.keys(None, "", 9).keys.len(), 2);
    assert_eq!(
        (host_status.set_aside_of("lbaas"), host_status.set_aside_of("nftables")),
        (0, 1)
    );
    let decided: Vec<_> = host_status
        .measured()
        .into_iter()
        .map(|(guest, it)| (guest, it.took.count))
        .collect();
    assert_eq!(decided, [("lbaas".to_owned(), 1), ("nftables".to_owned(), 0)]);
    host_status.began("nftables", key);
    assert_eq!(host_status.set_aside_of("nftables"), 0);
}

#[test]
fn a_loop_that_ended_is_not_watched_any_more() {
    let (_clock, host_status) = host_status();
    let beating = host_status.begin_loop("services");
    assert_eq!((host_status.beating(), host_status.late()), (vec!["services"], vec![]));
    beating.beat();
    drop(beating);
    assert_eq!(host_status.beating(), Vec::<&str>::new());
}

#[test]
fn a_loop_that_ended_by_a_panic_is_watched_on() {
    let (_clock, host_status) = host_status();
    let beating = host_status.begin_loop("services");
    let ended = std::thread::spawn(move || {
        let _beating = beating;
        panic!("a defect");
    });
    assert!(ended.join().is_err());
    assert_eq!(host_status.beating(), ["services"]);
}

#[test]
fn a_key_is_contested_while_each_resync_corrects_it() {
    let (_, host_status) = host_status();
    let contested = |host_status: &HostStatus| host_status.status().contested;
    host_status.changed("lbaas", "a/b");
    host_status.changed("lbaas", "c/d");
    assert_eq!(host_status.resynced("lbaas", "a/b", true), 1);
    assert_eq!(
        contested(&host_status),
        [""; 0],
        "someone may have changed it by hand, once"
    );
    host_status.resynced("lbaas", "a/b", false);
    host_status.resynced("lbaas", "a/b", true);
    assert_eq!(contested(&host_status), [""; 0]);
    assert_eq!(host_status.resynced("lbaas", "a/b", true), 2);
    host_status.resynced("lbaas", "c/d", true);
    assert_eq!(contested(&host_status), ["lbaas/a/b"]);
    host_status.resynced("lbaas", "a/b", false);
    assert_eq!(contested(&host_status), [""; 0]);
    for _ in 0..2 {
        host_status.resynced("lbaas", "c/d", true);
    }
    assert_eq!(host_status.status().contested_count, 1);
    host_status.set_election(Election::default());
    assert_eq!(host_status.status().contested_count, 0, "it does not look any more");
}

#[test]
fn the_failures_of_a_guest_that_no_longer_acts_are_none() {
    let (clock, host_status) = host_status();
    host_status.changed("lbaas", "a/b");
    host_status.refused("lbaas", "a/invalid", "no port");
    host_status.set_aside("lbaas", "a/aside", "it trapped", 5);
    host_status.finished("lbaas", "a/failed", failed(5_000));
    host_status.finished("lbaas", "a/runs", failed(5_000));
    host_status.began("lbaas", "a/runs");
    host_status.finished("nftables", "nftables/node-a", failed(5_000));
    clock.advance_ms(7);
    let status = host_status.status();
    assert_eq!(
        (status.in_trouble_count, status.queue.unwrap().oldest_waiting_ms),
        (5, 7)
    );

    host_status.set_acting("lbaas", false);
    assert_eq!(state(&host_status, "a/failed"), KeyState::Queued);
    assert_eq!(state(&host_status, "a/runs"), KeyState::Running);
    // A call that the host still had open ends.
    host_status.finished("lbaas", "a/runs", failed(5_000));
    let status = host_status.status();
    let in_trouble: Vec<_> = status.in_trouble.iter().map(|key| key.key.as_str()).collect();
    assert_eq!(in_trouble, ["a/aside", "a/invalid", "nftables/node-a"]);
    assert_eq!(status.queue.unwrap().oldest_waiting_ms, 0);
    host_status.set_acting("lbaas", true);
    assert_eq!(host_status.status().queue.unwrap().oldest_waiting_ms, 7);
}

#[test]
fn a_key_that_an_earlier_process_set_aside_is_so_since_then() {
    let (_, host_status) = host_status();
    host_status.failed_before("lbaas", "a/b", 400);
    host_status.changed("lbaas", "a/b");
    host_status.set_aside("lbaas", "a/b", "it trapped", 3);
    let since_ms = || host_status.key("lbaas", "a/b").unwrap().since_ms;
    assert_eq!(since_ms(), 400);
    host_status.finished("lbaas", "a/b", ended(Outcome::True));
    host_status.set_aside("lbaas", "a/b", "it trapped", 3);
    assert_eq!(since_ms(), 1_000);
}

#[test]
fn a_key_that_still_fails_after_a_reload_fails_since_before() {
    let (_, before) = host_status();
    before.refused("lbaas", "a/fails", "no address");
    before.set_aside("lbaas", "a/aside", "it trapped", 3);
    before.refused("lbaas", "a/mended", "no address");
    let (clock, after) = host_status();
    clock.advance_ms(500);
    after.reloaded(1_000, before.failing());
    for key in ["a/fails", "a/aside", "a/mended"] {
        after.changed("lbaas", key);
        let queued = after.key("lbaas", key).unwrap();
        assert_eq!((queued.since_ms, queued.error), (1_500, None));
    }
    after.finished("lbaas", "a/fails", failed(50));
    after.set_aside("lbaas", "a/aside", "it trapped", 3);
    after.finished("lbaas", "a/mended", ended(Outcome::True));
    clock.advance_ms(500);
    after.finished("lbaas", "a/mended", failed(50));
    let since_ms = |key: &str| after.key("lbaas", key).unwrap().since_ms;
    assert_eq!(
        [since_ms("a/fails"), since_ms("a/aside"), since_ms("a/mended")],
        [1_000, 1_000, 2_000]
    );
}

#[test]
fn a_loop_is_late_once_it_was_silent_for_too_long_and_not_after_its_end() {
    let host_status = HostStatus::new(Facts::default());
    let beating = host_status.begin_loop("services");
    let now = Instant::now();
    assert_eq!(host_status.late_at(now + BEAT_MAX / 2), []);
    let late = host_status.late_at(now + BEAT_MAX * 2);
    assert_eq!(late.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["services"]);
    drop(beating);
    assert_eq!(host_status.late_at(now + BEAT_MAX * 2), []);
}
