//! Builds the guest `misbehaving` for the tests that load it: no binary holds it.

use std::path::{Path, PathBuf};

#[path = "../../../host/guests-builtin/build/guests.rs"]
#[expect(dead_code, reason = "the list of the guests that ship is for the build script")]
pub(crate) mod guests;

/// Turns a guest's source into bytes: `guests::build` makes a component, `guests::compile` only the core module.
pub(crate) type Build = fn(&Path, &Path, &guests::Source) -> Result<Vec<u8>, String>;

/// The guest as version 1 or 2, built from this workspace.
pub(crate) fn built(version: &'static str, build: Build) -> Vec<u8> {
    let source = guests::Source {
        name: "misbehaving",
        version,
        features: if version == "2" { &["version-2"] } else { &[] },
        world: "trueup:lbaas/lbaas-reconciler@0.1.0",
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    std::fs::create_dir_all(&folder).expect("a folder for test guests");
    // Both versions have one output file, and tests may build them at once in several processes.
    let lock = std::fs::File::create(folder.join("lock")).expect("a file to lock");
    lock.lock().expect("the lock of the test guests");
    build(&root(), &folder, &source).expect("the guest `misbehaving`")
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("each room stands two folders below the workspace")
        .to_owned()
}
