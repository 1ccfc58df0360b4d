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
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::grants::NFTABLES_FAMILIES;

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

/// A table of the packet filter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table {
    /// One of [`NFTABLES_FAMILIES`].
    pub family: &'static str,
    /// Its name, never empty.
    pub name: String,
}

impl Table {
    /// The scope that grants it: `FAMILY NAME`.
    pub fn scope(&self) -> String {
        format!("{} {}", self.family, self.name)
    }
}

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

/// The tables that a transaction touches.
///
/// # Errors
/// If any part of it is unclear.
pub fn tables(transaction: &str) -> Result<BTreeSet<Table>, Unclear> {
    let mut found = Found::default();
    let mut reader = serde_json::Deserializer::from_str(transaction);
    let read = Transaction(&mut found)
        .deserialize(&mut reader)
        .and_then(|()| reader.end());
    match (read, found.unclear) {
        (Ok(()), _) => {
            let of_family =
                |(family, names): (_, BTreeSet<String>)| names.into_iter().map(move |name| Table { family, name });
            Ok(found.tables.into_iter().flat_map(of_family).collect())
        }
        (Err(_), Some(why)) => Err(Unclear::NoTable(why)),
        (Err(error), None) => Err(Unclear::NotJson(shown(&error.to_string(), ERROR_CHARS_MAX))),
    }
}

#[derive(Default)]
struct Found {
    /// Names by family.
    tables: BTreeMap<&'static str, BTreeSet<String>>,
    /// The index of the current command, from 0.
    index: usize,
    /// Why reading ended, if not because of the JSON.
    unclear: Option<String>,
}

impl Found {
    /// Ends reading because the command of this name is unclear.
    fn unclear<E: serde::de::Error>(&mut self, command: &str, why: &str) -> E {
        let command = match command {
            "" => String::new(),
            name => format!(", `{}`", shown(name, SHOWN_CHARS_MAX)),
        };
        self.unclear = Some(format!("command {}{command}{why}", self.index));
        E::custom("unclear")
    }

    fn touches(&mut self, family: &'static str, name: &str) {
        let names = self.tables.entry(family).or_default();
        // Transactions have hundreds of thousands of commands, and few tables.
        if !names.contains(name) {
            names.insert(name.to_owned());
        }
    }
}

fn one_line(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

/// The beginning of a guest's text, on one line.
fn shown(text: &str, chars_max: usize) -> String {
    let mut shown: String = text.chars().take(chars_max).map(one_line).collect();
    if text.chars().nth(chars_max).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Seeds that read themselves.
macro_rules! seeds {
    ($($seed:ty: $read:ident),+) => { $(impl<'de> DeserializeSeed<'de> for $seed {
        type Value = <Self as Visitor<'de>>::Value;

        fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
            from.$read(self)
        }
    })+ };
}
seeds!(
    Transaction<'_>: deserialize_map,
    Commands<'_>: deserialize_seq,
    Command<'_>: deserialize_map,
    Object<'_>: deserialize_map,
    About: deserialize_any,
    Any: deserialize_any
);

/// `{"nftables":[...]}`
struct Transaction<'f>(&'f mut Found);

impl<'de> Visitor<'de> for Transaction<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the member `nftables` alone")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        match members.next_key_seed(Any)? {
            Some(Some(key)) if key == "nftables" => members.next_value_seed(Commands(self.0))?,
            _ => return Err(A::Error::custom("the member `nftables` is missing")),
        }
        match members.next_key::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(A::Error::custom("a member after `nftables`")),
        }
    }
}

/// The list of commands.
struct Commands<'f>(&'f mut Found);

impl<'de> Visitor<'de> for Commands<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of commands")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut commands: A) -> Result<(), A::Error> {
        while commands.next_element_seed(Command(self.0))?.is_some() {
            self.0.index += 1;
        }
        Ok(())
    }
}

/// `{VERB: ...}`
struct Command<'f>(&'f mut Found);

impl<'de> Visitor<'de> for Command<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a command")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let found = self.0;
        let verb = members.next_key_seed(Any)?.flatten().unwrap_or_default();
        match VERBS.iter().find(|known| **known == verb) {
            Some(verb) => members.next_value_seed(Object { found, verb })?,
            // Names the format of the text.
            None if verb == "metainfo" => members.next_value_seed(Any).map(drop)?,
            None => return Err(found.unclear(&verb, "")),
        }
        match members.next_key_seed(Any)? {
            None => Ok(()),
            Some(_) => Err(found.unclear(&verb, " and more in one object")),
        }
    }
}

