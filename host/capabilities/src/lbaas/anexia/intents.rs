//! Pending creations, on disk before their first request is sent.
//!
//! A creation takes two requests: one creates, one tags. A host that is killed in between leaves an object that no list
//! by tag shows. The intent says what to look for after the restart. One file holds the entries of one `create`:
//!
//! ```text
//! begin (the file is on disk) -> create, tag -> every entry is settled -> the file is removed
//! ```
//!
//! A file that a kill truncated is no loss: no request was sent yet. Beside the files is [`COMPLETE`]. Without it (a
//! new folder, a damaged file), creations of another host or an earlier version may also have been interrupted, and the
//! folder does not say which. In that case each Service is looked up by name once.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::regular;
use trueup_base::replace::{self, Durable};

use crate::lbaas::Spec;

/// The name of the marker file: the folder holds every creation that may have been interrupted.
const COMPLETE: &str = "complete";

/// The content of the file of one `create`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The time in milliseconds since 1970.
    at_ms: u64,
    /// The tags for each object.
    tags: Vec<String>,
    specs: Vec<Spec>,
}

/// Every creation whose outcome is unknown.
#[derive(Default)]
pub(super) struct Intents {
    /// `None`: intents end with the process.
    folder: Option<PathBuf>,
    complete: AtomicBool,
    /// Unreadable files.
    damaged: Vec<PathBuf>,
    batches: Mutex<Batches>,
    /// How long after its request a creation may still take effect.
    request_timeout: Duration,
}

#[derive(Default)]
struct Batches {
    next: u64,
    /// Unsettled entries.
    open: BTreeMap<Intent, Entry>,
}

/// One object that may have been created without its tags.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) spec: Spec,
    pub(super) tags: Vec<String>,
    /// An object that does not exist at this time will not appear later. `None` while its creation is running.
    late_from: Option<Instant>,
}

impl Entry {
    /// Whether an object that does not exist at this time will not appear later.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.late_from.is_some_and(|late_from| now >= late_from)
    }
}

/// The intent to create one object: the number of its `create`, and its place in it. It stays open unless it is
/// settled.
pub(super) type Intent = (u64, usize);

impl Intents {
    /// Reads what an earlier process has left in `folder`, and changes nothing there.
    ///
    /// # Errors
    /// If the folder can't be read; the error names it.
    pub(super) fn open(folder: Option<&Path>, request_timeout: Duration) -> io::Result<Self> {
        let mut intents = Self {
            folder: folder.map(Path::to_owned),
            request_timeout,
            ..Self::default()
        };
        let Some(folder) = folder else { return Ok(intents) };
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("reading {}: {error}", folder.display()));
        intents.load(folder).map_err(failed)?;
        Ok(intents)
    }

    fn load(&mut self, folder: &Path) -> io::Result<()> {
        let files = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            files => files?,
        };
        let (mut batches, mut is_whole) = (Batches::default(), true);
        for file in files {
            let path = file?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            batches.next = batches.next.max(number.map_or(0, |number| number.saturating_add(1)));
            let text = match std::fs::read(&path) {
                // A running host has settled it meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                text => text?,
            };
            match (number, serde_json::from_slice::<Written>(&text)) {
                (Some(number), Ok(written)) => {
                    batches.open.extend(self.entries_of(number, written));
                    continue;
                }
                // Truncated before any request was sent.
                (_, Err(error)) if error.is_eof() => {}
                _ => {
                    is_whole = false;
                    tracing::warn!(
                        "{} can't be read: each Service is looked at by name for what was created without its tags",
                        path.display()
                    );
                }
            }
            self.damaged.push(path);
        }
        self.complete = AtomicBool::new(is_whole && folder.join(COMPLETE).exists());
        self.batches = Mutex::new(batches);
        Ok(())
    }

    /// Wall time gives the age of the file; from here on, time is monotonic.
    fn entries_of(&self, number: u64, written: Written) -> impl Iterator<Item = (Intent, Entry)> + use<> {
        let ago = Duration::from_millis(SystemClock.now_ms().saturating_sub(written.at_ms));
        let late_from = Instant::now() + self.request_timeout.saturating_sub(ago);
        entries(number, written, Some(late_from))
    }

    /// Records pending creations with these tags on disk before it returns: one intent per spec, in order.
    ///
    /// # Errors
    /// If it can't be written; then the caller must not create anything.
    pub(super) async fn begin(&self, specs: &[Spec], tags: &[String]) -> io::Result<Vec<Intent>> {
        let number = {
            let mut batches = self.batches.lock();
            batches.next += 1;
            batches.next - 1
        };
        let written = Written {
            at_ms: SystemClock.now_ms(),
            tags: tags.to_vec(),
            specs: specs.to_vec(),
        };
        if let Some(file) = self.file(number) {
            let text = serde_json::to_vec(&written)?;
            tokio::task::spawn_blocking(move || write(&file, &text)).await??;
        }
        self.batches.lock().open.extend(entries(number, written, None));
        Ok((0..specs.len()).map(|place| (number, place)).collect())
    }

    /// The objects that may have been created for this tag without being tagged.
    pub(super) fn of_tag(&self, tag: &str) -> Vec<(Intent, Entry)> {
        let open = &self.batches.lock().open;
        let of_tag = open.iter().filter(|(_, entry)| entry.tags.iter().any(|it| it == tag));
        of_tag.map(|(intent, entry)| (*intent, entry.clone())).collect()
    }

    /// The object carries its tags, or certainly does not exist.
    pub(super) fn settle(&self, intent: Intent) {
        let (number, _) = intent;
        {
            let open = &mut self.batches.lock().open;
            if open.remove(&intent).is_none() || open.range((number, 0)..=(number, usize::MAX)).next().is_some() {
                return;
            }
        }
        if let Some(Err(error)) = self.file(number).map(|file| remove(&file)) {
            tracing::warn!("what it says is looked for once more after the next start: {error}");
        }
    }

    /// No more requests are sent for it: if the object does not appear soon, it never will.
    pub(super) fn leave_open(&self, intent: Intent) {
        if let Some(entry) = self.batches.lock().open.get_mut(&intent) {
            entry.late_from = Some(Instant::now() + self.request_timeout);
        }
    }

    /// Whether only the objects of the intents may lack their tags.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    /// Every Service was looked up by name: from here on, the intents are complete, also after a restart.
    pub(super) fn complete(&self) {
        if self.complete.swap(true, Ordering::Relaxed) {
            return;
        }
        let Some(folder) = &self.folder else { return };
        let noted = write(&folder.join(COMPLETE), b"");
        let removed = self.damaged.iter().try_for_each(|path| remove(path));
        if let Err(error) = noted.and(removed) {
            tracing::warn!("after the next start each Service is looked at by name again: {error}");
        }
    }

    /// Other hosts act, too: the folder no longer covers what they leave behind.
    pub(super) fn incomplete(&self) {
        if !self.complete.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Some(Err(error)) = self.folder.as_ref().map(|folder| remove(&folder.join(COMPLETE))) {
            tracing::warn!("what other hosts have left may not be looked for where this one is alone again: {error}");
        }
    }

    fn file(&self, number: u64) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{number}.json")))
    }
}

