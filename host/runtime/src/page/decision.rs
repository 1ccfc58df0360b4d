//! One decision in full, read from its file: its input, every question with its answer, how it ended, and the guest
//! that decided.

use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use trueup_base::regular;
use trueup_journal::{Ask, Call, Ending, Entry, Event, Header};

use super::growth::LINE_BYTES_MAX;
use super::index::{self, Decision, Located};

/// A larger value is shown in part until the reader requests all of it.
const VALUE_BYTES_SHOWN_MAX: usize = 64 << 10;

/// The maximum part of a value that is ever sent: a browser cannot display more.
const VALUE_BYTES_MAX: usize = 32 << 20;

/// The lines of one decision.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) call: Option<(u64, Call)>,
    pub(super) asks: Vec<(u64, Ask)>,
    pub(super) ending: Option<(u64, Ending)>,
}

/// JSON text, or its beginning.
#[derive(Debug, Serialize)]
pub(super) struct Value {
    text: String,
    /// The full length, if the text is cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_from: Option<usize>,
}

/// A value of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    Args,
    Answer,
    Ending,
    Settings,
    Snapshot,
}

impl Value {
    fn new(text: &str) -> Self {
        Self::of_at_most(text, VALUE_BYTES_SHOWN_MAX)
    }

    fn of_at_most(text: &str, max: usize) -> Self {
        let shown = text.get(..text.floor_char_boundary(max)).unwrap_or_default();
        Self {
            text: shown.to_owned(),
            cut_from: (shown.len() < text.len()).then_some(text.len()),
        }
    }
}

impl Lines {
    /// Reads a decision; `from` and `count` select the questions to keep.
    ///
    /// # Errors
    /// One line: what cannot be read.
    pub(super) fn read(file: &Path, decision: &Decision, from: usize, count: usize) -> Result<Self, String> {
        let mut lines = Self::default();
        let mut at = 0;
        for_each_entry(file, decision.offset, decision.bytes, |Located { entry, .. }| {
            match entry.event {
                Event::Call(call) => lines.call = Some((entry.n, call)),
                Event::Ask(ask) => {
                    if at >= from && at - from < count {
                        lines.asks.push((entry.n, ask));
                    }
                    at += 1;
                }
                Event::Ending(ending) => lines.ending = Some((entry.n, ending)),
                Event::Header(_) | Event::RolledBack(_) => {}
            }
            true
        })?;
        Ok(lines)
    }

    /// The arguments of its call as the page receives them.
    pub(super) fn shown_args(&self) -> Option<Value> {
        self.call.as_ref().map(|(_, call)| Value::new(call.args.get()))
    }

    /// Its questions as the page receives them.
    pub(super) fn shown_asks(&self) -> Json {
        let ask = |(n, ask): &(u64, Ask)| {
            let answer = ask.answer.as_ref().map(|answer| answer.get());
            json!({
                "n": n,
                "name": ask.name,
                "writes": index::is_write(&ask.name),
                "args": Value::new(ask.args.get()),
                "answer": answer.map(Value::new),
                // Whether the answer is an error or contains one.
                "failed": answer.is_some_and(holds_error),
            })
        };
        self.asks.iter().map(ask).collect()
    }

    /// Its ending as the page receives it.
    pub(super) fn shown_ending(&self) -> Option<Json> {
        let (n, ending) = self.ending.as_ref()?;
        let (kind, _) = ending.parts();
        Some(json!({ "n": n, "kind": kind, "value": Value::new(text_of(ending)) }))
    }
}

/// `{"Err":...}`, or a list that contains one: a list of results answers several questions at once.
fn holds_error(answer: &str) -> bool {
    answer.starts_with("{\"Err\"") || (answer.starts_with('[') && answer.contains("{\"Err\":"))
}

/// JSON for a result, otherwise text.
pub(super) fn text_of(ending: &Ending) -> &str {
    let (_, value) = ending.parts();
    value.map_or_else(|text| text, RawValue::get)
}

