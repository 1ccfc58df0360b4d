//! Reads the file of accepted differences: which fields of which entries may differ, and why.
//!
//! ```toml
//! [[accept]]
//! entry = "api.create"                      # a question; or "result of reconciliation.reconcile"
//! field = "args.specs[*].backend.balance"   # as `trueup replay` names it; `[*]` any index, `**` anything below
//! from = "leastconn"                        # only where the recording has this; without it, whatever it has
//! to = "roundrobin"                         # only where the candidate has this
//! why = "version 2 balances in turn"
//! ```
//!
//! `from` and `to` are TOML for JSON. TOML has no null, so a rule about null leaves the field out.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;
use trueup_base::regular;
use trueup_journal::{Accepted, Rule};

/// A file above this size was given by mistake.
pub const RULES_BYTES_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    accept: Vec<Spanned<Text>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    entry: String,
    field: String,
    from: Option<Spanned<toml::Value>>,
    to: Option<Spanned<toml::Value>>,
    why: String,
}

/// Reads the rules in `file`.
///
/// # Errors
/// One line with the file's name, and the line number if there is one: what was given, and what it must be.
pub fn read_accepted(file: &Path) -> Result<Accepted, String> {
    let failed = |error: &dyn Display| format!("{}: {error}", file.display());
    let bytes = std::fs::metadata(file).map_err(|error| failed(&error))?.len();
    if bytes > RULES_BYTES_MAX {
        return Err(failed(&format_args!(
            "it has {bytes} bytes, and accepted differences have {RULES_BYTES_MAX} at most"
        )));
    }
    let text = regular::read_text(file, RULES_BYTES_MAX).map_err(|error| failed(&trueup_base::text::cause(&error)))?;
    parse(&text).map_err(|Wrong { at, what }| match at {
        Some(at) => format!("{}:{}: {what}", file.display(), line(&text, at)),
        None => failed(&what),
    })
}

/// An error, and the byte at which it is.
struct Wrong {
    at: Option<usize>,
    what: String,
}

fn parse(text: &str) -> Result<Accepted, Wrong> {
    let file: File = toml::from_str(text).map_err(|error| Wrong {
        at: error.span().map(|Range { start, .. }| start),
        what: error.message().replace('\n', "; "),
    })?;
    let rules = file.accept.into_iter().map(rule).collect::<Result<_, _>>()?;
    Ok(Accepted::new(rules))
}

fn rule(text: Spanned<Text>) -> Result<Rule, Wrong> {
    let at = Some(text.span().start);
    let text = text.into_inner();
    let (from, to) = (json(text.from)?, json(text.to)?);
    Rule::new(&text.entry, &text.field, from, to, &text.why).map_err(|what| Wrong { at, what })
}

fn json(value: Option<Spanned<toml::Value>>) -> Result<Option<Value>, Wrong> {
    let Some(value) = value else { return Ok(None) };
    let at = Some(value.span().start);
    let value = value.into_inner();
    let what = if holds_date(&value) {
        "a date is no JSON value".to_owned()
    } else {
        match serde_json::to_value(value) {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error.to_string(),
        }
    };
    Err(Wrong { at, what })
}

fn holds_date(value: &toml::Value) -> bool {
    match value {
        toml::Value::Datetime(_) => true,
        toml::Value::Array(values) => values.iter().any(holds_date),
        toml::Value::Table(values) => values.values().any(holds_date),
        _ => false,
    }
}

/// The line number of a byte, from 1.
fn line(text: &str, at: usize) -> usize {
    let before = text.bytes().take(at);
    before.filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "# why not\n[[accept]]\nentry = \"api.create\"\nfield = \"args.specs[*].backend.balance\"\n\
                         from = \"leastconn\"\nto = { a = [1] }\nwhy = \"in turn\"\n";

    #[track_caller]
    fn check(text: &str, expected: Result<usize, &str>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("accepted.toml");
        std::fs::write(&file, text).unwrap();
        let read = read_accepted(&file);
        let read = read.as_ref().map_err(|error| {
            let place = format!("{}:", file.display());
            error.strip_prefix(&place).unwrap_or(error)
        });
        match expected {
            Ok(0) => assert!(read.unwrap().is_empty()),
            Ok(_) => assert!(!read.unwrap().is_empty()),
            Err(expected) => assert_eq!(read.unwrap_err(), expected),
        }
    }

    #[test]
    fn rules_are_read_and_an_empty_file_has_none() {
        check("", Ok(0));
        check(WHOLE, Ok(1));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_with_its_place() {
        check("accept = 1\n", Err("1: invalid type: integer `1`, expected a sequence"));
        check(
            &WHOLE.replace("from", "form"),
            Err("5: unknown field `form`, expected one of `entry`, `field`, `from`, `to`, `why`"),
        );
        check(&WHOLE.replace("why = \"in turn\"", ""), Err("2: missing field `why`"));
        check(
            &WHOLE.replace("args.specs[*]", "args.specs[x]"),
            Err(
                "2: `field` was `args.specs[x].backend.balance`: `[x]` must be a number, `[*]`, or a name in quotes such as `[\"a b\"]`",
            ),
        );
        check(
            &WHOLE.replace("\"leastconn\"", "1979-05-27"),
            Err("5: a date is no JSON value"),
        );
        check("[[accept]\n", Err("1: unclosed array table, expected `]`"));
    }

    #[test]
    fn a_file_that_is_not_there_or_another_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.toml");
        let read = read_accepted(&file).unwrap_err();
        assert!(
            read.starts_with(&format!("{}: ", file.display())) && !read.contains('\n'),
            "{read}"
        );
        std::fs::write(&file, vec![b'#'; usize::try_from(RULES_BYTES_MAX).unwrap() + 1]).unwrap();
        let read = read_accepted(&file).unwrap_err();
        assert!(read.ends_with("accepted differences have 1048576 at most"), "{read}");
    }
}
