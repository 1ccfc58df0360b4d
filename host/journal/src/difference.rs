//! Compares two JSON values field by field, and describes where they differ.
//!
//! Handles only values; `divergence.rs` knows their entries and recordings.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;
use trueup_base::text::counted;

/// A report shows this many differences and counts the rest: the first few show what kind of difference it is.
pub const DIFFERENCES_SHOWN_MAX: usize = 20;

/// A report shortens values to about this many characters, so that a difference takes one or two lines.
pub(crate) const VALUE_CHARS_MAX: usize = 120;

/// How much of the common text of two long texts is shown before they differ.
const COMMON_CHARS_SHOWN: usize = 20;

/// One place where two values differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The path, such as `args.specs[0].Bind.port`; empty for the whole value.
    pub path: String,
    /// The value in the recording; `None` if it has none.
    pub recorded: Option<Differing>,
    /// The value in the replay; `None` if it has none.
    pub replayed: Option<Differing>,
}

/// The content at a place where two values differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Differing {
    /// A value.
    Value(Value),
    /// The number of elements of a list, if the other list has another number.
    Elements(usize),
}

/// Every place where two values differ, ordered by field name and list index, with `root` as the prefix of every path,
/// such as `args`.
pub fn differences_under(root: &str, recorded: &Value, replayed: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(root, Some(recorded), Some(replayed), &mut found);
    found
}

fn compare(path: &str, recorded: Option<&Value>, replayed: Option<&Value>, found: &mut Vec<Difference>) {
    match (recorded, replayed) {
        (recorded, replayed) if recorded == replayed => {}
        (Some(Value::Object(recorded)), Some(Value::Object(replayed))) => {
            for name in recorded.keys().chain(replayed.keys()).collect::<BTreeSet<_>>() {
                compare(&path_below(path, name), recorded.get(name), replayed.get(name), found);
            }
        }
        (Some(Value::Array(recorded)), Some(Value::Array(replayed))) => {
            if recorded.len() != replayed.len() {
                found.push(Difference {
                    path: path.to_owned(),
                    recorded: Some(Differing::Elements(recorded.len())),
                    replayed: Some(Differing::Elements(replayed.len())),
                });
            }
            for at in 0..recorded.len().max(replayed.len()) {
                compare(&format!("{path}[{at}]"), recorded.get(at), replayed.get(at), found);
            }
        }
        (recorded, replayed) => found.push(Difference {
            path: path.to_owned(),
            recorded: recorded.cloned().map(Differing::Value),
            replayed: replayed.cloned().map(Differing::Value),
        }),
    }
}

/// `path.name`, or `path["a.b/c"]` if the name would be misread otherwise.
pub fn path_below(path: &str, name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    match (plain, path.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{path}.{name}"),
        (false, _) => format!("{path}[{}]", Value::from(name)),
    }
}

impl Difference {
    /// One line, without a line break: `port: recorded 80, replayed 81`. The caller supplies the words for the two
    /// sides.
    pub fn render(&self, recorded_word: &str, replayed_word: &str) -> String {
        let path = match self.path.as_str() {
            "" => "the whole value",
            path => path,
        };
        let nothing = || "nothing".to_owned();
        let text = |side: &Option<Differing>| side.as_ref().map_or_else(nothing, |side| shorten(&side.text()));
        let (recorded, replayed) = match (&self.recorded, &self.replayed) {
            (Some(recorded), Some(replayed)) => shorten_pair(&recorded.text(), &replayed.text()),
            (recorded, replayed) => (text(recorded), text(replayed)),
        };
        format!("{path}: {recorded_word} {recorded}, {replayed_word} {replayed}")
    }
}

impl Differing {
    fn text(&self) -> String {
        match self {
            Self::Value(value) => value.to_string(),
            Self::Elements(count) => counted(*count, "element", "elements"),
        }
    }
}

/// One line per difference, each with the prefix `indent` and a trailing line break: the first
/// [`DIFFERENCES_SHOWN_MAX`], then `and K more`. `recorded` and `replayed` are the words for the two sides.
pub fn render_differences(differences: &[Difference], recorded: &str, replayed: &str, indent: &str) -> String {
    let mut text = String::new();
    for difference in differences.iter().take(DIFFERENCES_SHOWN_MAX) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{indent}{}", difference.render(recorded, replayed));
    }
    let more = differences.len().saturating_sub(DIFFERENCES_SHOWN_MAX);
    if more > 0 {
        let _ = writeln!(text, "{indent}and {more} more");
    }
    text
}

