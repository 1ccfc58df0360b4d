//! The tables that a transaction touches, for checking grants.
//!
//! Accepts only known commands, so that nothing unknown passes. The content of an object (the expressions of a rule,
//! the elements of a map) can't reach another table: targets of jumps, sets, maps and stateful objects are looked up in
//! the table of their rule. So the content is parsed but not stored.
//!
//! ```text
//! {"nftables":[ {VERB: {KIND: {"family":F, "table":T, ...}}}, ... ]} -> {F T, ...}, or what names none
//! ```
//!
//! Accepted text means the same to nft, which reads with jansson. If a member occurs twice, jansson takes the last;
//! this parser refuses it wherever it looks for a table. Jansson refuses some valid JSON (a NUL in a text, integers
//! above 64 bits). So does this parser, since nft would then read the text as its other language.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::grants::NFTABLES_FAMILIES;
use crate::reading::beginning;

/// The kernel's `NFT_TABLE_MAXNAMELEN`, 256, includes the NUL at the end.
pub const TABLE_NAME_BYTES_MAX: usize = 255;

/// The valid commands: libnftables-json(5), without those that return data (`list`, `reset`), which would be lost.
const VERBS: [&str; 8] = [
    "add", "create", "delete", "destroy", "flush", "insert", "rename", "replace",
];

/// The valid objects of a command: all that belong to one table, and tables themselves.
const KINDS: [&str; 16] = [
    TABLE,
    "chain",
    "counter",
    "ct expectation",
    "ct helper",
    "ct timeout",
    "element",
    "flowtable",
    "limit",
    "map",
    "meter",
    "quota",
    "rule",
    "secmark",
    "set",
    "synproxy",
];

const TABLE: &str = "table";

/// How much of a guest's text an error repeats: the longest known keyword has 16 characters.
const SHOWN_CHARS_MAX: usize = 60;

/// The length of an error for invalid JSON: the parser's words, and the position.
const ERROR_CHARS_MAX: usize = 200;

/// Why the tables of a transaction are unclear.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// It is not valid input for nft.
    #[error("the transaction is no JSON of nft: {0}")]
    NotJson(String),
    /// A command names no table, or possibly another one than nft sees: which command, and why.
    #[error("a command of nftables that names no table: {0}")]
    NoTable(String),
}

/// The tables that a transaction touches, as the scopes that grant them: `FAMILY NAME`.
///
/// # Errors
/// If any part of it is unclear.
pub fn tables(transaction: &str) -> Result<BTreeSet<String>, Unclear> {
    let mut reader = serde_json::Deserializer::from_str(transaction);
    let read = reader.deserialize_map(Transaction);
    let commands = read
        .and_then(|commands| reader.end().map(|()| commands))
        .map_err(|error| Unclear::NotJson(shown(&error.to_string(), ERROR_CHARS_MAX)))?;
    let mut tables = BTreeSet::new();
    for (index, Command(table)) in commands.into_iter().enumerate() {
        tables.extend(table.map_err(|why| Unclear::NoTable(format!("command {index}{why}")))?);
    }
    Ok(tables)
}

/// The beginning of a guest's text, on one line.
fn shown(text: &str, chars_max: usize) -> String {
    beginning(text, chars_max).replace(char::is_control, " ")
}

/// `{"nftables":[...]}`
struct Transaction;

impl<'de> Visitor<'de> for Transaction {
    type Value = Vec<Command>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the member `nftables` alone")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let commands = match members.next_key::<Any<'_>>()? {
            Some(Any::Text(key)) if key == "nftables" => members.next_value()?,
            _ => return Err(A::Error::custom("the member `nftables` is missing")),
        };
        match members.next_key::<IgnoredAny>()? {
            None => Ok(commands),
            Some(_) => Err(A::Error::custom("a member after `nftables`")),
        }
    }
}

/// The table of a command; `None` if it is about none. Or why it is unclear, which completes a sentence that begins
/// with the command's index.
struct Command(Result<Option<String>, String>);

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Any::deserialize(from)?.table() {
            Ok(table) => Ok(Self(Ok(table))),
            Err(Unclear::NoTable(why)) => Ok(Self(Err(why))),
            Err(Unclear::NotJson(why)) => Err(D::Error::custom(why)),
        }
    }
}

/// The command is unclear.
fn unclear(command: &str, why: &str) -> Unclear {
    Unclear::NoTable(format!(", `{}`{why}", shown(command, SHOWN_CHARS_MAX)))
}

