//! Reads typed parts of a [`Node`]. Errors name the place, the value and the valid values.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trueup_sources::yaml::{self, Entry, Node};

use crate::document::{ParseError, what};

/// Quotes a place for a message; the document itself has no name.
fn at(place: &str) -> String {
    if place.is_empty() {
        String::new()
    } else {
        format!("`{place}`: ")
    }
}

/// `place.key`, or `key` without a place.
pub(crate) fn join(place: &str, key: &str) -> String {
    if place.is_empty() {
        key.to_owned()
    } else {
        format!("{place}.{key}")
    }
}

/// An error on the line of `node`.
pub(crate) fn error(node: &Node, place: &str, message: impl std::fmt::Display) -> ParseError {
    ParseError::at(node.line, format!("{}{message}", at(place)))
}

pub(crate) fn was(node: &Node, place: &str, wanted: &str) -> ParseError {
    error(node, place, format!("was {}, must be {wanted}", what(&node.value)))
}

fn unknown_key<'a>(
    Entry { key, line, .. }: &Entry,
    place: &str,
    nearest: &str,
    known: impl Iterator<Item = &'a str>,
) -> ParseError {
    let known: Vec<String> = known.map(|key| format!("`{key}`")).collect();
    let (at, known) = (at(place), known.join(", "));
    ParseError::at(*line, format!("{at}unknown key `{key}`{nearest}; there may be {known}"))
}

/// An object whose keys are all valid.
pub(crate) struct Fields<'a> {
    node: &'a Node,
    entries: &'a [Entry],
    place: String,
}

impl<'a> Fields<'a> {
    /// The object at `place`, with the `allowed` keys only.
    pub(crate) fn of(node: &'a Node, place: &str, allowed: &[&str]) -> Result<Self, ParseError> {
        let entries = entries(node, place)?;
        if let Some(entry) = entries.iter().find(|entry| !allowed.contains(&entry.key.as_str())) {
            let nearest = allowed
                .iter()
                .map(|key| (strsim::damerau_levenshtein(key, &entry.key), key))
                // Up to two typing errors; beyond that it is another word.
                .filter(|(distance, _)| *distance <= 2)
                .min()
                .map(|(_, key)| format!(" (did you mean `{key}`?)"))
                .unwrap_or_default();
            return Err(unknown_key(entry, place, &nearest, allowed.iter().copied()));
        }
        Ok(Self {
            node,
            entries,
            place: place.to_owned(),
        })
    }

    /// The place of a key in this object.
    pub(crate) fn place(&self, key: &str) -> String {
        join(&self.place, key)
    }

    /// The value of a key, if present.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Node> {
        self.entries
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    /// The value of a required key.
    pub(crate) fn required(&self, key: &str) -> Result<&'a Node, ParseError> {
        self.get(key)
            .ok_or_else(|| error(self.node, &self.place, format!("`{key}` is missing")))
    }

    /// The raw value of a key, if present.
    pub(crate) fn value(&self, key: &str) -> Option<Value> {
        self.get(key).map(Node::to_json)
    }

    /// Reads a key with `read`, if present.
    pub(crate) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node, &str) -> Result<T, ParseError>,
    ) -> Result<Option<T>, ParseError> {
        self.get(key).map(|node| read(node, &self.place(key))).transpose()
    }
}

/// The entries of an object with any keys.
pub(crate) fn entries<'a>(node: &'a Node, place: &str) -> Result<&'a [Entry], ParseError> {
    match &node.value {
        yaml::Value::Map(entries) => Ok(entries),
        _ => Err(was(node, place, "an object")),
    }
}

/// The items of a list, each with its place.
pub(crate) fn items<'a>(node: &'a Node, place: &str) -> Result<Vec<(String, &'a Node)>, ParseError> {
    match &node.value {
        yaml::Value::List(items) => Ok(items
            .iter()
            .enumerate()
            .map(|(index, item)| (format!("{place}[{index}]"), item))
            .collect()),
        _ => Err(was(node, place, "a list")),
    }
}

