//! The names of pods' interfaces by a pattern, and what a name may be.
//!
//! A name is used in full or not at all: a truncated name is no interface, or that of another pod.

use std::fmt;

/// The maximum length of an interface's name, in bytes: the limit of the VPP agent. The limit of Linux is 15, but only
/// the agent's renderers use interfaces.
const INTERFACE_BYTES_MAX: usize = 63;

const UID: &str = "{uid}";

/// A name with placeholders: `tap-{namespace}-{name}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Reads a pattern. Without a placeholder, all pods have the same interface.
    ///
    /// # Errors
    /// What it may be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = |cause: &str| Err(format!("was `{}`, {cause}", text.escape_debug()));
        // A blank in place of each, so that the rest does not become one.
        let blank = |rest: String, one: &str| rest.replace(one, "\0");
        let rest = ["{namespace}", "{name}", UID].into_iter().fold(text.to_owned(), blank);
        if let Some((_, after)) = rest.split_once('{') {
            return refused(match after.contains('}') {
                true => "may have `{namespace}`, `{name}` and `{uid}` in it, and nothing else in braces",
                false => "must have a `}` for each `{`",
            });
        }
        let rest = rest.replace('\0', "");
        if text.is_empty() {
            return refused("must be a name of interfaces, such as `tap-{namespace}-{name}`");
        }
        if rest.contains('}') {
            return refused("must have a `{` for each `}`");
        }
        if text.contains(is_foreign) {
            return refused("must have no `/`, space or control character in it");
        }
        if rest.len() > INTERFACE_BYTES_MAX {
            return refused(&format!("must leave names of at most {INTERFACE_BYTES_MAX} bytes"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name for a pod, which may be an invalid one ([`mistake`]). `None` if it takes the pod's uid, which is empty.
    pub fn filled(&self, namespace: &str, name: &str, uid: &str) -> Option<String> {
        // No name or namespace has a brace in it, and the uid comes last.
        let filled = self.0.replace("{namespace}", namespace).replace("{name}", name);
        (!uid.is_empty() || !self.0.contains(UID)).then(|| filled.replace(UID, uid))
    }
}

impl fmt::Display for Pattern {
    /// The original text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
