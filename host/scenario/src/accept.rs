//! Writes what a run showed into a scenario file, in place of the expectations that it did not meet.
//!
//! Only the text of a value changes; comments, order and everything else stay. Where a value ends is a guess from the
//! text, so each change counts only if the file, read again, differs in that value alone.
//!
//! ```text
//! file -> tree with places -> text of one value -> file -> tree: as wanted? -> the next value
//! ```

use serde_json::Value as Json;
use trueup_sources::yaml::{Node, Value};

use crate::file;
use crate::report::{Observed, Outcome};

/// A file with what was written into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The new content.
    pub text: String,
    /// How many values are new.
    pub values: usize,
    /// Values that could not be written, and why: one line each, which begins with the number of a line.
    pub refused: Vec<String>,
}

/// The content of a file with what these outcomes, which are of the same file, show in place of what it expects.
pub fn accept(text: &str, outcomes: &[&Outcome]) -> Accepted {
    let mut text = text.to_owned();
    let mut values = 0;
    let mut refused = Vec::new();
    if let Ok(root) = file::tree(&text) {
        for (line, pointer, value) in outcomes.iter().flat_map(|outcome| changes(&root, outcome)) {
            match changed(&text, &pointer, value) {
                Ok(new) => {
                    text = new;
                    values += 1;
                }
                Err(why) => refused.push(format!("{line}: {why}; change it by hand")),
            }
        }
        refused.extend(outcomes.iter().flat_map(|outcome| unexpectable(outcome)));
    }
    Accepted { text, values, refused }
}

/// What a step did that no expectation could say, such as a trap.
fn unexpectable(outcome: &Outcome) -> impl Iterator<Item = String> {
    outcome.failures().flat_map(|failure| {
        let without = failure.problems.iter().filter(|problem| problem.observed.is_none());
        without.map(|problem| {
            let what = problem.message.lines().next().unwrap_or_default().trim_end_matches(':');
            format!(
                "{}: {}: {what}: no value to accept; correct the guest or the step, or expect a trap with `expect_ending`",
                failure.line, failure.doing
            )
        })
    })
}

/// The values to write: each with the line of its step, and a JSON pointer to its place from the root of the file.
fn changes<'a>(root: &Node, outcome: &'a Outcome) -> Vec<(u64, String, &'a Json)> {
    let is_it = |node: &Node| node.text("name") == Some(&outcome.name);
    let index = root.items().iter().position(is_it);
    let scenario = index.map_or_else(String::new, |index| format!("/{index}"));
    let mut changes = Vec::new();
    for failure in outcome.failures() {
        let Some(step) = failure.step else { continue };
        for Observed { place, value } in failure.problems.iter().filter_map(|problem| problem.observed.as_ref()) {
            let (step, place) = (step.saturating_sub(1), place.replace('.', "/"));
            changes.push((failure.line, format!("{scenario}/steps/{step}/{place}"), value));
        }
    }
    changes
}

/// The text with one value changed.
fn changed(text: &str, pointer: &str, value: &Json) -> Result<String, String> {
    let root = file::tree(text).map_err(|error| error.to_string())?;
    let node = find(&root, pointer).ok_or("the expectation is not there any more")?;
    if node.to_json().to_string().contains("${") {
        return Err("the expectation holds `${...}`".to_owned());
    }
    let start = offset(text, node).ok_or("the place of the expectation is not known")?;
    let mut wanted = root.to_json();
    let place = wanted.pointer_mut(pointer);
    *place.ok_or("the expectation is not there any more")? = value.clone();
    let new = spaced(value);
    for (indent, end) in ends(text, start, node)? {
        let (Some(before), Some(after)) = (text.get(..start), text.get(end..)) else {
            continue;
        };
        let text = format!("{before}{indent}{new}{after}");
        let is_wanted = file::tree(&text).is_ok_and(|root| root.to_json() == wanted);
        if is_wanted && file::parse(&text).is_ok() {
            return Ok(text);
        }
    }
    Err("the expectation can't be replaced without changing anything else".to_owned())
}

fn find<'n>(root: &'n Node, pointer: &str) -> Option<&'n Node> {
    pointer
        .split('/')
        .skip(1)
        .try_fold(root, |node, key| match &node.value {
            Value::List(items) => items.get(key.parse::<usize>().ok()?),
            _ => node.entry(key),
        })
}

