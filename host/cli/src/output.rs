//! Where output goes: data to stdout, as text, JSON or YAML; messages to stderr. Logs are in `telemetry.rs`.

use std::io::Write as _;
use std::iter;

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;
use trueup_base::text;

use crate::colour;
use crate::exit::{Ending, Exit};

/// The format of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs: one JSON document.
    Json,
    /// The same document as YAML.
    Yaml,
}

impl Output {
    /// Whether people read it.
    pub(crate) fn is_text(self) -> bool {
        self == Self::Text
    }
}

/// Writes lines of data for people.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    bytes(lines(text).as_bytes())
}

/// Lines of data for people.
pub(crate) fn lines(text: &str) -> String {
    joined(&[text.to_owned()], str::to_owned)
}

/// Writes data as it is. If the reader went away (`| head`), ends the program quietly, as other tools do.
pub(crate) fn bytes(data: &[u8]) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(data) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("writing to stdout"),
    }
}

/// Writes one line of data, and goes on if the reader went away: a controller must not end because its log's reader
/// did.
pub(crate) fn line_if_read(text: &str) {
    // Ignore the error: the reader went away.
    let _ = writeln!(std::io::stdout().lock(), "{}", text::printable(text));
}

/// Writes one value of several: as a line of JSON, or as a YAML document of its own. Goes on if the reader went away.
pub(crate) fn value_if_read(value: &impl Serialize, output: Output) {
    let text = match output {
        Output::Yaml => rendered(value, output).map(|text| format!("---\n{text}")).ok(),
        Output::Text | Output::Json => serde_json::to_string(value).map(|line| line + "\n").ok(),
    };
    // As above.
    let _ = text.map(|text| std::io::stdout().lock().write_all(text.as_bytes()));
}

/// Writes one line to stderr, and goes on if the reader went away.
pub(crate) fn talk(text: &str) {
    let line = text::printable(text);
    let mut stderr = std::io::stderr().lock();
    // As above.
    let _ = match colour::is_on(&stderr) {
        true => writeln!(stderr, "{}", colour::talk(&line)),
        false => writeln!(stderr, "{line}"),
    };
}

/// Writes a value in the chosen format. `lines` makes the lines for people.
pub(crate) fn show<T: Serialize + ?Sized>(value: &T, output: Output, lines: impl FnOnce(&T) -> Vec<String>) -> Ending {
    bytes(text(value, output, lines)?.as_bytes())?;
    Ok(Exit::Done)
}

/// What [`show`] writes.
pub(crate) fn text<T: Serialize + ?Sized>(
    value: &T,
    output: Output,
    lines: impl FnOnce(&T) -> Vec<String>,
) -> anyhow::Result<String> {
    match output {
        Output::Text => Ok(joined(&lines(value), str::to_owned)),
        Output::Json | Output::Yaml => rendered(value, output),
    }
}

/// Lines about changes, with their colours if stdout gets any.
pub(crate) fn changes(lines: &[String]) -> String {
    match colour::is_on(&std::io::stdout()) {
        true => joined(lines, colour::change),
        false => joined(lines, str::to_owned),
    }
}

fn joined(texts: &[String], paint: fn(&str) -> String) -> String {
    let lines = texts.iter().flat_map(|text| text.split('\n'));
    lines.map(|line| paint(&text::printable(line)) + "\n").collect()
}

/// Writes a value as a document for programs.
pub(crate) fn document<T: Serialize + ?Sized>(value: &T, output: Output) -> anyhow::Result<()> {
    bytes(rendered(value, output)?.as_bytes())
}

/// A value as a document for programs.
pub(crate) fn rendered<T: Serialize + ?Sized>(value: &T, output: Output) -> anyhow::Result<String> {
    if output == Output::Yaml {
        // By way of JSON, so that both are the same document.
        let value = serde_json::to_value(value).context("writing YAML")?;
        return serde_saphyr::to_string(&value).context("writing YAML");
    }
    Ok(serde_json::to_string_pretty(value).context("writing JSON")? + "\n")
}

/// Columns as wide as their widest cell, two blanks apart.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> Vec<String> {
    let rows = iter::once(head.map(str::to_owned)).chain(rows);
    let rows: Vec<[String; N]> = rows.map(|row| row.map(|cell| printable(&cell))).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A table after an empty line. Nothing if it has no rows.
pub(crate) fn table_below<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    iter::once(String::new()).chain(table(head, rows)).collect()
}

/// The line for what a list leaves out, if anything: `and 3 more operations`.
pub(crate) fn and_more(more: usize, what: &str) -> Option<String> {
    (more > 0).then(|| format!("and {more} more{what}"))
}

/// Ids and keys may hold any text; a terminal would obey control characters in it.
pub(crate) fn printable(text: &str) -> String {
    text::printable(text).into_owned()
}

/// Milliseconds since 1970 as a time in UTC.
pub(crate) fn time(at_ms: u64) -> String {
    let at = i64::try_from(at_ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| format!("{at_ms} ms"), |at| format!("{at:.3}"))
}

/// A digest in the short form that people compare: its first 12 digits.
pub(crate) fn short(digest: &str) -> &str {
    const SHOWN: usize = "sha256:".len() + 12;
    digest.get(..SHOWN).unwrap_or(digest)
}
