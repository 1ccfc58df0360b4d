//! The guests' machine code, compiled once for all hosts of these tests: in a debug build, compiling takes a host
//! longer than everything that the tests check.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::cluster::{configuration, put as put_manifest};
use super::services;
use super::topology::NODES;
use support::{Site, ran};

/// The folder of the compiled code, kept for the next run.
static COMPILED: LazyLock<PathBuf> = LazyLock::new(|| {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("traffic");
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests");
    fs::create_dir(&manifests).unwrap();
    let (file, content) = services::node(NODES[0]);
    put_manifest(folder.path(), &file, &content);
    let site = Site::of(&configuration(NODES[0], &manifests));
    let cache = cache(&site);
    if kept.exists() {
        copy(&kept, &cache);
    }
    let mut host = site.command("run", &["--once"]);
    // The cluster does not exist yet.
    host.env("TRUEUP_BACKEND_ETCD_KIND", "embedded");
    host.env("TRUEUP_BACKEND_NFTABLES_KIND", "simulated");
    ran(&mut host).exits(0);
    // The host removes the oldest unused entries.
    _ = fs::remove_dir_all(&kept);
    copy(&cache, &kept);
    kept
});

/// Passes it to a host before its start.
#[track_caller]
pub(crate) fn put(site: &Site) {
    copy(&COMPILED, &cache(site));
}

fn cache(site: &Site) -> PathBuf {
    site.state_dir().join("cache")
}

/// Creates the folder with the host's permissions; the host accepts no others.
#[track_caller]
fn copy(from: &Path, to: &Path) {
    DirBuilder::new().recursive(true).mode(0o700).create(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
