//! The promises to an operator, one per test.

use crate::{Backoff, Controller, KEYS_MAX, Outcome, RETRY_AFTER_MS_MIN, Settings, TooManyKeys};

const STEADY: Backoff = Backoff {
    initial_ms: 1_000,
    factor_percent: 200,
    max_ms: 300_000,
    jitter_percent: 0,
};

fn controller(resync_ms: u64) -> Controller<&'static str> {
    Controller::new(
        Settings {
            backoff: STEADY,
            resync_ms,
        },
        1,
    )
}

/// A controller whose key `a` runs since 0.
fn running_a(resync_ms: u64) -> Controller<&'static str> {
    let mut queue = controller(resync_ms);
    queue.changed(&"a", 0).unwrap();
    assert_eq!(queue.take_ready(0), Some("a"));
    queue
}

/// A controller whose key `a` failed at 0.
fn failed_a(resync_ms: u64) -> Controller<&'static str> {
    let mut queue = running_a(resync_ms);
    queue.done(&"a", Outcome::Failure, 0);
    queue
}

fn take_all(controller: &mut Controller<&'static str>, now_ms: u64) -> Vec<&'static str> {
    std::iter::from_fn(|| controller.take_ready(now_ms)).collect()
}

#[test]
fn keys_come_out_once_and_in_order_of_arrival() {
    let mut queue = controller(0);
    for key in ["b", "a", "b", "c", "a"] {
        queue.changed(&key, 5).unwrap();
    }
    assert_eq!(queue.waiting(), 3);
    assert_eq!(
        take_all(&mut queue, 4),
        ["b", "a", "c"],
        "a clock set back counts as standing still"
    );
    assert_eq!((queue.running(), queue.waiting(), queue.is_idle()), (3, 0, false));
}

#[test]
fn a_key_that_comes_first_overtakes_all_others_once() {
    let mut queue = controller(0);
    for key in ["a", "b", "c"] {
        queue.changed(&key, 5).unwrap();
    }
    queue.first(&"c");
    queue.first(&"unknown");
    assert_eq!(queue.waiting(), 3);
    assert_eq!(take_all(&mut queue, 5), ["c", "a", "b"]);
    // A key that runs has no place, and one that waits for a retry is due now.
    queue.first(&"a");
    assert_eq!(queue.done(&"a", Outcome::Failure, 6), Some(1_006));
    queue.first(&"a");
    assert_eq!((take_all(&mut queue, 6), queue.waiting()), (vec!["a"], 0));
}

#[test]
fn a_change_while_it_runs_makes_it_run_once_more() {
    for outcome in [Outcome::Success, Outcome::Failure, Outcome::RetryAfter(60_000)] {
        let mut queue = running_a(0);
        queue.changed(&"a", 1).unwrap();
        queue.changed(&"a", 2).unwrap();
        assert_eq!(queue.take_ready(2), None, "never two at once");
        assert_eq!(queue.done(&"a", outcome, 3), Some(3), "{outcome:?}");
        assert_eq!(take_all(&mut queue, 3), ["a"]);
        assert_eq!(queue.done(&"a", Outcome::Success, 4), None);
        assert!(queue.is_idle());
    }
}

#[test]
fn failures_wait_longer_each_time_until_a_success() {
    let mut queue = controller(0);
    queue.changed(&"a", 0).unwrap();
    let mut now_ms = 0;
    for (failures, pause_ms) in [(1, 1_000), (2, 2_000), (3, 4_000)] {
        assert_eq!(queue.take_ready(now_ms), Some("a"));
        assert_eq!(queue.done(&"a", Outcome::Failure, now_ms), Some(now_ms + pause_ms));
        assert_eq!(queue.status(&"a").unwrap().failures, failures);
        assert_eq!(queue.take_ready(now_ms + pause_ms - 1), None);
        assert_eq!(queue.next_due_ms(), Some(now_ms + pause_ms));
        assert!(!queue.is_idle());
        now_ms += pause_ms;
    }
    assert_eq!(queue.take_ready(now_ms), Some("a"));
    queue.done(&"a", Outcome::Success, now_ms);
    let status = queue.status(&"a").unwrap();
    assert_eq!(
        (status.failures, status.last, status.runs),
        (0, Some(Outcome::Success), 4)
    );
    assert_eq!((queue.next_due_ms(), queue.is_idle()), (None, true));

    queue.changed(&"a", now_ms).unwrap();
    queue.take_ready(now_ms);
    assert_eq!(
        queue.done(&"a", Outcome::Failure, now_ms),
        Some(now_ms + 1_000),
        "it starts over"
    );
}

#[test]
fn a_change_ends_a_pause_and_keeps_the_failures() {
    let mut queue = failed_a(0);
    queue.changed(&"a", 10).unwrap();
    assert_eq!(take_all(&mut queue, 10), ["a"]);
    assert_eq!(queue.done(&"a", Outcome::Failure, 10), Some(2_010));
    assert_eq!(queue.status(&"a").unwrap().failures, 2);
}

#[test]
fn a_known_pause_counts_but_does_not_grow_the_next() {
    let mut queue = running_a(0);
    assert_eq!(queue.done(&"a", Outcome::RetryAfter(0), 0), Some(RETRY_AFTER_MS_MIN));
    queue.take_ready(RETRY_AFTER_MS_MIN);
    assert_eq!(queue.done(&"a", Outcome::RetryAfter(7_000), 1_000), Some(8_000));
    queue.take_ready(8_000);
    assert_eq!(queue.done(&"a", Outcome::Failure, 8_000), Some(9_000));
    assert_eq!(queue.status(&"a").unwrap().failures, 3);
}

#[test]
fn a_key_due_earlier_goes_first_whenever_it_arrived() {
    let mut queue = failed_a(0);
    queue.changed(&"late", 1_500).unwrap();
    assert_eq!(take_all(&mut queue, 1_500), ["a", "late"]);
}

#[test]
fn resync_queues_keys_at_rest_again_spread_over_half_a_period() {
    let mut queue = Controller::new(
        Settings {
            backoff: STEADY,
            resync_ms: 600_000,
        },
        7,
    );
    for key in 0..100 {
        queue.changed(&key, 0).unwrap();
    }
    while let Some(key) = queue.take_ready(0) {
        queue.done(&key, Outcome::Success, 0);
    }
    assert!(queue.is_idle(), "a resync ahead is no work");
    let due = queue.due_ms();
    assert!(due.iter().all(|due_ms| (300_000..=600_000).contains(due_ms)), "{due:?}");
    let early = due.iter().filter(|due_ms| **due_ms < 450_000).count();
    assert!((30..=70).contains(&early), "{early} of 100 in the first half");
    assert_eq!(std::iter::from_fn(|| queue.take_ready(600_000)).count(), 100);
}

#[test]
fn a_resync_does_not_shorten_a_pause() {
    let mut queue = failed_a(10);
    assert_eq!(queue.take_ready(999), None);
    assert_eq!(queue.take_ready(1_000), Some("a"));
}

#[test]
fn a_forgotten_key_is_gone_unless_it_changes() {
    let mut queue = controller(1_000);
    queue.changed(&"queued", 0).unwrap();
    queue.forget(&"queued");
    assert_eq!((queue.take_ready(0), queue.len(), queue.is_idle()), (None, 0, true));

    queue.changed(&"running", 0).unwrap();
    queue.take_ready(0);
    queue.forget(&"running");
    assert!(queue.status(&"running").unwrap().running, "its run goes on");
    assert_eq!(queue.done(&"running", Outcome::Failure, 0), None);
    assert!(queue.is_empty());

    queue.changed(&"back", 0).unwrap();
    queue.take_ready(0);
    queue.forget(&"back");
    queue.changed(&"back", 1).unwrap();
    assert_eq!(queue.take_ready(1), None, "never two at once");
    assert_eq!(queue.done(&"back", Outcome::Success, 2), Some(2));
    assert_eq!(queue.take_ready(2), Some("back"));
}

#[test]
fn done_for_a_key_that_does_not_run_changes_nothing() {
    let mut queue = controller(1_000);
    assert_eq!(queue.done(&"unknown", Outcome::Failure, 0), None);
    queue.changed(&"a", 0).unwrap();
    assert_eq!(queue.done(&"a", Outcome::Failure, 0), None);
    assert_eq!(queue.status(&"a").unwrap().runs, 0);
    assert_eq!(take_all(&mut queue, 0), ["a"]);
}

#[test]
fn jitter_follows_the_seed() {
    let due = |seed| {
        let mut queue = Controller::new(Settings::default(), seed);
        (0..20)
            .map(|key| {
                queue.changed(&key, 0).unwrap();
                queue.take_ready(0);
                queue.done(&key, Outcome::Failure, 0).unwrap()
            })
            .collect::<Vec<u64>>()
    };
    assert_eq!(due(1), due(1));
    assert_ne!(due(1), due(2));
}

#[test]
fn a_key_beyond_the_limit_is_refused_and_known_ones_go_on() {
    let mut queue = Controller::new(Settings::default(), 1);
    for key in 0..KEYS_MAX {
        queue.changed(&key, 0).unwrap();
    }
    assert_eq!(queue.changed(&KEYS_MAX, 0), Err(TooManyKeys));
    assert_eq!(queue.changed(&0, 0), Ok(()));
    queue.forget(&0);
    assert_eq!(queue.changed(&KEYS_MAX, 0), Ok(()));
}

#[test]
fn an_interrupted_key_runs_again_at_once_and_keeps_its_failures() {
    let mut queue = failed_a(0);
    queue.changed(&"a", 1).unwrap();
    queue.take_ready(1);
    assert_eq!(queue.done(&"a", Outcome::Interrupted(0), 5), Some(5));
    assert_eq!(queue.status(&"a").unwrap().failures, 1);
    assert_eq!(queue.take_ready(5), Some("a"));
}

#[test]
fn a_named_key_is_taken_only_if_it_is_queued_and_others_keep_their_turns() {
    let mut queue = failed_a(0);
    queue.changed(&"b", 0).unwrap();
    queue.take(&"a");
    assert!(queue.status(&"a").unwrap().running, "it was not due yet");
    for key in ["a", "c"] {
        queue.take(&key);
    }
    assert_eq!((queue.running(), queue.waiting(), queue.len()), (1, 1, 2));
    assert_eq!(take_all(&mut queue, 0), ["b"]);
    assert_eq!(queue.done(&"a", Outcome::Success, 0), None);
}