/// Any value that nft's own reader accepts. Of what is no text and no object, nothing is stored.
enum Any<'t> {
    Text(Cow<'t, str>),
    Object(Members<'t>),
    Other,
}

/// The members of an object in their order. One may occur twice.
type Members<'t> = Vec<(Cow<'t, str>, Any<'t>)>;

impl<'t> Any<'t> {
    fn members(&self, expected: &str) -> Result<&Members<'t>, Unclear> {
        let found = match self {
            Self::Object(members) => return Ok(members),
            Self::Text(_) => "string",
            Self::Other => "value",
        };
        Err(Unclear::NotJson(format!("invalid type: {found}, expected {expected}")))
    }

    /// The table of the command `{VERB: ...}`; `None` if it is about none.
    fn table(&self) -> Result<Option<String>, Unclear> {
        let members = self.members("a command")?;
        let Some((verb, object)) = members.first() else {
            return Err(Unclear::NoTable(String::new()));
        };
        let table = match &**verb {
            "metainfo" => None,
            verb if VERBS.contains(&verb) => Some(object.table_of_object(verb)?),
            verb => return Err(unclear(verb, "")),
        };
        match members.len() {
            1 => Ok(table),
            _ => Err(unclear(verb, " and more in one object")),
        }
    }

    /// The table of `{KIND: ...}`, after its verb.
    fn table_of_object(&self, verb: &str) -> Result<String, Unclear> {
        let members = self.members(&format!("what to {verb}"))?;
        let (kind, about) = members.first().ok_or_else(|| unclear(&format!("{verb} "), ""))?;
        let command = format!("{verb} {kind}");
        if !KINDS.contains(&&**kind) {
            return Err(unclear(&command, ""));
        }
        let about = about.members("an object with its family and table")?;
        if members.len() > 1 {
            return Err(unclear(&command, " and more in one object"));
        }
        table_of_members(kind, about).map_err(|why| unclear(&command, &why))
    }
}

/// The table in `{"family":F, "table":T, ...}`, or of a table in `{"family":F, "name":T, ...}`. The error completes a
/// sentence that begins with the command.
fn table_of_members(kind: &str, members: &Members<'_>) -> Result<String, String> {
    let key = if kind == TABLE { "name" } else { TABLE };
    // The kernel prefers a table's handle over its name.
    if kind == TABLE && members.iter().any(|(member, _)| member == "handle") {
        return Err(" by its handle".to_owned());
    }
    let family = text(members, "family")?;
    let name = text(members, key)?;
    if !NFTABLES_FAMILIES.contains(&family) {
        return Err(format!(" of the unknown family `{}`", shown(family, SHOWN_CHARS_MAX)));
    }
    match name.len() {
        0 => Err(format!(" with an empty `{key}`")),
        1..=TABLE_NAME_BYTES_MAX => Ok(format!("{family} {name}")),
        length => Err(format!(
            " with a `{key}` of {length} bytes, above the kernel's {TABLE_NAME_BYTES_MAX}"
        )),
    }
}

/// The text of a member that occurs once.
fn text<'a>(members: &'a Members<'_>, key: &str) -> Result<&'a str, String> {
    let mut of_key = members.iter().filter(|(member, _)| member == key);
    match (of_key.next(), of_key.next()) {
        (None, _) => Err(format!(" without `{key}`")),
        (Some(_), Some(_)) => Err(format!(" with `{key}` twice")),
        (Some((_, Any::Text(text))), None) => Ok(text),
        (Some(_), None) => Err(format!(" with a `{key}` that is no text")),
    }
}

impl<'de> Deserialize<'de> for Any<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyVisitor)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Any<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that nft takes")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        match text.contains('\0') {
            true => Err(E::custom("a text with a NUL in it")),
            false => Ok(Any::Text(Cow::Borrowed(text))),
        }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text.contains('\0') {
            true => Err(E::custom("a text with a NUL in it")),
            false => Ok(Any::Text(Cow::Owned(text.to_owned()))),
        }
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Any::Other)
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Any::Other)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        let number = i64::try_from(number).map(|_| Any::Other);
        number.map_err(|_| E::custom("an integer above 64 bits with a sign"))
    }

    /// Integers above 64 bits arrive here, too.
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Err(E::custom("a number that is no integer of 64 bits"))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(Any::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<Any<'_>>()?.is_some() {}
        Ok(Any::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut object = Vec::new();
        while let Some((key, value)) = members.next_entry::<Any<'_>, Any<'_>>()? {
            if let Any::Text(key) = key {
                object.push((key, value));
            }
        }
        Ok(Any::Object(object))
    }
}

#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
