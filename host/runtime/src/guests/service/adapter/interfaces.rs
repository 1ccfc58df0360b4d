//! The names of the pods' interfaces: a pattern, or a file that lists each.
//!
//! A name is used in full or not at all: a truncated name is no interface, or that of another pod.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_saphyr::{DefaultMessageFormatter, MessageFormatter, Spanned};
use trueup_base::text;

use super::Id;
use super::pod::Pod;

/// The maximum length of an interface's name, in bytes: the limit of the VPP agent. The limit of Linux is 15, but only
/// the agent's renderers use interfaces.
pub const INTERFACE_BYTES_MAX: usize = 63;

/// The names of the interfaces of this node's pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Interfaces {
    /// The interfaces are unknown.
    #[default]
    None,
    /// One pattern for all.
    Pattern(Pattern),
    /// The listed names. A pod that is not listed has no known interface.
    File(BTreeMap<Id, String>),
}

/// A name with placeholders: `tap-{namespace}-{name}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Namespace,
    Name,
    Uid,
}

impl Interfaces {
    /// The interface of a pod. `None` if it has none of its own, or it is unknown.
    ///
    /// # Errors
    /// One line: why the pattern yields no valid name.
    pub(super) fn of(&self, id: &Id, pod: &Pod) -> Result<Option<String>, String> {
        if pod.is_on_host_network {
            return Ok(None);
        }
        match self {
            Self::None => Ok(None),
            Self::Pattern(pattern) => pattern.filled(id, &pod.uid).map(Some),
            Self::File(names) => Ok(names.get(id).cloned()),
        }
    }
}

impl Pattern {
    /// Reads a pattern. Without a placeholder, all pods have the same interface.
    ///
    /// # Errors
    /// What it may be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = |cause: &str| Err(format!("was `{}`, {cause}", text.escape_debug()));
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((place, after)) = after.split_once('}') else {
                return refused("must have a `}` for each `{`");
            };
            pieces.extend(Piece::text(before));
            pieces.push(match place {
                "namespace" => Piece::Namespace,
                "name" => Piece::Name,
                "uid" => Piece::Uid,
                _ => return refused("may have `{namespace}`, `{name}` and `{uid}` in it, and nothing else in braces"),
            });
            rest = after;
        }
        pieces.extend(Piece::text(rest));
        let texts = || {
            pieces.iter().filter_map(|piece| match piece {
                Piece::Text(text) => Some(text.as_str()),
                _ => None,
            })
        };
        let bytes: usize = texts().map(str::len).sum();
        if text.is_empty() {
            return refused("must be a name of interfaces, such as `tap-{namespace}-{name}`");
        }
        if texts().any(|text| text.contains('}')) {
            return refused("must have a `{` for each `}`");
        }
        if texts().any(|text| text.contains(is_foreign)) {
            return refused("must have no `/`, space or control character in it");
        }
        if bytes > INTERFACE_BYTES_MAX {
            return refused(&format!("must leave names of at most {INTERFACE_BYTES_MAX} bytes"));
        }
        Ok(Self {
            text: text.to_owned(),
            pieces,
        })
    }

    fn filled(&self, id: &Id, uid: &str) -> Result<String, String> {
        let refused = |cause: &str| Err(format!("pod `{id}`: no interface is known: by `{self}` {cause}"));
        if uid.is_empty() && self.pieces.contains(&Piece::Uid) {
            return refused("it takes its uid, and it has none");
        }
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Namespace => id.namespace.clone(),
            Piece::Name => id.name.clone(),
            Piece::Uid => uid.to_owned(),
        };
        let name: String = self.pieces.iter().map(piece).collect();
        match broken(&name) {
            None => Ok(name),
            Some(cause) => refused(&format!("it would be `{}`, which {cause}", name.escape_debug())),
        }
    }
}

impl fmt::Display for Pattern {
    /// The original text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Piece {
    fn text(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self::Text(text.to_owned()))
    }
}

/// Linux permits these in no interface name, and they would hide where a name ends.
fn is_foreign(character: char) -> bool {
    character == '/' || character.is_whitespace() || character.is_control()
}

/// Why a text is no interface name.
fn broken(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("is empty".to_owned());
    }
    if matches!(name, "." | "..") || name.contains(is_foreign) {
        return Some("is no name of an interface".to_owned());
    }
    (name.len() > INTERFACE_BYTES_MAX).then(|| format!("has {} bytes, and may have {INTERFACE_BYTES_MAX}", name.len()))
}

/// Reads the text of an interface file: YAML, `namespace/name: interface` for each pod. An empty file lists none.
///
/// # Errors
/// `FILE:LINE: reason`, for the first invalid line.
pub fn read_interfaces(text: &str, file: &Path) -> Result<BTreeMap<Id, String>, String> {
    let refused = |line: u64, reason: &str| Err(format!("{}:{line}: {}", file.display(), text::line(reason)));
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
    };
    let entries = match serde_saphyr::from_str_with_options::<Option<Entries>>(text, options) {
        Ok(entries) => entries.unwrap_or_default(),
        Err(error) => {
            let line = error.location().map_or(1, |location| location.line().max(1));
            let message = DefaultMessageFormatter.format_message(error.without_snippet());
            return refused(line, &format!("must be lines such as `shop/web-0: tap1`: {message}"));
        }
    };
    let mut interfaces = BTreeMap::new();
    for (pod, interface) in entries.0 {
        let line = interface.referenced.line();
        let id: Id = match pod.parse() {
            Ok(id) => id,
            Err(cause) => return refused(line, &format!("the pod {cause}")),
        };
        if let Some(cause) = broken(&interface.value) {
            let name = interface.value.escape_debug();
            return refused(line, &format!("pod `{id}`: the interface `{name}` {cause}"));
        }
        interfaces.insert(id, interface.value);
    }
    Ok(interfaces)
}

/// The entries of a map, in its order.
#[derive(Default)]
struct Entries(Vec<(String, Spanned<String>)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from pods to interfaces")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Entries, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            all.push(entry);
        }
        Ok(Entries(all))
    }
}
