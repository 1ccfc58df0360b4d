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
//! `from` and `to` are TOML for JSON. TOML has no null, so a rule about null leaves the field out; JSON has no dates,
//! so a rule with one never fits.

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use trueup_base::regular;
use trueup_journal::{Accepted, Rule};

/// A file above this size was given by mistake.
const RULES_BYTES_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    accept: Vec<Spanned<Rule>>,
}

/// Reads the rules in `file`.
///
/// # Errors
/// One line with the file's name, and the line number if there is one: what was given, and what it must be.
pub fn read_accepted(file: &Path) -> Result<Accepted, String> {
    let name = file.display();
    let text = regular::read_text(file, RULES_BYTES_MAX);
    let text = text.map_err(|error| format!("{name}: {}", trueup_base::text::cause(&error)))?;
    let wrong = |at: Option<usize>, what: &str| match at {
        Some(at) => {
            let before = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            format!("{name}:{}: {what}", before + 1)
        }
        None => format!("{name}: {what}"),
    };
    let File { accept } = toml::from_str(&text).map_err(|error| {
        let at = error.span().map(|span| span.start);
        wrong(at, &error.message().replace('\n', "; "))
    })?;
    for rule in &accept {
        let checked = rule.get_ref().check();
        checked.map_err(|what| wrong(Some(rule.span().start), &what))?;
    }
    Ok(Accepted(accept.into_iter().map(Spanned::into_inner).collect()))
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
            Ok(rules) => assert_eq!(read.unwrap().0.len(), rules),
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
                "2: `field` was `args.specs[x].backend.balance`: what is `[x].backend.balance`? a name follows a dot; a number, `*`, or another name in quotes is in brackets",
            ),
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
        assert!(read.ends_with("it is longer than 1048576 bytes"), "{read}");
    }
}
