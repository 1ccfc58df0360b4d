//! Differences that a replay accepts: rules that name an entry, a field of it, and why.
//!
//! Fields are named as `difference.rs` renders them. The source of the rules is not known here.
//!
//! ```text
//! entry: api.create     field: args.specs[*].backend.balance     any index
//! entry: result of r.f  field: result.Ok.**                      that field, and everything below
//! ```

use serde::Deserialize;
use serde_json::Value;

use crate::difference::{Difference, Differing, path_below};

/// Rules; without any, no difference is accepted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accepted(pub Vec<Rule>);

/// One field of one entry that may differ.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `interface.function` of a question, such as `api.create`, or [`result_of`] a call.
    entry: String,
    /// Its path, which begins with `args` or `result`.
    field: String,
    /// The required value in the recording; an integer also matches a number of elements. `None`: any, or none.
    from: Option<Value>,
    /// The same for the replay.
    to: Option<Value>,
    /// Why the difference is accepted, in its author's words.
    why: String,
}

const RESULT_OF: &str = "result of ";

/// How rules name the result of this call.
pub(crate) fn result_of(call: &str) -> String {
    format!("{RESULT_OF}{call}")
}

impl Accepted {
    /// The differences of this entry that no rule accepts.
    pub(crate) fn left(&self, entry: &str, mut differences: Vec<Difference>) -> Vec<Difference> {
        let rules = || self.0.iter().filter(|rule| rule.entry == entry);
        differences.retain(|difference| !rules().any(|rule| rule.accepts(difference)));
        differences
    }
}

impl Rule {
    /// Checks what any text may break: the entry, the field and the reason.
    ///
    /// # Errors
    /// One line without the location: the given text, and what it must be.
    pub fn check(&self) -> Result<(), String> {
        let Self { entry, field, .. } = self;
        let root = root_of(entry)?;
        let wrong = |reason: &str| Err(format!("`field` was `{field}`: {reason}"));
        let path = format!(".{field}");
        if step(&path).is_none_or(|(first, _)| first != format!(".{root}")) {
            return wrong(&format!("a field of `{entry}` begins with `{root}`"));
        }
        let mut rest = path.as_str();
        while let Some((step, after)) = step(rest) {
            if step == BELOW && !after.is_empty() {
                return wrong("`**` must be at the end");
            }
            rest = after;
        }
        if !rest.is_empty() {
            let form = "a name follows a dot; a number, `*`, or another name in quotes is in brackets";
            return wrong(&format!("what is `{rest}`? {form}"));
        }
        if self.why.trim().is_empty() {
            return Err("`why` must say why this difference is accepted".to_owned());
        }
        Ok(())
    }

    fn accepts(&self, difference: &Difference) -> bool {
        let fits = |wanted: &Option<Value>, there: &Option<Differing>| match (wanted, there) {
            (None, _) => true,
            (Some(wanted), Some(Differing::Value(value))) => wanted == value,
            (Some(wanted), Some(Differing::Elements(count))) => wanted.as_u64() == Some(*count as u64),
            (Some(_), None) => false,
        };
        leads_to(&format!(".{}", self.field), &format!(".{}", difference.path))
            && fits(&self.from, &difference.recorded)
            && fits(&self.to, &difference.replayed)
    }
}

/// The first name in the fields of an entry.
fn root_of(entry: &str) -> Result<&'static str, String> {
    let (name, root) = match entry.strip_prefix(RESULT_OF) {
        Some(call) => (call, "result"),
        None => (entry, "args"),
    };
    let word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    match name.split_once('.') {
        Some((interface, function)) if word(interface) && word(function) => Ok(root),
        _ => Err(format!(
            "`entry` was `{entry}`, must be a question such as `api.create`, or `result of ` and a call such as \
             `reconciliation.reconcile`"
        )),
    }
}

/// The step that means: here, or anywhere below.
const BELOW: &str = ".**";

