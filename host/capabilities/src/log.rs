//! `trueup:host/log`: the destination of a guest's lines.

use std::borrow::Cow;
use std::fmt::Write as _;

use parking_lot::Mutex;
use trueup_base::text::printable;

use crate::bindings::host::log::{Field, Level};
use crate::identity::Identity;

/// The maximum length of a line in bytes. Longer lines are cut: a log is not the place for data.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// Receives the lines that guests write.
pub trait Log: Send + Sync {
    /// Receives one line of `guest`.
    fn emit(&self, guest: &Identity, level: Level, line: &str);
}

/// The message and its fields as one line: `message key=value key="two words"`.
pub(crate) fn line(message: &str, fields: &[Field]) -> String {
    let mut line = printable(beginning(message)).into_owned();
    for field in fields {
        if line.len() > LINE_BYTES_MAX {
            break;
        }
        let key = printable(beginning(&field.key));
        let value = beginning(&field.value);
        let plain = !value.is_empty() && value.chars().all(|c| !c.is_whitespace() && c != '"');
        // Writing to a `String` cannot fail.
        let _ = match printable(value) {
            Cow::Borrowed(value) if plain => write!(line, " {key}={value}"),
            _ => write!(line, " {key}={value:?}"),
        };
    }
    if line.len() > LINE_BYTES_MAX {
        line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
        line.push_str("...");
    }
    line
}

/// The part of a text that fits into a line, plus one character if the text is longer.
fn beginning(text: &str) -> &str {
    text.get(..text.ceil_char_boundary(LINE_BYTES_MAX + 1)).unwrap_or(text)
}

/// Passes lines to `tracing`, with the guest's name, version and instance.
#[derive(Debug, Default, Clone, Copy)]
pub struct TracingLog;

impl Log for TracingLog {
    fn emit(&self, guest: &Identity, level: Level, line: &str) {
        let (name, version, instance) = (&guest.guest, &guest.version, &guest.instance);
        match level {
            Level::Trace => tracing::trace!(target: "guest", guest = %name, %version, %instance, "{line}"),
            Level::Debug => tracing::debug!(target: "guest", guest = %name, %version, %instance, "{line}"),
            Level::Info => tracing::info!(target: "guest", guest = %name, %version, %instance, "{line}"),
            Level::Warn => tracing::warn!(target: "guest", guest = %name, %version, %instance, "{line}"),
            Level::Error => tracing::error!(target: "guest", guest = %name, %version, %instance, "{line}"),
        }
    }
}

/// Keeps lines, for tests and for the output of a plan.
#[derive(Debug, Default)]
pub struct KeptLog(Mutex<Vec<(Level, String)>>);

impl KeptLog {
    /// The lines so far, oldest first.
    pub fn lines(&self) -> Vec<(Level, String)> {
        self.0.lock().clone()
    }
}

impl Log for KeptLog {
    fn emit(&self, _: &Identity, level: Level, line: &str) {
        self.0.lock().push((level, line.to_owned()));
    }
}

/// Drops every line: for benchmarks, and for replays, whose lines were already written.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoLog;

impl Log for NoLog {
    fn emit(&self, _: &Identity, _: Level, _: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_its_fields_and_is_cut_where_it_is_too_long() {
        let field = |key: &str, value: &str| Field {
            key: key.into(),
            value: value.into(),
        };
        assert_eq!(
            line(
                "made",
                &[field("kind", "bind"), field("why", "two words"), field("none", "")]
            ),
            "made kind=bind why=\"two words\" none=\"\""
        );
        assert_eq!(
            line("two\nlines \"it\"", &[field("k\r", "a\nb"), field("to", "a\u{202e}b")]),
            "two\\nlines \"it\" k\\r=\"a\\nb\" to=\"a\\u{202e}b\""
        );
        let cut = line(&"ä".repeat(LINE_BYTES_MAX), &[]);
        assert!(cut.len() <= LINE_BYTES_MAX + 3 && cut.ends_with("ä..."));
    }
}
