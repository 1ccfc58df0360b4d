//! The CNI plugin's spool: releases that it left while the host was down, one file each.
//!
//! Reads and removes files; `actor.rs` executes the releases. Leaves a damaged file, or one that is not the plugin's,
//! as it is, and logs it once.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use trueup_base::component::Digest;

use super::state_file::{self, failed};
use crate::ipam::guest::IpamKey;

/// The format of a release.
const FORMAT: u32 = 1;

/// A release names three texts: a container id of 64 characters, an interface of 15, a network. A larger file is not
/// a release.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The maximum number of files named in the log, for a folder full of foreign files.
const NAMED_MAX: usize = 100;

/// Write permission for group and others. If the folder has it, anyone could free any pod's address.
const OTHERS_WRITE: u32 = 0o022;

/// One release.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Release {
    pub(super) file: PathBuf,
    pub(super) key: IpamKey,
}

/// The folder, and what was logged about it.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
    /// The files and problems of the folder that were already logged.
    named: BTreeSet<String>,
    /// Its files stay.
    is_unwritten: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    v: u32,
    instance: Option<String>,
    network_name: String,
    #[serde(rename = "containerID")]
    container_id: String,
    if_name: String,
}

impl Spool {
    /// In a plan its files stay.
    pub(super) fn new(dir: &Path, plans: bool) -> Self {
        Self {
            dir: dir.to_owned(),
            named: BTreeSet::new(),
            is_unwritten: plans,
        }
    }

    /// The current releases for this instance, by file name. Empty if the folder does not exist.
    pub(super) fn releases(&mut self, instance: &str) -> Vec<Release> {
        let names = match names(&self.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                self.name_once(&format!("the spool `{}` can't be used: {error}", self.dir.display()));
                return Vec::new();
            }
        };
        let mut releases = Vec::new();
        for name in names {
            // The plugin's temporary file, in use or left behind when the plugin was killed.
            if name.starts_with('.') {
                continue;
            }
            let file = self.dir.join(&name);
            match read(&file, &name, instance) {
                Ok(Some(key)) => releases.push(Release { file, key }),
                // The plugin took it back meanwhile.
                Ok(None) => {}
                Err(why) => self.name_once(&format!("`{}` is no release and is left there: {why}", file.display())),
            }
        }
        releases
    }

    /// Removes the files of completed releases, durably when this returns. A file that came back after a crash would
    /// free the address of a pod that has the key since.
    ///
    /// # Errors
    /// The first file that could not be removed. The others are removed.
    pub(super) fn remove(&self, files: &[PathBuf]) -> io::Result<()> {
        if self.is_unwritten {
            return Ok(());
        }
        let mut first = Ok(());
        for file in files {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => first = first.and(removed.map_err(failed("removing", file))),
            }
        }
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        first.and(synced.map_err(failed("syncing", &self.dir)))
    }

    fn name_once(&mut self, text: &str) {
        if self.named.len() < NAMED_MAX && self.named.insert(text.to_owned()) {
            tracing::warn!("{text}");
        }
    }
}

impl Release {
    /// Whether the file still exists: an ADD of its key takes it back.
    pub(super) fn is_there(&self) -> bool {
        std::fs::symlink_metadata(&self.file).is_ok()
    }
}

