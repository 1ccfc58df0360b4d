//! Invariants under any order of calls: never two runs of a key, nothing lost, one order, pauses within bounds.

use std::collections::BTreeMap;

use crate::{Backoff, Controller, Outcome, RETRY_AFTER_MS_MIN, Settings};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Changed(u8),
    Take,
    Done(u8, Outcome),
    Forget(u8),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..6u8;
    let outcome = prop_oneof![
        Just(Outcome::Success),
        Just(Outcome::Failure),
        Just(Outcome::Interrupted(0)),
        (0..5_000u64).prop_map(Outcome::RetryAfter)
    ];
    let step = prop_oneof![
        4 => key.clone().prop_map(Step::Changed),
        4 => Just(Step::Take),
        4 => (key.clone(), outcome).prop_map(|(key, outcome)| Step::Done(key, outcome)),
        1 => key.prop_map(Step::Forget),
        3 => (0..3_000u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..200)
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        1..2_000u64,
        100..400u32,
        1..20_000u64,
        0..=100u32,
        prop_oneof![Just(0), 1..5_000u64],
    )
        .prop_map(
            |(initial_ms, factor_percent, max_ms, jitter_percent, resync_ms)| Settings {
                backoff: Backoff {
                    initial_ms,
                    factor_percent,
                    max_ms,
                    jitter_percent,
                },
                resync_ms,
            },
        )
}

/// A simple model of one key.
#[derive(Clone, Copy, Default)]
struct Known {
    running: bool,
    /// A change came after which no run has started.
    owed: bool,
    failures: u32,
}

fn check(settings: Settings, seed: u64, steps: &[Step]) -> Result<Vec<(u64, u8)>, TestCaseError> {
    let mut queue = Controller::new(settings, seed);
    let mut known: BTreeMap<u8, Known> = BTreeMap::new();
    let mut taken = Vec::new();
    let mut now_ms = 0;
    for step in steps {
        match *step {
            Step::Pass(pause_ms) => now_ms += pause_ms,
            Step::Changed(key) => {
                queue.changed(&key, now_ms).unwrap();
                known.entry(key).or_default().owed = true;
            }
            Step::Forget(key) => {
                queue.forget(&key);
                match known.get_mut(&key) {
                    Some(known) if known.running => known.owed = false,
                    _ => drop(known.remove(&key)),
                }
            }
            Step::Take => match queue.take_ready(now_ms) {
                Some(key) => {
                    let known = known.get_mut(&key).expect("only known keys come out");
                    prop_assert!(!known.running, "{key} was handed out twice at once");
                    *known = Known {
                        running: true,
                        owed: false,
                        ..*known
                    };
                    taken.push((now_ms, key));
                }
                None => prop_assert!(
                    known.values().all(|known| known.running || !known.owed),
                    "a changed key was due and did not come out"
                ),
            },
            Step::Done(key, outcome) => {
                let before = known.get(&key).copied().unwrap_or_default();
                let due_ms = queue.done(&key, outcome, now_ms);
                if !before.running {
                    prop_assert_eq!(due_ms, None);
                    continue;
                }
                if queue.status(&key).is_none() {
                    prop_assert!(!before.owed, "a changed key was dropped");
                    known.remove(&key);
                    continue;
                }
                let failures = match outcome {
                    Outcome::Success => 0,
                    Outcome::Interrupted(_) => before.failures,
                    Outcome::Failure | Outcome::RetryAfter(_) => before.failures + 1,
                };
                known.insert(
                    key,
                    Known {
                        running: false,
                        failures,
                        ..before
                    },
                );
                prop_assert_eq!(queue.status(&key).unwrap().failures, failures);
                check_pause(
                    settings,
                    before,
                    failures,
                    outcome,
                    due_ms.map(|due_ms| due_ms - now_ms),
                )?;
            }
        }
        prop_assert_eq!(queue.len(), known.len());
        prop_assert_eq!(queue.running(), known.values().filter(|known| known.running).count());
        prop_assert!(known.values().all(|known| !known.owed) || !queue.is_idle());
        if let Some(due_ms) = queue.next_due_ms() {
            prop_assert!(queue.due_ms().iter().all(|own_ms| *own_ms >= due_ms));
        }
    }
    // Nothing is lost: with time and successes alone, every change still leads to a run, and work comes to an end.
    for key in known.iter().filter(|(_, known)| known.running).map(|(key, _)| *key) {
        queue.done(&key, Outcome::Success, now_ms);
    }
    now_ms += 1_000_000;
    while !queue.is_idle() {
        let key = queue.take_ready(now_ms).expect("unfinished work is due by now");
        known.entry(key).or_default().owed = false;
        queue.done(&key, Outcome::Success, now_ms);
        taken.push((now_ms, key));
    }
    prop_assert!(known.values().all(|known| !known.owed), "a change was lost");
    Ok(taken)
}

fn check_pause(
    settings: Settings,
    before: Known,
    failures: u32,
    outcome: Outcome,
    pause_ms: Option<u64>,
) -> Result<(), TestCaseError> {
    let Backoff {
        initial_ms,
        factor_percent,
        max_ms,
        jitter_percent,
    } = settings.backoff;
    let max_ms = max_ms.max(initial_ms);
    match (outcome, pause_ms) {
        _ if before.owed => prop_assert_eq!(pause_ms, Some(0)),
        (Outcome::Success, None) => prop_assert_eq!(settings.resync_ms, 0),
        (Outcome::Success, Some(pause_ms)) => {
            prop_assert!(pause_ms * 2 >= settings.resync_ms && pause_ms <= settings.resync_ms);
        }
        (Outcome::Interrupted(asked_ms), Some(pause_ms)) => prop_assert_eq!(pause_ms, asked_ms),
        (Outcome::RetryAfter(asked_ms), Some(pause_ms)) => {
            prop_assert_eq!(pause_ms, asked_ms.max(RETRY_AFTER_MS_MIN));
        }
        (Outcome::Failure, Some(pause_ms)) => {
            // Earlier failures of any kind are at most this many growths, each of which rounds down to whole
            // milliseconds.
            let most_ms = initial_ms as f64
                * (f64::from(factor_percent) / 100.0).powi(failures as i32 - 1)
                * (1.0 + f64::from(jitter_percent) / 100.0);
            let least_ms = initial_ms as f64 * (1.0 - f64::from(jitter_percent) / 100.0);
            prop_assert!(
                pause_ms <= max_ms && pause_ms as f64 <= most_ms.ceil() && pause_ms as f64 >= least_ms.floor()
            );
            prop_assert!(pause_ms >= 1);
        }
        (_, None) => prop_assert!(false, "a failure was not queued again"),
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_order_of_calls_keeps_the_promises(settings in settings(), seed: u64, steps in steps()) {
        let first = check(settings, seed, &steps)?;
        let second = check(settings, seed, &steps)?;
        prop_assert_eq!(first, second, "the same calls gave another order");
    }
}
