//! The candidate's thread: takes calls from the queue, has the candidate make them, and counts the results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::NoLog;
use trueup_capabilities::{Backends, Host, Identity};
use trueup_engine::Engine;
use trueup_instance::{Instance, Instances, Start};
use trueup_journal::Tape;

use super::Shared;
use super::job::Job;
use super::kept::Kept;
use super::setup::{Setup, Version};
use super::status::{Difference, Verdict};
use super::twin::{Judged, Twin, Versions};

/// The maximum number of keys for which the candidate has instances. Above it, drops the one that was not called for
/// the longest. All guests share the engine's pool of instances, and the active guest must not lack room.
pub const KEYS_MAX: usize = 64;

struct Worker {
    versions: Versions,
    shared: Arc<Shared>,
    same_in_a_row: watch::Sender<u64>,
    kept: Kept,
    /// With the turn at which each was last used.
    twins: BTreeMap<String, (u64, Twin)>,
    turn: u64,
    /// Whether a call was begun and is not counted yet.
    in_hand: bool,
}

/// Works until it is stopped, or its owner is gone.
pub(super) fn run(
    setup: Setup,
    shared: Arc<Shared>,
    same_in_a_row: watch::Sender<u64>,
    stopped: oneshot::Receiver<()>,
    begun_reply: oneshot::Sender<Result<(), String>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| format!("no runtime for a candidate in shadow: {error}"));
    let begun = runtime.and_then(|runtime| {
        runtime.block_on(accept(&setup.engine, &setup.candidate))?;
        let folder = setup.folder.display();
        let kept = Kept::open(&setup.folder).map_err(|error| format!("the shadow's folder `{folder}`: {error}"))?;
        let versions = Versions::new(setup.engine, (setup.active, setup.candidate), setup.how)
            .map_err(|error| format!("writing the header of a recording: {error}"))?;
        let worker = Worker {
            versions,
            shared,
            same_in_a_row,
            kept,
            twins: BTreeMap::new(),
            turn: 0,
            in_hand: false,
        };
        Ok((runtime, worker))
    });
    let (begun, reply) = match begun {
        Ok(begun) => (Some(begun), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // If the owner no longer waits, `stopped` reports it.
    let _ = begun_reply.send(reply);
    if let Some((runtime, worker)) = begun {
        runtime.block_on(worker.work(stopped));
    }
}

/// Has the candidate accept its settings.
async fn accept(engine: &Engine, candidate: &Version) -> Result<(), String> {
    let guest = &candidate.program.guest;
    let identity = Identity {
        guest: guest.name.clone(),
        version: guest.version.clone(),
        digest: guest.digest.to_string(),
        instance: "shadow".to_owned(),
        ..Identity::default()
    };
    let backends = Backends {
        log: Arc::new(NoLog),
        ..Instances::trial()
    };
    let host = Host::new(identity, Tape::off(), Grants::default(), backends, candidate.limits);
    let start = Start {
        settings: &candidate.settings,
        snapshot: None,
        cpu_max: Duration::from_millis(candidate.limits.cpu_ms),
    };
    let started = Instance::start(engine, &candidate.program, host, start).await;
    started.map(|_| ()).map_err(|(_, error)| error.to_string())
}

impl Worker {
    async fn work(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                () = self.turn() => {}
            }
        }
        let status = {
            let mut book = self.shared.book.lock();
            let left = book.queue.iter().filter(|job| !job.call.is_empty()).count() as u64;
            self.shared.skip(&mut book, left + u64::from(self.in_hand));
            book.queue.clear();
            book.queue_bytes = 0;
            book.status.waiting = 0;
            book.status.clone()
        };
        self.kept.sum_up(&status);
    }

    async fn turn(&mut self) {
        let job = {
            let mut book = self.shared.book.lock();
            let job = book.queue.pop_front();
            if let Some(job) = &job {
                book.queue_bytes = book.queue_bytes.saturating_sub(job.bytes());
                book.drained();
            }
            job
        };
        match job {
            Some(job) => {
                self.one(job).await;
                self.shared.book.lock().status.waiting -= 1;
                self.shared.done.send_modify(|done| *done += 1);
                self.kept.changed();
                if self.kept.summary_due().is_some_and(|due_in| due_in.is_zero()) {
                    self.sum_up();
                }
            }
            None => self.wait().await,
        }
    }

    /// Waits for a call, or until the summary is due.
    async fn wait(&mut self) {
        let Some(due_in) = self.kept.summary_due() else {
            return self.shared.queued.notified().await;
        };
        tokio::select! {
            () = self.shared.queued.notified() => {}
            () = tokio::time::sleep(due_in) => self.sum_up(),
        }
    }

    fn sum_up(&mut self) {
        let status = self.shared.book.lock().status.clone();
        self.kept.sum_up(&status);
    }

    async fn one(&mut self, job: Job) {
        let ends_instance = job.ends_instance();
        let Job { key, begin, call, took } = job;
        let before = self.twins.remove(&key).map(|(_, twin)| twin);
        let twin = match begin {
            Some(begin) => Some(Twin::after(begin, before)),
            None => before,
        };
        let Some(mut twin) = twin else {
            return self.give_up(&key, !call.is_empty(), "its state is not known");
        };
        if call.is_empty() {
            return self.put_back(key, twin);
        }
        self.in_hand = true;
        let judged = twin.call(&self.versions, &call, took).await;
        self.in_hand = false;
        let same = match judged {
            Judged::Same => {
                self.same();
                true
            }
            Judged::NotSame { verdict, n, what } => {
                self.not_same(&key, &twin, verdict, n, what);
                false
            }
            Judged::Not(why) => return self.give_up(&key, true, &why),
        };
        if ends_instance {
            // The next active instance begins from another state.
            return;
        }
        if !same || twin.is_long() {
            // The candidate's state differs from the active guest's, or its history grows long: continue from the
            // active state.
            if let Err(error) = twin.catch_up(&self.versions).await {
                return self.give_up(&key, false, &error);
            }
        }
        self.put_back(key, twin);
    }

    fn same(&mut self) {
        self.shared.book.lock().status.same();
        self.shared.count(Verdict::Same, 1);
        self.same_in_a_row.send_modify(|count| *count += 1);
    }

    fn not_same(&mut self, key: &str, twin: &Twin, verdict: Verdict, n: Option<u64>, what: String) {
        let now = Instant::now();
        let recording = self
            .kept
            .has_room(now)
            .then(|| twin.recording_for_candidate(&self.versions));
        let file = recording.and_then(|recording| self.kept.keep(key, &recording.ok()?, now));
        self.shared.book.lock().status.not_same(Difference {
            key: key.to_owned(),
            verdict,
            n,
            what,
            file,
        });
        self.shared.count(verdict, 1);
        self.same_in_a_row.send_modify(|count| *count = 0);
    }

    /// Drops the key's state. The key begins anew, with a state from the active guest.
    fn give_up(&mut self, key: &str, skipped: bool, why: &str) {
        tracing::debug!(instance = key, "not compared in shadow: {why}");
        let mut book = self.shared.book.lock();
        book.forget(key);
        self.shared.skip(&mut book, u64::from(skipped));
    }

    /// Keeps it for the key's next call, and drops the longest unused if there are too many.
    fn put_back(&mut self, key: String, twin: Twin) {
        self.turn += 1;
        self.twins.insert(key, (self.turn, twin));
        if self.twins.len() <= KEYS_MAX {
            return;
        }
        let mut book = self.shared.book.lock();
        let waiting: BTreeSet<&str> = book.queue.iter().map(|job| job.key.as_str()).collect();
        // Prefers one without waiting calls: without its state, waiting calls could not be compared.
        let longest_unused = self
            .twins
            .iter()
            .min_by_key(|(key, (turn, _))| (waiting.contains(key.as_str()), *turn));
        if let Some(key) = longest_unused.map(|(key, _)| key.clone()) {
            self.twins.remove(&key);
            book.forget(&key);
        }
    }
}
