//! The numbered versions of a guest that were active, and which one is now. Kept over restarts.
//!
//! Does not know how a version becomes active. The registry's store has the bytes of each, by digest.
//!
//! ```text
//! state_dir/guests/NAME.json     replaced whole: what is on disk is the old list or the new one
//! state_dir/guests/NAME.anchor   the newest of them, written after the list: without it the list was never there
//! ```

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_engine::Guest as GuestFile;
use trueup_registry::Verify;

use crate::files;

/// The maximum number of revisions remembered: a file of some tens of KiB, and months of a guest that is swapped each
/// day.
pub const REVISIONS_MAX: usize = 200;

/// The layout of the file.
const FORMAT: u32 = 1;

/// A version that is or was active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revision {
    /// Its number, from 1. The newest is the active one.
    pub revision: u64,
    /// Its reference: `builtin:lbaas@1`, a file, an image.
    #[serde(rename = "use")]
    pub reference: String,
    /// The name in its metadata.
    pub name: String,
    /// The version in its metadata.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    /// When it became active, in milliseconds since 1970.
    pub at_ms: u64,
    /// Why it became active.
    pub by: By,
    /// What vouched for its bytes: `host` for one that shipped, else the file of the signing key. Absent if no
    /// signature was required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched: Option<String>,
    /// A note, in one line. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether it began without the state of the version before. Absent if it took that state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub afresh: bool,
}

/// Why a version became active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum By {
    /// The configuration names it.
    Configuration,
    /// `trueup guest swap`.
    Swap,
    /// `trueup guest rollback`.
    Rollback,
    /// `trueup guest shadow promote`.
    Promote,
    /// The failure policy: the version before failed.
    FallBack,
}

impl Revision {
    /// A version that becomes active now, without a number.
    pub(super) fn new(guest: &GuestFile, reference: String, by: By) -> Self {
        Self {
            revision: 0,
            reference,
            name: guest.name.clone(),
            version: guest.version.clone(),
            digest: guest.digest.to_string(),
            at_ms: SystemClock.now_ms(),
            by,
            vouched: None,
            note: None,
            afresh: false,
        }
    }

    /// Whether it may be active if these keys are required.
    pub fn is_vouched_for(&self, verify: &Verify) -> bool {
        let Some(vouched) = &self.vouched else {
            return verify.keys.is_empty();
        };
        let mut keys = verify.keys.iter().map(|key| key.display().to_string());
        verify.keys.is_empty() || vouched == HOST || keys.any(|key| key == *vouched)
    }
}

/// Vouches for shipped guests.
pub(super) const HOST: &str = "host";

/// What the configuration named when it was last read. An edit requests another version; a restart does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configured {
    /// The text of `use`.
    #[serde(rename = "use")]
    pub reference: String,
    /// The digest of the guest that it named.
    pub digest: String,
    /// Its settings. Absent in a file of an older host: they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
    /// It was refused, and then a command made another version active.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_refused: bool,
}

impl Configured {
    /// Whether `now` requests another version than this did: another guest, or other settings for one that was refused.
    pub(super) fn is_edited(&self, now: &Self) -> bool {
        let is_same_guest = (&self.reference, &self.digest) == (&now.reference, &now.digest);
        !is_same_guest || self.was_refused && self.settings != now.settings
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u32,
    configured: Option<Configured>,
    /// What the configuration names and was refused. Tried again at each start until another version is made active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<Configured>,
    /// The settings with which the active version last ran. Absent in a file of an older host: they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settings: Option<Value>,
    /// The revisions, ascending.
    revisions: Vec<Revision>,
}

/// A lower bound of the list: a list that is missing, or shorter, was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Anchor {
    revision: u64,
    /// `NAME@VERSION` of that revision.
    guest: String,
    digest: String,
}

