//! Differences that a replay accepts: rules that name an entry, a field of it, and why.
//!
//! Fields are named as `difference.rs` renders them. The source of the rules is not known here.
//!
//! ```text
//! entry: api.create     field: args.specs[*].backend.balance     any index
//! entry: result of r.f  field: result.Ok.**                      that field, and everything below
//! ```

use serde_json::Value;

use crate::difference::{Difference, Differing};

/// Rules; without any, no difference is accepted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accepted {
    rules: Vec<Rule>,
}

/// One field of one entry that may differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// `interface.function` of a question, or [`result_of`] a call.
    entry: String,
    field: Vec<Step>,
    from: Option<Value>,
    to: Option<Value>,
    why: String,
}

/// One step on the path from the whole value to a field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Name(String),
    Index(usize),
    AnyIndex,
    /// Here, or anywhere below.
    Below,
}

const RESULT_OF: &str = "result of ";

/// How rules name the result of this call.
pub(crate) fn result_of(call: &str) -> String {
    format!("{RESULT_OF}{call}")
}

impl Accepted {
    /// A set of these rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The differences of this entry that no rule accepts.
    pub(crate) fn left(&self, entry: &str, differences: Vec<Difference>) -> Vec<Difference> {
        let rules: Vec<&Rule> = self.rules.iter().filter(|rule| rule.entry == entry).collect();
        if rules.is_empty() {
            return differences;
        }
        let accepted = |difference: &Difference| {
            // A test keeps the renderer and the parser of paths consistent; no rule covers an unreadable path.
            let place = steps(&difference.path).unwrap_or_default();
            rules.iter().any(|rule| rule.accepts(&place, difference))
        };
        differences
            .into_iter()
            .filter(|difference| !accepted(difference))
            .collect()
    }
}

impl Rule {
    /// A rule for the question `entry` (`api.create`) or the result of a call (`result of reconciliation.reconcile`),
    /// and a field of it that begins with `args` or `result`. `from` and `to` are the required values in the recording
    /// and in the replay; an integer also matches a number of elements. Without them any value matches, including none.
    ///
    /// # Errors
    /// One line without the location: the given text, and what it must be.
    pub fn new(entry: &str, field: &str, from: Option<Value>, to: Option<Value>, why: &str) -> Result<Self, String> {
        let root = root_of(entry)?;
        let wrong = |reason: &str| format!("`field` was `{field}`: {reason}");
        let steps = steps(field).map_err(|reason| wrong(&reason))?;
        if steps.first() != Some(&Step::Name(root.to_owned())) {
            return Err(wrong(&format!("a field of `{entry}` begins with `{root}`")));
        }
        if steps.iter().rev().skip(1).any(|step| *step == Step::Below) {
            return Err(wrong("`**` must be at the end"));
        }
        if why.trim().is_empty() {
            return Err("`why` must say why this difference is accepted".to_owned());
        }
        Ok(Self {
            entry: entry.to_owned(),
            field: steps,
            from,
            to,
            why: why.to_owned(),
        })
    }

    /// Why the difference is accepted, in its author's words.
    pub fn why(&self) -> &str {
        &self.why
    }

