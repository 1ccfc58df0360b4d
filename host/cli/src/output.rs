//! Where output goes: data to stdout, as text or JSON; messages to stderr. Logs are in `telemetry.rs`.

use std::io::Write as _;

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;
use trueup_base::text;

/// The format of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs: one JSON document.
    Json,
}

/// Writes lines of data for people.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    let lines = text.split('\n').map(text::printable);
    bytes((lines.collect::<Vec<_>>().join("\n") + "\n").as_bytes())
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

/// Writes a value as one line of JSON, and goes on if the reader went away.
pub(crate) fn json_if_read(value: &impl Serialize) {
    if let Ok(line) = serde_json::to_string(value) {
        // As above.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

/// Writes one line to stderr, and goes on if the reader went away.
pub(crate) fn talk(text: &str) {
    // As above.
    let _ = writeln!(std::io::stderr().lock(), "{}", text::printable(text));
}

/// Writes a JSON document.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    bytes((serde_json::to_string_pretty(value).context("writing JSON")? + "\n").as_bytes())
}

/// Columns as wide as their widest cell, two blanks apart.
pub(crate) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let printable_row = |row: &Vec<String>| row.iter().map(|cell| printable(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(printable_row).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
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