/// What to do if a file can't be read. A file that only another user may read is not damaged.
fn next<'a>(error: &io::Error, to_begin_anew: &'a str) -> &'a str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "read it as the user that the host runs as, or as root",
        _ => to_begin_anew,
    }
}

/// The revisions of one guest.
#[derive(Debug, Default)]
pub struct Revisions {
    file: PathBuf,
    document: Document,
    anchor: Option<Anchor>,
}

impl Revisions {
    /// The file of the revisions of the guest `name`.
    pub fn place(state_dir: &Path, name: &str) -> PathBuf {
        state_dir.join("guests").join(format!("{name}.json"))
    }

    /// Reads them. If there is neither a list nor its anchor, the guest was never active.
    ///
    /// # Errors
    /// If a file can't be read, or the list was lost: one line with its name, and after the last `; ` what to do.
    pub fn load(state_dir: &Path, name: &str) -> Result<Self, String> {
        let file = Self::place(state_dir, name);
        let anchor_file = file.with_extension("anchor");
        let shown = file.display();
        let anchor_shown = anchor_file.display();
        let to_begin_anew = format!("move it and {anchor_shown} away to begin with what the configuration names");
        let unread = |reason: &dyn Display, next: &str| {
            format!("revisions of guest `{name}`: can't read {shown}: {reason}; {next}")
        };
        let damaged = |reason: &dyn Display| unread(reason, &to_begin_anew);
        let failed = |error: &io::Error, of: &str| unread(&format_args!("{of}{error}"), next(error, &to_begin_anew));
        // The anchor first: a host that writes both meanwhile writes it last, so the list is never older than it.
        let anchor = files::read_sealed::<Anchor>(&anchor_file);
        let read = files::read_sealed::<Value>(&file).map_err(|error| failed(&error, ""))?;
        let format = read.as_ref().and_then(|read| read.get("format")?.as_u64());
        if let Some(newer) = format.filter(|format| *format > FORMAT.into()) {
            let reason = format_args!("format was {newer}, must be {FORMAT}");
            return Err(unread(&reason, "start the trueup that wrote it, or a newer one"));
        }
        let document = read.map(serde_json::from_value::<Document>).transpose();
        let document = document.map_err(|error| damaged(&error))?;
        let anchor = anchor.map_err(|error| failed(&error, "its anchor: "))?;
        let newest = document.as_ref().and_then(|document| document.revisions.last());
        if let Some(anchor) = &anchor
            && newest.map_or(0, |newest| newest.revision) < anchor.revision
        {
            let lost = newest.map_or("is missing or empty", |_| "is an older one");
            let revision = anchor.revision;
            let guest = &anchor.guest;
            let digest = &anchor.digest;
            return Err(format!(
                "revisions of guest `{name}`: {shown} {lost}, though revision {revision}, `{guest}` ({digest}), was active; \
                 restore it, or {to_begin_anew}"
            ));
        }
        let document = document.unwrap_or(Document {
            format: FORMAT,
            ..Document::default()
        });
        let format = document.format;
        if format != FORMAT {
            return Err(damaged(&format_args!("format was {format}, must be {FORMAT}")));
        }
        let numbers = document.revisions.iter().map(|revision| revision.revision);
        if !numbers.is_sorted_by(|a, b| a < b) {
            return Err(damaged(&"the revisions do not ascend"));
        }
        Ok(Self { file, document, anchor })
    }

    /// The active revision. `None` if there never was one.
    pub fn active(&self) -> Option<&Revision> {
        self.document.revisions.last()
    }

    /// All remembered revisions, ascending.
    pub fn all(&self) -> &[Revision] {
        &self.document.revisions
    }

    /// What the configuration named when a run last began with it.
    pub fn configured(&self) -> Option<&Configured> {
        self.document.configured.as_ref()
    }

    /// What the configuration names and was refused at the start. `None` also after a command.
    pub fn refused(&self) -> Option<&Configured> {
        self.document.refused.as_ref()
    }

