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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

impl Display for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
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
        let mut keys = verify.keys.iter().map(|key| key.display().to_string());
        verify.keys.is_empty()
            || self
                .vouched
                .as_ref()
                .is_some_and(|vouched| vouched == HOST || keys.any(|key| key == *vouched))
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
        let to_begin_anew = format!(
            "move it and {} away to begin with what the configuration names",
            anchor_file.display()
        );
        let unread = |reason: &dyn Display, next: &str| {
            format!(
                "revisions of guest `{name}`: can't read {}: {reason}; {next}",
                file.display()
            )
        };
        let damaged = |reason: &dyn Display| unread(reason, &to_begin_anew);
        let failed = |error: &io::Error, of: &str| unread(&format_args!("{of}{error}"), next(error, &to_begin_anew));
        let read = files::read_sealed::<Value>(&file).map_err(|error| failed(&error, ""))?;
        let format = read.as_ref().and_then(|read| read.get("format")?.as_u64());
        if let Some(newer) = format.filter(|format| *format > FORMAT.into()) {
            let reason = format_args!("format was {newer}, must be {FORMAT}");
            return Err(unread(&reason, "start the trueup that wrote it, or a newer one"));
        }
        let document: Option<Document> = read
            .map(serde_json::from_value)
            .transpose()
            .map_err(|error| damaged(&error))?;
        let anchor = files::read_sealed::<Anchor>(&anchor_file).map_err(|error| failed(&error, "its anchor: "))?;
        let newest = document.as_ref().and_then(|document| document.revisions.last());
        if let Some(anchor) = &anchor
            && newest.map_or(0, |newest| newest.revision) < anchor.revision
        {
            return Err(format!(
                "revisions of guest `{name}`: {} {}, though revision {}, `{}` ({}), was active; restore it, or {to_begin_anew}",
                file.display(),
                newest.map_or("is missing or empty", |_| "is an older one"),
                anchor.revision,
                anchor.guest,
                anchor.digest,
            ));
        }
        let document = document.unwrap_or(Document {
            format: FORMAT,
            ..Document::default()
        });
        if document.format != FORMAT {
            return Err(damaged(&format_args!(
                "format was {}, must be {FORMAT}",
                document.format
            )));
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
            && let Some(seen) = document.refused.take()
        {
            document.configured = Some(Configured {
                was_refused: true,
                ..seen
            });
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
mod tests {
    use serde_json::json;

    use super::*;

    fn revision(version: &str) -> Revision {
        Revision {
            revision: 0,
            reference: format!("builtin:lbaas@{version}"),
            name: "lbaas".to_owned(),
            version: version.to_owned(),
            digest: format!("sha256:{version}"),
            at_ms: 7,
            by: By::Swap,
            vouched: None,
            note: None,
            afresh: false,
        }
    }

    #[test]
    fn what_was_refused_is_tried_again_until_another_version_is_made_active() {
        let dir = tempfile::tempdir().unwrap();
        let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
        let configured = |version: &str| Configured {
            reference: "file:x.wasm".to_owned(),
            digest: format!("sha256:{version}"),
            settings: None,
            was_refused: false,
        };
        let settings = json!({"max_servers": 3});
        revisions.configure(configured("1"), &settings).unwrap();
        revisions.refuse(configured("2")).unwrap();
        assert_eq!(
            revisions.configured(),
            Some(&configured("1")),
            "it still counts as an edit"
        );
        revisions.push(revision("3")).unwrap();
        let again = Revisions::load(dir.path(), "lbaas").unwrap();
        let seen = again.configured().unwrap();
        assert!(!seen.is_edited(&configured("2")), "the operator has decided since");
        let other_settings = Configured {
            settings: Some(json!({"max_servers": 2})),
            ..configured("2")
        };
        assert!(seen.is_edited(&other_settings), "and decides again");
        assert!(
            !configured("2").is_edited(&other_settings),
            "those are for the active version"
        );
        assert_eq!(again.settings(), Some(&settings), "a refused version changes none");
    }

    #[test]
    fn revisions_are_numbered_and_survive() {
        let dir = tempfile::tempdir().unwrap();
        let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
        assert_eq!((revisions.active(), revisions.previous()), (None, None));
        for (number, version) in [(1, "1"), (2, "2"), (3, "2")] {
            assert_eq!(revisions.push(revision(version)).unwrap(), number);
        }
        let configured = Configured {
            reference: "builtin:lbaas@1".to_owned(),
            digest: "sha256:1".to_owned(),
            settings: None,
            was_refused: false,
        };
        revisions.configure(configured.clone(), &json!({})).unwrap();

        let again = Revisions::load(dir.path(), "lbaas").unwrap();
        assert_eq!(again.all(), revisions.all());
        assert_eq!(again.configured(), Some(&configured));
        assert_eq!(again.active().unwrap().revision, 3);
        assert_eq!(
            again.previous().unwrap().revision,
            1,
            "2 is the same guest as the active one"
        );
        assert_eq!(again.numbered(2).unwrap().version, "2");
    }

    #[test]
    fn a_rollback_passes_over_versions_that_were_rolled_back_from() {
        let dir = tempfile::tempdir().unwrap();
        let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
        let mut push = |version: &str, by: By| {
            revisions
                .push(Revision {
                    by,
                    ..revision(version)
                })
                .unwrap();
            revisions.previous().map(|target| target.revision)
        };
        assert_eq!(push("1", By::Swap), None);
        assert_eq!(push("2", By::Swap), Some(1));
        assert_eq!(push("3", By::Swap), Some(2));
        assert_eq!(push("3", By::Swap), Some(2), "the same again");
        assert_eq!(push("2", By::Rollback), Some(1), "a second one goes further back");
        assert_eq!(push("2", By::Swap), Some(1));
        assert_eq!(push("1", By::Rollback), None, "only --to goes to 2 or 3");
        assert_eq!(push("3", By::Rollback), None, "with --to");
        assert_eq!(push("2", By::Swap), Some(8), "it is no longer left");
        assert_eq!(push("1", By::FallBack), Some(8));
    }

    #[test]
    fn a_rollback_after_one_to_a_named_revision_never_goes_forward() {
        let dir = tempfile::tempdir().unwrap();
        let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
        for (version, by) in [("1", By::Swap), ("2", By::Swap), ("3", By::Swap), ("1", By::Rollback)] {
            revisions
                .push(Revision {
                    by,
                    ..revision(version)
                })
                .unwrap();
        }
        assert_eq!(revisions.previous(), None, "2 is newer than 1");
        assert_eq!(revisions.before().unwrap().revision, 3);
    }

    #[test]
    fn the_oldest_are_forgotten_and_numbers_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
        for _ in 0..REVISIONS_MAX + 2 {
            revisions.push(revision("1")).unwrap();
        }
        assert_eq!(revisions.all().len(), REVISIONS_MAX);
        assert_eq!(revisions.all().first().unwrap().revision, 3);
        assert_eq!(revisions.next_number(), REVISIONS_MAX as u64 + 3);
    }

    #[test]
    fn a_list_that_was_lost_is_no_guest_that_was_never_active() {
        let dir = tempfile::tempdir().unwrap();
        let file = Revisions::place(dir.path(), "lbaas");
        let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
        revisions.push(revision("1")).unwrap();
        let older = std::fs::read(&file).unwrap();
        revisions.push(revision("2")).unwrap();
        let newest = std::fs::read(&file).unwrap();

        std::fs::write(&file, older).unwrap();
        let error = Revisions::load(dir.path(), "lbaas").unwrap_err();
        assert!(
            error.contains("is an older one, though revision 2, `lbaas@2`"),
            "{error}"
        );
        std::fs::remove_file(&file).unwrap();
        let error = Revisions::load(dir.path(), "lbaas").unwrap_err();
        assert!(
            error.contains(
                "lbaas.json is missing or empty, though revision 2, `lbaas@2` (sha256:2), was active; restore it"
            ),
            "{error}"
        );
        std::fs::write(&file, &newest).unwrap();
        assert_eq!(
            Revisions::load(dir.path(), "lbaas").unwrap().active(),
            revisions.active()
        );
        // As the error says: without both files, it begins anew.
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(file.with_extension("anchor")).unwrap();
        assert_eq!(Revisions::load(dir.path(), "lbaas").unwrap().active(), None);
    }

    #[test]
    fn a_list_of_an_older_host_gets_its_anchor_with_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let file = Revisions::place(dir.path(), "lbaas");
        let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
        let configured = Configured {
            reference: "builtin:lbaas@1".to_owned(),
            digest: "sha256:1".to_owned(),
            settings: None,
            was_refused: false,
        };
        revisions.push(revision("1")).unwrap();
        revisions.configure(configured.clone(), &json!({})).unwrap();
        std::fs::remove_file(file.with_extension("anchor")).unwrap();
        let mut again = Revisions::load(dir.path(), "lbaas").unwrap();
        again.configure(configured, &json!({})).unwrap();
        std::fs::remove_file(&file).unwrap();
        Revisions::load(dir.path(), "lbaas").unwrap_err();
    }

    #[test]
    fn a_file_that_can_not_be_read_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = Revisions::place(dir.path(), "lbaas");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        for (text, reason) in [
            ("{", "EOF"),
            (
                r#"{"format":0,"configured":null,"revisions":[]}"#,
                "format was 0, must be 1",
            ),
            (
                r#"{"format":1,"configured":null,"revisions":[],"x":1}"#,
                "unknown field `x`",
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = Revisions::load(dir.path(), "lbaas").unwrap_err();
            assert!(error.contains(reason) && error.contains("move it and "), "{error}");
        }
    }

    #[test]
    fn a_list_that_is_not_damaged_is_not_to_be_moved_away() {
        let dir = tempfile::tempdir().unwrap();
        let file = Revisions::place(dir.path(), "lbaas");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, r#"{"format":2,"revisions":{"newest":7}}"#).unwrap();
        let error = Revisions::load(dir.path(), "lbaas").unwrap_err();
        assert!(
            error.ends_with("format was 2, must be 1; start the trueup that wrote it, or a newer one"),
            "{error}"
        );
        let step = |kind: io::ErrorKind| next(&kind.into(), "move it");
        assert_eq!(step(io::ErrorKind::InvalidData), "move it");
        assert_eq!(
            step(io::ErrorKind::PermissionDenied),
            "read it as the user that the host runs as, or as root"
        );
    }
}
