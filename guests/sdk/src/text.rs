//! Texts as JSON, for errors that show what was given.

use serde_json::Value;

/// The text with its quotes, on one line whatever it holds: `a"b` becomes `"a\"b"`.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_break_a_line_is_escaped() {
        assert_eq!(quoted(""), r#""""#);
        assert_eq!(quoted("a\"b\n"), r#""a\"b\n""#);
        assert_eq!(quoted("fünf"), "\"fünf\"");
    }
}