    fn accepts(&self, place: &[Step], difference: &Difference) -> bool {
        let fits = |wanted: &Option<Value>, there: &Option<Differing>| match (wanted, there) {
            (None, _) => true,
            (Some(wanted), Some(Differing::Value(value))) => wanted == value,
            (Some(wanted), Some(Differing::Elements(count))) => wanted.as_u64() == Some(*count as u64),
            (Some(_), None) => false,
        };
        leads_to(&self.field, place) && fits(&self.from, &difference.recorded) && fits(&self.to, &difference.replayed)
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

/// Whether a rule's field is this place.
fn leads_to(field: &[Step], place: &[Step]) -> bool {
    match (field, place) {
        ([Step::Below], _) | ([], []) => true,
        ([step, field @ ..], [there, place @ ..]) => {
            let same = match (step, there) {
                (Step::AnyIndex, Step::Index(_)) => true,
                (step, there) => step == there,
            };
            same && leads_to(field, place)
        }
        _ => false,
    }
}

/// Parses a path: names separated by dots, `["any name"]`, `[0]`, `[*]` and `**`.
fn steps(path: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[') {
            Some(inside) => bracketed(inside)?,
            None => named(rest, steps.is_empty())?,
        };
        steps.push(step);
        rest = after;
    }
    if steps.is_empty() {
        return Err("must name a field".to_owned());
    }
    Ok(steps)
}

/// The step after `[`, and the rest after the closing bracket.
fn bracketed(inside: &str) -> Result<(Step, &str), String> {
    let unclosed = || "`[` without its `]`".to_owned();
    if inside.starts_with('"') {
        let mut names = serde_json::Deserializer::from_str(inside).into_iter::<String>();
        let Some(Ok(name)) = names.next() else {
            return Err("a name in quotes must be a JSON string".to_owned());
        };
        let after = inside.get(names.byte_offset()..).unwrap_or_default();
        let after = after.strip_prefix(']').ok_or_else(unclosed)?;
        return Ok((Step::Name(name), after));
    }
    let (index, after) = inside.split_once(']').ok_or_else(unclosed)?;
    if index == "*" {
        return Ok((Step::AnyIndex, after));
    }
    let number = index.parse().ok().filter(|number: &usize| number.to_string() == index);
    let number = number
        .ok_or_else(|| format!("`[{index}]` must be a number, `[*]`, or a name in quotes such as `[\"a b\"]`"))?;
    Ok((Step::Index(number), after))
}

/// The name after a dot, or at the beginning, and the rest after it.
fn named(rest: &str, first: bool) -> Result<(Step, &str), String> {
    let rest = match (rest.strip_prefix('.'), first) {
        (Some(after), false) => after,
        (None, true) => rest,
        _ => {
            return Err(format!(
                "what is `{rest}`? a name follows a dot, an index is in brackets"
            ));
        }
    };
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    if name == "**" {
        return Ok((Step::Below, after));
    }
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    if plain {
        Ok((Step::Name(name.to_owned()), after))
    } else {
        Err(format!(
            "`{name}` is no name; one with other characters is in quotes, as `[\"a b\"]`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::difference::differences_under;

    /// The remaining differences between two values under one rule, as paths.
    #[track_caller]
    fn left(field: &str, recorded: &Value, replayed: &Value) -> Vec<String> {
        let rule = Rule::new("api.create", field, None, None, "a test").unwrap();
        let all = differences_under("args", recorded, replayed);
        let left = Accepted::new(vec![rule]).left("api.create", all);
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
            Accepted::new(vec![
                Rule::new("result of r.f", "result.x", from, to, "a test").unwrap(),
            ])
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
        let refused = |entry: &str, field: &str, why: &str| Rule::new(entry, field, None, None, why).unwrap_err();
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
            ("api.create", "", "`field` was ``: must name a field"),
            (
                "api.create",
                "args.**.x",
                "`field` was `args.**.x`: `**` must be at the end",
            ),
            (
                "api.create",
                "args.specs[*",
                "`field` was `args.specs[*`: `[` without its `]`",
            ),
            (
                "api.create",
                "args.specs[01]",
                "`field` was `args.specs[01]`: `[01]` must be a number, `[*]`, or a name in quotes such as `[\"a b\"]`",
            ),
            (
                "api.create",
                "args.specs[0]x",
                "`field` was `args.specs[0]x`: what is `x`? a name follows a dot, an index is in brackets",
            ),
            (
                "api.create",
                "args..x",
                "`field` was `args..x`: `` is no name; one with other characters is in quotes, as `[\"a b\"]`",
            ),
            (
                "api.create",
                "args[\"x]",
                "`field` was `args[\"x]`: a name in quotes must be a JSON string",
            ),
        ] {
            assert_eq!(refused(entry, field, "a test"), expected);
        }
        assert_eq!(
            refused("api.create", "args.x", " "),
            "`why` must say why this difference is accepted"
        );
    }
}