/// Where a value begins, in bytes.
fn offset(text: &str, node: &Node) -> Option<usize> {
    let start = written_at(text, node)?;
    let is_marked = text.get(start..)?.starts_with(['[', '*', '&', '!']);
    match &node.value {
        // A list on lines of its own begins where the line of its first item does.
        Value::List(items) if !is_marked => {
            let first = written_at(text, items.first()?)?;
            let line = text.get(..first)?.rfind('\n').map_or(0, |at| at + 1);
            let indent = text.get(line..)?.find(|char| char != ' ')?;
            text.get(line + indent..)?.starts_with('-').then_some(line + indent)
        }
        _ => Some(start),
    }
}

fn written_at(text: &str, node: &Node) -> Option<usize> {
    let line_index = usize::try_from(node.line.checked_sub(1)?).ok()?;
    let column = usize::try_from(node.column.checked_sub(1)?).ok()?;
    let before: usize = text.split_inclusive('\n').take(line_index).map(str::len).sum();
    let line = text.get(before..)?.split_inclusive('\n').next()?;
    let (within, _) = line.char_indices().nth(column)?;
    Some(before + within)
}

/// Where a value that begins here may end, with what must come before the new one.
fn ends(text: &str, start: usize, node: &Node) -> Result<Vec<(&'static str, usize)>, String> {
    let rest = text.get(start..).unwrap_or_default();
    let line = rest.lines().next().unwrap_or_default();
    let found = match (rest.chars().next(), &node.value) {
        (Some('*' | '&' | '!' | '|' | '>'), _) => {
            return Err("the expectation is an alias, an anchor, a tag or a block of text".to_owned());
        }
        (Some('{' | '[' | '"' | '\''), _) => vec![("", flow_end(rest))],
        (_, Value::Map(_)) => vec![("", block_end(text, start, false))],
        // A list may begin below its key; a list in brackets may not.
        (_, Value::List(_)) => vec![("  ", block_end(text, start, true))],
        _ => {
            let line = line.split(" #").next().unwrap_or_default().trim_end();
            vec![("", line.find([',', '}', ']']).unwrap_or(line.len())), ("", line.len())]
        }
    };
    let has_comment = |end: usize| {
        let mut lines = rest.get(..end).unwrap_or_default().lines();
        lines.any(|line| line.trim_start().starts_with('#') || line.trim_start().contains(" #"))
    };
    if found.iter().any(|(_, end)| has_comment(*end)) {
        return Err("the expectation holds a comment, which would be lost".to_owned());
    }
    Ok(found.into_iter().map(|(indent, end)| (indent, start + end)).collect())
}

