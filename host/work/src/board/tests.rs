//! The way of a key across the board, with a clock that the test sets.

use std::sync::Arc;

use trueup_base::clock::VirtualClock;

use super::*;

fn board() -> (Arc<VirtualClock>, Arc<Board>) {
    let clock = Arc::new(VirtualClock::new(1_000));
    let facts = Facts {
        source: Some("manifests"),
        ..Facts::default()
    };
    (Arc::clone(&clock), Board::with_clock(facts, clock))
}

fn ended(outcome: Outcome) -> Finished {
    Finished {
        outcome,
        error: None,
        failures: 0,
        again_in_ms: None,
        created: 0,
        destroyed: 0,
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

fn state(board: &Board, key: &str) -> KeyState {
    board.key("lbaas", key).unwrap().state
}

#[test]
fn the_time_to_effect_counts_from_the_first_change_to_the_first_success() {
    let (clock, board) = board();
    board.changed("lbaas", "a/b");
    clock.advance_ms(10);
    board.began("lbaas", "a/b");
    clock.advance_ms(10);
    board.finished("lbaas", "a/b", failed(100));
    clock.advance_ms(100);
    board.changed("lbaas", "a/b");
    board.began("lbaas", "a/b");
    // This change comes too late for the current work and counts separately.
    clock.advance_ms(5);
    board.changed("lbaas", "a/b");
    clock.advance_ms(5);
    board.finished("lbaas", "a/b", ended(Outcome::True));
    assert_eq!(state(&board, "a/b"), KeyState::Queued);
    let effect = |count, seconds: f64| {
        let Times {
            count: found,
            seconds: sum,
        } = board.status().total.change_to_effect;
        assert_eq!(found, count);
        assert!((sum - seconds).abs() < 1e-9, "{sum}");
    };
    effect(1, 0.130);
    board.began("lbaas", "a/b");
    clock.advance_ms(5);
    board.finished("lbaas", "a/b", ended(Outcome::True));
    assert_eq!(state(&board, "a/b"), KeyState::True);
    effect(2, 0.140);
    // A resync is not the effect of a change.
    board.began("lbaas", "a/b");
    board.finished("lbaas", "a/b", ended(Outcome::True));
    effect(2, 0.140);
    assert_eq!(board.status().total.decisions, 4);
}

#[test]
fn a_failed_key_waits_for_its_backoff_and_keeps_its_error_until_true() {
    let (clock, board) = board();
    board.changed("lbaas", "a/b");
    board.changed("lbaas", "a/c");
    clock.advance_ms(7);
    let queue = || board.status().queue.unwrap();
    assert_eq!((queue().ready, queue().oldest_waiting_ms), (2, 7));
    board.began("lbaas", "a/b");
    assert_eq!((queue().ready, queue().running), (1, 1));
    board.finished("lbaas", "a/b", failed(50));
    assert_eq!((queue().ready, queue().delayed), (1, 1));
    let key = board.key("lbaas", "a/b").unwrap();
    assert_eq!((key.state, key.next_try_in_ms), (KeyState::Failed, Some(50)));
    clock.advance_ms(60);
    assert_eq!((queue().ready, queue().delayed, queue().oldest_waiting_ms), (2, 0, 67));
    board.began("lbaas", "a/b");
    let in_trouble = || board.status().in_trouble;
    assert_eq!(
        in_trouble()[0].state,
        KeyState::Running,
        "in trouble while it is tried again"
    );
    board.finished("lbaas", "a/b", ended(Outcome::True));
    assert_eq!(in_trouble(), []);
    assert_eq!(board.key("lbaas", "a/b").unwrap().error, None);
}

#[test]
fn keys_that_are_set_aside_held_or_refused_wait_for_nothing() {
    let (_clock, board) = board();
    for key in ["a/a", "a/b", "a/c"] {
        board.changed("lbaas", key);
    }
    board.set_aside("lbaas", "a/a", "it trapped", 5);
    board.held("lbaas", "a/b");
    board.refused("lbaas", "a/c", "no nodePort");
    let status = board.status();
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
    let (_clock, board) = board();
    for index in 0..GONE_MAX + 10 {
        let key = format!("a/{index:04}");
        board.began("lbaas", &key);
        board.finished("lbaas", &key, ended(Outcome::Gone));
        if index == 3 {
            board.changed("lbaas", &key);
        }
    }
    let status = board.status();
    assert_eq!(status.keys[&KeyState::Gone], GONE_MAX);
    assert_eq!(state(&board, "a/0003"), KeyState::Queued);
    assert_eq!(board.key("lbaas", "a/0000"), None);
}

#[test]
fn a_queued_key_for_which_nothing_is_left_to_do_waits_no_longer() {
    let (_clock, board) = board();
    board.changed("neg", "a/b/80");
    board.gone("neg", "a/b/80");
    // Not of a key that the board does not have.
    board.gone("neg", "a/c/80");
    let status = board.status();
    assert_eq!(status.queue.unwrap(), QueueShown::default());
    assert_eq!((status.keys[&KeyState::Gone], status.keys[&KeyState::Queued]), (1, 0));
    assert_eq!(board.key("neg", "a/c/80"), None);
}

#[test]
fn keys_come_in_pages() {
    let (_clock, board) = board();
    for key in ["a/a", "a/b", "b/a"] {
        board.changed("lbaas", key);
    }
    board.held("lbaas", "a/b");
    let names = |shown: &KeysShown| -> Vec<String> { shown.keys.iter().map(|key| key.key.clone()).collect() };
    let first = board.keys(None, "", 2);
    assert_eq!(
        (names(&first), first.next.as_deref()),
        (vec!["a/a".to_owned(), "a/b".to_owned()], Some("lbaas/a/b"))
    );
    let rest = board.keys(None, "lbaas/a/b", 2);
    assert_eq!((names(&rest), rest.next), (vec!["b/a".to_owned()], None));
    assert_eq!(names(&board.keys(Some(KeyState::Queued), "", 9)), ["a/a", "b/a"]);
    assert_eq!(names(&board.keys_in_trouble("", 9)), Vec::<String>::new());
}

#[test]
fn two_guests_may_have_keys_of_one_name_and_are_counted_apart() {
    let (_clock, board) = board();
    let key = "nftables/node-a";
    board.began("lbaas", key);
    board.finished("lbaas", key, ended(Outcome::True));
    board.set_aside("nftables", key, "it trapped", 5);
    let states: Vec<_> = board
        .keys_named(key)
        .into_iter()
        .map(|it| (it.guest, it.state))
        .collect();
    let expected = [("lbaas", KeyState::True), ("nftables", KeyState::SetAside)];
    assert_eq!(states, expected.map(|(guest, state)| (guest.to_owned(), state)));
    assert_eq!(board.keys(None, "", 9).keys.len(), 2);
    assert_eq!((board.set_aside_of("lbaas"), board.set_aside_of("nftables")), (0, 1));
    let decided: Vec<_> = board
        .measured()
        .into_iter()
        .map(|it| (it.guest, it.took.count))
        .collect();
    assert_eq!(decided, [("lbaas".to_owned(), 1), ("nftables".to_owned(), 0)]);
    board.began("nftables", key);
    assert_eq!(board.set_aside_of("nftables"), 0);
}

#[test]
fn a_loop_that_ended_is_not_watched_any_more() {
    let (_clock, board) = board();
    let beating = board.begin_loop("services");
    assert_eq!((board.beating(), board.late()), (vec!["services"], vec![]));
    beating.beat();
    drop(beating);
    assert_eq!(board.beating(), Vec::<&str>::new());
}

#[test]
fn a_loop_that_ended_by_a_panic_is_watched_on() {
    let (_clock, board) = board();
    let beating = board.begin_loop("services");
    let ended = std::thread::spawn(move || {
        let _beating = beating;
        panic!("a defect");
    });
    assert!(ended.join().is_err());
    assert_eq!(board.beating(), ["services"]);
}

#[test]
fn a_key_is_contested_while_each_resync_corrects_it() {
    let (_, board) = board();
    let contested = |board: &Board| board.status().contested;
    assert_eq!(board.resynced("lbaas", "a/b", true), 1);
    assert_eq!(contested(&board), [""; 0], "someone may have changed it by hand, once");
    board.resynced("lbaas", "a/b", false);
    board.resynced("lbaas", "a/b", true);
    assert_eq!(contested(&board), [""; 0]);
    assert_eq!(board.resynced("lbaas", "a/b", true), 2);
    board.resynced("lbaas", "c/d", true);
    assert_eq!(contested(&board), ["lbaas/a/b"]);
    board.resynced("lbaas", "a/b", false);
    assert_eq!(contested(&board), [""; 0]);
    for _ in 0..2 {
        board.resynced("lbaas", "c/d", true);
    }
    assert_eq!(board.status().contested_count, 1);
    board.set_standing(Standing::Standby { leader: None });
    assert_eq!(board.status().contested_count, 0, "it does not look any more");
}
