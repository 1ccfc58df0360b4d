//! Compares two decisions: their arguments, their aligned questions, and their endings, field by field.
//!
//! Pure: takes two decisions and returns the differences.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use trueup_base::text::counted;
use trueup_journal::{Ask, Difference, Differing, Ending, differences_under};

use super::decision::Lines;

/// How many questions of each decision are compared: more would be unreadable, and their table large.
pub(super) const ASKS_COMPARED_MAX: usize = 5000;

/// So many questions are aligned at once: the table of the best alignment is of quadratic size, 4 MB.
const ALIGNED_MAX: usize = 1000;

/// How many fields of a pair are shown.
const FIELDS_MAX: usize = 200;

/// The maximum length of a field's value, in bytes.
const FIELD_BYTES_MAX: usize = 4 << 10;

/// How two decisions differ.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    /// The names of the calls, if they differ.
    calls: Option<(String, String)>,
    args: Fields,
    asks: Vec<Pair>,
    ending: Fields,
    /// Whether some questions were left out.
    is_cut: bool,
}

/// The fields that differ. Empty if all are equal.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Fields {
    fields: Vec<Field>,
    /// The number of further fields.
    more: usize,
}

#[derive(Debug, PartialEq, Serialize)]
struct Field {
    path: String,
    /// `None` if it does not exist.
    a: Option<String>,
    b: Option<String>,
}

/// A question of each decision, or of only one.
#[derive(Debug, PartialEq, Serialize)]
struct Pair {
    name: String,
    a: Option<u64>,
    b: Option<u64>,
    #[serde(flatten)]
    differs: Fields,
}

/// Compares two decisions.
pub(super) fn compare<'l>(a: &'l Lines, b: &'l Lines) -> Compared {
    let call = |lines: &Lines| Some(lines.call.as_ref()?.1.name.clone());
    let args = |lines: &Lines| lines.call.as_ref().map(|(_, call)| parsed(&call.args));
    let calls = (call(a).unwrap_or_default(), call(b).unwrap_or_default());
    let [a_names, b_names] = [a, b].map(|lines| Vec::from_iter(lines.asks.iter().map(|(_, ask)| ask.name.as_str())));
    let pairs = align(&a_names, &b_names).into_iter();
    let ask = |lines: &'l Lines, at: Option<usize>| lines.asks.get(at?);
    Compared {
        calls: (calls.0 != calls.1).then_some(calls),
        args: fields(differences("args", args(a), args(b))),
        asks: pairs.filter_map(|(at, bt)| pair(ask(a, at), ask(b, bt))).collect(),
        ending: endings(a.ending.as_ref().map(|(_, a)| a), b.ending.as_ref().map(|(_, b)| b)),
        is_cut: a.asks.len().max(b.asks.len()) >= ASKS_COMPARED_MAX,
    }
}

fn pair(a: Option<&(u64, Ask)>, b: Option<&(u64, Ask)>) -> Option<Pair> {
    let mut differs = Vec::new();
    if let (Some((_, a)), Some((_, b))) = (a, b) {
        let answer = |ask: &Ask| ask.answer.as_deref().map(parsed);
        differs = differences("args", Some(parsed(&a.args)), Some(parsed(&b.args)));
        differs.extend(differences("answer", answer(a), answer(b)));
    }
    Some(Pair {
        name: a.or(b).map(|(_, ask)| ask.name.clone())?,
        a: a.map(|(n, _)| *n),
        b: b.map(|(n, _)| *n),
        differs: fields(differs),
    })
}

fn fields(found: Vec<Difference>) -> Fields {
    let side = |differing: Differing| match differing {
        Differing::Value(value) => cut(value.to_string()),
        Differing::Elements(count) => counted(count, "element", "elements"),
    };
    let field = |difference: Difference| Field {
        path: difference.path,
        a: difference.recorded.map(side),
        b: difference.replayed.map(side),
    };
    Fields {
        more: found.len().saturating_sub(FIELDS_MAX),
        fields: found.into_iter().take(FIELDS_MAX).map(field).collect(),
    }
}

