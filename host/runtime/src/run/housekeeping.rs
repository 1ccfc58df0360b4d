//! Keeps the state folder within its limits, beside the host's work: recordings of keys that are gone, the total size
//! of all recordings, and the audit log.
//!
//! ```text
//! each 10 s     journals wrote a sixteenth of the limit, or an hour passed? -> scan all recordings
//! each minute   remove the oldest files of the audit log; is the state folder still at its path?
//!
//! a scan   1. recordings of keys that are gone for too long
//!          2. above the total: recordings of keys that are gone, then the oldest segments of the others
//! ```
//!
//! A scan reads the size and time of each file, so its rate follows what was written since the last one. The newest
//! segment of a key that exists is never removed: the host rebuilds its instance from it. The pool of journals keeps
//! a recording that is open. What `trueup explain` shows of a key counts with its recording, and is removed with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::MissedTickBehavior;
use trueup_base::folder;
use trueup_capabilities::audit::Audit;
use trueup_config::Config;
use trueup_journal::Files;
use trueup_work::host_context::HostContext;
use trueup_worlds::KINDS;

use crate::folders::{folders_in, listed};

const LOOK_EVERY: Duration = Duration::from_secs(3600);
const AUDIT_EVERY: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_secs(10);

/// Journals that wrote this fraction of the limit trigger a scan, which frees the same fraction.
const PART: u64 = 16;

const DAY: Duration = Duration::from_secs(86_400);

/// The limits.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    state_dir: PathBuf,
    files: Files,
    /// Guests whose keys are in `keys/` while they exist. Other guests have a key for each node.
    keyed: Vec<&'static str>,
    audit: Option<Arc<Audit>>,
    total_bytes: u64,
    gone_for: Duration,
    audit_bytes: u64,
    audit_for: Duration,
}

impl Limits {
    pub(super) fn of(config: &Config, host_context: &HostContext) -> Self {
        let days = |days: u64| DAY.saturating_mul(u32::try_from(days).unwrap_or(u32::MAX));
        Self {
            state_dir: config.state_dir.clone(),
            files: host_context.files.clone(),
            keyed: KINDS.iter().filter_map(|kind| kind.keyed_guest()).collect(),
            audit: host_context.audit.clone(),
            total_bytes: config.journal.keep_total_bytes,
            gone_for: days(config.journal.keep_gone_days),
            audit_bytes: config.audit.keep_bytes,
            audit_for: days(config.audit.keep_days),
        }
    }

    /// Scans all recordings once.
    fn keep_recordings(&self, now: SystemTime) -> io::Result<()> {
        let mut found = self.recordings()?;
        let gone_before = now.checked_sub(self.gone_for);
        found.retain(|recording| {
            let is_over = recording.is_gone && gone_before.is_some_and(|before| recording.written_at < before);
            !(is_over && self.remove(recording))
        });
        let mut bytes: u64 = found.iter().map(Recording::bytes).sum();
        if bytes <= self.total_bytes {
            return Ok(());
        }
        let fits = self.total_bytes - self.total_bytes / PART;
        found.sort_by_key(|recording| (!recording.is_gone, recording.written_at));
        found.retain(|recording| {
            let goes = bytes > fits && recording.is_gone && self.remove(recording);
            bytes -= if goes { recording.bytes() } else { 0 };
            !goes
        });
        let mut old: Vec<&Part> = found.iter().flat_map(Recording::not_needed).collect();
        old.sort_by_key(|part| part.modified);
        for part in old {
            if bytes <= fits {
                return Ok(());
            }
            // Its journal may already have removed it.
            if let Err(error) = fs::remove_file(&part.path)
                && error.kind() != io::ErrorKind::NotFound
            {
                let path = part.path.display();
                tracing::warn!("can't remove `{path}`, an old part of a recording: {error}");
                continue;
            }
            bytes -= part.bytes;
        }
        if bytes > self.total_bytes {
            let spared = "of which none can be spared; `keep_total_bytes` of [journal] is";
            tracing::warn!("recordings take {bytes} bytes, {spared} {}", self.total_bytes);
        }
        Ok(())
    }

    /// Removes everything kept of a key that is gone. `false` if it is in use, came back, or can't be removed.
    fn remove(&self, recording: &Recording) -> bool {
        let removed = self.files.remove_unused(&recording.folder, || {
            if recording.key_file.exists() {
                return Err(io::Error::other("it came back"));
            }
            for decisions in &recording.decisions {
                fs::remove_file(&decisions.path)?;
            }
            fs::remove_dir_all(&recording.folder)
        });
        removed.unwrap_or_else(|error| {
            let folder = recording.folder.display();
            tracing::warn!("`{folder}`, the recording of a key that is gone, stays: {error}");
            false
        })
    }

