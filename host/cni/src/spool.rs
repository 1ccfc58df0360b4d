//! Releases for a host that is down: one file each, which the host works off when it is back.
//!
//! The plugin's only state: DEL's outbox. A release that exists is whole and on disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::environment::Attachment;

/// The format of a release.
const FORMAT: u32 = 1;
/// A release names pods, and only the host's user may free addresses.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Write permission for group and others: with it, anyone could free any pod's address.
const OTHERS_WRITE: u32 = 0o022;

/// A release: which instance must free which key.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Release<'a> {
    /// [`FORMAT`].
    v: u32,
    /// Null means the host's only instance.
    instance: Option<&'a str>,
    /// The network's name.
    #[serde(rename = "networkName")]
    network: &'a str,
    /// The container's interface.
    #[serde(flatten)]
    attachment: &'a Attachment,
}

impl<'a> Release<'a> {
    pub(crate) fn new(instance: Option<&'a str>, network: &'a str, attachment: &'a Attachment) -> Self {
        Self {
            v: FORMAT,
            instance,
            network,
            attachment,
        }
    }

    /// `HEX.json`, HEX being the lower-case SHA-256 of the key's three fields joined by NUL.
    fn file_name(&self) -> String {
        format!("{}.json", self.hex())
    }

    fn hex(&self) -> String {
        let Attachment { container_id, if_name } = self.attachment;
        let key = [self.network, container_id, if_name].join("\0");
        let digest = Sha256::digest(key.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Puts a release into the folder, and creates the folder if it is missing. Replaces an earlier release of the same
/// key.
///
/// # Errors
/// What failed, and on which path. The folder then has no part of the release under its name.
pub(crate) fn put(dir: &Path, release: Release<'_>) -> Result<(), String> {
    let json = serde_json::to_vec(&release).map_err(|error| format!("writing the release as JSON: {error}"))?;
    make_dir(dir)?;
    check_dir(dir)?;
    // The name holds the process id: two calls for the same key must not write into one file. The host ignores files
    // that do not end in `.json`.
    let temporary = dir.join(format!(".{}.{}.tmp", release.hex(), process::id()));
    write_file(&temporary, &json)
        .and_then(|()| {
            let path = dir.join(release.file_name());
            fs::rename(&temporary, &path).map_err(|error| failed("renaming a file to", &path, &error))
        })
        .inspect_err(|_| {
            // Report the first failure. Ignore this one: the remaining file is never read.
            let _ = fs::remove_file(&temporary);
        })?;
    sync_dir(dir)
}

/// Takes back a release of this key, if there is one. A crash does not undo this.
///
/// # Errors
/// What failed, and on which path. The release may still exist.
pub(crate) fn take_back(dir: &Path, release: Release<'_>) -> Result<(), String> {
    let path = dir.join(release.file_name());
    match fs::remove_file(&path) {
        Ok(()) => sync_dir(dir),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(error) => Err(failed("removing", &path, &error)),
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), String> {
    // A killed plugin with this process id may have left it behind.
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(FILE_MODE).open(path);
    let written = file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|error| failed("writing", path, &error))
}

/// Creates the folder and its missing parents, each durably.
fn make_dir(dir: &Path) -> Result<(), String> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(DIR_MODE).create(dir);
    made.map_err(|error| failed("making", dir, &error))?;
    missing
        .into_iter()
        .rev()
        .filter_map(Path::parent)
        .try_for_each(sync_dir)
}

/// A folder that others can write to can't be the spool.
fn check_dir(dir: &Path) -> Result<(), String> {
    let metadata = fs::metadata(dir).map_err(|error| failed("looking at", dir, &error))?;
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let refused = |why: String| Err(format!("the spool `{}` {why}", dir.display()));
    if owner != 0 && owner != own {
        return refused(format!("belongs to user {owner}; it must belong to user {own}"));
    }
    if metadata.mode() & OTHERS_WRITE != 0 {
        let mode = metadata.mode() & 0o7777;
        return refused(format!(
            "has mode {mode:04o}, so others could free addresses; give it 0700"
        ));
    }
    Ok(())
}

fn sync_dir(dir: &Path) -> Result<(), String> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| failed("syncing", dir, &error))
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> String {
    format!("{doing} `{}`: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::plan::examples::attachment;

    fn release(attachment: &Attachment) -> Release<'_> {
        Release::new(None, "net", attachment)
    }

    fn names(dir: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        fs::read_dir(dir).unwrap().map(name).collect()
    }

    /// `printf 'net\0c1\0eth0' | sha256sum`
    const NAME: &str = "26026bd18b7cde682ae8b772c36d68c0d0a8a3725660b2ab706459f2e3a4d588.json";

    #[test]
    fn a_release_is_one_file_named_after_its_key() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b/spool");
        let attachment = attachment();
        put(&dir, release(&attachment)).unwrap();
        assert_eq!(names(&dir), [NAME]);
        assert_eq!(
            fs::read_to_string(dir.join(NAME)).unwrap(),
            r#"{"v":1,"instance":null,"networkName":"net","containerID":"c1","ifName":"eth0"}"#
        );
        for made in ["a", "a/b", "a/b/spool"] {
            let mode = fs::metadata(root.path().join(made)).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o700, "{made}");
        }
        assert_eq!(fs::metadata(dir.join(NAME)).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_later_release_of_a_key_replaces_the_earlier_one() {
        let root = tempfile::tempdir().unwrap();
        let attachment = attachment();
        put(root.path(), release(&attachment)).unwrap();
        let named = Release {
            instance: Some("pods"),
            ..release(&attachment)
        };
        put(root.path(), named).unwrap();
        assert_eq!(names(root.path()), [NAME]);
        let text = fs::read_to_string(root.path().join(NAME)).unwrap();
        assert!(text.starts_with(r#"{"v":1,"instance":"pods","#), "{text}");
    }

    #[test]
    fn a_release_is_taken_back_once_and_a_missing_folder_has_none() {
        let root = tempfile::tempdir().unwrap();
        let attachment = attachment();
        put(root.path(), release(&attachment)).unwrap();
        let other = Attachment {
            if_name: "eth1".to_owned(),
            ..attachment.clone()
        };
        take_back(root.path(), release(&other)).unwrap();
        assert_eq!(names(root.path()), [NAME]);
        for _ in 0..2 {
            take_back(root.path(), release(&attachment)).unwrap();
            assert!(names(root.path()).is_empty());
        }
        take_back(&root.path().join("missing"), release(&attachment)).unwrap();
    }

    #[test]
    fn a_temporary_file_left_behind_is_no_obstacle() {
        let root = tempfile::tempdir().unwrap();
        let attachment = attachment();
        let stale = format!(".{}.{}.tmp", release(&attachment).hex(), process::id());
        fs::write(root.path().join(stale), "half").unwrap();
        put(root.path(), release(&attachment)).unwrap();
        assert_eq!(names(root.path()), [NAME]);
    }

    #[test]
    fn a_folder_writable_by_others_is_refused_and_a_readable_one_is_used() {
        let root = tempfile::tempdir().unwrap();
        let attachment = attachment();
        for mode in [0o777, 0o1777, 0o770, 0o702] {
            fs::set_permissions(root.path(), Permissions::from_mode(mode)).unwrap();
            let error = put(root.path(), release(&attachment)).unwrap_err();
            assert!(error.ends_with("give it 0700"), "{error}");
            assert!(names(root.path()).is_empty());
        }
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        put(root.path(), release(&attachment)).unwrap();
        assert_eq!(fs::metadata(root.path().join(NAME)).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn what_fails_is_told_with_its_path_and_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let attachment = attachment();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let error = put(&file.join("spool"), release(&attachment)).unwrap_err();
        assert!(error.contains("file/spool"), "{error}");
        // With a folder in the release's place, the rename fails, and so does taking back.
        fs::create_dir_all(root.path().join("spool").join(NAME).join("full")).unwrap();
        let error = put(&root.path().join("spool"), release(&attachment)).unwrap_err();
        assert!(error.starts_with("renaming a file to `"), "{error}");
        assert_eq!(names(&root.path().join("spool")), [NAME]);
        let error = take_back(&root.path().join("spool"), release(&attachment)).unwrap_err();
        assert!(error.starts_with("removing `"), "{error}");
    }
}
