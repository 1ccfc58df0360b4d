//! What causes a pause or a list, and how lines are read.

use super::*;

#[test]
fn pauses_grow_and_stay_within_their_bounds() {
    for (failures, shortest, longest) in [
        (0, 800, 1_200),
        (1, 1_600, 2_400),
        (4, 12_800, 19_200),
        (5, 20_000, 30_000),
        (u32::MAX, 20_000, 30_000),
    ] {
        let all = [0, 1, 7_777, u64::MAX / 2, u64::MAX].map(|chance| pause_ms(failures, chance));
        assert!(
            all.iter().all(|pause_ms| (shortest..=longest).contains(pause_ms)),
            "{failures}: {all:?}"
        );
        assert_eq!(pause_ms(failures, 0), shortest);
        assert_eq!(pause_ms(failures, longest - shortest), longest);
    }
}

fn failed(code: u16) -> Failed {
    Failed {
        text: String::new(),
        code: Some(code),
    }
}

/// A watch that the API server opened and ended normally at once, without any event.
fn ended() -> Ended {
    Ended {
        from: Some("7".to_owned()),
        failed: None,
        opened: true,
        received: false,
        advanced: false,
        lasted: Duration::ZERO,
    }
}

#[test]
fn whatever_may_be_due_to_the_version_leads_to_a_list() {
    for code in [400, 404, 410, 422] {
        assert!(is_about_version(&failed(code)), "{code}");
    }
    for code in [401, 403, 429, 500, 503, 504, 599] {
        assert!(!is_about_version(&failed(code)), "{code}");
    }
    let away = Failed {
        text: "watch services: Connection refused".to_owned(),
        code: None,
    };
    assert!(!is_about_version(&away));
    let too_large = Failed {
        text: "watch services: Timeout: Too large resource version: 90, current: 7 (504)".to_owned(),
        code: Some(504),
    };
    assert!(is_about_version(&too_large));
}

#[test]
fn versions_are_compared_as_the_numbers_that_they_are() {
    assert!(is_before("9", "10") && !is_before("10", "9") && !is_before("10", "10"));
    assert!(!is_before("a9", "b1") && !is_before("1", "b1"));
}

#[test]
fn lists_in_a_circle_grow_rare_whatever_came_before_each_error() {
    let mut history = History::default();
    let expired = Ended {
        from: None,
        failed: Some(failed(410)),
        received: true,
        advanced: true,
        lasted: SHORT * 2,
        ..ended()
    };
    let pauses: Vec<_> = (0..20).map(|_| history.after(&expired).pause).collect();
    assert_eq!(pauses, (0..20).map(Some).collect::<Vec<_>>());
    let lived = Ended {
        lasted: LASTED,
        ..expired
    };
    assert_eq!(
        history.after(&lived),
        Next {
            pause: None,
            list: false
        }
    );
    assert_eq!(history.failures, 0);
}

#[test]
fn whatever_fails_five_times_in_a_row_is_listed() {
    let refused = || Ended {
        failed: Some(failed(403)),
        opened: false,
        ..ended()
    };
    for failing in [refused, ended] {
        let mut history = History::default();
        let lists: Vec<bool> = (0..11).map(|_| history.after(&failing()).list).collect();
        let expected: Vec<bool> = (1..12).map(|failures| failures == 5 || failures == 10).collect();
        assert_eq!(lists, expected);
    }
    let mut history = History::default();
    for _ in 0..4 {
        history.after(&refused());
    }
    let good = Ended {
        received: true,
        advanced: true,
        ..ended()
    };
    assert_eq!(
        history.after(&good),
        Next {
            pause: None,
            list: false
        }
    );
    assert!(!history.after(&refused()).list, "in a row");
}

#[test]
fn watches_that_are_cut_at_once_are_asked_for_again_within_seconds() {
    let mut history = History::default();
    let pauses: Vec<_> = (0..5).map(|_| history.after(&ended()).pause).collect();
    assert_eq!(pauses, [0, 1, 1, 1, 1].map(Some));
}

#[test]
fn watches_that_stay_silent_lead_to_a_list() {
    let mut history = History::default();
    let silent = || Ended {
        lasted: LASTED,
        ..ended()
    };
    for received in [true, false, false, false, false] {
        let next = history.after(&Ended { received, ..silent() });
        assert_eq!(
            next,
            Next {
                pause: None,
                list: false
            }
        );
    }
    assert!(history.after(&silent()).list);
    assert!(!history.after(&silent()).list, "counted anew");
}

#[tokio::test]
async fn lines_are_whole_or_not_there() {
    let mut lines: &[u8] = b"one\n\n \ntwo\nhal";
    assert_eq!(next_line(&mut lines).await.unwrap().as_deref(), Some(&b"one\n"[..]));
    assert_eq!(next_line(&mut lines).await.unwrap().as_deref(), Some(&b"two\n"[..]));
    assert_eq!(next_line(&mut lines).await.unwrap(), None);
}
