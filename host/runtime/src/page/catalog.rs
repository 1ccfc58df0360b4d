//! The recordings at the given paths: files, folders of segments, state folders.
//!
//! This module handles only names and paths, and opens no recording.
//!
//! ```text
//! STATE/{journals,instances}/GUEST/KEY/N.jsonl     GUEST/KEY/N.jsonl     KEY/N.jsonl     any.jsonl
//! ```

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use trueup_journal::{key_of, segment_numbers, segment_path};

use crate::folders::folders_in;

/// Further recordings are not listed: a cluster has fewer Services, and a browser cannot display a longer list.
const RECORDINGS_MAX: usize = 10_000;

/// The depth of recordings in a state folder: `journals/GUEST/KEY`.
const DEPTH_MAX: usize = 3;

/// The folders with recordings in a state folder: the full ones, and those that replace them when recording is off.
const KINDS: [&str; 2] = ["journals", "instances"];

/// One recording: all segments of an instance, or one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recording {
    /// Its id in requests.
    pub(super) id: String,
    /// The name of the guest, if the folders contain it.
    pub(super) guest: Option<String>,
    /// The key of the instance, or the file's name without one.
    pub(super) key: String,
    pub(super) path: PathBuf,
}

/// A file of a recording.
#[derive(Debug)]
pub(super) struct Written {
    /// The recording's id.
    pub(super) id: String,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// When it was last written, in milliseconds since 1970.
    pub(super) changed_ms: Option<u64>,
}

/// The files of a recording: one file, or the segments in a folder.
pub(super) fn files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let numbers = segment_numbers(path).unwrap_or_default();
    numbers.into_iter().map(|first| segment_path(path, first)).collect()
}

impl Recording {
    /// The recording as the list of the page has it.
    pub(super) fn listed(&self) -> Value {
        let files = self.written();
        json!({
            "id": self.id,
            "guest": self.guest,
            "key": self.key,
            "files": files.len(),
            "bytes": files.iter().map(|file| file.bytes).sum::<u64>(),
            // When it was last written, in milliseconds since 1970.
            "changed_ms": files.iter().filter_map(|file| file.changed_ms).max(),
        })
    }

    /// Its files, oldest first. One that cannot be read is empty.
    pub(super) fn written(&self) -> Vec<Written> {
        let written = |path: PathBuf| {
            let metadata = fs::metadata(&path).ok();
            let changed = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
            let changed = changed.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            Written {
                id: self.id.clone(),
                path,
                bytes: metadata.map_or(0, |metadata| metadata.len()),
                changed_ms: changed.and_then(|since| u64::try_from(since.as_millis()).ok()),
            }
        };
        files(&self.path).into_iter().map(written).collect()
    }
}

/// All recordings at these paths, by id. A missing path has none.
pub(super) fn recordings(paths: &[PathBuf]) -> BTreeMap<String, Recording> {
    let mut found = BTreeMap::new();
    for path in paths {
        if path.is_dir() {
            let mut roots: Vec<PathBuf> = KINDS.iter().map(|kind| path.join(kind)).collect();
            roots.retain(|root| root.is_dir());
            if roots.is_empty() {
                roots.push(path.clone());
            }
            roots.iter().for_each(|root| walk(root, 0, &mut found));
        } else {
            let key = name(path.file_name());
            add(key.clone(), None, key, path, &mut found);
        }
    }
    found
}

/// Does not follow links: everything listed is below the given paths.
fn walk(folder: &Path, depth: usize, found: &mut BTreeMap<String, Recording>) {
    if found.len() >= RECORDINGS_MAX {
        return;
    }
    if segment_numbers(folder).is_ok_and(|numbers| !numbers.is_empty()) {
        let component = name(folder.file_name());
        let key = key_of(&component).unwrap_or(component);
        let guest = name(folder.parent().and_then(Path::file_name));
        let guest = Some(key_of(&guest).unwrap_or(guest)).filter(|guest| depth > 0 && !guest.is_empty());
        let id = match &guest {
            Some(guest) => format!("{guest}/{key}"),
            None => key.clone(),
        };
        add(id, guest, key, folder, found);
    } else if depth < DEPTH_MAX {
        let folders = folders_in(folder).unwrap_or_default();
        folders.iter().for_each(|folder| walk(folder, depth + 1, found));
    }
}

/// Recordings with the same name are distinguished by their paths.
fn add(id: String, guest: Option<String>, key: String, path: &Path, found: &mut BTreeMap<String, Recording>) {
    let is_taken = found.contains_key(&id);
    let id = if is_taken { path.display().to_string() } else { id };
    let recording = Recording {
        id: id.clone(),
        guest,
        key,
        path: path.to_owned(),
    };
    found.insert(id, recording);
}

fn name(component: Option<&OsStr>) -> String {
    component.unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(folder: &Path, name: &str) -> PathBuf {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        file
    }

    fn ids(paths: &[PathBuf]) -> Vec<String> {
        recordings(paths).into_keys().collect()
    }

    #[test]
    fn a_state_folder_has_a_recording_for_each_guest_and_key() {
        let state = tempfile::tempdir().unwrap();
        touch(state.path(), "journals/lbaas/default%2Fweb/0.jsonl");
        touch(state.path(), "journals/lbaas/default%2Fweb/1000.jsonl");
        touch(state.path(), "instances/ipam/pods/7.jsonl");
        touch(state.path(), "compiled/x/0.jsonl");
        assert_eq!(ids(&[state.path().to_owned()]), ["ipam/pods", "lbaas/default/web"]);
        let web = &recordings(&[state.path().to_owned()])["lbaas/default/web"];
        assert_eq!((web.guest.as_deref(), web.key.as_str()), (Some("lbaas"), "default/web"));
        assert_eq!(files(&web.path).len(), 2);
    }

    #[test]
    fn files_and_folders_of_segments_stand_by_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let a = touch(folder.path(), "a/0.jsonl");
        let b = touch(folder.path(), "b/0.jsonl");
        let both = ids(&[a.clone(), b.clone()]);
        assert_eq!(both.len(), 2, "{both:?}");
        assert_eq!(ids(&[folder.path().join("a")]), ["a"]);
        assert_eq!(ids(&[folder.path().join("nothing.jsonl")]), ["nothing.jsonl"]);
    }

    #[test]
    fn links_do_not_lead_out() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        touch(outside.path(), "key/0.jsonl");
        std::os::unix::fs::symlink(outside.path(), inside.path().join("guest")).unwrap();
        assert!(ids(&[inside.path().to_owned()]).is_empty());
    }
}
