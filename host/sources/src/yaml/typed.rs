//! Converts a value of a YAML document to a Rust type.
//!
//! If a value does not fit a type, the error contains its line and field path, even deep inside a list of objects. An
//! unknown field is an error too.
//!
//! ```text
//! Node -> a type, or FieldError { line, path, message }
//! ```

use std::iter::Enumerate;
use std::{fmt, slice};

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use trueup_base::text::offer;

use super::{Entry, Node, Value};

/// More known fields than these are not listed in an error.
const LISTED_MAX: usize = 16;

/// A value that does not fit, and its position.
#[derive(Debug)]
pub struct FieldError {
    /// `None` until the error has passed its value.
    pub line: Option<u64>,
    /// The path, such as `spec`, `ports`, `[0]`; stored from the inside out.
    path: Vec<String>,
    message: String,
}

impl FieldError {
    /// An entry whose key is none of the known ones.
    pub fn unknown(entry: &Entry, known: &[&str]) -> Self {
        let meant = offer(&entry.key, known.iter().copied());
        let listed = match meant.as_str() {
            "" if known.len() <= LISTED_MAX => format!(" (known: {})", known.join(", ")),
            _ => meant,
        };
        Self {
            line: Some(entry.line),
            path: vec![entry.key.escape_debug().to_string()],
            message: format!("unknown field{listed}"),
        }
    }

    /// An error about this value.
    pub fn of(value: &Node, message: impl Into<String>) -> Self {
        Self::new(message.into()).at(value)
    }

    fn new(message: String) -> Self {
        Self {
            line: None,
            path: Vec::new(),
            message,
        }
    }

    fn at(mut self, value: &Node) -> Self {
        self.line.get_or_insert(value.line);
        self
    }

    /// The same error, seen from the value that has this field: `spec`, or `[0]`.
    #[must_use]
    pub fn within(mut self, field: String) -> Self {
        self.path.push(field);
        self
    }
}

impl fmt::Display for FieldError {
    /// `spec.ports[0].port: invalid type: string "http", expected a whole number`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, field) in self.path.iter().rev().enumerate() {
            let is_apart = position > 0 && !field.starts_with('[');
            write!(f, "{}{field}", if is_apart { "." } else { "" })?;
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
///
/// # Errors
/// The first part that does not fit, with its line and its path.
pub fn read<'a, T: Deserialize<'a>>(value: &'a Node) -> Result<T, FieldError> {
    T::deserialize(Reader(value))
}

struct Reader<'de>(&'de Node);

/// The fields of a struct, or the variants of an enum.
type Names = &'static [&'static str];

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = FieldError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        let read = match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => visitor.visit_u64(value),
                (None, Some(value)) => visitor.visit_i64(value),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::Text(value) => visitor.visit_borrowed_str(value),
            Value::List(list) => {
                let mut elements = Elements(list.iter().enumerate());
                let read = visitor.visit_seq(&mut elements);
                read.and_then(|read| match elements.0.next() {
                    None => Ok(read),
                    Some((index, _)) => {
                        let expected = format!("{index} elements");
                        Err(de::Error::invalid_length(list.len(), &expected.as_str()))
                    }
                })
            }
            Value::Map(map) => visitor.visit_map(Entries::of(map)),
        };
        read.map_err(|error| error.at(self.0))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, FieldError> {
        let value = self.0;
        visitor.visit_newtype_struct(self).map_err(|error| error.at(value))
    }

    /// An unknown field is an error: the types of Kubernetes would ignore it.
    fn deserialize_struct<V: Visitor<'de>>(self, _: &str, fields: Names, visitor: V) -> Result<V::Value, FieldError> {
        let mut entries = self.0.entries().iter();
        match entries.find(|entry| !fields.contains(&entry.key.as_str())) {
            Some(entry) => Err(FieldError::unknown(entry, fields)),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _: &str, _: Names, visitor: V) -> Result<V::Value, FieldError> {
        let read = match &self.0.value {
            Value::Text(name) => visitor.visit_enum(StrDeserializer::new(name)),
            Value::Map(map) if map.len() == 1 => visitor.visit_enum(MapAccessDeserializer::new(Entries::of(map))),
            _ => Err(FieldError::new("must be a name, or an object with one key".to_owned())),
        };
        read.map_err(|error| error.at(self.0))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Elements<'de>(Enumerate<slice::Iter<'de, Node>>);

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = FieldError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, FieldError> {
        let read = self.0.next().map(|(index, element)| {
            let read = seed.deserialize(Reader(element));
            read.map_err(|error| error.at(element).within(format!("[{index}]")))
        });
        read.transpose()
    }
}

struct Entries<'de> {
    rest: slice::Iter<'de, Entry>,
    value: Option<&'de Entry>,
}

impl<'de> Entries<'de> {
    fn of(map: &'de [Entry]) -> Self {
        let rest = map.iter();
        Self { rest, value: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = FieldError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, FieldError> {
        self.value = self.rest.next();
        let key = self.value.map(|entry| StrDeserializer::new(&entry.key));
        key.map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, FieldError> {
        let too_early = || de::Error::custom("a value was asked before its key");
        let Entry { key, value, .. } = self.value.take().ok_or_else(too_early)?;
        let read = seed.deserialize(Reader(value));
        read.map_err(|error| error.at(value).within(key.clone()))
    }
}