/// The beginning of a text, and its full length.
pub(crate) fn shorten(text: &str) -> String {
    shorten_from(text, 0)
}

/// Two different texts. Long ones begin shortly before they differ.
pub(crate) fn shorten_pair(a: &str, b: &str) -> (String, String) {
    let common = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let skipped = match common + COMMON_CHARS_SHOWN <= VALUE_CHARS_MAX {
        true => 0,
        false => common - COMMON_CHARS_SHOWN,
    };
    (shorten_from(a, skipped), shorten_from(b, skipped))
}

fn shorten_from(text: &str, skipped: usize) -> String {
    let chars = text.chars().count();
    if chars <= VALUE_CHARS_MAX {
        return text.to_owned();
    }
    let before = if skipped > 0 { "..." } else { "" };
    let shown: String = text.chars().skip(skipped).take(VALUE_CHARS_MAX).collect();
    let after = if chars > skipped + VALUE_CHARS_MAX { "..." } else { "" };
    format!("{before}{shown}{after} ({chars} characters)")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tests::any_value;

    #[track_caller]
    fn check(recorded: Value, replayed: Value, lines: &[&str]) {
        let found = differences_under("args", &recorded, &replayed);
        let text = render_differences(&found, "recorded", "replayed", "");
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_changed_field_is_named_by_its_path() {
        check(
            json!({"specs": [{"Bind": {"port": 80, "name": "x"}}]}),
            json!({"specs": [{"Bind": {"port": 81, "name": "x"}}]}),
            &["args.specs[0].Bind.port: recorded 80, replayed 81"],
        );
        check(
            json!({"a b": 1, "": 1}),
            json!({"a b": 2, "": 2}),
            &[
                r#"args[""]: recorded 1, replayed 2"#,
                r#"args["a b"]: recorded 1, replayed 2"#,
            ],
        );
    }

    #[test]
    fn missing_and_extra_fields_and_lengths_are_said_in_words() {
        check(
            json!({"b": null, "c": 1}),
            json!({"a": "x", "c": 1}),
            &[
                r#"args.a: recorded nothing, replayed "x""#,
                "args.b: recorded null, replayed nothing",
            ],
        );
        check(
            json!([1, 2]),
            json!([1]),
            &[
                "args: recorded 2 elements, replayed 1 element",
                "args[1]: recorded 2, replayed nothing",
            ],
        );
        check(
            json!({"a": [1]}),
            json!({"a": {"x": 1}}),
            &[r#"args.a: recorded [1], replayed {"x":1}"#],
        );
    }

    #[test]
    fn long_reports_and_long_values_are_cut() {
        let recorded: Vec<u32> = (0..50).collect();
        let replayed: Vec<u32> = (1..51).collect();
        let found = differences_under("", &json!(recorded), &json!(replayed));
        assert_eq!(found.len(), 50);
        let text = render_differences(&found, "expected", "got", "  ");
        assert_eq!(text.lines().count(), 21);
        assert!(
            text.starts_with("  [0]: expected 0, got 1\n") && text.ends_with("  and 30 more\n"),
            "{text}"
        );

        let found = differences_under("", &json!("a".repeat(1000)), &json!(format!("{}b", "a".repeat(1000))));
        let line = found[0].render("recorded", "replayed");
        assert!(
            line.len() < 400 && line.contains("ab\"") && line.contains("(1002 characters)"),
            "{line}"
        );
    }

    proptest! {
        #[test]
        fn there_are_differences_exactly_where_values_differ(a in any_value(), b in any_value()) {
            prop_assert!(differences_under("", &a, &a).is_empty());
            prop_assert_eq!(a == b, differences_under("", &a, &b).is_empty());
            let there = differences_under("", &a, &b);
            let back = differences_under("", &b, &a);
            prop_assert_eq!(there.len(), back.len());
            for (there, back) in there.iter().zip(&back) {
                prop_assert_eq!(&there.path, &back.path);
                prop_assert_eq!(&there.recorded, &back.replayed);
            }
        }
    }
}
