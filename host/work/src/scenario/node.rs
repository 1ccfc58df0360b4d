//! A YAML or JSON document as a tree with line numbers.
//!
//! Scenarios are parsed by hand from this tree and not with a derive, so that every error can name the line, the place
//! and the valid keys. JSON is read as YAML.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// What is wrong with a document, and the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// Counted from 1. `None` if the error concerns the whole document.
    pub line: Option<u64>,
    /// What is wrong, where, and what is valid instead.
    pub message: String,
}

/// One value and its line. For an alias, the line of the alias.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) line: u64,
    pub(super) content: Content,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// In the order of the document; keys are unique.
    Object(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) line: u64,
    pub(super) key: String,
    pub(super) value: Node,
}

/// Reads a document.
pub(super) fn parse(text: &str) -> Result<Node, ParseError> {
    let mut options = serde_saphyr::options! {
        // `yes`, `no`, `on` and `n` are names in a scenario, not booleans.
        strict_booleans: true,
        with_snippet: false,
    };
    if let Some(budget) = &mut options.budget {
        // One `desired` with a hundred references is normal in a scenario, not an attack. The limits on nodes and on
        // replayed events still bound the expansion of aliases.
        budget.enforce_alias_anchor_ratio = false;
        // The largest scenarios of this project have 12,000 nodes; no file written by hand has more than this.
        budget.max_nodes = 2_000_000;
        budget.max_events = 4_000_000;
    }
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map(|location| location.line());
        // The message repeats the position after its first line, and the line already precedes it.
        let message = error.without_snippet().to_string();
        ParseError {
            line,
            message: message.lines().next().unwrap_or_default().to_owned(),
        }
    })
}

impl Node {
    /// The value without line numbers.
    pub(super) fn to_value(&self) -> Value {
        match &self.content {
            Content::Null => Value::Null,
            Content::Bool(truth) => Value::Bool(*truth),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::String(text.clone()),
            Content::List(items) => items.iter().map(Self::to_value).collect(),
            Content::Object(entries) => {
                let object: Map<String, Value> = entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.value.to_value()))
                    .collect();
                Value::Object(object)
            }
        }
    }

    /// The kind of the value for messages: `text`, `a list`, ...
    pub(super) const fn what(&self) -> &'static str {
        match &self.content {
            Content::Null => "null",
            Content::Bool(_) => "a truth value",
            Content::Number(_) => "a number",
            Content::Text(_) => "text",
            Content::List(_) => "a list",
            Content::Object(_) => "an object",
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            content: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can have")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Content, E> {
        Ok(Content::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Content, E> {
        Ok(Content::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Content, E> {
        Ok(Content::Number(number.into()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Content, E> {
        let number = Number::from_f64(number).ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(Content::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Content, E> {
        Ok(Content::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let value = entries.next_value()?;
            object.push(Entry {
                line: key.referenced.line(),
                key: key.value,
                value,
            });
        }
        Ok(Content::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_those_of_json() {
        let text = "a: [1, -2, 0.5, 5.0, yes, n, true, ~, null, \"7\", 0x10]\n\
                    80: \"adv_check\"\n\
                    10.0.0.5: 10.0.0.6\n\
                    '': {x: 18446744073709551615}\n";
        let expected = json!({
            "a": [1, -2, 0.5, 5.0, "yes", "n", true, null, null, "7", 16],
            "80": "adv_check",
            "10.0.0.5": "10.0.0.6",
            "": {"x": u64::MAX},
        });
        assert_eq!(parse(text).unwrap().to_value(), expected);
    }

    #[test]
    fn json_is_read_as_the_yaml_that_it_is() {
        let value = json!({"a": [1, {"b": null, "c": "\u{1f600} \"\\/\n\t:"}], "d": {}, "e": [], "f": -1.5});
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(parse(&pretty).unwrap().to_value(), value);
        assert_eq!(parse(&value.to_string()).unwrap().to_value(), value);
        assert_eq!(parse(&pretty.replace("  ", "\t")).unwrap().to_value(), value);
        assert_eq!(
            parse(r#"{"a":"\ud83d\ude00\/"}"#).unwrap().to_value(),
            json!({"a": "\u{1f600}/"})
        );
    }

    #[test]
    fn every_node_knows_its_line() {
        let node = parse("a: 1\nb:\n  - &x {c: 2}\n  - *x\n").unwrap();
        let Content::Object(entries) = &node.content else {
            panic!("{node:?}")
        };
        assert_eq!(entries.iter().map(|entry| entry.line).collect::<Vec<_>>(), [1, 2]);
        let Content::List(items) = &entries[1].value.content else {
            panic!("{node:?}")
        };
        assert_eq!(items.iter().map(|item| item.line).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn what_is_no_document_is_an_error_on_its_line() {
        let line = |text| parse(text).unwrap_err().line;
        assert_eq!(line("a: 1\nb: [1\n"), Some(2));
        assert_eq!(line("a: 1\na: 2\n"), Some(2));
        assert_eq!(line("a: *missing\n"), Some(1));
    }
}
