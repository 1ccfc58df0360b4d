//! The guests' machine code, made once for all hosts of these tests: compiling takes a host of a debug build longer than all
//! that it is tested for.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::cluster::{configuration, put as put_manifest};
use super::services;
use super::topology::NODES;
use support::{Site, ran};

/// Where it is kept, also for the next run.
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
    // Nothing of the cluster is there yet.
    host.env("TRUEUP_BACKEND_ETCD_KIND", "embedded");
    host.env("TRUEUP_BACKEND_NFTABLES_KIND", "simulated");
    ran(&mut host).exits(0);
    // Of what is not used any more, the host gives up the oldest.
    _ = fs::remove_dir_all(&kept);
    copy(&cache, &kept);
    kept
});

/// Gives it to a host that is to be started.
#[track_caller]
pub(crate) fn put(site: &Site) {
    copy(&COMPILED, &cache(site));
}

fn cache(site: &Site) -> PathBuf {
    site.state_dir().join("cache")
}

/// The folder is made as the host makes it, which uses no other.
#[track_caller]
fn copy(from: &Path, to: &Path) {
    DirBuilder::new().recursive(true).mode(0o700).create(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
