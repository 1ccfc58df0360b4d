//! Rust source as tokens and comment lines, without a parser: enough to count, and fast.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word: an identifier or a keyword.
    Word,
    /// A string, a character or a number.
    Literal,
    /// A lifetime, with its tick.
    Lifetime,
    /// One character of punctuation.
    Punctuation,
}

/// One token, and its first line, counted from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

impl Token<'_> {
    /// True if it is this word or this punctuation.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text && matches!(self.kind, Kind::Word | Kind::Punctuation)
    }
}

/// The tokens of a file, and which of its lines contain any of one.
pub(crate) struct Tokens<'a> {
    pub(crate) list: Vec<Token<'a>>,
    /// By line: true if it contains code. A blank or comment line does not; a line inside a string does.
    pub(crate) is_code: Vec<bool>,
}

/// Splits `text` into tokens. An unfinished string or comment ends with the text.
pub(crate) fn tokens(text: &str) -> Tokens<'_> {
    let mut found = Tokens {
        list: Vec::new(),
        is_code: vec![false; text.lines().count()],
    };
    let (mut rest, mut line) = (text, 0);
    while let Some(first) = rest.chars().next() {
        let (length, kind) = next(rest, first);
        let (token, after) = rest.split_at(length);
        let last = line + token.matches('\n').count();
        if let Some(kind) = kind {
            found.list.push(Token {
                text: token,
                kind,
                line,
            });
            found
                .is_code
                .iter_mut()
                .take(last + 1)
                .skip(line)
                .for_each(|is_code| *is_code = true);
        }
        (rest, line) = (after, last);
    }
    found
}

/// The length in bytes of the token at the start of `rest`, and its kind: `None` for white space and comments.
fn next(rest: &str, first: char) -> (usize, Option<Kind>) {
    if first.is_whitespace() {
        return (first.len_utf8(), None);
    }
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), None);
    }
    if let Some(length) = string(rest) {
        return (length, Some(Kind::Literal));
    }
    if first == '\'' {
        return tick(rest);
    }
    if first.is_ascii_digit() {
        return (number(rest), Some(Kind::Literal));
    }
    if first == '_' || first.is_alphabetic() {
        let raw = if rest.starts_with("r#") { 2 } else { 0 };
        return (raw + word(rest.get(raw..).unwrap_or_default()), Some(Kind::Word));
    }
    (first.len_utf8(), Some(Kind::Punctuation))
}

fn word(rest: &str) -> usize {
    rest.find(|c: char| c != '_' && !c.is_alphanumeric())
        .unwrap_or(rest.len())
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(here) = rest.get(at..).filter(|here| !here.is_empty()) {
        if here.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with("*/") {
            (depth, at) = (depth.saturating_sub(1), at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of the string at the start of `rest`, whatever its prefix; `None` if there is none.
fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix).unwrap_or_default();
        after.starts_with('"') || (prefix.ends_with('r') && after.trim_start_matches('#').starts_with('"'))
    })?;
    let after = rest.get(prefix.len()..)?;
    if prefix.ends_with('r') {
        let hashes = after.find('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let body = after.get(hashes + 1..)?;
        let close = body.find(&end).map_or(body.len(), |close| close + end.len());
        return Some(prefix.len() + hashes + 1 + close);
    }
    let mut escaped = false;
    for (at, c) in after.char_indices().skip(1) {
        if c == '"' && !escaped {
            return Some(prefix.len() + at + 1);
        }
        escaped = c == '\\' && !escaped;
    }
    Some(rest.len())
}

/// A character such as `'a'` or `'\''`, or a lifetime such as `'a`.
fn tick(rest: &str) -> (usize, Option<Kind>) {
    let mut after = rest.chars().skip(1);
    let (second, third) = (after.next().unwrap_or(' '), after.next());
    if second != '\\' && third != Some('\'') {
        return (1 + word(rest.get(1..).unwrap_or_default()), Some(Kind::Lifetime));
    }
    let escape = if second == '\\' { 1 } else { 0 };
    let body = 1 + escape + rest.chars().nth(1 + escape).map_or(1, char::len_utf8);
    let close = rest.get(body..).and_then(|rest| rest.find('\''));
    (close.map_or(rest.len(), |close| body + close + 1), Some(Kind::Literal))
}

/// A number, with its point (`1.5`, but not the two of `1..5`) and its suffix.
fn number(rest: &str) -> usize {
    let whole = word(rest);
    let after = rest.get(whole..).unwrap_or_default();
    let fraction = after
        .strip_prefix('.')
        .filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()));
    whole + fraction.map_or(0, |digits| 1 + word(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(&str, Kind)> {
        tokens(text).list.iter().map(|token| (token.text, token.kind)).collect()
    }

    #[test]
    fn comments_and_white_space_are_no_tokens() {
        assert_eq!(
            texts("a // b\n/* c /* d */ e */ f"),
            [("a", Kind::Word), ("f", Kind::Word)]
        );
        assert_eq!(
            tokens("a\n\n// b\n/* c\n*/\nf\n").is_code,
            [true, false, false, false, false, true]
        );
    }

    #[test]
    fn a_string_is_one_token_whatever_is_in_it() {
        for literal in [
            r#""a // \" b""#,
            r##"r#"a " b"#"##,
            r#"b"\\""#,
            "'\\''",
            "'\"'",
            "'{'",
            "b\"\"",
            "r\"\\\"",
            "1.5e3_f64",
        ] {
            let text = format!("x({literal});");
            let expected = [("x", Kind::Word), ("(", Kind::Punctuation), (literal, Kind::Literal)];
            assert_eq!(texts(&text).get(..3), Some(&expected[..]), "{literal}");
            assert_eq!(texts(&text).len(), 5, "{literal}");
        }
    }

    #[test]
    fn a_lifetime_is_no_character() {
        let expected = [("&", Kind::Punctuation), ("'a", Kind::Lifetime), ("str", Kind::Word)];
        assert_eq!(texts("&'a str"), expected);
        assert_eq!(texts("1..5").len(), 4);
        assert_eq!(texts("r#type"), [("r#type", Kind::Word)]);
    }

    #[test]
    fn a_line_inside_a_string_is_code() {
        assert_eq!(tokens("let a = \"b\n\n// c\n\";\n").is_code, [true; 4]);
    }
}
