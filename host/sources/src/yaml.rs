//! A YAML document as a tree with line numbers, from which readers report where something is wrong.

mod typed;

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::Spanned;

pub use self::typed::{FieldError, read};

/// One value and its line.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Counted from 1. For an alias, the line of the alias.
    pub line: u64,
    /// Where it begins in that line, in characters, counted from 1.
    pub column: u64,
    /// Its value.
    pub value: Value,
}

/// A value that JSON can have.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, `~`, or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A finite number.
    Number(Number),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// In the order of the document; keys are unique.
    Map(Vec<Entry>),
}

/// An entry of a map.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The line of the key.
    pub line: u64,
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Node,
}

impl Node {
    /// The entries of a map. Empty if this is no map.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// An entry of a map. `None` if it is missing, or this is no map.
    pub fn entry(&self, key: &str) -> Option<&Self> {
        let mut entries = self.entries().iter();
        entries.find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The items of a list. Empty if this is no list.
    pub fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a map's entry. `None` if it is missing or not a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.entry(key)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value without line numbers.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(truth) => (*truth).into(),
            Value::Number(number) => number.clone().into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                let entry = |entry: &Entry| (entry.key.clone(), entry.value.to_json());
                entries.iter().map(entry).collect()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            column: spanned.referenced.column(),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can have")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let items = std::iter::from_fn(|| items.next_element().transpose());
        Ok(Value::List(items.collect::<Result<_, _>>()?))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            map.push(Entry {
                line: key.referenced.line(),
                key: key.value,
                value: entries.next_value()?,
            });
        }
        Ok(Value::Map(map))
    }
}
