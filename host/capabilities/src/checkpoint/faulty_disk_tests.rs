//! The file store and the file replacement, on a disk that fails on demand.

use std::collections::BTreeSet;
use std::fs::{self, File as OsFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::Store;
use super::file::{File, Settings};
use super::json_file::JsonFile;
use super::place::{Disk, Real};
use crate::metrics::Registry;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Op {
    Write,
    SyncData,
    SyncAll,
    Cut,
    Link,
    Rename,
    SyncFolder,
}

/// Fails at some operations. Or, as after a power loss, fails at all operations from some point on.
#[derive(Debug, Default)]
struct Faulty {
    failing: Mutex<BTreeSet<Op>>,
    done: AtomicU64,
    /// The first operation, counted from 1, from which on all fail; 0 for none.
    dead_from: AtomicU64,
    synced: AtomicU64,
    /// `sync_data` waits as long as the test holds this.
    gate: Mutex<()>,
}

impl Faulty {
    fn fail(&self, ops: &[Op]) {
        *self.failing.lock().unwrap() = ops.iter().copied().collect();
    }

    fn try_op(&self, op: Op, errno: Errno) -> io::Result<()> {
        let number = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let dead_from = self.dead_from.load(Ordering::Relaxed);
        let is_dead = dead_from > 0 && number >= dead_from;
        if is_dead || self.failing.lock().unwrap().contains(&op) {
            return Err(errno.into());
        }
        Ok(())
    }
}

impl Disk for Faulty {
    fn write_at(&self, file: &OsFile, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Err(error) = self.try_op(Op::Write, Errno::NOSPC) {
            // The part that fitted is written.
            Real.write_at(file, &bytes[..bytes.len() / 2], offset)?;
            return Err(error);
        }
        Real.write_at(file, bytes, offset)
    }

    fn sync_data(&self, file: &OsFile) -> io::Result<()> {
        self.synced.fetch_add(1, Ordering::Relaxed);
        drop(self.gate.lock().unwrap());
        self.try_op(Op::SyncData, Errno::IO)?;
        Real.sync_data(file)
    }

    fn sync_all(&self, file: &OsFile) -> io::Result<()> {
        self.try_op(Op::SyncAll, Errno::IO)?;
        Real.sync_all(file)
    }

    fn cut(&self, file: &OsFile, bytes: u64) -> io::Result<()> {
        self.try_op(Op::Cut, Errno::IO)?;
        Real.cut(file, bytes)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.try_op(Op::Link, Errno::PERM)?;
        Real.link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.try_op(Op::Rename, Errno::NOSPC)?;
        Real.rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.try_op(Op::SyncFolder, Errno::IO)?;
        Real.sync_folder(folder)
    }
}

/// A store on a faulty disk, in a folder of its own, with one checkpoint and one durable entry.
struct World {
    folder: tempfile::TempDir,
    disk: Arc<Faulty>,
    store: Arc<File>,
}

impl World {
    async fn new(shared_sync: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(Faulty::default());
        let store = open(&disk, &folder.path().join("ipam"), shared_sync);
        let world = Self {
            folder,
            disk,
            store: Arc::new(store),
        };
        world.store.checkpoint("data").await.unwrap();
        world.store.append("first").await.unwrap();
        world.store.durable(world.store.written()).await.unwrap();
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("ipam")
    }

    async fn entries(&self) -> Vec<String> {
        self.store.restore().await.unwrap().unwrap().entries
    }

    async fn append(&self, entry: &str) -> Result<(), String> {
        self.store.append(entry).await.map_err(|error| told(&error))
    }

    async fn durable(&self, written: u64) -> Result<(), String> {
        self.store.durable(written).await.map_err(|error| told(&error))
    }

    /// What a host finds that now starts on this file with a working disk.
    async fn found(self) -> Vec<String> {
        let path = self.path();
        drop(self.store);
        let store = open(&Arc::new(Faulty::default()), &path, false);
        store.restore().await.unwrap().unwrap().entries
    }

    async fn takes_no_entry_until_a_checkpoint(&self) {
        let refused = self.append("refused").await.unwrap_err();
        assert!(
            refused.contains("no appends until a checkpoint has replaced the file"),
            "{refused}"
        );
        self.store.checkpoint("again").await.unwrap();
        self.append("taken").await.unwrap();
        self.durable(self.store.written()).await.unwrap();
        assert_eq!(self.entries().await, ["taken"]);
    }
}

fn open(disk: &Arc<Faulty>, path: &Path, shared_sync: bool) -> File {
    let settings = Settings {
        path: path.to_owned(),
        keep_generations: 2,
        shared_sync,
    };
    let disk: Arc<dyn Disk> = Arc::<Faulty>::clone(disk);
    File::open_on(disk, settings, Arc::new(Registry::default())).unwrap()
}

fn told(error: &super::Error) -> String {
    format!("{}: {}", error.kind(), error.text())
}

#[tokio::test]
async fn an_entry_that_could_not_be_synced_is_cut_off_and_no_other_is_taken() {
    let world = World::new(false).await;
    let before = fs::read(world.path()).unwrap();
    world.disk.fail(&[Op::SyncData]);
    let path = world.path();
    let expected = format!(
        "unavailable: {}: syncing an entry: Input/output error (os error 5)",
        path.display()
    );
    assert_eq!(world.append("lost").await, Err(expected));
    assert_eq!(fs::read(&path).unwrap(), before);
    world.disk.fail(&[]);
    assert_eq!(world.entries().await, ["first"]);
    world.takes_no_entry_until_a_checkpoint().await;
}

#[tokio::test]
async fn an_entry_that_could_not_be_written_is_cut_off_and_no_other_is_taken() {
    for shared_sync in [false, true] {
        let world = World::new(shared_sync).await;
        let before = fs::read(world.path()).unwrap();
        world.disk.fail(&[Op::Write]);
        let refused = world.append("lost").await.unwrap_err();
        assert!(
            refused.ends_with("writing an entry: No space left on device (os error 28)"),
            "{refused}"
        );
        assert_eq!(fs::read(world.path()).unwrap(), before);
        world.disk.fail(&[]);
        assert_eq!(world.entries().await, ["first"]);
        world.takes_no_entry_until_a_checkpoint().await;
    }
}

#[tokio::test]
async fn what_could_not_be_cut_off_is_not_read_and_is_a_torn_tail_later() {
    let world = World::new(false).await;
    let before = fs::read(world.path()).unwrap();
    world.disk.fail(&[Op::Write, Op::Cut]);
    world.append("lost").await.unwrap_err();
    assert!(fs::read(world.path()).unwrap().len() > before.len());
    assert_eq!(world.entries().await, ["first"]);
    assert_eq!(world.found().await, ["first"]);
}

/// Power is lost while entries wait for a sync. The disk has kept any subset of them, and any earlier state of the
/// anchor.
#[tokio::test]
async fn after_power_loss_no_answered_entry_is_lost_and_nothing_is_damaged() {
    let world = World::new(true).await;
    let anchor = world.folder.path().join("ipam.anchor");
    let mut anchors = vec![fs::read(&anchor).unwrap()];
    for durable in ["second", "third"] {
        world.append(durable).await.unwrap();
        world.durable(world.store.written()).await.unwrap();
        anchors.push(fs::read(&anchor).unwrap());
    }
    let mut ends = vec![fs::read(world.path()).unwrap().len()];
    let waiting = ["a", "bb", "ccc", "dddd"];
    for entry in waiting {
        world.append(entry).await.unwrap();
        ends.push(fs::read(world.path()).unwrap().len());
    }
    let whole = fs::read(world.path()).unwrap();
    for kept in 0..1_u32 << waiting.len() {
        let mut bytes = whole.clone();
        let is_kept = |number: usize| kept & (1 << number) != 0;
        for (number, range) in ends.windows(2).enumerate() {
            if !is_kept(number) {
                bytes[range[0]..range[1]].fill(0);
            }
        }
        let prefix = (0..waiting.len()).take_while(|number| is_kept(*number)).count();
        let expected: Vec<&str> = ["first", "second", "third"]
            .into_iter()
            .chain(waiting.into_iter().take(prefix))
            .collect();
        for anchored in &anchors {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ipam");
            fs::write(&path, &bytes).unwrap();
            fs::write(folder.path().join("ipam.anchor"), anchored).unwrap();
            let store = open(&Arc::new(Faulty::default()), &path, true);
            let saved = store.restore().await.unwrap().unwrap();
            assert_eq!(saved.entries, expected, "kept {kept:b}");
            store.append("next").await.unwrap();
            store.durable(store.written()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_durable_entry_that_is_damaged_is_damage_whatever_came_later() {
    let world = World::new(true).await;
    for entry in ["second", "third"] {
        world.append(entry).await.unwrap();
    }
    // Both share one sync; only the anchor shows that the second is durable.
    world.durable(world.store.written()).await.unwrap();
    let mut bytes = fs::read(world.path()).unwrap();
    let at = bytes.windows(6).position(|window| window == b"second").unwrap();
    bytes[at] ^= 1;
    let path = world.path();
    drop(world.store);
    fs::write(&path, &bytes).unwrap();
    let store = open(&Arc::new(Faulty::default()), &path, true);
    let text = told(&store.restore().await.unwrap_err());
    assert!(
        text.contains("record 2 at offset") && text.contains("are lost"),
        "{text}"
    );
}

/// The host is killed, or the disk fails, at each operation of a start, a checkpoint and an entry.
#[tokio::test]
async fn a_crash_at_any_step_leaves_an_anchor_that_fits_the_store() {
    for step in 1..40 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ipam");
        let disk = Arc::new(Faulty::default());
        disk.dead_from.store(step, Ordering::Relaxed);
        let store = open(&disk, &path, false);
        let mut answered = Vec::new();
        let is_there = store.checkpoint("one").await.is_ok();
        for entry in ["a", "b"] {
            if store.append(entry).await.is_ok() {
                answered.push(entry);
            }
        }
        let is_replaced = store.checkpoint("two").await.is_ok();
        drop(store);
        let store = open(&Arc::new(Faulty::default()), &path, false);
        let saved = store
            .restore()
            .await
            .unwrap_or_else(|error| panic!("step {step}: {}", told(&error)));
        assert!(saved.is_some() || !is_there, "step {step}");
        let saved = saved.unwrap_or(super::Saved {
            data: String::new(),
            entries: Vec::new(),
        });
        if is_replaced {
            assert_eq!(saved.data, "two", "step {step}");
        } else if saved.data == "one" {
            assert!(
                saved
                    .entries
                    .starts_with(&answered.iter().map(ToString::to_string).collect::<Vec<_>>())
            );
        }
    }
}

#[tokio::test]
async fn a_failed_sync_is_told_to_all_who_wait_and_to_who_asks_later() {
    let world = World::new(true).await;
    let before = fs::read(world.path()).unwrap();
    let durable = world.store.written();
    for entry in ["a", "b", "c"] {
        world.append(entry).await.unwrap();
    }
    assert_eq!(world.entries().await, ["first", "a", "b", "c"]);
    world.disk.fail(&[Op::SyncData]);
    let (one, all) = tokio::join!(world.durable(durable + 1), world.durable(durable + 3));
    for told in [one, all] {
        assert!(told.unwrap_err().contains("syncing entries: Input/output error"));
    }
    world.disk.fail(&[]);
    assert_eq!(fs::read(world.path()).unwrap(), before);

    // Until the instance is rebuilt, its answers depend on lost changes.
    assert!(world.durable(world.store.written()).await.is_err());
    assert_eq!(world.durable(durable).await, Ok(()));
    assert_eq!(world.entries().await, ["first"]);
    assert_eq!(world.durable(world.store.written()).await, Ok(()));
    assert!(world.durable(durable + 1).await.is_err());
    assert!(world.durable(durable + 3).await.is_err());
    world.takes_no_entry_until_a_checkpoint().await;
    assert!(world.durable(durable + 3).await.is_err(), "it was lost all the same");
}

/// Shuts the disk's gate until something is sent.
async fn shut(world: &Arc<World>) -> (std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let world = Arc::clone(world);
    let (open_gate, opened) = std::sync::mpsc::channel::<()>();
    let (is_shut, shut_now) = tokio::sync::oneshot::channel();
    // The gate's guard stays on its own thread: it can't be held across an await.
    let gate = std::thread::spawn(move || {
        let _guard = world.disk.gate.lock().unwrap();
        is_shut.send(()).unwrap();
        opened.recv().unwrap();
    });
    shut_now.await.unwrap();
    (open_gate, gate)
}

#[tokio::test]
async fn who_waits_meanwhile_shares_the_next_sync() {
    let world = Arc::new(World::new(true).await);
    let before = world.disk.synced.load(Ordering::Relaxed);
    let (open_gate, gate) = shut(&world).await;
    let written = world.store.written();
    let clients: Vec<_> = (0..16)
        .map(|client| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                world.append(&format!("{client}")).await.unwrap();
                world.durable(world.store.written()).await
            })
        })
        .collect();
    while world.store.written() < written + 16 {
        tokio::task::yield_now().await;
    }
    open_gate.send(()).unwrap();
    for client in clients {
        assert_eq!(client.await.unwrap(), Ok(()));
    }
    gate.join().unwrap();
    let syncs = world.disk.synced.load(Ordering::Relaxed) - before;
    assert!((1..=2).contains(&syncs), "{syncs} syncs");
    let world = Arc::into_inner(world).unwrap();
    assert_eq!(world.found().await.len(), 17);
}

#[tokio::test]
async fn a_failed_sync_is_an_error_even_if_the_file_is_gone_meanwhile() {
    let world = Arc::new(World::new(false).await);
    let syncs = world.disk.synced.load(Ordering::Relaxed);
    let during_sync = Arc::clone(&world);
    let (is_shut, shut_now) = tokio::sync::oneshot::channel();
    let gate = std::thread::spawn(move || {
        let World { disk, store, .. } = during_sync.as_ref();
        let _guard = disk.gate.lock().unwrap();
        is_shut.send(()).unwrap();
        while disk.synced.load(Ordering::Relaxed) == syncs {
            std::thread::yield_now();
        }
        disk.fail(&[Op::SyncData]);
        fs::remove_file(during_sync.path()).unwrap();
        // A second reader, which the turn excludes today.
        store.shared.load().unwrap_err();
    });
    shut_now.await.unwrap();
    let told = world.append("lost").await.unwrap_err();
    assert!(
        told.ends_with("syncing an entry: Input/output error (os error 5)"),
        "{told}"
    );
    gate.join().unwrap();
}

#[tokio::test]
async fn a_checkpoint_makes_durable_what_a_sync_then_fails_to() {
    let world = Arc::new(World::new(true).await);
    world.append("entry").await.unwrap();
    let written = world.store.written();
    let syncs = world.disk.synced.load(Ordering::Relaxed);
    let (open_gate, gate) = shut(&world).await;
    let waiter = {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.durable(written).await })
    };
    while world.disk.synced.load(Ordering::Relaxed) == syncs {
        tokio::task::yield_now().await;
    }
    world.disk.fail(&[Op::SyncData]);
    world.store.checkpoint("all of it").await.unwrap();
    open_gate.send(()).unwrap();
    gate.join().unwrap();
    assert_eq!(waiter.await.unwrap(), Ok(()));
    assert_eq!(world.entries().await, Vec::<String>::new());
    world.disk.fail(&[]);
    world.append("more").await.unwrap();
    assert_eq!(world.durable(world.store.written()).await, Ok(()));
}