fn endings(a: Option<&Ending>, b: Option<&Ending>) -> Fields {
    let value = |ending: &Ending| {
        let (kind, value) = ending.parts();
        (kind, value.map_or_else(Value::from, parsed))
    };
    match (a.map(value), b.map(value)) {
        (Some((kind, a)), Some((other, b))) if kind == other => fields(differences(kind, Some(a), Some(b))),
        (a, b) => {
            let side = |ending: Option<(&str, Value)>| ending.map(|(kind, value)| cut(format!("{kind} {value}")));
            let path = "ending".to_owned();
            let a = side(a);
            let b = side(b);
            let fields = Vec::from_iter((a != b).then_some(Field { path, a, b }));
            Fields { fields, more: 0 }
        }
    }
}

fn differences(root: &str, a: Option<Value>, b: Option<Value>) -> Vec<Difference> {
    match (a, b) {
        (Some(a), Some(b)) => differences_under(root, &a, &b),
        (None, None) => Vec::new(),
        (a, b) => vec![Difference {
            path: root.to_owned(),
            recorded: a.map(Differing::Value),
            replayed: b.map(Differing::Value),
        }],
    }
}

fn cut(mut text: String) -> String {
    if text.len() > FIELD_BYTES_MAX {
        text.truncate(text.floor_char_boundary(FIELD_BYTES_MAX));
        text.push_str("...");
    }
    text
}

/// Recorded values are valid JSON: the reader parsed them.
fn parsed(value: &RawValue) -> Value {
    serde_json::from_str(value.get()).unwrap_or_else(|_| Value::from(value.get()))
}

