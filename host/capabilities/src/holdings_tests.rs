use trueup_base::clock::VirtualClock;

use super::*;

/// Guarded, with nothing counted.
fn uncounted() -> (Holdings, Arc<VirtualClock>) {
    let (holdings, clock) = (Holdings::default(), Arc::new(VirtualClock::new(0)));
    holdings.guard(ApproveAbove::default(), Arc::<VirtualClock>::clone(&clock));
    (holdings, clock)
}

/// The three Services of the quickstart.
fn holdings() -> Holdings {
    counted().0
}

fn counted() -> (Holdings, Arc<VirtualClock>) {
    let (holdings, clock) = uncounted();
    for (key, count) in [("web", 14), ("api", 8), ("dns", 7)] {
        holdings.hold(key, count);
    }
    (holdings, clock)
}

#[test]
fn removals_one_after_another_add_up_for_ten_minutes() {
    let (all, clock) = counted();
    for number in 1..=6 {
        all.hold(&format!("s{number}"), 2);
    }
    let gone = |key: &str| {
        all.expect(key, all.held_by_gone(key));
        let admitted = all.admit_all(key);
        if admitted.is_ok() {
            all.emptied(key);
        }
        admitted
    };
    clock.advance_ms(ROUND_MS);
    for key in ["web", "s1", "s2", "s3"] {
        assert_eq!(gone(key), Ok(()), "20 of 41");
        clock.advance_ms(ROUND_MS / 4 - 1);
    }
    assert!(gone("s4").is_err(), "22 of 41");
    clock.advance_ms(ROUND_MS);
    assert!(gone("s4").is_err(), "a round lasts while a part of it waits");
    all.expect("s4", 0);
    assert_eq!(all.waiting(), None, "its manifest is back");
    assert_eq!(gone("s4"), Ok(()), "2 of 21");
}

#[test]
fn a_key_that_is_counted_after_it_was_refused_loses_no_more_than_it_has() {
    let (all, _) = uncounted();
    for key in ["a", "b"] {
        all.expect(key, all.held_by_gone(key));
        assert!(all.admit_all(key).is_err());
        all.destroyed(key, 0);
        all.hold(key, 7);
    }
    let waiting = all.waiting().unwrap();
    assert_eq!((waiting.objects, waiting.of), (14, 14));
    for key in ["a", "b"] {
        all.expect(key, 0);
    }
    assert_eq!(all.waiting(), None);
    assert_eq!(all.changed().unwrap().destroyed, 0);
    all.hold("c", 7);
    assert_eq!(all.admit("c", 7), Ok(()), "7 of 21");
}

#[test]
fn what_is_replaced_one_after_another_does_not_wait() {
    let all = holdings();
    for (key, count) in [("web", 14), ("api", 8), ("dns", 7), ("web", 14)] {
        for _ in 0..count {
            assert_eq!(all.admit(key, 1), Ok(()));
            all.destroyed(key, 1);
            all.settled(key, count - 1);
            all.settled(key, count);
        }
    }
}

#[test]
fn what_is_replaced_again_and_again_does_not_wait() {
    let holdings = holdings();
    for _ in 0..10 {
        assert_eq!(holdings.admit("web", 1), Ok(()));
        holdings.destroyed("web", 6);
        holdings.hold("web", 14);
        holdings.done("web");
    }
    holdings.destroyed("web", 6);
    holdings.hold("web", 8);
    holdings.done("web");
    assert_eq!(holdings.admit("api", 8), Ok(()), "14 of 29");
    assert!(holdings.admit("api", 9).is_err(), "15 of 29");
}

#[test]
fn nothing_waits_while_another_host_acts_and_the_round_goes_on() {
    let holdings = holdings();
    holdings.expect("web", 14);
    assert_eq!(holdings.admit("web", 14), Ok(()));
    holdings.destroyed("web", 14);
    assert!(holdings.admit("api", 8).is_err(), "22 of 29");
    holdings.pause();
    assert_eq!((holdings.waiting(), holdings.approve()), (None, None));
    assert!(holdings.admit("api", 8).is_err(), "what went in the round still counts");
}

#[test]
fn what_goes_with_an_approval_is_told_from_what_went_before() {
    let holdings = holdings();
    assert_eq!(holdings.admit("web", 14), Ok(()));
    holdings.destroyed("web", 13);
    let why = holdings.admit("api", 8).unwrap_err();
    let objects = "9 of 29 objects (13 others went already)";
    assert!(
        why.starts_with(&format!("destroying {objects} is more than 10 ")),
        "{why}"
    );
    let waiting = holdings.approve().unwrap();
    assert_eq!((waiting.objects, waiting.destroyed, waiting.of), (9, 13, 29));
    assert_eq!(waiting.text("objects"), objects);
    assert_eq!(waiting.keys, ["api", "web"]);
}