#[tokio::test]
async fn a_checkpoint_that_fails_leaves_what_is_there() {
    for (op, words) in [
        (Op::Write, "No space left on device"),
        (Op::SyncAll, "Input/output error"),
        (Op::Rename, "No space left on device"),
    ] {
        let world = World::new(false).await;
        world.disk.fail(&[op]);
        let refused = told(&world.store.checkpoint("new").await.unwrap_err());
        assert!(
            refused.starts_with("unavailable: ") && refused.contains(words),
            "{refused}"
        );
        world.disk.fail(&[]);
        assert!(!world.folder.path().join("ipam.tmp").exists());
        assert_eq!(world.entries().await, ["first"]);
        world.append("second").await.unwrap();
        assert_eq!(world.found().await, ["first", "second"], "{op:?}");
    }
}

#[tokio::test]
async fn a_checkpoint_that_may_not_survive_takes_no_entries() {
    for shared_sync in [false, true] {
        let world = World::new(shared_sync).await;
        world.append("not synced").await.unwrap();
        let written = world.store.written();
        world.disk.fail(&[Op::SyncFolder]);
        world.store.checkpoint("new").await.unwrap_err();
        world.disk.fail(&[]);
        if shared_sync {
            assert!(
                world.durable(written).await.is_err(),
                "a crash may bring the older file back"
            );
        }
        world.takes_no_entry_until_a_checkpoint().await;
    }
}

