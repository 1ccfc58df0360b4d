//! Builds a guest lbaas that decides worse than the one that ships, for tests that compare versions: no binary holds it.

use std::path::{Path, PathBuf};

#[path = "../../host/guests-builtin/build/guests.rs"]
pub(crate) mod guests;

/// The guest lbaas that forgets the last port of every service that it reconciles, and is the shipped version 1 in all else.
/// It calls itself `lbaas@forgetful`.
pub(crate) fn built() -> Vec<u8> {
    let shipped = guests::SOURCES.iter().find(|source| source.name == "lbaas");
    let shipped = shipped.expect("the guest lbaas ships");
    build(&guests::Source {
        version: "forgetful",
        features: &["forgets-a-port"],
        ..*shipped
    })
}

/// Builds a guest, in the folder that all tests of this workspace share.
pub(crate) fn build(source: &guests::Source) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    std::fs::create_dir_all(&folder).expect("a folder for test guests");
    // All versions are built to one file, by tests that may run at once in processes of their own.
    let lock = std::fs::File::create(folder.join("lock")).expect("a file to lock");
    lock.lock().expect("the lock of the test guests");
    guests::build(&root(), &folder, source).expect("a guest of this workspace")
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("each room stands two folders below the workspace")
        .to_owned()
}
