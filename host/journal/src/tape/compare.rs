//! Compares the guest's questions and results with the recorded ones.
//!
//! Compares two texts or two endings under the rules; `replay.rs` finds them in the recording.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::questions::OnePart;
use crate::accepted::{Accepted, result_of};
use crate::difference::{Difference, differences_under};
use crate::divergence::{Divergence, Outcome};
use crate::entry::{Ask, Ending};

/// How the arguments of a question, or the endings of a call, compare. `Ok`: they are the same (0), or they differ as
/// rules allow (1).
pub(super) type Compared = Result<u64, Divergence>;

/// Compare bytes first, since the same guest gives the same text; then values.
pub(super) fn compare_args(ask: &Ask, replayed: &[u8], accepted: &Accepted) -> Compared {
    if ask.args.get().as_bytes() == replayed {
        return Ok(0);
    }
    let whole = |args| OnePart { args, element: None };
    let recorded = whole(value_of(ask.args.get().as_bytes()));
    compare_values(&ask.name, &recorded, &whole(value_of(replayed)), accepted)
}

/// Compares the arguments of two questions of one name, each with at most one element of its list.
pub(super) fn compare_values(name: &str, recorded: &OnePart, replayed: &OnePart, accepted: &Accepted) -> Compared {
    let mut differences = differences_under("args", &recorded.args, &replayed.args);
    if let (Some((list, at, recorded)), Some((_, _, replayed))) = (&recorded.element, &replayed.element) {
        differences.extend(differences_under(&format!("args.{list}[{at}]"), recorded, replayed));
    }
    judged(differences, name, accepted, |differences| Divergence::Args {
        ask: name.to_owned(),
        differences,
    })
}

/// How the differences of an entry count under the rules.
fn judged(
    differences: Vec<Difference>,
    entry: &str,
    accepted: &Accepted,
    divergence: impl FnOnce(Vec<Difference>) -> Divergence,
) -> Compared {
    if differences.is_empty() {
        return Ok(0);
    }
    match accepted.left(entry, differences) {
        left if left.is_empty() => Ok(1),
        left => Err(divergence(left)),
    }
}

/// A recorded answer as the guest gets it, or how the replay diverges because it can't be given.
pub(super) fn given<R: DeserializeOwned>(n: u64, name: &str, answer: &RawValue) -> Result<R, Outcome> {
    serde_json::from_str(answer.get()).map_err(|error| {
        let divergence = Divergence::Answer {
            ask: name.to_owned(),
            reason: error.to_string(),
        };
        Outcome::Diverged { n, divergence }
    })
}

/// Compares two endings; they count as the same if they are not comparable: a recorded deadline, memory limit or
/// cancellation does not show what the guest would have done. Compares the texts of two traps only if it is the
/// `same_guest`.
pub(super) fn compare_endings(
    call: &str,
    recorded: &Ending,
    replayed: &Ending,
    same_guest: bool,
    accepted: &Accepted,
) -> Compared {
    match (recorded, replayed) {
        (Ending::Deadline(_) | Ending::Memory(_) | Ending::Cancelled(_), _) => Ok(0),
        (Ending::Trap(recorded), Ending::Trap(replayed)) if !same_guest || is_same_trap(recorded, replayed) => Ok(0),
        (Ending::Result(recorded), Ending::Result(replayed)) => {
            if recorded.get() == replayed.get() {
                return Ok(0);
            }
            let (recorded, replayed) = (recorded.get().as_bytes(), replayed.get().as_bytes());
            let differences = differences_under("result", &value_of(recorded), &value_of(replayed));
            judged(differences, &result_of(call), accepted, |differences| {
                Divergence::Result {
                    call: call.to_owned(),
                    differences,
                }
            })
        }
        (recorded, replayed) => Err(Divergence::Ending {
            call: call.to_owned(),
            recorded: text_of(recorded),
            replayed: text_of(replayed),
        }),
    }
}

/// Whether two texts describe one trap. Functions may be listed differently than by the recording host, and recordings
/// of an older host may lack a panic's text.
fn is_same_trap(recorded: &str, replayed: &str) -> bool {
    const NO_TEXT: &str = "trapped: `unreachable`";
    // The name before it may be the guest's name in the configuration.
    let of_call = |text: &str| {
        text.split_once(" in `")
            .map_or_else(|| text.to_owned(), |(_, call)| call.to_owned())
    };
    let cause = |text: &str| of_call(text).split(" (at ").next().unwrap_or_default().to_owned();
    let panic = |text: &str| {
        let text = of_call(text);
        let (place, what) = text.split_once("trapped: ")?;
        let is_panic = what.starts_with("`unreachable`") || what.starts_with("panicked at ");
        is_panic.then(|| place.to_owned())
    };
    let has_no_text = recorded.contains(NO_TEXT) || replayed.contains(NO_TEXT);
    cause(recorded) == cause(replayed)
        || (has_no_text && panic(recorded).is_some() && panic(recorded) == panic(replayed))
}

/// serde_json wrote both sides, so both parse; other text would be compared as text.
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