#[tokio::test]
async fn a_checkpoint_matters_more_than_the_copy_of_an_older_one() {
    let world = World::new(false).await;
    world.disk.fail(&[Op::Link]);
    world.store.checkpoint("new").await.unwrap();
    world.append("entry").await.unwrap();
    assert_eq!(world.entries().await, ["entry"]);
    assert!(!world.folder.path().join("ipam.1").exists());
    world.disk.fail(&[]);
    world.store.checkpoint("newer").await.unwrap();
    assert!(world.folder.path().join("ipam.1").exists());
}

#[tokio::test]
async fn a_torn_tail_that_could_not_be_kept_is_not_cut_off() {
    let world = World::new(false).await;
    let (path, folder) = (world.path(), world.folder);
    drop(world.store);
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend([7; 9]);
    fs::write(&path, &bytes).unwrap();
    let disk = Arc::new(Faulty::default());
    disk.fail(&[Op::SyncFolder]);
    let store = open(&disk, &path, false);
    let refused = told(&store.restore().await.unwrap_err());
    assert!(
        refused.starts_with("unavailable: ") && refused.contains("keeping a torn tail"),
        "{refused}"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes);
    disk.fail(&[]);
    assert_eq!(store.restore().await.unwrap().unwrap().entries, ["first"]);
    assert_eq!(
        fs::read(folder.path().join(format!("ipam.torn-{}", bytes.len() - 9))).unwrap(),
        [7; 9]
    );
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_checkpoint_leaves_the_old_one_or_the_new_one() {
    let mut step = 0;
    loop {
        step += 1;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ipam");
        let disk = Arc::new(Faulty::default());
        let store = open(&disk, &path, false);
        for data in ["one", "two", "three"] {
            store.checkpoint(data).await.unwrap();
        }
        disk.dead_from
            .store(disk.done.load(Ordering::Relaxed) + step, Ordering::Relaxed);
        let survived = store.checkpoint("four").await.is_ok();
        drop(store);
        let read = async |name: &str| {
            let store = open(&Arc::new(Faulty::default()), &folder.path().join(name), false);
            store.restore().await.unwrap().map(|saved| saved.data)
        };
        let present = read("ipam").await.unwrap();
        assert!(present == "three" || present == "four", "step {step}: {present}");
        assert!(!survived || present == "four");
        // The next checkpoint restores the normal state; only the generation that was due for removal is gone.
        let store = open(&Arc::new(Faulty::default()), &path, false);
        store.checkpoint("five").await.unwrap();
        drop(store);
        assert_eq!(read("ipam").await.unwrap(), "five");
        assert_eq!(read("ipam.1").await.unwrap(), present);
        let second = read("ipam.2").await.unwrap();
        let before = if present == "four" { "three" } else { "two" };
        assert!(second == before || second == "two", "step {step}: {second}");
        if survived && disk.done.load(Ordering::Relaxed) < disk.dead_from.load(Ordering::Relaxed) {
            break;
        }
    }
    assert!(step > 6, "a checkpoint has more than {step} steps");
}

#[tokio::test]
async fn the_json_file_stays_as_it_is_where_a_checkpoint_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.json");
    let disk = Arc::new(Faulty::default());
    let store = JsonFile::open_on(Arc::<Faulty>::clone(&disk), path.clone(), 0).unwrap();
    store.checkpoint("old").await.unwrap();
    for op in [Op::Write, Op::SyncAll, Op::Rename] {
        disk.fail(&[op]);
        assert!(store.checkpoint("new").await.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\n");
        assert!(!folder.path().join("ipam.json.tmp").exists());
    }
}