/// Pairs of positions, in order, with as many equal names as possible within each part of [`ALIGNED_MAX`].
fn align<'n>(a: &[&'n str], b: &[&'n str]) -> Vec<(Option<usize>, Option<usize>)> {
    let mut pairs = Vec::new();
    for from in (0..a.len().max(b.len())).step_by(ALIGNED_MAX) {
        let part = |names: &[&'n str]| -> Vec<&'n str> { names.iter().skip(from).take(ALIGNED_MAX).copied().collect() };
        let moved = |at: Option<usize>| at.map(|at| at + from);
        let aligned = longest_common(&part(a), &part(b));
        pairs.extend(aligned.into_iter().map(|(at, bt)| (moved(at), moved(bt))));
    }
    pairs
}

/// The longest common subsequence, by the textbook table.
fn longest_common(a: &[&str], b: &[&str]) -> Vec<(Option<usize>, Option<usize>)> {
    let width = b.len() + 1;
    let mut table = vec![0_u32; (a.len() + 1) * width];
    let cell = |table: &[u32], at: usize, bt: usize| table.get(at * width + bt).copied().unwrap_or(0);
    for (at, left) in a.iter().enumerate().rev() {
        for (bt, right) in b.iter().enumerate().rev() {
            let longest = if left == right {
                cell(&table, at + 1, bt + 1) + 1
            } else {
                cell(&table, at + 1, bt).max(cell(&table, at, bt + 1))
            };
            if let Some(cell) = table.get_mut(at * width + bt) {
                *cell = longest;
            }
        }
    }
    let (mut at, mut bt) = (0, 0);
    let mut pairs = Vec::with_capacity(a.len().max(b.len()));
    loop {
        match (a.get(at), b.get(bt)) {
            (None, None) => return pairs,
            (Some(left), Some(right)) if left == right => {
                pairs.push((Some(at), Some(bt)));
                at += 1;
                bt += 1;
            }
            (Some(_), right) if right.is_none() || cell(&table, at + 1, bt) >= cell(&table, at, bt + 1) => {
                pairs.push((Some(at), None));
                at += 1;
            }
            _ => {
                pairs.push((None, Some(bt)));
                bt += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trueup_journal::{Entry, Event};

    use super::*;

    fn lines(entries: &[&str]) -> Lines {
        let mut lines = Lines::default();
        for entry in entries.iter().map(|entry| Entry::parse(entry).unwrap()) {
            match entry.event {
                Event::Call(call) => lines.call = Some((entry.n, call)),
                Event::Ask(ask) => lines.asks.push((entry.n, ask)),
                Event::Ending(ending) => lines.ending = Some((entry.n, ending)),
                _ => panic!("no entry of a call"),
            }
        }
        lines
    }

    fn written(found: &Fields) -> Vec<String> {
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "nothing".to_owned());
        found
            .fields
            .iter()
            .map(|field| format!("{}: {} {}", field.path, side(&field.a), side(&field.b)))
            .collect()
    }

    #[test]
    fn two_decisions_are_compared_field_by_field() {
        let a = lines(&[
            r#"{"n":1,"at_ms":1,"call":"a.b","args":{"port":80,"name":"x"}}"#,
            r#"{"n":2,"ask":"api.get","args":{"id":1},"answer":{"Ok":"a"}}"#,
            r#"{"n":3,"ask":"api.create","args":{},"answer":null}"#,
            r#"{"n":4,"result":{"Ok":{"created":1}}}"#,
        ]);
        let b = lines(&[
            r#"{"n":11,"at_ms":2,"call":"a.b","args":{"port":81,"name":"x"}}"#,
            r#"{"n":12,"ask":"api.get","args":{"id":1},"answer":{"Ok":"b"}}"#,
            r#"{"n":13,"result":{"Ok":{"created":0}}}"#,
        ]);
        let found = compare(&a, &b);
        assert_eq!(written(&found.args), ["args.port: 80 81"]);
        assert_eq!(written(&found.ending), ["result.Ok.created: 1 0"]);
        let asks: Vec<_> = found
            .asks
            .iter()
            .map(|pair| (pair.a, pair.b, written(&pair.differs)))
            .collect();
        assert_eq!(
            asks,
            [
                (Some(2), Some(12), vec![r#"answer.Ok: "a" "b""#.to_owned()]),
                (Some(3), None, vec![])
            ]
        );
        let same = compare(&a, &a);
        assert!(same.args == Fields::default() && same.ending == Fields::default() && same.calls.is_none());
        assert!(
            same.asks
                .iter()
                .all(|pair| pair.differs == Fields::default() && pair.a == pair.b)
        );
    }

    #[test]
    fn another_ending_is_one_difference() {
        let a = lines(&[r#"{"n":4,"result":{"Ok":1}}"#]);
        let b = lines(&[r#"{"n":4,"trap":"unreachable"}"#]);
        assert_eq!(
            written(&compare(&a, &b).ending),
            [r#"ending: result {"Ok":1} trap "unreachable""#]
        );
        assert_eq!(
            written(&compare(&a, &Lines::default()).ending),
            [r#"ending: result {"Ok":1} nothing"#]
        );
    }

    #[test]
    fn more_questions_than_are_aligned_at_once_are_aligned_part_by_part() {
        let pairs = align(&["a"; ALIGNED_MAX + 2], &["a"; ALIGNED_MAX + 1]);
        assert_eq!(pairs.len(), ALIGNED_MAX + 2);
        let last = [(Some(ALIGNED_MAX), Some(ALIGNED_MAX)), (Some(ALIGNED_MAX + 1), None)];
        assert_eq!(pairs[ALIGNED_MAX..], last);
    }

    proptest! {
        #[test]
        fn every_question_is_in_one_pair_and_in_order(a in "[abc]{0,12}", b in "[abc]{0,12}") {
            let a: Vec<&str> = a.split_terminator("").skip(1).collect();
            let b: Vec<&str> = b.split_terminator("").skip(1).collect();
            let pairs = align(&a, &b);
            let left: Vec<usize> = pairs.iter().filter_map(|pair| pair.0).collect();
            let right: Vec<usize> = pairs.iter().filter_map(|pair| pair.1).collect();
            prop_assert_eq!(left, (0..a.len()).collect::<Vec<_>>());
            prop_assert_eq!(right, (0..b.len()).collect::<Vec<_>>());
            for pair in pairs {
                if let (Some(at), Some(bt)) = pair {
                    prop_assert_eq!(a[at], b[bt]);
                }
            }
        }
    }
}