/// The items of a list, each read with `read`.
pub(crate) fn list<'a, T>(
    node: &'a Node,
    place: &str,
    read: impl Fn(&'a Node, &str) -> Result<T, ParseError>,
) -> Result<Vec<T>, ParseError> {
    items(node, place)?
        .into_iter()
        .map(|(place, item)| read(item, &place))
        .collect()
}

/// A list of records whose fields are all texts.
pub(crate) fn records(node: &Node, place: &str, keys: &[&str]) -> Result<Value, ParseError> {
    list(node, place, |node, place| {
        let fields = Fields::of(node, place, keys)?;
        keys.iter()
            .try_for_each(|key| text(fields.required(key)?, &fields.place(key)).map(|_| ()))
    })?;
    Ok(node.to_json())
}

/// An object of texts.
pub(crate) fn texts(node: &Node, place: &str) -> Result<Value, ParseError> {
    for entry in entries(node, place)? {
        text(&entry.value, &join(place, &entry.key))?;
    }
    Ok(node.to_json())
}

/// Text.
pub(crate) fn text(node: &Node, place: &str) -> Result<String, ParseError> {
    match &node.value {
        yaml::Value::Text(text) => Ok(text.clone()),
        _ => Err(was(node, place, "text")),
    }
}

/// Text that is not empty.
pub(crate) fn name(node: &Node, place: &str) -> Result<String, ParseError> {
    let text = text(node, place)?;
    if text.is_empty() {
        Err(error(node, place, "was \"\", must not be empty"))
    } else {
        Ok(text)
    }
}

/// A whole number, at least 0.
pub(crate) fn count(node: &Node, place: &str) -> Result<u64, ParseError> {
    match &node.value {
        yaml::Value::Number(number) => number
            .as_u64()
            .ok_or_else(|| error(node, place, format!("was {number}, must be a whole number from 0"))),
        _ => Err(was(node, place, "a whole number from 0")),
    }
}

/// A number.
pub(crate) fn number(node: &Node, place: &str) -> Result<f64, ParseError> {
    match &node.value {
        yaml::Value::Number(number) => Ok(number.as_f64().unwrap_or(f64::NAN)),
        _ => Err(was(node, place, "a number")),
    }
}

/// A boolean.
pub(crate) fn truth(node: &Node, place: &str) -> Result<bool, ParseError> {
    match &node.value {
        yaml::Value::Bool(truth) => Ok(*truth),
        _ => Err(was(node, place, "`true` or `false`")),
    }
}

/// An object with any keys, unchanged.
pub(crate) fn object(node: &Node, place: &str) -> Result<Value, ParseError> {
    entries(node, place).map(|_| node.to_json())
}

/// A value of the contract's types, without unknown keys.
///
/// The generated types ignore unknown keys, so a comparison with the serialized value finds them.
pub(crate) fn typed<T: Serialize + DeserializeOwned>(node: &Node, place: &str) -> Result<T, ParseError> {
    let given = node.to_json();
    let not_typed = |cause: serde_json::Error| error(node, place, format!("{given} does not fit: {cause}"));
    let value: T = serde_json::from_value(given.clone()).map_err(not_typed)?;
    let known = serde_json::to_value(&value).map_err(not_typed)?;
    all_known(node, &known, place)?;
    Ok(value)
}

fn all_known(node: &Node, known: &Value, place: &str) -> Result<(), ParseError> {
    match (&node.value, known) {
        (yaml::Value::Map(entries), Value::Object(known)) => entries.iter().try_for_each(|entry| {
            let Some(value) = known.get(&entry.key) else {
                return Err(unknown_key(entry, place, "", known.keys().map(String::as_str)));
            };
            all_known(&entry.value, value, &join(place, &entry.key))
        }),
        (yaml::Value::List(items), Value::Array(known)) => items
            .iter()
            .zip(known)
            .enumerate()
            .try_for_each(|(index, (item, known))| all_known(item, known, &format!("{place}[{index}]"))),
        _ => Ok(()),
    }
}