#[test]
fn half_may_go_and_more_waits_whole() {
    let one = holdings();
    one.expect("web", 14);
    assert_eq!(one.admit("web", 2), Ok(()));
    one.destroyed("web", 2);
    assert_eq!(one.admit("web", 12), Ok(()), "14 of 29");
    let all = holdings();
    for key in ["api", "dns", "web"] {
        all.expect(key, all.held(key));
    }
    let why = all.admit("dns", 7).unwrap_err();
    assert!(
        why.starts_with("destroying 29 of 29 objects is more than 10 and more than 50 %"),
        "{why}"
    );
    assert_eq!(all.waiting().unwrap().keys, ["api", "dns", "web"]);
}

#[test]
fn few_objects_never_wait_and_unknown_ones_count_when_they_go() {
    let (few, _) = uncounted();
    few.hold("a", 10);
    assert_eq!(few.admit("a", 10), Ok(()));
    assert!(few.admit("b", 11).is_err(), "nothing was known of b");
    assert_eq!(Holdings::default().admit("a", 1_000), Ok(()), "nothing limits");
}

#[test]
fn a_key_that_goes_uncounted_counts_like_the_others() {
    let (new, _) = uncounted();
    for key in ["web", "api"] {
        new.expect(key, new.held_by_gone(key));
    }
    assert!(new.admit("web", 2).is_err(), "no key is counted yet");
    let all = holdings();
    assert_eq!(all.held_by_gone("old"), 10, "29 of three keys");
    all.expect("old", 10);
    assert_eq!(all.admit("old", 2), Ok(()), "10 of 39");
    all.destroyed("old", 8);
    all.emptied("old");
    all.settled("idle", 0);
    assert_eq!(all.held_by_gone("idle"), 0, "it was counted");
    assert!(all.admit("web", 14).is_err(), "24 of 39");
}

#[test]
fn a_change_after_which_less_goes_frees_what_waits() {
    let all = holdings();
    for key in ["api", "dns", "web"] {
        all.expect(key, all.held(key));
    }
    assert!(all.admit("api", 1).is_err() && all.freed().is_empty());
    all.expect("web", 0);
    assert!(all.admit("api", 1).is_err(), "15 of 29");
    all.expect("dns", 0);
    assert_eq!(all.freed(), ["api".to_owned()].into());
    assert_eq!(all.admit("api", 8), Ok(()));
}

#[test]
fn an_approval_holds_for_what_waits_until_it_is_done() {
    let all = holdings();
    all.expect("web", 14);
    all.expect("api", 8);
    assert!(all.admit("web", 14).is_err());
    assert_eq!(all.approve().unwrap().objects, 22);
    assert_eq!((all.approve(), all.waiting()), (None, None));
    assert!(all.admit("web", 14).is_ok() && all.admit("api", 8).is_ok());
    all.destroyed("web", 14);
    all.hold("web", 0);
    all.done("web");
    all.done("api");
    assert!(all.admit("api", 15).is_err(), "that is another round");
}

#[test]
fn what_waits_waits_after_a_restart() {
    let all = holdings();
    assert_eq!(all.admit("web", 12), Ok(()));
    all.destroyed("web", 12);
    all.hold("web", 2);
    assert!(all.admit("dns", 7).is_err(), "19 of 29");
    let kept = all.changed().unwrap();
    assert_eq!((kept.destroyed, kept.held["web"]), (12, 2));
    assert_eq!(all.changed(), None);
    let (again, _) = uncounted();
    again.restore(kept);
    again.expect("dns", 7);
    assert!(again.admit("dns", 7).is_err());
}

#[test]
fn a_key_that_loses_more_than_was_expected_is_counted_first() {
    let all = holdings();
    for key in ["web", "api", "dns"] {
        all.guess(key, 0);
    }
    assert_eq!(
        all.uncounted("web", 2, 0, false),
        Some(Uncounted::Key),
        "29 of 29 may go"
    );
    assert_eq!(all.take_uncounted("web"), Some(Uncounted::Key));
    assert_eq!(all.take_uncounted("web"), None, "once");
    all.foresee("web", 14);
    assert_eq!(
        all.uncounted("web", 2, 0, false),
        Some(Uncounted::Others),
        "api and dns come first"
    );
    assert_eq!(all.uncounted("api", 8, 0, false), Some(Uncounted::Key));
    all.foresee("api", 8);
    assert_eq!(all.uncounted("api", 8, 0, false), None, "22 of 29 go in any case");
    assert!(all.admit("api", 8).is_err());
    all.turn_ended("dns");
    assert_eq!(all.uncounted("web", 2, 0, false), None);
    assert!(all.admit("web", 2).is_err(), "22 of 29");
    assert_eq!(all.waiting().unwrap().keys, ["api", "web"]);
}