    fn recordings(&self) -> io::Result<Vec<Recording>> {
        let mut found = Vec::new();
        for of_guest in folders_in(&self.state_dir.join("journals"))? {
            let Some(guest) = name(&of_guest) else { continue };
            let mut decisions = self.decisions(guest)?;
            for folder in folders_in(&of_guest)? {
                let Some(name) = name(&folder) else { continue };
                let key_file = self.state_dir.join("keys").join(guest).join(format!("{name}.json"));
                let parts = parts(&folder)?;
                let decisions = decisions.remove(name).unwrap_or_default();
                let all = parts.iter().chain(&decisions);
                found.push(Recording {
                    is_gone: self.keyed.contains(&guest) && !key_file.exists(),
                    written_at: all.map(|part| part.modified).max().unwrap_or(SystemTime::UNIX_EPOCH),
                    folder,
                    key_file,
                    parts,
                    decisions,
                });
            }
        }
        Ok(found)
    }

    /// The explanations of a guest, by key name.
    fn decisions(&self, guest: &str) -> io::Result<BTreeMap<String, Vec<Part>>> {
        let mut by_key: BTreeMap<String, Vec<Part>> = BTreeMap::new();
        for part in parts(&self.state_dir.join("decisions").join(guest))? {
            let name = name(&part.path).unwrap_or_default();
            let key = name.strip_suffix(".old.jsonl").or_else(|| name.strip_suffix(".jsonl"));
            if let Some(key) = key.map(str::to_owned) {
                by_key.entry(key).or_default().push(part);
            }
        }
        Ok(by_key)
    }
}

/// The files kept of one key.
#[derive(Debug)]
struct Recording {
    folder: PathBuf,
    /// Exists as long as the key does, if the guest is one of [`Limits::keyed`].
    key_file: PathBuf,
    is_gone: bool,
    written_at: SystemTime,
    /// The files in its folder.
    parts: Vec<Part>,
    decisions: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

impl Part {
    /// The number of its first entry, if it is a segment.
    fn first(&self) -> Option<u64> {
        name(&self.path)?.strip_suffix(".jsonl")?.parse().ok()
    }

    /// Whether its first line is complete. An instance can't be rebuilt from a segment that has only been begun.
    fn begins_whole(&self) -> bool {
        let Ok(file) = File::open(&self.path) else { return false };
        let mut bytes = BufReader::new(file).bytes().map_while(Result::ok);
        bytes.any(|byte| byte == b'\n')
    }
}

impl Recording {
    fn bytes(&self) -> u64 {
        self.parts.iter().chain(&self.decisions).map(|part| part.bytes).sum()
    }

    /// The segments before the newest one, and damaged ones that were set aside.
    fn not_needed(&self) -> Vec<&Part> {
        let newest = self.parts.iter().max_by_key(|part| part.first());
        let Some(newest) = newest.filter(|newest| newest.begins_whole()) else {
            return Vec::new();
        };
        let is_old = |part: &&Part| {
            let is_damaged = part.path.extension().is_some_and(|extension| extension == "damaged");
            is_damaged || part.first().is_some_and(|first| Some(first) < newest.first())
        };
        self.parts.iter().filter(is_old).collect()
    }
}

/// The name of a file or folder, if it is text: those that a host makes are.
fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The files in a folder. Files may come and go meanwhile.
fn parts(folder: &Path) -> io::Result<Vec<Part>> {
    let mut found = Vec::new();
    for entry in listed(folder)? {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            found.push(Part {
                path: entry.path(),
                bytes: metadata.len(),
                modified: metadata.modified()?,
            });
        }
    }
    Ok(found)
}

/// Runs the housekeeping until it is dropped, on blocking threads.
pub(super) async fn run(limits: Limits) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut looked_at, mut audited_at) = (None, None);
    let mut written = 0;
    loop {
        tick.tick().await;
        let now = Instant::now();
        let is_due = |last: Option<Instant>, every| last.is_none_or(|last| now.duration_since(last) >= every);
        written += limits.files.take_written();
        if written >= limits.total_bytes / PART || is_due(looked_at, LOOK_EVERY) {
            (written, looked_at) = (0, Some(now));
            off_thread(&limits, |limits| {
                if let Err(error) = limits.keep_recordings(SystemTime::now()) {
                    tracing::warn!("can't look through the recordings for old ones: {error}");
                }
            })
            .await;
        }
        if is_due(audited_at, AUDIT_EVERY) {
            audited_at = Some(now);
            off_thread(&limits, |limits| {
                if let Some(moved) = folder::moved(&limits.state_dir) {
                    tracing::error!("{moved}");
                }
                let Some(audit) = &limits.audit else { return };
                let from = SystemTime::now().checked_sub(limits.audit_for);
                match audit.keep_within(limits.audit_bytes, from.unwrap_or(SystemTime::UNIX_EPOCH)) {
                    Ok(0) => {}
                    Ok(count) => tracing::info!("{count} old files of the audit log were removed"),
                    Err(error) => tracing::warn!("{:#}", anyhow::Error::from(error)),
                }
            })
            .await;
        }
    }
}

