//! Holds what the guest asked and returned against what was recorded.
//!
//! Two texts or two endings, and the rules for what may differ; where in the recording they stand is `replay.rs`.

use serde_json::Value;

use crate::accepted::{Accepted, Compared};
use crate::difference::differences_under;
use crate::divergence::Divergence;
use crate::entry::{Ask, Ending};

/// How the arguments of one question compare.
#[derive(Debug, PartialEq)]
pub(super) enum Args {
    Same,
    /// They differ as rules allow.
    Accepted,
    Differ(Divergence),
}

/// Bytes first, since the same guest gives the same text; values where that differs.
pub(super) fn compare_args(ask: &Ask, replayed: &[u8], accepted: &Accepted) -> Args {
    if ask.args.get().as_bytes() == replayed {
        return Args::Same;
    }
    let differences = differences_under("args", &value_of(ask.args.get().as_bytes()), &value_of(replayed));
    if differences.is_empty() {
        return Args::Same;
    }
    let differences = accepted.left(Compared::Question(&ask.name), differences);
    if differences.is_empty() {
        return Args::Accepted;
    }
    Args::Differ(Divergence::Args {
        ask: ask.name.clone(),
        differences,
    })
}

/// What differs between two endings that can be compared at all: a recorded deadline, memory limit or cancellation
/// says nothing about what the guest would have done. With it, whether rules allowed what differs. The texts of two traps are compared where it is
/// the `same_guest`.
pub(super) fn compare_endings(
    call: &str,
    recorded: &Ending,
    replayed: &Ending,
    same_guest: bool,
    accepted: &Accepted,
) -> (Option<Divergence>, bool) {
    match (recorded, replayed) {
        (Ending::Deadline(_) | Ending::Memory(_) | Ending::Cancelled(_), _) => (None, false),
        (Ending::Trap(recorded), Ending::Trap(replayed)) if recorded == replayed || !same_guest => (None, false),
        (Ending::Result(recorded), Ending::Result(replayed)) => {
            if recorded.get() == replayed.get() {
                return (None, false);
            }
            let differences = differences_under(
                "result",
                &value_of(recorded.get().as_bytes()),
                &value_of(replayed.get().as_bytes()),
            );
            let differ = !differences.is_empty();
            let differences = accepted.left(Compared::Result(call), differences);
            if differences.is_empty() {
                return (None, differ);
            }
            let call = call.to_owned();
            (Some(Divergence::Result { call, differences }), false)
        }
        (recorded, replayed) => {
            let divergence = Divergence::Ending {
                call: call.to_owned(),
                recorded: text_of(recorded),
                replayed: text_of(replayed),
            };
            (Some(divergence), false)
        }
    }
}

/// Both sides were written by serde_json, so both parse; text that did not would be compared as text.
fn value_of(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(json)))
}

fn text_of(ending: &Ending) -> String {
    let (key, value) = ending.parts();
    match value {
        Ok(raw) => format!("{key} {}", raw.get()),
        Err(text) => format!("{key} {}", Value::from(text)),
    }
}
