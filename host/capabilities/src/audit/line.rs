//! One line of an audit log, and the hash that chains it to the previous line; and the errors of a log.
//!
//! ```text
//! {"n":7,"at_ms":...,...,"outcome":"...","prev":"<hash of line 6>","hash":"<hash of this line>"}
//! \________________ SHA-256 of these bytes is `hash` ___________/
//! ```
//!
//! The hash covers the line's bytes up to the comma before `"hash"`, so anyone can reproduce it:
//! `sed -n 8p 0.jsonl | sed 's/,"hash":"[0-9a-f]*"}$//' | tr -d '\n' | sha256sum`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trueup_base::component::Digest;

use crate::identity::Identity;

/// `prev` of the very first line, which has no predecessor.
pub(super) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const BEFORE_HASH: &str = r#","hash":""#;
const AFTER_HASH: &str = r#""}"#;

/// Longer texts are cut: identifiers come from guests and may be as long as an answer.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// The subject of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The host refused a request of a guest.
    Refused,
    /// An operator, or the host by an operator's rule, acted on a guest.
    Managed,
    /// The host found the log damaged when it opened it, and began a new file.
    Broken,
    /// The host removed the oldest lines because the log exceeded its limits.
    Dropped,
}

/// One line. Fields that do not apply are empty and not written; for example, a management action has no decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The line's number. Counts up from 0 across all files.
    pub n: u64,
    /// The time in milliseconds since the Unix epoch, by the host's clock.
    pub at_ms: u64,
    /// Its subject.
    pub kind: Kind,
    /// The guest's own name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub guest: String,
    /// The guest's name in the configuration, if that is another one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Version of the guest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// `sha256:` and the digest of the guest's component.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The key of the instance, such as `default/web`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// `guest/instance#n`: the call in which the host refused the request; `n` is its entry in the journal. `#n` is
    /// missing if the call has no entry, because it was not made or is not recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub decision: String,
    /// The request, such as `api.create`, or the action, such as `swap`.
    pub call: String,
    /// The target of the request, such as a load balancer or a quota's key, or the subject of a management action.
    pub scope: String,
    /// The outcome, on one line.
    pub outcome: String,
    /// The hash of the previous line. For [`Kind::Broken`]: the SHA-256 of the whole previous file, as the host found
    /// it.
    pub prev: String,
    /// The hash of this line. The hash does not cover this field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

impl Line {
    /// Fills in the hash and returns the bytes of the line, including the newline.
    ///
    /// # Errors
    /// Never in practice: the line holds only text and numbers.
    pub(super) fn seal(&mut self) -> Result<Vec<u8>, serde_json::Error> {
        self.hash.clear();
        let mut bytes = serde_json::to_vec(self)?;
        bytes.pop();
        self.hash = sha256(&bytes);
        for part in [BEFORE_HASH, &self.hash, AFTER_HASH, "\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        Ok(bytes)
    }

    /// Reads a line without its newline. The error says what is wrong with it.
    pub(super) fn open(bytes: &[u8]) -> Result<Self, String> {
        let not_sealed = || "does not end in `,\"hash\":\"` and 64 hexadecimal digits".to_owned();
        let body = bytes.strip_suffix(AFTER_HASH.as_bytes()).ok_or_else(not_sealed)?;
        let at = body.len().checked_sub(NO_HASH.len()).ok_or_else(not_sealed)?;
        let (body, hash) = body.split_at_checked(at).ok_or_else(not_sealed)?;
        let body = body.strip_suffix(BEFORE_HASH.as_bytes()).ok_or_else(not_sealed)?;
        if hash != sha256(body).as_bytes() {
            return Err("was edited: its hash is not that of its text".to_owned());
        }
        serde_json::from_slice(bytes).map_err(|error| format!("is no line of an audit log: {error}"))
    }
}

/// SHA-256 in 64 lower-case hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Digest::of(bytes).hex()
}

/// The text of a line's field.
pub(super) fn cut(text: &str) -> String {
    const MORE: &str = "...";
    let mut text = text.to_owned();
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX - MORE.len()));
        text.push_str(MORE);
    }
    text
}

/// An action's line before it has its place in the chain.
pub(super) fn line_of(kind: Kind, at_ms: u64, about: &Identity, call: &str, scope: &str, outcome: &str) -> Line {
    Line {
        n: 0,
        at_ms,
        kind,
        guest: cut(&about.guest),
        name: cut(if about.name == about.guest { "" } else { &about.name }),
        version: cut(&about.version),
        digest: cut(&about.digest),
        instance: cut(&about.instance),
        decision: String::new(),
        call: cut(call),
        scope: cut(scope),
        outcome: cut(outcome),
        prev: String::new(),
        hash: String::new(),
    }
}

/// Why an audit log can't be opened, read or written. One line.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    /// There is no log.
    #[error("no audit log in `{}`; a host keeps it under `audit` in its state folder", .0.display())]
    None(PathBuf),
    /// The operating system returned an error.
    #[error("can't {tried} `{}`", path.display())]
    Io {
        /// The operation that failed.
        tried: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The host could not undo a failed write.
    #[error("nothing more is written to the audit log until the host is started again: a write failed in part")]
    Stopped,
}

pub(super) fn failed(tried: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AuditError {
    move |source| AuditError::Io {
        tried,
        path: path.to_owned(),
        source: Arc::new(source),
    }
}

/// The removal that a line reports: the number of the first line that remained, and the hash of the last removed one.
pub(super) fn dropped(line: &Line) -> Option<(u64, &str)> {
    let last: u64 = line.scope.rsplit_once(" to ")?.1.parse().ok()?;
    let hash = line.outcome.rsplit_once(": ")?.1;
    (line.kind == Kind::Dropped).then_some((last.checked_add(1)?, hash))
}
