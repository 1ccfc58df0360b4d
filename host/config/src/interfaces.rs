//! The names of pods' interfaces by a pattern, and what a name may be.
//!
//! A name is used in full or not at all: a truncated name is no interface, or that of another pod.

use std::fmt;

/// The maximum length of an interface's name, in bytes: the limit of the VPP agent. The limit of Linux is 15, but only
/// the agent's renderers use interfaces.
const INTERFACE_BYTES_MAX: usize = 63;

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

    /// The name for a pod, which may be an invalid one ([`mistake`]). `None` if it takes the pod's uid, which is empty.
    pub fn filled(&self, namespace: &str, name: &str, uid: &str) -> Option<String> {
        if uid.is_empty() && self.pieces.contains(&Piece::Uid) {
            return None;
        }
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Namespace => namespace.to_owned(),
            Piece::Name => name.to_owned(),
            Piece::Uid => uid.to_owned(),
        };
        Some(self.pieces.iter().map(piece).collect())
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

/// Why a text is no interface name. `None` if it is one.
pub fn mistake(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("is empty".to_owned());
    }
    if matches!(name, "." | "..") || name.contains(is_foreign) {
        return Some("is no name of an interface".to_owned());
    }
    (name.len() > INTERFACE_BYTES_MAX).then(|| format!("has {} bytes, and may have {INTERFACE_BYTES_MAX}", name.len()))
}
