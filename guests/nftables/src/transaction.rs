//! One transaction as text: `{"nftables":[{"metainfo":...}, command, ...]}`, compact.
//!
//! The text of a resync with 100,000 endpoints is 60 MB. The code writes it twice, first only to measure it: a growing
//! text would need three times its size, and an instance has 256 MiB.

use std::io::{self, Write};

use crate::base;
use crate::change::Change;
use crate::ruleset::Family;
use crate::schema::{Command, Object, Statement, Table};
use crate::settings::Settings;

/// One family's part.
#[derive(Debug)]
pub(crate) struct Part<'c> {
    /// The table's family.
    pub(crate) family: Family,
    /// True if the transaction first creates the table anew.
    pub(crate) with_base: bool,
    /// The change to it.
    pub(crate) change: Change<'c>,
}

/// The text; `None` if there is nothing to do.
pub(crate) fn text(settings: &Settings, parts: &[Part<'_>]) -> Option<String> {
    if parts.iter().all(|part| !part.with_base && part.change.is_empty()) {
        return None;
    }
    let length = write(settings, parts, Length(0)).0;
    let text = write(settings, parts, Vec::with_capacity(length));
    // serde writes UTF-8.
    Some(String::from_utf8(text).unwrap_or_default())
}

fn write<W: Write>(settings: &Settings, parts: &[Part<'_>], out: W) -> W {
    let mut out = Writer { out };
    out.push(br#"{"nftables":["#);
    // The first command, so that every other begins with a comma.
    out.json(&Command::Metainfo { json_schema_version: 1 });
    for part in parts {
        let of = Table {
            family: part.family,
            table: &settings.table_name,
        };
        if part.with_base {
            base::write(&mut out, settings, of);
        }
        part.change.write(&mut out, of, settings.masquerade_mark);
    }
    out.push(b"]}");
    out.out
}

/// The sink of the commands.
#[derive(Debug)]
pub(crate) struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes one more command, which is JSON already.
    pub(crate) fn text(&mut self, command: &str) {
        self.push(b",");
        self.push(command.as_bytes());
    }

    /// Writes one more command.
    pub(crate) fn command(&mut self, command: &Command<'_>) {
        self.push(b",");
        self.json(command);
    }

    /// Writes a command that adds a rule at the end of a chain.
    pub(crate) fn rule(&mut self, of: Table<'_>, chain: &str, expr: &[Statement<'_>], comment: Option<&str>) {
        self.command(&Command::Add(Object::Rule {
            of,
            chain,
            expr,
            comment,
        }));
    }

    // Neither a Vec nor a counter refuses a write, and everything here is text, numbers and lists.

    fn json(&mut self, command: &Command<'_>) {
        let _ = serde_json::to_writer(&mut self.out, command);
    }

    fn push(&mut self, text: &[u8]) {
        let _ = self.out.write_all(text);
    }
}

/// Counts the length of a text, in bytes.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(text.len());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