/// Whether a rule's field is this path.
fn leads_to(field: &str, path: &str) -> bool {
    match (step(field), step(path)) {
        (Some((BELOW, _)), _) | (None, None) => true,
        (Some((step, field)), Some((there, path))) => {
            let any_index = step == "[*]" && there.starts_with('[') && !there.starts_with("[\"");
            (any_index || step == there) && leads_to(field, path)
        }
        _ => false,
    }
}

/// The first step of a path, which is `.name`, [`BELOW`], `[0]`, `[*]` or `["any name"]`, and the rest. `None` if the
/// path is empty or begins otherwise.
fn step(path: &str) -> Option<(&str, &str)> {
    let after = |text: &'_ str, fits: fn(char) -> bool| text.find(|c| !fits(c)).unwrap_or(text.len());
    let length = if path.starts_with(BELOW) {
        BELOW.len()
    } else if let Some(name) = path.strip_prefix('.') {
        1 + Some(after(name, |c| c.is_alphanumeric() || matches!(c, '_' | '-'))).filter(|length| *length > 0)?
    } else {
        let inside = path.strip_prefix('[')?;
        let length = match inside.chars().next()? {
            '"' => {
                let mut names = serde_json::Deserializer::from_str(inside).into_iter::<String>();
                let name = names.next()?.ok()?;
                let length = names.byte_offset();
                // Paths are compared as texts, so a name has one spelling.
                (path_below("", &name) == format!("[{}]", inside.get(..length)?)).then_some(length)?
            }
            '*' => 1,
            _ => {
                let length = after(inside, |c| c.is_ascii_digit());
                let number = inside.get(..length)?;
                (number == "0" || !number.starts_with('0') && length > 0).then_some(length)?
            }
        };
        inside.get(length..)?.strip_prefix(']')?;
        length + 2
    };
    path.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::difference::differences_under;

    fn rule(entry: &str, field: &str) -> Rule {
        serde_json::from_value(json!({"entry": entry, "field": field, "why": "a test"})).unwrap()
    }

    /// The remaining differences between two values under one rule, as paths.
    #[track_caller]
    fn left(field: &str, recorded: &Value, replayed: &Value) -> Vec<String> {
        let rule = rule("api.create", field);
        rule.check().unwrap();
        let all = differences_under("args", recorded, replayed);
        let left = Accepted(vec![rule]).left("api.create", all);
        left.into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn a_rule_takes_the_field_that_it_names_and_no_other() {
        let recorded = json!({"specs": [{"a": 1, "b": {"c": 1}}, {"a": 1, "b": {"c": 1}}]});
        let replayed = json!({"specs": [{"a": 2, "b": {"c": 2}}, {"a": 2, "b": {"c": 2}}]});
        for (field, expected) in [
            (
                "args.specs[0].a",
                vec!["args.specs[0].b.c", "args.specs[1].a", "args.specs[1].b.c"],
            ),
            ("args.specs[*].a", vec!["args.specs[0].b.c", "args.specs[1].b.c"]),
            ("args.specs[*].**", vec![]),
            (
                "args.specs[1].b.**",
                vec!["args.specs[0].a", "args.specs[0].b.c", "args.specs[1].a"],
            ),
            // The parent of a differing field is not that field.
            (
                "args.specs[*].b",
                vec![
                    "args.specs[0].a",
                    "args.specs[0].b.c",
                    "args.specs[1].a",
                    "args.specs[1].b.c",
                ],
            ),
        ] {
            assert_eq!(left(field, &recorded, &replayed), expected, "{field}");
        }
    }

    #[test]
    fn a_list_of_another_length_is_the_lists_own_field() {
        let (recorded, replayed) = (json!({"specs": [1, 2]}), json!({"specs": [1]}));
        assert_eq!(left("args.specs", &recorded, &replayed), ["args.specs[1]"]);
        assert_eq!(left("args.specs[*]", &recorded, &replayed), ["args.specs"]);
        assert!(left("args.specs.**", &recorded, &replayed).is_empty());
    }

    #[test]
    fn every_path_that_a_difference_can_have_can_be_named() {
        let recorded = json!({"a b": [{"": 1, "**": 1, "*": 1, "x]y": 1, "\"": 1, "ä-_1": 1}]});
        let replayed = json!({"a b": [{"": 2, "**": 2, "*": 2, "x]y": 2, "\"": 2, "ä-_1": 2}]});
        for difference in differences_under("args", &recorded, &replayed) {
            let left = left(&difference.path, &recorded, &replayed);
            assert!(
                left.len() == 5 && !left.contains(&difference.path),
                "{}",
                difference.path
            );
        }
    }

    #[test]
    fn from_and_to_must_be_what_is_there() {
        let difference = |recorded: Value, replayed: Value| {
            differences_under("result", &json!({ "x": recorded }), &json!({ "x": replayed })).remove(0)
        };
        let rule = |from: Option<Value>, to: Option<Value>| {
            Accepted(vec![Rule {
                from,
                to,
                ..rule("result of r.f", "result.x")
            }])
        };
        let accepts = |accepted: Accepted, difference| {
            let other_kind = accepted.left("r.f", vec![Difference::clone(&difference)]);
            assert_eq!(other_kind.len(), 1, "a result is no question");
            accepted.left(&result_of("r.f"), vec![difference]).is_empty()
        };
        assert!(accepts(
            rule(Some(json!(1)), Some(json!("b"))),
            difference(json!(1), json!("b"))
        ));
        assert!(!accepts(rule(Some(json!(2)), None), difference(json!(1), json!("b"))));
        assert!(!accepts(rule(None, Some(json!(1))), difference(json!(1), json!("b"))));
        assert!(accepts(
            rule(Some(json!(2)), Some(json!(1))),
            difference(json!([1, 1]), json!([1]))
        ));
    }

    #[test]
    fn what_is_no_rule_is_refused_in_one_line() {
        for (entry, field, expected) in [
            (
                "create",
                "args.x",
                "`entry` was `create`, must be a question such as `api.create`, or `result of ` and a call such as `reconciliation.reconcile`",
            ),
            (
                "api.create",
                "result.x",
                "`field` was `result.x`: a field of `api.create` begins with `args`",
            ),
            (
                "result of r.f",
                "args.x",
                "`field` was `args.x`: a field of `result of r.f` begins with `result`",
            ),
            (
                "api.create",
                "",
                "`field` was ``: a field of `api.create` begins with `args`",
            ),
            (
                "api.create",
                "args.**.x",
                "`field` was `args.**.x`: `**` must be at the end",
            ),
            (
                "api.create",
                "args.specs[*",
                "`field` was `args.specs[*`: what is `[*`? a name follows a dot; a number, `*`, or another name in quotes is in brackets",
            ),
            (
                "api.create",
                "args.specs[x]",
                "`field` was `args.specs[x]`: what is `[x]`? a name follows a dot; a number, `*`, or another name in quotes is in brackets",
            ),
            (
                "api.create",
                "args.specs[0]x",
                "`field` was `args.specs[0]x`: what is `x`? a name follows a dot; a number, `*`, or another name in quotes is in brackets",
            ),
            (
                "api.create",
                "args..x",
                "`field` was `args..x`: what is `..x`? a name follows a dot; a number, `*`, or another name in quotes is in brackets",
            ),
            (
                "api.create",
                "args[\"x]",
                "`field` was `args[\"x]`: what is `[\"x]`? a name follows a dot; a number, `*`, or another name in quotes is in brackets",
            ),
        ] {
            assert_eq!(rule(entry, field).check().unwrap_err(), expected);
        }
        let unexplained = Rule {
            why: " ".to_owned(),
            ..rule("api.create", "args.x")
        };
        assert_eq!(
            unexplained.check().unwrap_err(),
            "`why` must say why this difference is accepted"
        );
    }
}