/// The entries of one `create`.
fn entries(number: u64, written: Written, late_from: Option<Instant>) -> impl Iterator<Item = (Intent, Entry)> {
    let Written { specs, tags, .. } = written;
    specs.into_iter().enumerate().map(move |(place, spec)| {
        let tags = tags.clone();
        ((number, place), Entry { spec, tags, late_from })
    })
}

/// Durably writes a file and its name.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    // An intent whose name does not survive a power failure is none.
    let written = replace::replace_file(path, content, Durable::Yes)
        .and_then(|()| replace::sync_folder(regular::folder_of(path)));
    written.map_err(|error| io::Error::new(error.kind(), format!("writing {}: {error}", path.display())))
}

fn remove(path: &Path) -> io::Result<()> {
    replace::remove(path).map_err(|error| io::Error::new(error.kind(), format!("removing {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TAG, backend};
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn open(folder: &Path) -> Intents {
        Intents::open(Some(folder), TIMEOUT).unwrap()
    }

    fn names(intents: &Intents) -> Vec<String> {
        let sought = intents.of_tag(TAG);
        sought.iter().map(|(_, entry)| entry.spec.name().to_owned()).collect()
    }

    #[tokio::test]
    async fn what_is_not_settled_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("intents/lbaas");
        let intents = open(&folder);
        let tags = [TAG.to_owned()];
        for intent in intents.begin(&[backend("a"), backend("b")], &tags).await.unwrap() {
            intents.settle(intent);
        }
        let begun = intents.begin(&[backend("c"), backend("d")], &tags).await.unwrap();
        intents.settle(begun[0]);
        assert_eq!(names(&intents), ["d"]);
        // The file holds all begun creations; searching for an object that carries its tags costs one list.
        let again = open(&folder);
        assert_eq!(names(&again), ["c", "d"]);
        assert!(again.of_tag("another").is_empty());
        again.of_tag(TAG).iter().for_each(|(intent, _)| again.settle(*intent));
        assert_eq!(names(&open(&folder)), [""; 0]);
        // Numbers do not repeat while a file has one.
        let begun = again.begin(&[backend("e")], &tags).await.unwrap();
        assert_eq!((begun.len(), names(&open(&folder))), (1, vec!["e".to_owned()]));
    }

    #[tokio::test]
    async fn what_is_not_there_may_turn_up_until_the_request_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let timeout = Duration::from_millis(300);
        let impatient = || Intents::open(Some(folder.path()), timeout).unwrap();
        let intents = impatient();
        let begun = intents.begin(&[backend("a")], &[TAG.to_owned()]).await.unwrap();
        let is_late = |intents: &Intents| intents.of_tag(TAG)[0].1.is_late(Instant::now());
        let again = impatient();
        assert!(!is_late(&open(folder.path())));
        tokio::time::sleep(2 * timeout).await;
        assert!(!is_late(&intents), "it is under way");
        begun.into_iter().for_each(|intent| intents.leave_open(intent));
        assert!(!is_late(&intents));
        tokio::time::sleep(timeout).await;
        assert!(is_late(&intents) && is_late(&again));
    }

    #[tokio::test]
    async fn a_clock_that_was_set_back_delays_by_one_timeout_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let written = Written {
            at_ms: u64::MAX,
            tags: Vec::new(),
            specs: vec![backend("a")],
        };
        let (_, entry) = open(folder.path()).entries_of(0, written).next().unwrap();
        assert!(entry.late_from.unwrap() <= Instant::now() + TIMEOUT);
    }

    #[tokio::test]
    async fn a_damaged_file_means_that_the_folder_does_not_say_all() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert!(!open(folder.path()).is_complete(), "it is new");
        open(folder.path()).complete();
        assert!(open(folder.path()).is_complete());
        put("7.json", r#"{"at_ms":1,"ta"#);
        assert!(
            open(folder.path()).is_complete(),
            "nothing was sent before it was written"
        );
        put("8.json", r#"{"at_ms":"never"}"#);
        let intents = open(folder.path());
        assert!(!intents.is_complete());
        intents.complete();
        assert!(open(folder.path()).is_complete());
    }
}