#[test]
fn a_key_whose_guest_began_to_destroy_goes_on_whatever_else_is_to_go() {
    let all = holdings();
    all.guess("web", 0);
    assert_eq!(all.uncounted("web", 2, 0, false), None, "14 of 29 at most");
    assert_eq!(all.admit("web", 2), Ok(()));
    all.destroyed("web", 2);
    all.expect("api", 8);
    assert!(all.admit("api", 8).is_ok(), "10 of 29, as far as is known");
    for _ in 0..2 {
        assert_eq!(all.uncounted("web", 6, 0, false), None);
        assert_eq!(all.admit("web", 6), Ok(()), "22 of 29 go, but it has begun");
        all.destroyed("web", 6);
    }
    assert_eq!(
        all.uncounted("web", 1, 0, false),
        Some(Uncounted::Key),
        "more than was there"
    );
}

#[test]
fn a_key_that_began_to_destroy_begins_anew_after_another_host_acted() {
    let all = holdings();
    all.guess("web", 0);
    assert_eq!(all.admit("web", 2), Ok(()));
    all.destroyed("web", 2);
    all.pause();
    all.expect("api", 8);
    all.expect("dns", 7);
    assert!(all.admit("web", 2).is_err(), "19 of 29");
}

#[test]
fn what_is_approved_to_go_counts_no_longer_as_kept() {
    let (all, _) = uncounted();
    for (key, count) in [("a", 60), ("b", 30), ("c", 10)] {
        all.hold(key, count);
    }
    assert!(all.admit("a", 60).is_err());
    all.approve().unwrap();
    assert_eq!(all.admit("c", 10), Ok(()), "10 of 40");
    assert!(all.admit("b", 30).is_err(), "40 of 40");
}

#[test]
fn what_is_gone_goes_after_the_turns_of_what_else_changed() {
    let all = holdings();
    all.foresee("dns", all.held_by_gone("dns"));
    all.guess("web", 0);
    assert!(all.comes_after_others("dns"), "21 of 29 may go");
    assert_eq!(all.uncounted("dns", 7, 0, false), Some(Uncounted::Others));
    all.turn_ended("web");
    assert!(!all.comes_after_others("dns"));
    assert_eq!(all.uncounted("dns", 7, 0, false), None);
    assert_eq!(all.admit("dns", 7), Ok(()));
}

#[test]
fn a_key_waits_for_others_for_seconds_at_most() {
    let (all, clock) = counted();
    all.foresee("dns", 7);
    all.guess("web", 0);
    assert!(all.comes_after_others("dns"));
    clock.advance_ms(OTHERS_MAX_MS);
    assert!(!all.comes_after_others("dns"));
    all.turn_ended("web");
    all.guess("web", 0);
    assert!(all.comes_after_others("dns"), "each had its turn meanwhile");
}

#[test]
fn a_key_that_was_not_counted_may_lose_what_its_turn_saw() {
    let all = holdings();
    assert_eq!(all.uncounted("new", 2, 10, false), None, "10 of 29");
    assert_eq!(all.uncounted("other", 2, 10, false), Some(Uncounted::Key), "20 of 29");
}

#[test]
fn an_approval_holds_after_a_restart_until_it_is_done() {
    let all = holdings();
    all.expect("web", 14);
    all.expect("api", 8);
    assert!(all.admit("web", 14).is_err());
    all.approve().unwrap();
    assert!(all.is_urgent());
    let kept = all.changed().unwrap();
    assert_eq!(kept.approved.len(), 2);
    assert!(!all.is_urgent());
    let (again, _) = uncounted();
    again.restore(kept);
    assert_eq!(
        (again.uncounted("web", 14, 14, false), again.admit("web", 14)),
        (None, Ok(()))
    );
    again.settled("web", 0);
    assert!(again.is_urgent(), "a later change needs another approval");
    assert_eq!(again.changed().unwrap().approved, ["api".to_owned()].into());
}

#[test]
fn a_limit_of_calls_needs_the_number_of_all_that_goes() {
    let limited = Holdings::default();
    assert_eq!(limited.uncounted("web", 1, 0, true), Some(Uncounted::Key));
    assert_eq!(limited.uncounted("web", 1, 0, false), None, "it has the number");
}
