//! A YAML value with line numbers, and its conversion to a Rust type.
//!
//! This module knows nothing of Kubernetes. If such a value does not fit a type, the error contains its line and field
//! path, even deep inside a list of objects.
//!
//! ```text
//! text -> Located -> a type, or FieldError { line, path, message }
//! ```

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_saphyr::Spanned;
use trueup_base::text::offer;

/// A value and its position.
pub(super) type Located = Spanned<Value>;

/// A YAML value in the core schema.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Located>),
    Map(Vec<(Spanned<String>, Located)>),
}

/// An entry of a map.
pub(super) fn entry<'a>(located: &'a Located, key: &str) -> Option<&'a Located> {
    match &located.value {
        Value::Map(entries) => entries
            .iter()
            .find(|(name, _)| name.value == key)
            .map(|(_, value)| value),
        _ => None,
    }
}

/// The text of a map's entry. `None` if it is missing or not a text.
pub(super) fn text<'a>(located: &'a Located, key: &str) -> Option<&'a str> {
    match &entry(located, key)?.value {
        Value::Text(text) => Some(text),
        _ => None,
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
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Signed(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}

/// A value that does not fit, and its position.
#[derive(Debug)]
pub(super) struct FieldError {
    /// `None` until the error has passed its value.
    pub(super) line: Option<u64>,
    /// The path, such as `spec`, `ports`, `[0]`; stored from the inside out.
    path: Vec<String>,
    message: String,
}

impl FieldError {
    fn unknown(key: &Spanned<String>, known: &[&str]) -> Self {
        let meant = offer(&key.value, known.iter().copied());
        let mut error = Self::new(format!("unknown field{meant}")).within(key.value.escape_debug().to_string());
        error.line = Some(key.referenced.line());
        error
    }

    /// An error about this value.
    pub(super) fn of(value: &Located, message: impl Into<String>) -> Self {
        Self::new(message.into()).at(value)
    }

    fn new(message: String) -> Self {
        Self {
            line: None,
            path: Vec::new(),
            message,
        }
    }

    fn at(mut self, value: &Located) -> Self {
        self.line.get_or_insert(value.referenced.line());
        self
    }

    pub(super) fn within(mut self, field: String) -> Self {
        self.path.push(field);
        self
    }
}

impl fmt::Display for FieldError {
    /// `spec.ports[0].port: invalid type: string "http", expected a whole number`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, field) in self.path.iter().rev().enumerate() {
            let dot = if position == 0 || field.starts_with('[') {
                ""
            } else {
                "."
            };
            write!(f, "{dot}{field}")?;
        }
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{colon}{}", self.message)
    }
}

impl std::error::Error for FieldError {}

impl de::Error for FieldError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = match expected.to_string().as_str() {
            "i32" | "i64" => "a whole number".to_owned(),
            other => other.to_owned(),
        };
        Self::custom(format_args!("invalid type: {unexpected}, expected {expected}"))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        // Authors of manifests do not know Rust types. Kubernetes has only these numbers.
        let expected = match expected.to_string().as_str() {
            "i32" => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
            "i64" => format!("a whole number from {} to {}", i64::MIN, i64::MAX),
            other => other.to_owned(),
        };
        Self::custom(format_args!("invalid value: {unexpected}, expected {expected}"))
    }
}

/// Converts a value to a type.
pub(super) fn read<'a, T: Deserialize<'a>>(value: &'a Located) -> Result<T, FieldError> {
    T::deserialize(Reader(value))
}

struct Reader<'de>(&'de Located);

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = FieldError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        let read = match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Signed(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_borrowed_str(value),
            Value::List(list) => visitor.visit_seq(Elements {
                rest: list.iter().enumerate(),
            }),
            Value::Map(map) => visitor.visit_map(Entries {
                rest: map.iter(),
                value: None,
            }),
        };
        read.map_err(|error| error.at(self.0))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        let value = self.0;
        visitor.visit_newtype_struct(self).map_err(|error| error.at(value))
    }

    /// An unknown field is an error: the types of Kubernetes would ignore it.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        if let Value::Map(map) = &self.0.value
            && let Some((key, _)) = map.iter().find(|(key, _)| !fields.contains(&key.value.as_str()))
        {
            return Err(FieldError::unknown(key, fields));
        }
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

struct Elements<'de> {
    rest: std::iter::Enumerate<std::slice::Iter<'de, Located>>,
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = FieldError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, FieldError> {
        let Some((index, element)) = self.rest.next() else {
            return Ok(None);
        };
        let read = seed.deserialize(Reader(element));
        read.map(Some)
            .map_err(|error| error.at(element).within(format!("[{index}]")))
    }
}

struct Entries<'de> {
    rest: std::slice::Iter<'de, (Spanned<String>, Located)>,
    value: Option<(&'de str, &'de Located)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = FieldError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, FieldError> {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some((&key.value, value));
        seed.deserialize(StrDeserializer::new(&key.value)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, FieldError> {
        let (key, value) = self
            .value
            .take()
            .ok_or_else(|| de::Error::custom("a value was asked before its key"))?;
        seed.deserialize(Reader(value))
            .map_err(|error| error.at(value).within(key.to_owned()))
    }
}