/// The header of a segment as the page receives it.
///
/// # Errors
/// One line: what cannot be read.
pub(super) fn shown_header(file: &Path) -> Result<Json, String> {
    let (n, header) = read_header(file)?;
    Ok(json!({
        "n": n,
        "guest": header.guest,
        "version": header.version,
        "digest": header.digest,
        "world": header.world,
        "host": header.host,
        "settings": Value::new(header.settings.get()),
        "limits": Value::new(header.limits.get()),
        "snapshot": header.snapshot.as_deref().map(Value::new),
    }))
}

/// The header of a segment, and its number.
///
/// # Errors
/// One line: what cannot be read.
pub(super) fn read_header(file: &Path) -> Result<(u64, Header), String> {
    let mut header = None;
    for_each_entry(file, 0, u64::MAX, |Located { entry, .. }| {
        if let Event::Header(found) = entry.event {
            header = Some((entry.n, *found));
        }
        false
    })?;
    header.ok_or_else(|| format!("`{}` has no header any more", file.display()))
}

/// One full value of entry `n`, up to the size that a browser can display.
///
/// # Errors
/// One line: what does not exist or cannot be read.
pub(super) fn value(file: &Path, decision: &Decision, n: u64, part: Part) -> Result<Value, String> {
    let value = |text: &str| Some(Value::of_at_most(text, VALUE_BYTES_MAX));
    let mut found = None;
    match part {
        Part::Settings => found = value(read_header(file)?.1.settings.get()),
        Part::Snapshot => found = read_header(file)?.1.snapshot.as_deref().and_then(value),
        _ => for_each_entry(file, decision.offset, decision.bytes, |Located { entry, .. }| {
            if entry.n != n {
                return true;
            }
            found = match (entry.event, part) {
                (Event::Call(call), Part::Args) => value(call.args.get()),
                (Event::Ask(ask), Part::Args) => value(ask.args.get()),
                (Event::Ask(ask), Part::Answer) => ask.answer.and_then(|answer| value(answer.get())),
                (Event::Ending(ending), Part::Ending) => value(text_of(&ending)),
                _ => None,
            };
            false
        })?,
    }
    found.ok_or_else(|| format!("entry {n} has no such value"))
}

/// Calls `each` for every entry in a range of a file, until `each` stops it.
///
/// # Errors
/// One line: what cannot be read.
pub(super) fn for_each_entry(
    file: &Path,
    mut offset: u64,
    bytes: u64,
    mut each: impl FnMut(Located) -> bool,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("can't read `{}`: {error}", file.display());
    let differs = || format!("`{}` is not what it was when it was read before", file.display());
    let mut opened = regular::open(file).map_err(failed)?;
    opened.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut reader = BufReader::new(opened).take(bytes);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let bytes = read.map_err(failed)? as u64;
        let Some(text) = line.strip_suffix(b"\n") else {
            return if bytes == 0 { Ok(()) } else { Err(differs()) };
        };
        let text = std::str::from_utf8(text).map_err(|error| error.to_string());
        let entry = text.and_then(Entry::parse);
        let entry = entry.map_err(|why| format!("{}: {why}", differs()))?;
        if !each(Located { entry, offset, bytes }) {
            return Ok(());
        }
        offset += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let cut = Value::of_at_most("aäb", 2);
        assert_eq!((cut.text.as_str(), cut.cut_from), ("a", Some(4)));
        let whole = Value::of_at_most("aäb", 4);
        assert_eq!((whole.text.as_str(), whole.cut_from), ("aäb", None));
    }

    #[test]
    fn an_error_among_answers_is_an_error() {
        assert!(holds_error(r#"{"Err":"x"}"#) && holds_error(r#"[{"Ok":1},{"Err":"x"}]"#));
        assert!(!holds_error(r#"{"Ok":[]}"#) && !holds_error("null"));
    }
}
