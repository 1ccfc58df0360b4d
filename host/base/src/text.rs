//! Makes text of guests, servers and files safe to show: without characters that a terminal interprets, and without
//! line breaks. Machine-readable output (JSON, recordings) keeps the original.
//!
//! Only rewrites texts; never decides whether something is an error.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{Display, Write as _};
use std::io;

/// The maximum size of a displayed error in bytes: the host's longest own error names five objects and a few paths.
pub const ERROR_BYTES_MAX: usize = 4 << 10;

/// The maximum length of an external text: enough to understand it.
const SHOWN_CHARS_MAX: usize = 500;

/// The minimum similarity of a suggested key. Below it suggestions are noise.
const LIKENESS_MIN: f64 = 0.5;

/// The text with each invisible character escaped: control characters, line ends, marks of the writing direction, and
/// others.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_printable(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    Cow::Owned(shown)
}

/// Two lower-case hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Why a text file could not be read.
pub fn cause(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::InvalidData {
        "it is no text (UTF-8)".to_owned()
    } else {
        error.to_string()
    }
}

/// A text on one line, without terminal control characters, and cut if it is too long.
pub fn line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let line = printable(&line);
    if line.chars().count() <= SHOWN_CHARS_MAX {
        return line.into_owned();
    }
    line.chars().take(SHOWN_CHARS_MAX).chain("...".chars()).collect()
}

/// An error and its causes, outermost first, each once: many errors repeat their cause.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    with_causes(error.to_string(), error.source())
}

/// A text and its causes, as [`causes`].
pub fn with_causes(mut text: String, mut cause: Option<&(dyn Error + 'static)>) -> String {
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// The known word most similar to `wanted`. `None` if no word is similar.
pub fn nearest<'k>(wanted: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let likeness = |key: &'k str| (strsim::normalized_damerau_levenshtein(wanted, key), key);
    let (likeness, key) = known.map(likeness).max_by(|left, right| left.0.total_cmp(&right.0))?;
    (likeness >= LIKENESS_MIN).then_some(key)
}

/// The text of an error, cut at [`ERROR_BYTES_MAX`].
pub fn error(text: String) -> String {
    cut(text, ERROR_BYTES_MAX)
}

/// The beginning of the text, with the full length if it was cut.
pub fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(bytes_max));
        // Writing to a `String` cannot fail.
        let _ = write!(text, "... ({whole} bytes)");
    }
    text
}

/// The text without the secret: servers and proxies echo requests in their errors, some as JSON within the text.
pub fn scrub(secret: &str, text: String) -> String {
    if secret.is_empty() {
        return text;
    }
    let quoted = serde_json::Value::from(secret).to_string();
    let within_json = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    // Replace the escaped form first: it may contain the plain one.
    let text = text.replace(within_json.unwrap_or(&quoted), HIDDEN);
    text.replace(secret, HIDDEN)
}

/// Replaces a secret in the output.
const HIDDEN: &str = "***";

/// The words before a secret in an `Authorization` header.
const SCHEMES: [&str; 3] = ["bearer ", "basic ", "token "];

/// The text without anything after `Bearer`, `Basic` or `Token` that looks like a secret: for a client whose library
/// keeps the secret to itself.
pub fn without_credentials(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    while let Some((start, scheme)) = next_scheme(&lower, at) {
        let secret = start + scheme;
        let rest = text.get(secret..).unwrap_or_default();
        let is_of_a_secret = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
        let length = rest.find(|c: char| !is_of_a_secret(c)).unwrap_or(rest.len());
        shown.push_str(text.get(at..secret).unwrap_or_default());
        at = secret;
        if length >= SECRET_CHARS_MIN {
            shown.push_str(HIDDEN);
            at += length;
        }
    }
    shown.push_str(text.get(at..).unwrap_or_default());
    shown
}

/// A shorter word after `token` is an ordinary word.
const SECRET_CHARS_MIN: usize = 12;

/// The position and length of the next scheme.
fn next_scheme(lower: &str, from: usize) -> Option<(usize, usize)> {
    let found = |scheme: &&str| Some((from + lower.get(from..)?.find(scheme)?, scheme.len()));
    SCHEMES.iter().filter_map(found).min()
}

/// The standard library knows which characters are visible. A combining character is only visible after another
/// character.
fn is_printable(c: char) -> bool {
    if matches!(c, ' '..='~') || c.is_alphanumeric() {
        return true;
    }
    String::from_iter(['a', c]).escape_debug().count() == 2
}

/// What to append to an error about an unknown word: `; did you mean `x`?`, or nothing.
pub fn offer<'k>(wanted: &str, known: impl Iterator<Item = &'k str>) -> String {
    nearest(wanted, known).map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"))
}

/// A count with its noun: `1 call`, `2 calls`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str, many: &str) -> String {
    format!("{count} {}", if count == N::from(1) { one } else { many })
}

/// `0.3 s`, `12 s`, `5 min`, `3 h`, `2 d`: only as precise as useful.
pub fn passed(ms: u64) -> String {
    const SECOND: u64 = 1000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    match ms {
        0..10_000 => format!("{}.{} s", ms / SECOND, ms % SECOND / 100),
        10_000..120_000 => format!("{} s", ms / SECOND),
        120_000..7_200_000 => format!("{} min", ms / MINUTE),
        7_200_000..172_800_000 => format!("{} h", ms / HOUR),
        _ => format!("{} d", ms / (24 * HOUR)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped_and_all_else_stays() {
        for text in ["", "a b", "say \"it's\" \\ so", "Zürich 東京 e\u{301} 🙂 → ✓"] {
            assert_eq!(printable(text), text);
        }
        for (text, shown) in [
            ("\u{1b}[31m", "\\u{1b}[31m"),
            ("a\r\nb\tc\u{7}", "a\\r\\nb\\tc\\u{7}"),
            ("a\u{202e}b\u{2066}\u{200b}", "a\\u{202e}b\\u{2066}\\u{200b}"),
            ("\u{85}\u{2028}\u{feff}\u{9b}", "\\u{85}\\u{2028}\\u{feff}\\u{9b}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn a_secret_that_a_server_echoes_is_not_shown() {
        for (text, shown) in [
            ("token Bearer KUBESECRET-xyz (403)", "token Bearer *** (403)"),
            (
                r#"{"authorization":"bearer abcdefghij.klm-n"}"#,
                r#"{"authorization":"bearer ***"}"#,
            ),
            ("Basic YWRtaW46YWRtaW4= and Token abc", "Basic *** and Token abc"),
            ("the token is too old", "the token is too old"),
        ] {
            assert_eq!(without_credentials(text), shown);
        }
        assert_eq!(
            scrub("s\"t", r#"s"t and {"a":"s\"t"}"#.to_owned()),
            r#"*** and {"a":"***"}"#
        );
    }

    #[test]
    fn a_count_has_its_noun_in_the_right_number() {
        assert_eq!(
            [0, 1, 2].map(|count| counted(count, "decision", "decisions")),
            ["0 decisions", "1 decision", "2 decisions"]
        );
    }

    #[test]
    fn a_long_error_is_cut_at_a_character() {
        assert_eq!(error("short".to_owned()), "short");
        let shown = error("ä".repeat(ERROR_BYTES_MAX));
        assert!(shown.len() < ERROR_BYTES_MAX + 30, "{}", shown.len());
        assert!(shown.ends_with("ä... (8192 bytes)"), "{shown}");
    }

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
