//! Where output goes: data to stdout, as text, JSON or YAML; messages to stderr. Logs are in `telemetry.rs`.

use std::fmt::Display;
use std::io::Write as _;
use std::iter;
use std::os::fd::AsFd;

use anstream::stream::RawStream;
use anyhow::Context as _;
use clap::ValueEnum;
use parking_lot::Mutex;
use serde::Serialize;
use trueup_base::text;

use crate::exit::{Ending, Exit};
use crate::{colour, progress};

/// The format of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people. On a terminal, tables are cut to its width.
    Text,
    /// The same with everything in it: more columns, and nothing cut.
    Wide,
    /// For programs: one JSON document.
    Json,
    /// The same document as YAML.
    Yaml,
}

impl Output {
    /// Whether people read it.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Wide)
    }
}

/// Writes lines of data for people.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    bytes(lines(text).as_bytes())
}

/// Lines of data for people.
pub(crate) fn lines(text: &str) -> String {
    joined(&[text.to_owned()], severity())
}

/// Writes data as it is. If the reader went away (`| head`), ends the program quietly, as other tools do.
pub(crate) fn bytes(data: &[u8]) -> anyhow::Result<()> {
    match progress::aside(|| std::io::stdout().lock().write_all(data)) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("writing to stdout"),
    }
}

/// Writes one line of data, and goes on if the reader went away: a controller must not end because its log's reader
/// did.
pub(crate) fn line_if_read(text: &str) {
    // Ignore the error: the reader went away.
    let _ = progress::aside(|| writeln!(std::io::stdout().lock(), "{}", severity()(&text::printable(text))));
}

/// Writes one value of several: as a line of JSON, or as a YAML document of its own. Goes on if the reader went away.
pub(crate) fn value_if_read(value: &impl Serialize, output: Output) {
    let text = match output {
        Output::Yaml => rendered(value, output).map(|text| format!("---\n{text}")).ok(),
        Output::Text | Output::Wide | Output::Json => serde_json::to_string(value).map(|line| line + "\n").ok(),
    };
    // As above.
    let _ = text.map(|text| progress::aside(|| std::io::stdout().lock().write_all(text.as_bytes())));
}

/// Writes one line to stderr, and goes on if the reader went away.
pub(crate) fn talk(text: &str) {
    coloured(&painted(&std::io::stderr(), colour::severity)(&text::printable(text)));
}

/// Writes a warning to stderr.
pub(crate) fn warn(what: &impl Display) {
    talk(&format!("warning: {what}"));
}

/// Writes an error to stderr: on a terminal in lines that fit it, with the colours of differences.
pub(crate) fn complain(text: &str) {
    let width = width(&std::io::stderr()).unwrap_or(usize::MAX);
    let mut parts = laid_out(&text::printable(text), width).into_iter();
    if let Some(first) = parts.next() {
        first.split('\n').for_each(talk);
    }
    parts.for_each(|lines| coloured(&painted(&std::io::stderr(), colour::change)(&lines)));
}

/// Writes text with its own colours to stderr.
fn coloured(text: &str) {
    // As above.
    let _ = progress::aside(|| writeln!(std::io::stderr().lock(), "{text}"));
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
    match output.is_text() {
        true => Ok(joined(&lines(value), severity())),
        false => rendered(value, output),
    }
}

/// Lines about changes, with their colours if stdout gets any, and wrapped if it is a terminal.
pub(crate) fn changes(lines: &[String]) -> String {
    let stdout = std::io::stdout();
    let paint = painted(&stdout, colour::change);
    let width = width(&stdout).unwrap_or(usize::MAX);
    joined(lines, |line| paint(&wrapped(line, width)))
}

/// How a line on stdout shows how bad it is.
fn severity() -> fn(&str) -> String {
    painted(&std::io::stdout(), colour::severity)
}

/// Colours lines if the stream gets any colour.
fn painted<S: RawStream>(stream: &S, paint: fn(&str) -> String) -> fn(&str) -> String {
    match colour::is_on(stream) {
        true => paint,
        false => str::to_owned,
    }
}

fn joined(texts: &[String], paint: impl Fn(&str) -> String) -> String {
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

/// How many characters a line of a terminal has. `None` if this is no terminal.
pub(crate) fn width<S: AsFd>(stream: &S) -> Option<usize> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0))
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
    let width = TABLE_WIDTH.lock().unwrap_or(usize::MAX);
    rows.iter().map(|row| cut(line(row), width)).collect()
}

