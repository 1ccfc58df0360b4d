//! Inputs that are set aside: the guest failed with them too often, or went round in circles.
//!
//! What is applied stays as it is, and everything else goes on. The host tries an input again when the input changes
//! or the guest does: its version, settings, limits or grants.
//!
//! ```text
//! state_dir/quarantine/NAME/<instance>.json    one file each, so that it survives a restart
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::component::Digest;
use trueup_capabilities::Identity;
use trueup_capabilities::audit::Audit;
use trueup_instance::Instances;

use super::failure_counts::TooMuch;
use crate::files;

/// An input that is set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAside {
    /// The key of the instance, such as `default/web`.
    pub instance: String,
    /// Why, in one line.
    pub error: String,
    /// How often it failed in a row.
    pub failures: u32,
    /// Since when, in milliseconds since 1970.
    pub at_ms: u64,
    /// `sha256:` and the digest of the guest that failed.
    pub digest: String,
    /// `sha256:` and the digest of the input, including the guest's settings, limits and grants.
    pub input: String,
    /// The folder of the instance's recording, which shows what happened.
    pub journal: PathBuf,
}

impl SetAside {
    /// Sets aside from now an input with which a version of a guest failed too often.
    pub(crate) fn new(instances: &Instances, instance: String, input: String, too_much: TooMuch) -> Self {
        Self {
            journal: instances.recording(&instance),
            digest: instances.program.guest.digest.to_string(),
            input,
            at_ms: SystemClock.now_ms(),
            error: too_much.error,
            instance,
            failures: too_much.failures,
        }
    }
}

/// The inputs of one guest that are set aside.
pub struct Quarantine {
    folder: PathBuf,
    entries: Mutex<BTreeMap<String, SetAside>>,
    /// Gets a line for each input that is set aside.
    pub(crate) audit: Option<Arc<Audit>>,
    /// In a plan: changes stay in memory.
    pub(crate) is_unwritten: bool,
}

impl Quarantine {
    /// Reads what an earlier run set aside. Skips a file that can't be read, with a warning: its input is then tried
    /// again.
    pub fn load(state_dir: &Path, name: &str) -> Self {
        let folder = state_dir.join("quarantine").join(name);
        let mut this = Self {
            folder: folder.clone(),
            entries: Mutex::default(),
            audit: None,
            is_unwritten: false,
        };
        for path in files::json_files(&folder).unwrap_or_default() {
            match files::read_json::<SetAside>(&path) {
                Ok(None) => {}
                // Releasing it would not remove a file with another name, so it would come back at each start.
                Ok(Some(entry)) if this.file(&entry.instance) != path => {
                    let name = entry.instance;
                    let must_be = this.file(&name);
                    let (path, must_be) = (path.display(), must_be.display());
                    tracing::warn!("{path}: is not where `{name}` is set aside, must be {must_be}: passed over");
                }
                Ok(Some(entry)) => drop(this.entries.get_mut().insert(entry.instance.clone(), entry)),
                Err(error) => tracing::warn!("{error}: what it sets aside is tried again"),
            }
        }
        this
    }

    /// All entries, by instance.
    pub fn all(&self) -> Vec<SetAside> {
        self.entries.lock().values().cloned().collect()
    }

    /// The keys of all entries.
    pub fn keys<K: FromStr>(&self) -> Vec<K> {
        self.entries.lock().keys().filter_map(|it| it.parse().ok()).collect()
    }

    /// Whether nothing is set aside.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }

    /// Whether anything of this instance is set aside.
    pub(crate) fn has(&self, instance: &str) -> bool {
        self.entries.lock().contains_key(instance)
    }

    /// The entry, if exactly this input is set aside for this guest.
    pub(crate) fn holds(&self, instance: &str, input: &str, digest: &str) -> Option<SetAside> {
        let entries = self.entries.lock();
        let entry = entries.get(instance)?;
        (entry.input == input && entry.digest == digest).then(|| entry.clone())
    }

    /// Sets an input aside with which the guest `about` failed.
    ///
    /// # Errors
    /// If it can't be written: it is then set aside only until the next start.
    pub(crate) fn set_aside(&self, about: &Identity, entry: SetAside) -> io::Result<()> {
        if let Some(audit) = &self.audit
            && let Err(error) = audit.managed(entry.at_ms, about, "quarantine", &entry.instance, &entry.error)
        {
            tracing::error!(instance = entry.instance, "audit: {:#}", anyhow::Error::from(error));
        }
        let written = match self.is_unwritten {
            true => Ok(()),
            false => files::replace_json(&self.file(&entry.instance), &entry),
        };
        self.entries.lock().insert(entry.instance.clone(), entry);
        written
    }

    /// Releases the input, to be tried again. Returns its entry if it was set aside.
    pub fn release(&self, instance: &str) -> Option<SetAside> {
        let entry = self.entries.lock().remove(instance)?;
        if !self.is_unwritten
            && let Err(error) = files::remove(&self.file(instance))
        {
            tracing::warn!("{error}");
        }
        Some(entry)
    }