async fn off_thread(limits: &Limits, work: impl FnOnce(&Limits) + Send + 'static) {
    let limits = limits.clone();
    // It does not panic. If it did, the panic was logged.
    let _ = tokio::task::spawn_blocking(move || work(&limits)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "{\"n\":0,\"header\":{}}\n";

    fn limits(state_dir: &Path, total_bytes: u64) -> Limits {
        Limits {
            state_dir: state_dir.to_owned(),
            files: Files::default(),
            keyed: vec!["lbaas", "neg"],
            audit: None,
            total_bytes,
            gone_for: DAY,
            audit_bytes: 0,
            audit_for: DAY,
        }
    }

    /// A file with this many bytes, last written this many days ago.
    fn write(state_dir: &Path, name: &str, bytes: usize, days: u32) {
        let path = state_dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{HEADER}{}", "x".repeat(bytes - HEADER.len()))).unwrap();
        let at = SystemTime::now() - DAY * days;
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(at)
            .unwrap();
    }

    fn there(state_dir: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![state_dir.to_owned()];
        while let Some(folder) = folders.pop() {
            folders.extend(folders_in(&folder).unwrap());
            let files = parts(&folder).unwrap().into_iter().map(|part| part.path);
            found.extend(files.map(|path| path.strip_prefix(state_dir).unwrap().display().to_string()));
        }
        found.retain(|name| !name.starts_with("keys/"));
        found.sort();
        found
    }

    #[test]
    fn recordings_of_keys_that_are_gone_for_long_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for (name, days) in [
            ("journals/lbaas/a%2Fgone/0.jsonl", 3),
            ("decisions/lbaas/a%2Fgone.jsonl", 3),
            ("decisions/lbaas/a%2Fgone.old.jsonl", 4),
            ("journals/lbaas/a%2Flately/0.jsonl", 0),
            ("journals/lbaas/a%2Fthere/0.jsonl", 3),
            ("keys/lbaas/a%2Fthere.json", 3),
            ("journals/neg/a%2Fgone%2F80/7.jsonl", 2),
            ("journals/nodesync/node-a/0.jsonl", 9),
        ] {
            write(dir.path(), name, 100, days);
        }
        limits(dir.path(), 1 << 20).keep_recordings(SystemTime::now()).unwrap();
        assert_eq!(
            there(dir.path()),
            [
                "journals/lbaas/a%2Flately/0.jsonl",
                "journals/lbaas/a%2Fthere/0.jsonl",
                "journals/nodesync/node-a/0.jsonl"
            ]
        );
    }

    #[test]
    fn above_the_total_what_is_gone_goes_first_and_the_newest_segment_stays() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "keys/lbaas/a%2Fweb.json", 100, 0);
        write(dir.path(), "keys/lbaas/a%2Fbegun.json", 100, 0);
        for (name, days) in [
            ("journals/lbaas/a%2Fgone/0.jsonl", 0),
            ("journals/lbaas/a%2Fweb/0.jsonl", 9),
            ("journals/lbaas/a%2Fweb/5.jsonl.damaged", 8),
            ("journals/lbaas/a%2Fweb/10.jsonl", 7),
            ("journals/lbaas/a%2Fweb/9.jsonl", 6),
            ("journals/lbaas/a%2Fbegun/1.jsonl", 9),
        ] {
            write(dir.path(), name, 1000, days);
        }
        // Its header is torn, so the instance is rebuilt from the segment before.
        fs::write(dir.path().join("journals/lbaas/a%2Fbegun/2.jsonl"), "{\"n\":2,").unwrap();
        let all = there(dir.path());
        let after = |total| {
            limits(dir.path(), total).keep_recordings(SystemTime::now()).unwrap();
            let left = there(dir.path());
            let gone = all.iter().filter(|name| !left.contains(name));
            gone.map(|name| name.trim_start_matches("journals/lbaas/").to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(after(10_000), [] as [&str; 0]);
        assert_eq!(after(5_600), ["a%2Fgone/0.jsonl"]);
        assert_eq!(after(4_500), ["a%2Fgone/0.jsonl", "a%2Fweb/0.jsonl"]);
        assert_eq!(
            after(100),
            [
                "a%2Fgone/0.jsonl",
                "a%2Fweb/0.jsonl",
                "a%2Fweb/5.jsonl.damaged",
                "a%2Fweb/9.jsonl"
            ]
        );
    }

    #[test]
    fn a_recording_that_is_in_use_stays() {
        let dir = tempfile::tempdir().unwrap();
        let limits = limits(dir.path(), 1 << 20);
        let folder = dir.path().join("journals/lbaas/a%2Fgone");
        let opened = trueup_journal::Journal::open(&folder, Default::default(), &limits.files).unwrap();
        write(dir.path(), "journals/lbaas/a%2Fgone/0.jsonl", 100, 3);
        limits.keep_recordings(SystemTime::now()).unwrap();
        assert_eq!(there(dir.path()).len(), 1);
        drop(opened);
        limits.keep_recordings(SystemTime::now()).unwrap();
        assert_eq!(there(dir.path()), [] as [&str; 0]);
    }
}