/// `{KIND: ...}`, after its verb.
struct Object<'f> {
    found: &'f mut Found,
    verb: &'static str,
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what to {}", self.verb)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { found, verb } = self;
        let kind = members.next_key_seed(Any)?.flatten().unwrap_or_default();
        let command = format_args!("{verb} {kind}");
        if !KINDS.contains(&&*kind) {
            return Err(found.unclear(&command.to_string(), ""));
        }
        let about = members.next_value_seed(About {
            is_table: kind == TABLE,
        })?;
        if members.next_key_seed(Any)?.is_some() {
            return Err(found.unclear(&command.to_string(), " and more in one object"));
        }
        match about.table() {
            Ok((family, name)) => {
                found.touches(family, name);
                Ok(())
            }
            Err(why) => Err(found.unclear(&command.to_string(), &why)),
        }
    }
}

/// Reads `{"family":F, "table":T, ...}`, or of a table `{"family":F, "name":T, ...}`.
struct About {
    is_table: bool,
}

/// The members of an object that name its table.
#[derive(Default)]
struct Said<'de> {
    family: Once<'de>,
    table: Once<'de>,
    /// The key that holds the table's name.
    key: &'static str,
    /// The kernel prefers a table's handle over its name.
    has_handle: bool,
}

/// A text member that occurs at most once.
#[derive(Default)]
enum Once<'de> {
    #[default]
    Missing,
    Text(Cow<'de, str>),
    NoText,
    Twice,
}

impl<'de> Once<'de> {
    fn given(&mut self, value: Option<Cow<'de, str>>) {
        *self = match (&self, value) {
            (Self::Missing, Some(text)) => Self::Text(text),
            (Self::Missing, None) => Self::NoText,
            _ => Self::Twice,
        };
    }

    fn text(&self, key: &str) -> Result<&str, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Missing => Err(format!(" without `{key}`")),
            Self::NoText => Err(format!(" with a `{key}` that is no text")),
            Self::Twice => Err(format!(" with `{key}` twice")),
        }
    }
}

impl Said<'_> {
    /// Family and name of the table. The error completes a sentence that begins with the command.
    fn table(&self) -> Result<(&'static str, &str), String> {
        if self.has_handle {
            return Err(" by its handle".to_owned());
        }
        let (family, name) = (self.family.text("family")?, self.table.text(self.key)?);
        let Some(family) = NFTABLES_FAMILIES.into_iter().find(|known| *known == family) else {
            return Err(format!(" of the unknown family `{}`", shown(family, SHOWN_CHARS_MAX)));
        };
        match name.len() {
            0 => Err(format!(" with an empty `{}`", self.key)),
            1..=TABLE_NAME_BYTES_MAX => Ok((family, name)),
            length => Err(format!(
                " with a `{}` of {length} bytes, above the kernel's {TABLE_NAME_BYTES_MAX}",
                self.key
            )),
        }
    }
}

impl<'de> Visitor<'de> for About {
    type Value = Said<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with its family and table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Said<'de>, A::Error> {
        let mut said = Said {
            key: if self.is_table { "name" } else { TABLE },
            ..Said::default()
        };
        while let Some(key) = members.next_key_seed(Any)?.map(Option::unwrap_or_default) {
            if key == "family" {
                said.family.given(members.next_value_seed(Any)?);
            } else if key == said.key {
                said.table.given(members.next_value_seed(Any)?);
            } else {
                said.has_handle |= self.is_table && key == "handle";
                members.next_value_seed(Any)?;
            }
        }
        Ok(said)
    }
}

/// Any value that nft's own reader accepts: its text, or `None` if it is not text. Stores nothing else.
struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that nft takes")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        match text.contains('\0') {
            true => Err(E::custom("a text with a NUL in it")),
            false => Ok(Some(Cow::Borrowed(text))),
        }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text.contains('\0') {
            true => Err(E::custom("a text with a NUL in it")),
            false => Ok(Some(Cow::Owned(text.to_owned()))),
        }
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        match i64::try_from(number) {
            Ok(_) => Ok(None),
            Err(_) => Err(E::custom("an integer above 64 bits with a sign")),
        }
    }

    /// Integers above 64 bits arrive here, too.
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Err(E::custom("a number that is no integer of 64 bits"))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element_seed(Any)?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_key_seed(Any)?.is_some() {
            members.next_value_seed(Any)?;
        }
        Ok(None)
    }
}

#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
