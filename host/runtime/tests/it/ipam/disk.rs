//! An in-memory store with shared syncs: writes are not durable before a sync, and a test can make syncs, reads and
//! calls fail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use trueup_capabilities::async_trait;
use trueup_capabilities::checkpoint::{Error, Saved, Store};

/// Longer than the host accepts from a store, so that the call traps after the change was written.
pub(crate) const ANSWER_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
struct State {
    written: Option<Saved>,
    durable: Option<Saved>,
    written_count: u64,
    durable_count: u64,
    /// Changes up to this one are lost.
    lost_count: u64,
    /// Set after a failed sync, until a checkpoint.
    refuses_appends: bool,
    fail_restores: Option<Error>,
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    state: Mutex<State>,
    /// How many of the next changes trap after they were written.
    pub(crate) traps: AtomicU64,
    /// A write that contains this text traps every time, before it is written.
    pub(crate) poison: Mutex<Option<&'static str>>,
    /// How many of the next syncs fail.
    pub(crate) failing_syncs: AtomicU64,
    pub(crate) syncs: AtomicU64,
    /// While held, no sync ends.
    pub(crate) gate: tokio::sync::Mutex<()>,
    one_at_a_time: tokio::sync::Mutex<()>,
}

fn take(count: &AtomicU64) -> bool {
    count
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1))
        .is_ok()
}

fn too_long() -> Error {
    Error::Unavailable("x".repeat(usize::try_from(ANSWER_BYTES).unwrap() + 1))
}

impl Disk {
    /// The content after a crash: everything durable, and `lucky` of the later entries.
    pub(crate) fn after_crash(&self, lucky: usize) -> Arc<Self> {
        let state = self.state.lock().unwrap();
        let mut saved = state.durable.clone();
        // Entries after the same checkpoint may have reached the disk.
        if let (Some(saved), Some(written)) = (&mut saved, &state.written)
            && saved.data == written.data
            && written.entries.starts_with(&saved.entries)
        {
            let more = written.entries.iter().skip(saved.entries.len()).take(lucky);
            saved.entries.extend(more.cloned());
        }
        Self::with(saved)
    }

    pub(crate) fn with(saved: Option<Saved>) -> Arc<Self> {
        let disk = Self::default();
        {
            let mut state = disk.state.lock().unwrap();
            state.written.clone_from(&saved);
            state.durable = saved;
        }
        Arc::new(disk)
    }

    pub(crate) fn fail_restores(&self, error: Option<Error>) {
        self.state.lock().unwrap().fail_restores = error;
    }

    /// The whole content, durable or not.
    pub(crate) fn text(&self) -> String {
        format!("{:?}", self.state.lock().unwrap().written)
    }

    fn is_poisoned(&self, text: &str) -> bool {
        self.poison.lock().unwrap().is_some_and(|poison| text.contains(poison))
    }

    fn changed(&self, state: &mut State) -> Result<(), Error> {
        state.written_count += 1;
        if take(&self.traps) { Err(too_long()) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for Disk {
    async fn checkpoint(&self, data: &str) -> Result<(), Error> {
        if self.is_poisoned(data) && !self.is_poisoned(&self.text()) {
            return Err(too_long());
        }
        let mut state = self.state.lock().unwrap();
        let saved = Some(Saved {
            data: data.to_owned(),
            entries: Vec::new(),
        });
        state.written.clone_from(&saved);
        state.durable = saved;
        state.refuses_appends = false;
        let done = self.changed(&mut state);
        state.durable_count = state.written_count;
        state.lost_count = 0;
        done
    }

    async fn append(&self, entry: &str) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap();
        if state.refuses_appends {
            return Err(Error::Unavailable("a sync failed".to_owned()));
        }
        if self.is_poisoned(entry) {
            return Err(too_long());
        }
        match &mut state.written {
            Some(saved) => saved.entries.push(entry.to_owned()),
            None => return Err(Error::Unavailable("nothing to append to".to_owned())),
        }
        self.changed(&mut state)
    }

    async fn restore(&self) -> Result<Option<Saved>, Error> {
        let state = self.state.lock().unwrap();
        match &state.fail_restores {
            Some(error) => Err(error.clone()),
            None => Ok(state.written.clone()),
        }
    }

    fn written(&self) -> u64 {
        self.state.lock().unwrap().written_count
    }

    async fn durable(&self, written: u64) -> Result<(), Error> {
        let _turn = self.one_at_a_time.lock().await;
        {
            let state = self.state.lock().unwrap();
            if written <= state.lost_count {
                return Err(Error::Unavailable("lost before".to_owned()));
            }
            if written <= state.durable_count {
                return Ok(());
            }
        }
        let (covered, snapshot) = {
            let state = self.state.lock().unwrap();
            (state.written_count, state.written.clone())
        };
        // Other tasks write while a sync runs.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let _gate = self.gate.lock().await;
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock().unwrap();
        if state.durable_count >= covered {
            return Ok(());
        }
        if take(&self.failing_syncs) {
            state.written = state.durable.clone();
            state.lost_count = state.written_count;
            state.refuses_appends = true;
            return Err(Error::Unavailable("the sync failed".to_owned()));
        }
        state.durable = snapshot;
        state.durable_count = covered;
        Ok(())
    }
}
