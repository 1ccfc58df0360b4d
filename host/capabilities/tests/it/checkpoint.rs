//! Checkpoint storage on a real disk: answered changes persist, whatever happened to the file meanwhile.
//!
//! Tests that need a failing disk are beside the code.
mod conformance;
mod damage;
mod lost;
mod places;
mod tools;
mod waits;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trueup_capabilities::checkpoint::file::{File, Settings};
use trueup_capabilities::checkpoint::{Error, Saved, Store};
use trueup_capabilities::metrics::Registry;

/// A folder for one test, and the path of a file in it that does not exist yet.
struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn settings(path: &Path) -> Settings {
    Settings {
        path: path.to_owned(),
        keep_generations: 0,
        shared_sync: false,
    }
}

fn file(path: &Path) -> File {
    file_with(path, |_| ())
}

/// [`file`] with other settings.
fn file_with(path: &Path, change: impl FnOnce(&mut Settings)) -> File {
    let mut settings = settings(path);
    change(&mut settings);
    File::open(settings, Arc::new(Registry::default())).unwrap()
}

/// An open store with data, and its path.
async fn filled_file(scratch: &Scratch, name: &str) -> (PathBuf, File) {
    let path = scratch.path(name);
    let store = file(&path);
    store.checkpoint("data").await.unwrap();
    (path, store)
}

fn saved(data: &str, entries: &[&str]) -> Saved {
    Saved {
        data: data.to_owned(),
        entries: entries.iter().map(|entry| (*entry).to_owned()).collect(),
    }
}

async fn stored(store: &dyn Store) -> Result<Option<Saved>, String> {
    store.restore().await.map_err(|error| told(&error))
}

/// The content of a store that has some.
async fn content(store: &dyn Store) -> Saved {
    stored(store).await.unwrap().unwrap()
}

/// What [`stored`] returns of a store with this content.
fn holds(data: &str, entries: &[&str]) -> Result<Option<Saved>, String> {
    Ok(Some(saved(data, entries)))
}

fn told(error: &Error) -> String {
    format!("{}: {}", error.kind(), error.text())
}

/// The names in a folder, except those of the lock and the anchor.
fn names(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = all
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock") && !name.ends_with(".anchor"))
        .collect();
    names.sort();
    names
}