/// The names in the folder, ascending. Ignores names that are not UTF-8.
fn names(dir: &Path) -> io::Result<BTreeSet<String>> {
    let metadata = std::fs::metadata(dir)?;
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != 0 && owner != own {
        let why = format!("it belongs to user {owner}; it must belong to user {own}");
        return Err(io::Error::other(why));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS_WRITE != 0 {
        let why = format!("it has mode {mode:04o}, so others could free addresses; give it 0700");
        return Err(io::Error::other(why));
    }
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// The key that the file releases for this instance. `None` if the file does not exist any more.
fn read(file: &Path, name: &str, instance: &str) -> Result<Option<IpamKey>, String> {
    let text = state_file::read(file, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let Some(text) = text else { return Ok(None) };
    let written: Written = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if written.v != FORMAT {
        return Err(format!("it is of version {}; this host knows {FORMAT}", written.v));
    }
    let key = [&*written.network_name, &*written.container_id, &*written.if_name].join("\0");
    // An ADD of the key looks for its release only there.
    if format!("{}.json", Digest::of(key.as_bytes()).hex()) != name {
        return Err("its name is not that of the key in it".to_owned());
    }
    if let Some(other) = written.instance.filter(|named| named != instance) {
        return Err(format!("it is for instance `{other}`, which this host does not have"));
    }
    Ok(Some(IpamKey {
        network_name: written.network_name,
        container_id: written.container_id,
        if_name: written.if_name,
    }))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// `printf 'net\0c1\0eth0' | sha256sum`
    const NAME: &str = "26026bd18b7cde682ae8b772c36d68c0d0a8a3725660b2ab706459f2e3a4d588.json";
    const TEXT: &str = r#"{"v":1,"instance":null,"networkName":"net","containerID":"c1","ifName":"eth0"}"#;

    fn spool() -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(&dir.path().join("spool"), false);
        std::fs::create_dir(&spool.dir).unwrap();
        std::fs::set_permissions(&spool.dir, Permissions::from_mode(0o700)).unwrap();
        (dir, spool)
    }

    fn containers(spool: &mut Spool, instance: &str) -> Vec<String> {
        let releases = spool.releases(instance);
        releases.into_iter().map(|release| release.key.container_id).collect()
    }

    #[test]
    fn a_release_is_found_by_the_instance_that_it_is_for() {
        let (_dir, mut spool) = spool();
        let file = spool.dir.join(NAME);
        std::fs::write(&file, TEXT).unwrap();
        assert_eq!(containers(&mut spool, "pods"), ["c1"]);
        std::fs::write(&file, TEXT.replace("null", r#""pods""#)).unwrap();
        assert_eq!(containers(&mut spool, "pods"), ["c1"]);
        assert_eq!(spool.named.len(), 0);
        assert_eq!(containers(&mut spool, "x"), [""; 0]);
        assert_eq!(spool.named.len(), 1);
    }

    #[test]
    fn what_is_done_is_removed_and_what_was_taken_back_is_seen_to_be() {
        let (_dir, mut spool) = spool();
        std::fs::write(spool.dir.join(NAME), TEXT).unwrap();
        let [release] = <[_; 1]>::try_from(spool.releases("pods")).unwrap();
        assert!(release.is_there());
        let files = [release.file.clone(), spool.dir.join("gone.json")];
        spool.remove(&files).unwrap();
        assert!(!release.is_there());
        std::fs::create_dir(&release.file).unwrap();
        let error = spool.remove(&files).unwrap_err().to_string();
        assert!(error.starts_with("removing `") && error.contains(NAME), "{error}");
    }

    #[test]
    fn what_is_damaged_or_not_the_plugins_is_left_and_named_once() {
        let (_dir, mut spool) = spool();
        let other = NAME.replacen("26", "27", 1);
        for (name, text) in [
            ("README", "mine"),
            ("a.json", "{"),
            ("b.json", r#"{"v":2}"#),
            (&other, TEXT),
            (".new.tmp", "half"),
        ] {
            std::fs::write(spool.dir.join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("/dev/null", spool.dir.join("link.json")).unwrap();
        std::fs::create_dir(spool.dir.join("folder.json")).unwrap();
        std::fs::write(spool.dir.join("large.json"), vec![b' '; 70_000]).unwrap();
        for _ in 0..2 {
            assert_eq!(containers(&mut spool, "pods"), [""; 0]);
            assert_eq!(spool.named.len(), 7, "{:#?}", spool.named);
        }
        assert_eq!(std::fs::read_dir(&spool.dir).unwrap().count(), 8);
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let (_dir, mut spool) = spool();
        std::fs::write(spool.dir.join(NAME), TEXT).unwrap();
        std::fs::set_permissions(&spool.dir, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(containers(&mut spool, "pods"), [""; 0]);
        assert!(spool.named.iter().any(|text| text.ends_with("give it 0700")));
        std::fs::set_permissions(&spool.dir, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(containers(&mut spool, "pods"), ["c1"]);
        std::fs::remove_dir_all(&spool.dir).unwrap();
        assert_eq!(containers(&mut spool, "pods"), [""; 0]);
    }
}
