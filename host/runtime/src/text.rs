//! Makes external texts safe for a line that an operator reads.
//!
//! This module only rewrites texts; it never decides whether something is an error.

use std::io;

use trueup_capabilities::text::printable;

/// The maximum length of an external text: enough to understand it.
const SHOWN_CHARS_MAX: usize = 500;

/// The minimum similarity of a suggested key. Below it suggestions are noise.
const LIKENESS_MIN: f64 = 0.5;

/// Why a text file could not be read.
pub(crate) fn cause(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::InvalidData {
        "it is no text (UTF-8)".to_owned()
    } else {
        error.to_string()
    }
}

/// A text on one line, without terminal control characters, and cut if it is too long.
pub(crate) fn line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let line = printable(&line);
    if line.chars().count() <= SHOWN_CHARS_MAX {
        return line.into_owned();
    }
    line.chars().take(SHOWN_CHARS_MAX).chain("...".chars()).collect()
}

/// The known word most similar to `wanted`. `None` if no word is similar.
pub(crate) fn nearest<'k>(wanted: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let likeness = |key: &'k str| (strsim::normalized_damerau_levenshtein(wanted, key), key);
    let (likeness, key) = known
        .map(likeness)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))?;
    (likeness >= LIKENESS_MIN).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_of_what_can_be_shown() {
        assert_eq!(line("one\n \u{1b}[31mtwo\r\n\n\tthree\n"), "one [31mtwo three");
        assert_eq!(line(""), "");
        let cut = line(&"a".repeat(SHOWN_CHARS_MAX + 1));
        assert_eq!(cut, format!("{}...", "a".repeat(SHOWN_CHARS_MAX)));
    }

    #[test]
    fn bytes_that_are_no_text_are_said_to_be_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        let error = std::fs::read_to_string(&file).unwrap_err();
        assert_eq!(cause(&error), "it is no text (UTF-8)");
        let error = std::fs::read_to_string(folder.path().join("nothing")).unwrap_err();
        assert_eq!(cause(&error), "No such file or directory (os error 2)");
    }
}