/// The length of a value in brackets or quotes.
fn flow_end(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut chars = rest.char_indices();
    while let Some((at, char)) = chars.next() {
        match (quote, char) {
            (Some('"'), '\\') => {
                chars.next();
            }
            (Some(open), _) if open == char => quote = None,
            (Some(_), _) => continue,
            (None, '"' | '\'') => quote = Some(char),
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
        if depth == 0 && quote.is_none() {
            return at + char.len_utf8();
        }
    }
    rest.len()
}

/// The length of a value on lines of its own: those that begin as far right as it does, and of a list each item.
fn block_end(text: &str, start: usize, is_list: bool) -> usize {
    let (before, rest) = text.split_at(start);
    let column = start - before.rfind('\n').map_or(0, |at| at + 1);
    let mut end = 0;
    let mut at = 0;
    for (index, line) in rest.split_inclusive('\n').enumerate() {
        let body = line.trim_start_matches(' ');
        let indent = line.len() - body.len();
        let is_blank = body.trim().is_empty();
        let belongs = indent > column || (indent == column && is_list == body.starts_with('-'));
        if index > 0 && !is_blank && !belongs {
            break;
        }
        at += line.len();
        if !is_blank {
            end = at - (line.len() - line.trim_end().len());
        }
    }
    end
}

/// JSON on one line with a blank after each colon and comma, as people write it.
fn spaced(value: &Json) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Json::Array(items) => format!("[{}]", list(items.iter().map(spaced).collect())),
        Json::Object(fields) => {
            let field = |(name, value): (&String, &Json)| format!("{}: {}", Json::from(name.as_str()), spaced(value));
            format!("{{{}}}", list(fields.iter().map(field).collect()))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::{Failure, Problem};

    /// The file after steps of the scenario `a` showed these values.
    fn after(text: &str, shown: &[(usize, &str, Json)]) -> Accepted {
        let failure = |(step, place, value): &(usize, &str, Json)| Failure {
            step: Some(*step),
            line: 9,
            doing: String::new(),
            problems: vec![Problem::new(String::new(), Vec::new()).observing(*place, value.clone())],
        };
        let mut failures = shown.iter().map(failure);
        let outcome = Outcome {
            file: String::new(),
            name: "a".to_owned(),
            line: 1,
            guest: String::new(),
            failure: failures.next(),
            more_failures: failures.collect(),
            took_ms: 0,
        };
        accept(text, &[&outcome])
    }

    #[test]
    fn only_the_expectation_changes_however_it_is_written() {
        for (written, becomes) in [
            // In brackets, in quotes, plain, and with a comment behind it.
            (
                "- {call: e.x, expect: {a: [1, 'x}']}} # why",
                "- {call: e.x, expect: {\"Ok\": [1, \"x\"]}} # why",
            ),
            (
                "- {call: e.x, expect: 'a'}",
                "- {call: e.x, expect: {\"Ok\": [1, \"x\"]}}",
            ),
            (
                "- {call: e.x, expect: one, args: {}}",
                "- {call: e.x, expect: {\"Ok\": [1, \"x\"]}, args: {}}",
            ),
            (
                "- call: e.x\n  expect: a, b # why\n  args: {}",
                "- call: e.x\n  expect: {\"Ok\": [1, \"x\"]} # why\n  args: {}",
            ),
            // On lines of its own.
            (
                "- call: e.x\n  expect:\n    Ok:\n      - 1\n\n      - 2\n  # why\n  args: {}",
                "- call: e.x\n  expect:\n    {\"Ok\": [1, \"x\"]}\n  # why\n  args: {}",
            ),
            (
                "- call: e.x\n  expect:\n  - 1\n  - b: 2\n  args: {}",
                "- call: e.x\n  expect:\n    {\"Ok\": [1, \"x\"]}\n  args: {}",
            ),
        ] {
            let file = |step: &str| format!("# first\nname: a\nguest: g # of ours\nsteps:\n{step}\n# last\n");
            let accepted = after(&file(written), &[(1, "expect", json!({"Ok": [1, "x"]}))]);
            assert_eq!(accepted.text, file(becomes), "{written}: {accepted:?}");
            assert_eq!((accepted.values, accepted.refused.len()), (1, 0));
        }
    }

    #[test]
    fn several_steps_and_parts_of_the_state_are_written() {
        let text = "- {name: b, guest: g, steps: [{call: e.x, expect: 1}]}\n\
                    - name: a\n  guest: g\n  steps:\n  - {call: e.x, expect: 1, expect_calls: []}\n  \
                    - expect_state: {etcd: {a: b}, metrics: {m: 1}}\n";
        let calls = json!([{"call": "e.y", "args": {}}]);
        let shown = [
            (1, "expect", json!(2)),
            (1, "expect_calls", calls),
            (2, "expect_state.etcd", json!({})),
        ];
        let accepted = after(text, &shown);
        let wanted = "- {name: b, guest: g, steps: [{call: e.x, expect: 1}]}\n\
                      - name: a\n  guest: g\n  steps:\n  - {call: e.x, expect: 2, expect_calls: [{\"args\": {}, \"call\": \"e.y\"}]}\n  \
                      - expect_state: {etcd: {}, metrics: {m: 1}}\n";
        assert_eq!(accepted.text, wanted, "{accepted:?}");
        assert_eq!(accepted.values, 3);
    }

    #[test]
    fn what_would_change_more_than_the_expectation_is_refused_with_its_line() {
        for (step, why) in [
            (
                "- {call: e.x, args: &it {a: 1}, expect: *it}",
                "the expectation is an alias",
            ),
            ("- call: e.x\n  expect: &it {a: 1}\n- {call: e.x, expect: *it}", ""),
            (
                "- call: e.x\n  expect:\n    a: 1 # one\n    b: 2",
                "the expectation holds a comment",
            ),
            ("- call: e.x\n  expect: '${id}'", "the expectation holds `${...}`"),
            ("- call: e.x\n  expect: |\n    text", ""),
        ] {
            let text = format!("name: a\nguest: g\nsteps:\n{step}\n");
            let accepted = after(&text, &[(1, "expect", json!(7))]);
            assert_eq!((accepted.text, accepted.values), (text, 0), "{step}");
            let [refused] = &accepted.refused[..] else {
                panic!("{step}: {:?}", accepted.refused)
            };
            assert!(refused.starts_with("9: ") && refused.contains(why), "{refused}");
            assert!(refused.ends_with("; change it by hand"), "{refused}");
        }
    }
}