    /// If more than `max` are set aside, releases the oldest: inputs that come under ever new names must not fill
    /// memory and disk.
    pub fn keep_newest(&self, max: usize) {
        let mut all = self.all();
        // Those of the same time stay sorted by instance.
        all.sort_by_key(|entry| entry.at_ms);
        for entry in all.iter().take(all.len().saturating_sub(max)) {
            self.release(&entry.instance);
        }
    }

    /// Releases everything. Returns the entries.
    pub(crate) fn release_all(&self) -> Vec<SetAside> {
        let instances: Vec<String> = self.entries.lock().keys().cloned().collect();
        instances.iter().filter_map(|instance| self.release(instance)).collect()
    }

    fn file(&self, instance: &str) -> PathBuf {
        let name = trueup_journal::path_component(instance);
        self.folder.join(format!("{name}.json"))
    }
}

/// The digest of the guest's input together with its settings, limits and grants: if any of them changes, the call
/// may succeed.
pub(crate) fn input(instances: &Instances, called_with: &impl Serialize) -> String {
    digest_of(&(called_with, &instances.settings, &instances.limits, &instances.grants))
}

/// What tries inputs of a guest again that are set aside: the active revision anew. `revision` is its number, if it is
/// known.
pub fn way_out(guest: &str, revision: Option<u64>) -> String {
    let revision = revision.map_or("N".to_owned(), |revision| revision.to_string());
    format!(
        "it stays set aside until it or the guest changes: `trueup guest rollback {guest} --to {revision}` tries it again"
    )
}

/// The digest of an input, as JSON.
pub fn digest_of(input: &impl Serialize) -> String {
    // The guest's input already was JSON.
    Digest::of(&serde_json::to_vec(input).unwrap_or_default()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> Identity {
        Identity::default()
    }

    fn entry(instance: &str, input: &str) -> SetAside {
        SetAside {
            instance: instance.to_owned(),
            error: "it trapped".to_owned(),
            failures: 5,
            at_ms: 7,
            digest: "sha256:guest".to_owned(),
            input: digest_of(&input),
            journal: PathBuf::from("journals/lbaas/web"),
        }
    }

    #[test]
    fn what_is_set_aside_stays_so_over_a_restart_until_input_or_guest_change() {
        let dir = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::load(dir.path(), "lbaas");
        quarantine.set_aside(&about(), entry("default/web", "a")).unwrap();
        quarantine.set_aside(&about(), entry("default/../x", "a")).unwrap();

        let quarantine = Quarantine::load(dir.path(), "lbaas");
        assert_eq!(quarantine.all().len(), 2);
        let holds = |input: &str, digest: &str| quarantine.holds("default/web", &digest_of(&input), digest).is_some();
        assert!(holds("a", "sha256:guest"));
        assert!(!holds("b", "sha256:guest"), "the input changed");
        assert!(!holds("a", "sha256:other"), "the guest changed");
        quarantine.release("default/web");
        assert!(!holds("a", "sha256:guest"));
        let released: Vec<String> = quarantine
            .release_all()
            .into_iter()
            .map(|entry| entry.instance)
            .collect();
        assert_eq!(released, ["default/../x"]);
        assert_eq!(Quarantine::load(dir.path(), "lbaas").all(), []);
    }

    #[test]
    fn a_file_that_can_not_be_read_sets_nothing_aside() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("quarantine/lbaas");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.json"), "{").unwrap();
        assert_eq!(Quarantine::load(dir.path(), "lbaas").all(), []);

        Quarantine::load(dir.path(), "lbaas")
            .set_aside(&about(), entry("default/web", "a"))
            .unwrap();
        let file = std::fs::read_dir(&folder).unwrap().flatten().map(|file| file.path());
        let file = file.into_iter().find(|file| !file.ends_with("a.json")).unwrap();
        std::fs::copy(&file, folder.join("copy.json")).unwrap();
        let quarantine = Quarantine::load(dir.path(), "lbaas");
        assert_eq!(quarantine.all().len(), 1);
        quarantine.release("default/web");
        assert_eq!(
            Quarantine::load(dir.path(), "lbaas").all(),
            [],
            "the copy is passed over"
        );
    }

    #[test]
    fn the_oldest_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::load(dir.path(), "ipam");
        for (at_ms, instance) in [(3, "c"), (1, "z"), (2, "a")] {
            let entry = SetAside {
                at_ms,
                ..entry(instance, "a")
            };
            quarantine.set_aside(&about(), entry).unwrap();
            quarantine.keep_newest(2);
        }
        let left = |quarantine: &Quarantine| -> Vec<String> {
            quarantine.all().into_iter().map(|entry| entry.instance).collect()
        };
        assert_eq!(left(&quarantine), ["a", "c"]);
        assert_eq!(left(&Quarantine::load(dir.path(), "ipam")), ["a", "c"]);
    }
}
