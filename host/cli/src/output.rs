//! Where things go: data to stdout, as text or JSON; talk to stderr. Logs are in `telemetry.rs`.

use std::io::Write as _;

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

/// How data is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs: one JSON document.
    Json,
}

/// Writes a line of data.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    bytes(format!("{text}\n").as_bytes())
}

/// Writes data. A reader that went away (`| head`) ends the program quietly, as it does for other tools.
pub(crate) fn bytes(data: &[u8]) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(data) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("writing to stdout"),
    }
}

/// Writes a line of data where the program goes on without a reader: a controller does not end because its log's reader did.
pub(crate) fn line_if_read(text: &str) {
    // Nobody reads it: then nobody misses it.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Writes a line of talk, under the same terms.
pub(crate) fn talk(text: &str) {
    // As above.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Writes a JSON document.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value).context("writing JSON")?)
}

/// Columns as wide as what stands in them, two blanks apart.
pub(crate) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
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

/// Ids and keys are any text; a terminal obeys some of it.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Milliseconds since 1970 as a time in UTC.
pub(crate) fn time(at_ms: u64) -> String {
    let at = i64::try_from(at_ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| format!("{at_ms} ms"), |at| format!("{at:.3}"))
}

/// A digest as people compare it: its first 12 digits.
pub(crate) fn short(digest: &str) -> &str {
    const SHOWN: usize = "sha256:".len() + 12;
    digest.get(..SHOWN).unwrap_or(digest)
}