    /// The settings with which the active version last ran. `None` if that is not known.
    pub(super) fn settings(&self) -> Option<&Value> {
        self.document.settings.as_ref()
    }

    /// The revision with this number, if it is remembered.
    pub fn numbered(&self, revision: u64) -> Option<&Revision> {
        self.document.revisions.iter().find(|known| known.revision == revision)
    }

    /// The target of a rollback: the newest revision of another version, unless a rollback or a fall-back left that
    /// version last. After a rollback, only what is older than the revision that it went back to. `None` if there is
    /// none.
    pub fn previous(&self) -> Option<&Revision> {
        let active = self.active()?;
        let all = || self.document.revisions.iter().rev();
        let was_active = |of: &&Revision| active.by == By::Rollback && of.digest == active.digest;
        let back_to = all().skip(1).find(was_active).unwrap_or(active);
        let mut seen = BTreeSet::from([&active.digest]);
        let pairs = all().zip(all().skip(1));
        let mut newest = pairs.filter(|(_, of)| seen.insert(&of.digest) && of.revision < back_to.revision);
        let (_, target) = newest.find(|(next, _)| !matches!(next.by, By::Rollback | By::FallBack))?;
        Some(target)
    }

    /// The newest revision of another version than the active one.
    pub fn before(&self) -> Option<&Revision> {
        let active = self.active()?;
        let mut all = self.document.revisions.iter().rev();
        all.find(|of| of.digest != active.digest)
    }

    /// The number of the next revision.
    pub fn next_number(&self) -> u64 {
        self.active().map_or(1, |active| active.revision + 1)
    }

    /// Makes another version the active one. It is on disk before this returns. Assigns its number.
    ///
    /// # Errors
    /// If it can't be written. Then nothing changed.
    pub fn push(&mut self, mut revision: Revision) -> io::Result<u64> {
        revision.revision = self.next_number();
        let number = revision.revision;
        let mut document = self.document.clone();
        if revision.by != By::Configuration
            && let Some(mut seen) = document.refused.take()
        {
            seen.was_refused = true;
            document.configured = Some(seen);
        }
        document.revisions.push(revision);
        let surplus = document.revisions.len().saturating_sub(REVISIONS_MAX);
        document.revisions.drain(..surplus);
        self.replace(document)?;
        Ok(number)
    }

    /// Notes what the configuration names, and the settings with which the active version now runs.
    ///
    /// # Errors
    /// If it can't be written. Then nothing changed.
    pub fn configure(&mut self, configured: Configured, settings: &Value) -> io::Result<()> {
        let document = Document {
            configured: Some(configured),
            refused: None,
            settings: Some(settings.clone()),
            ..self.document.clone()
        };
        if document == self.document {
            // The list of an older host has no anchor.
            return self.drop_anchor();
        }
        self.replace(document)
    }

    /// Notes that what the configuration names was refused.
    ///
    /// # Errors
    /// If it can't be written. Then nothing changed.
    pub fn refuse(&mut self, refused: Configured) -> io::Result<()> {
        if self.document.refused.as_ref() == Some(&refused) {
            return Ok(());
        }
        let document = Document {
            refused: Some(refused),
            ..self.document.clone()
        };
        self.replace(document)
    }

    fn replace(&mut self, document: Document) -> io::Result<()> {
        files::replace_sealed(&self.file, &document)?;
        self.document = document;
        self.drop_anchor()
    }

    /// Writes the anchor of the current list.
    fn drop_anchor(&mut self) -> io::Result<()> {
        let anchor = self.active().map(|active| Anchor {
            revision: active.revision,
            guest: format!("{}@{}", active.name, active.version),
            digest: active.digest.clone(),
        });
        if let Some(anchor) = anchor.filter(|anchor| self.anchor.as_ref() != Some(anchor)) {
            files::replace_sealed(&self.file.with_extension("anchor"), &anchor)?;
            self.anchor = Some(anchor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
