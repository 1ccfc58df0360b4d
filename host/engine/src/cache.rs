//! Compiled guests on disk, so that each machine compiles a guest only once.
//!
//! An entry's name consists of the guest's digest and the engine's compatibility hash. The entry carries the SHA-256 of
//! its name and content. The engine never trusts an entry that is damaged, cut, renamed or made by another engine, but
//! compiles the guest again and replaces the entry. Write access to the folder allows running machine code in the host,
//! so the engine does not use a folder that others may write to.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;

use trueup_base::component::Digest;
use trueup_base::replace::Durable;
use trueup_base::{folder, regular};

/// Gives each draft of an entry its own name within this process.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// Bytes of the checksum at the start of each entry.
const CHECKSUM: usize = 32;

/// The maximum number of entries: a few versions of each guest of one host. A guest in Python takes 60 MB.
const ENTRIES_MAX: usize = 32;

pub(crate) struct Cache {
    folder: Option<PathBuf>,
    compatibility: u64,
}

impl Cache {
    /// A cache in `folder`, which is created if it is missing. Without a folder, or if it is not safe to use, the cache
    /// never holds anything.
    pub(crate) fn new(folder: Option<&Path>, engine: &wasmtime::Engine) -> Self {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let compatibility = hasher.finish();
        let folder = folder.and_then(|folder| match usable(folder) {
            Ok(()) => Some(folder.to_owned()),
            Err(error) => {
                tracing::warn!("compile cache {} is not used: {error}", folder.display());
                None
            }
        });
        Self { folder, compatibility }
    }

    /// The component compiled earlier from these bytes; `None` if there is no trustworthy one.
    pub(crate) fn get(&self, engine: &wasmtime::Engine, digest: &Digest) -> Option<Component> {
        let file = self.file(digest)?;
        let bytes = regular::read(&file, regular::RECORDS).ok()?;
        let (checksum, content) = bytes.split_at_checked(CHECKSUM).unwrap_or_default();
        if self.checksum(digest, content) != checksum {
            tracing::warn!("compile cache entry {} is damaged: compiling again", file.display());
            return None;
        }
        let loaded = deserialize(engine, content).inspect_err(|error| {
            let file = file.display();
            tracing::warn!("compile cache entry {file} is of no use: {error:#}; compiling again");
        });
        loaded.ok()
    }

    /// Stores a compiled component. If the cache can't be written, the host is slower, not wrong; the log reports it.
    pub(crate) fn put(&self, digest: &Digest, component: &Component) {
        let Some(file) = self.file(digest) else { return };
        let serialized = component.serialize();
        let written = serialized.and_then(|content| Ok(write(&file, &self.checksum(digest, &content), &content)?));
        match written {
            Ok(()) => self.prune(&file),
            Err(error) => tracing::warn!("compile cache entry {} was not written: {error:#}", file.display()),
        }
    }

    /// Removes the oldest entries above the limit.
    fn prune(&self, written: &Path) {
        let Some(Ok(entries)) = self.folder.as_ref().map(std::fs::read_dir) else {
            return;
        };
        let mut old: Vec<(std::time::SystemTime, PathBuf)> = entries
            .flatten()
            .filter(|entry| {
                entry.path() != written && entry.path().extension().is_some_and(|extension| extension == "cwasm")
            })
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        old.sort();
        for (_, file) in old.iter().take(old.len().saturating_sub(ENTRIES_MAX - 1)) {
            // Another process may have removed it first. If it remains, it only takes space.
            let _ = std::fs::remove_file(file);
        }
    }

    fn file(&self, digest: &Digest) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(self.name(digest)))
    }

    fn name(&self, digest: &Digest) -> String {
        format!("{}-{:016x}.cwasm", digest.hex(), self.compatibility)
    }

    /// Includes the name, so that an entry is invalid under another name.
    fn checksum(&self, digest: &Digest, content: &[u8]) -> [u8; CHECKSUM] {
        let named = Sha256::new().chain_update(self.name(digest));
        named.chain_update(content).finalize().into()
    }
}

#[expect(unsafe_code, reason = "loading machine code that this program wrote")]
fn deserialize(engine: &wasmtime::Engine, content: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes came from `Component::serialize`: they match the checksum that was written with them, in a
    // folder that only this user can write to, under the name of this engine's compatibility hash, which wasmtime
    // checks once more.
    unsafe { Component::deserialize(engine, content) }
}

fn write(file: &Path, checksum: &[u8], content: &[u8]) -> std::io::Result<()> {
    // Another process, or another thread of this one, may be compiling the same guest.
    let draft = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let part = file.with_extension(format!("{}-{draft}.part", std::process::id()));
    let mut out = std::fs::File::create(&part)?;
    out.write_all(checksum)?;
    out.write_all(content)?;
    drop(out);
    std::fs::rename(&part, file)
}

/// The folder for compiled guests of this user (XDG Base Directory Specification). `None` without a home.
pub fn users_cache() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let named = named.filter(|folder| folder.is_absolute());
    let cache = named.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("trueup"))
}

/// Creates the folder with mode 0700, or says why the existing one can't be used.
fn usable(folder: &Path) -> Result<(), String> {
    if !folder.exists() {
        folder::make(folder, Durable::No).map_err(|error| error.to_string())?;
    }
    let found = std::fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() {
        return Err("it is not a folder".to_owned());
    }
    if found.uid() != user {
        return Err(format!("it belongs to user {}, this is user {user}", found.uid()));
    }
    let mode = found.permissions().mode() & 0o777;
    if mode != 0o700 {
        let folder = folder.display();
        return Err(format!("its mode is {mode:o}, must be 700: chmod 700 {folder}"));
    }
    Ok(())
}
