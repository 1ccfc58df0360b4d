//! Text of guests, servers and files, made fit for people to read: no character that a terminal obeys, and no line of its
//! own. What programs read (JSON, recordings) holds it as it is.

use std::borrow::Cow;
use std::fmt::Write as _;

/// So much of the text of an error is shown, in bytes: the longest that this host writes itself names five objects and a few
/// paths.
pub const ERROR_BYTES_MAX: usize = 4 << 10;

/// The text with an escape in the place of each character that can't be seen: control characters, line ends, marks of the
/// direction of writing, invisible ones.
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

/// The text of an error, cut where it goes on for longer than [`ERROR_BYTES_MAX`].
pub fn error(text: String) -> String {
    cut(text, ERROR_BYTES_MAX)
}

/// The beginning of the text, and how long it was where that is not all of it.
pub fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(bytes_max));
        // Writing to a String can't fail.
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
    let within_json = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(&quoted);
    // The escaped one first: it may hold the plain one.
    [within_json, secret].into_iter().fold(text, |text, secret| {
        if text.contains(secret) {
            text.replace(secret, HIDDEN)
        } else {
            text
        }
    })
}

/// What is shown in the place of a secret.
const HIDDEN: &str = "***";

/// What stands before a secret in an `Authorization` header.
const SCHEMES: [&str; 3] = ["bearer ", "basic ", "token "];

/// The text without what follows the word `Bearer`, `Basic` or `Token` where that looks like a secret: for a client whose
/// secret its library keeps to itself.
pub fn without_credentials(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    while let Some((start, scheme)) = next_scheme(&lower, at) {
        let secret = start + scheme;
        let rest = text.get(secret..).unwrap_or_default();
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

/// A shorter word after `token` is a word.
const SECRET_CHARS_MIN: usize = 12;

/// Where the next scheme begins, and how long it is.
fn next_scheme(lower: &str, from: usize) -> Option<(usize, usize)> {
    let rest = lower.get(from..)?;
    let found = SCHEMES
        .iter()
        .filter_map(|scheme| Some((from + rest.find(scheme)?, scheme.len())));
    found.min()
}

fn is_of_a_secret(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~+/=".contains(c)
}

/// The standard library knows what has a shape. A character that joins the one before has one behind another character.
fn is_printable(c: char) -> bool {
    if matches!(c, ' '..='~') || c.is_alphanumeric() {
        return true;
    }
    let joined = String::from_iter(['a', c]);
    joined.escape_debug().count() == 2
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
    fn a_long_error_is_cut_at_a_character() {
        assert_eq!(error("short".to_owned()), "short");
        let shown = error("ä".repeat(ERROR_BYTES_MAX));
        assert!(shown.len() < ERROR_BYTES_MAX + 30, "{}", shown.len());
        assert!(shown.ends_with("ä... (8192 bytes)"), "{shown}");
    }
}
