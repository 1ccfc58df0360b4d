//! Values as JSON text, for errors that show what was given.

use serde_json::Value;

/// The text with its quotes, on one line whatever it holds: `a"b` becomes `"a\"b"`.
pub fn quoted(text: &str) -> String {
    json(&Value::from(text))
}

/// The value as compact JSON.
pub fn json(value: &Value) -> String {
    value.to_string()
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

    #[test]
    fn values_are_compact() {
        assert_eq!(
            json(&serde_json::json!({"b": [1, 2.5, null], "a": "x"})),
            r#"{"a":"x","b":[1,2.5,null]}"#
        );
    }
}