/// A column of a table: its head, and what it shows of an item.
pub(crate) type Column<'c, T> = (&'c str, &'c dyn Fn(&T) -> String);

/// A table with a line for each item.
pub(crate) fn columns<'i, T: 'i, const N: usize>(
    columns: [Column<'_, T>; N],
    items: impl IntoIterator<Item = &'i T>,
) -> Vec<String> {
    let rows = items.into_iter().map(|item| columns.map(|(_, cell)| cell(item)));
    table(columns.map(|(head, _)| head), rows)
}

/// How wide tables may be. `None`: as wide as they are.
static TABLE_WIDTH: Mutex<Option<usize>> = Mutex::new(None);

/// Cuts tables to the terminal from now on, unless the operator wants all of them.
pub(crate) fn fit(output: Output) {
    if output == Output::Text {
        *TABLE_WIDTH.lock() = width(&std::io::stdout());
    }
}

/// The line, or its beginning and a mark.
fn cut(line: String, width: usize) -> String {
    if line.chars().count() <= width {
        return line;
    }
    let beginning = line.chars().take(width.saturating_sub(1));
    beginning.chain(['…']).collect()
}

/// A message in lines of a terminal: each part of a long one begins a line, and is wrapped.
pub(crate) fn laid_out(message: &str, width: usize) -> Vec<String> {
    if message.chars().count() <= width {
        return vec![message.to_owned()];
    }
    // What differs, as the gate of a swap says it.
    let message = message.replace(": recorded: ", "; recorded: ");
    let indents = iter::once("").chain(iter::repeat("  "));
    let part = |(part, indent): (&str, &str)| wrapped(&format!("{indent}{part}"), width);
    message.split("; ").zip(indents).map(part).collect()
}

/// Breaks a line at blanks. What follows is indented further than the line begins.
fn wrapped(line: &str, width: usize) -> String {
    let blanks = line.len() - line.trim_start_matches(' ').len();
    let indent = " ".repeat(blanks + 4);
    let mut text = String::new();
    let mut column = 0;
    for word in line.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if column > indent.len() && column + length > width {
            text.truncate(text.trim_end().len());
            text.push('\n');
            text.push_str(&indent);
            column = indent.len();
        }
        text.push_str(word);
        column += word.chars().count();
    }
    text
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

/// The value, or a dash.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Ids and keys may hold any text; a terminal would obey control characters in it.
pub(crate) fn printable(text: &str) -> String {
    text::printable(text).into_owned()
}

/// Milliseconds since 1970 as a time in UTC.
pub(crate) fn time(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).map(jiff::Timestamp::from_millisecond);
    let Ok(Ok(at)) = at else { return format!("{at_ms} ms") };
    format!("{at:.3}")
}

/// A digest in the short form that people compare: its first 12 digits.
pub(crate) fn short(digest: &str) -> &str {
    const SHOWN: usize = "sha256:".len() + 12;
    digest.get(..SHOWN).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_in_a_wrapped_line_is_indented_further() {
        assert_eq!(wrapped("  - one two three", 10), "  - one\n      two\n      three");
        assert_eq!(wrapped("- one", 10), "- one");
    }

    #[test]
    fn a_refusal_is_laid_out_in_its_parts() {
        let short = "error: no host runs there; start one";
        assert_eq!(laid_out(short, 80), [short]);
        let long = "error: guest `lbaas`: refused at gate: 1 of 1 call differs; the first diverged at entry 23: recorded: \
                    api.destroy {}; asked: api.reset {} (`f`); see `trueup replay --guest lbaas@2 f`";
        let lines = [
            "error: guest `lbaas`: refused at gate: 1\n    of 1 call differs",
            "  the first diverged at entry 23",
            "  recorded: api.destroy {}",
            "  asked: api.reset {} (`f`)",
            "  see `trueup replay --guest lbaas@2 f`",
        ];
        assert_eq!(laid_out(long, 40), lines);
        assert_eq!(
            colour::change(lines[2]),
            format!("  \u{1b}[31m{}\u{1b}[0m", lines[2].trim())
        );
    }

    #[test]
    fn a_line_is_cut_by_characters_with_a_mark() {
        assert_eq!(cut("größer".to_owned(), 6), "größer");
        assert_eq!(cut("größer".to_owned(), 5), "größ…");
    }
}
