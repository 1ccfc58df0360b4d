//! Builds a guest lbaas that decides worse than the built-in one, for tests that compare versions: no binary holds it.
//!
//! A module that includes this file must also include `misbehaving.rs` beside it, as `misbehaving`.

use std::path::{Path, PathBuf};

use super::misbehaving::guests;

/// The guest lbaas that forgets the last port of every service that it reconciles, and otherwise equals version 1. It
/// calls itself `lbaas@forgetful`.
pub(crate) fn built() -> Vec<u8> {
    build(&guests::Source {
        name: "lbaas",
        version: "forgetful",
        features: &["forgets-a-port"],
        world: "trueup:lbaas/lbaas-reconciler@0.1.0",
    })
}

/// Builds a guest, in the folder that all tests of this workspace share.
pub(crate) fn build(source: &guests::Source) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    std::fs::create_dir_all(&folder).expect("a folder for test guests");
    // All versions have one output file, and tests may build them at once in several processes.
    let lock = std::fs::File::create(folder.join("lock")).expect("a file to lock");
    lock.lock().expect("the lock of the test guests");
    guests::build(&root(), &folder, source).expect("a guest of this workspace")
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("each room stands two folders below the workspace")
        .to_owned()
}
