//! The candidate's thread: takes calls from the queue, has the candidate make them, and counts the results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{oneshot, watch};
use trueup_instance::Instances;

use super::Shared;
use super::candidate::{CandidateInstance, Judged};
use super::job::Job;
use super::kept::Kept;
use super::setup::Setup;
use super::status::{Difference, Verdict};

/// The maximum number of keys for which the candidate has instances. Above it, drops the one that was not called for
/// the longest. All guests share the engine's pool of instances, and the active guest must not lack room.
pub const KEYS_MAX: usize = 64;

struct Worker {
    versions: Setup,
    shared: Arc<Shared>,
    same_in_a_row: watch::Sender<u64>,
    kept: Kept,
    /// With the turn at which each was last used.
    candidates: BTreeMap<String, (u64, CandidateInstance)>,
    turn: u64,
}

/// Works until it is stopped, or its owner is gone.
pub(super) fn run(
    versions: Setup,
    shared: Arc<Shared>,
    same_in_a_row: watch::Sender<u64>,
    stopped: oneshot::Receiver<()>,
    begun_reply: oneshot::Sender<Result<(), String>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| format!("no runtime for a candidate in shadow: {error}"));
    let begun = runtime.and_then(|runtime| {
        // The candidate must accept its settings.
        let started = versions.candidate.start_unrecorded("shadow", Instances::trial(), None);
        runtime.block_on(started).map_err(|error| error.to_string())?;
        let folder = &versions.folder;
        let kept =
            Kept::open(folder).map_err(|error| format!("the shadow's folder `{}`: {error}", folder.display()))?;
        let worker = Worker {
            versions,
            shared,
            same_in_a_row,
            kept,
            candidates: BTreeMap::new(),
            turn: 0,
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

impl Worker {
    async fn work(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                () = self.turn() => {}
            }
        }
    }

    async fn turn(&mut self) {
        let job = {
            let mut queue = self.shared.queue.lock();
            let job = queue.jobs.pop_front();
            if let Some(job) = &job {
                queue.bytes = queue.bytes.saturating_sub(job.bytes());
                queue.drained();
            }
            job
        };
        match job {
            Some(job) => {
                self.one(job).await;
                self.shared.queue.lock().status.waiting -= 1;
            }
            None => self.shared.queued.notified().await,
        }
    }

    async fn one(&mut self, job: Job) {
        let ends_instance = job.ends_instance();
        let Job { key, begin, call, took } = job;
        let before = self.candidates.remove(&key).map(|(_, candidate)| candidate);
        let candidate = match begin {
            Some(begin) => Some(CandidateInstance::after(begin, before)),
            None => before,
        };
        let Some(mut candidate) = candidate else {
            return self.give_up(&key, !call.is_empty(), "its state is not known");
        };
        if call.is_empty() {
            return self.put_back(key, candidate);
        }
        let judged = candidate.call(&self.versions, &call, took).await;
        let same = match judged {
            Judged::Same => {
                self.same();
                true
            }
            Judged::NotSame { verdict, n, what } => {
                self.not_same(&key, &candidate, verdict, n, what);
                false
            }
            Judged::Not(why) => return self.give_up(&key, true, &why),
        };
        if ends_instance {
            // The next active instance begins from another state.
            return;
        }
        if !same || candidate.is_long() {
            // The candidate's state differs from the active guest's, or its history grows long: continue from the
            // active state.
            if let Err(error) = candidate.catch_up(&self.versions).await {
                return self.give_up(&key, false, &error);
            }
        }
        self.put_back(key, candidate);
    }

    fn same(&mut self) {
        self.shared.queue.lock().status.same();
        self.shared.count(Verdict::Same, 1);
        self.same_in_a_row.send_modify(|count| *count += 1);
    }

    fn not_same(&mut self, key: &str, candidate: &CandidateInstance, verdict: Verdict, n: Option<u64>, what: String) {
        let now = Instant::now();
        let recording = self
            .kept
            .has_room(now)
            .then(|| candidate.recording_for_candidate(&self.versions));
        let file = recording.and_then(|recording| self.kept.keep(key, &recording.ok()?, now));
        self.shared.queue.lock().status.not_same(Difference {
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
        let mut queue = self.shared.queue.lock();
        queue.forget(key);
        self.shared.skip(&mut queue, u64::from(skipped));
    }

    /// Keeps it for the key's next call, and drops the longest unused if there are too many.
    fn put_back(&mut self, key: String, candidate: CandidateInstance) {
        self.turn += 1;
        self.candidates.insert(key, (self.turn, candidate));
        if self.candidates.len() <= KEYS_MAX {
            return;
        }
        let mut queue = self.shared.queue.lock();
        let waiting: BTreeSet<&str> = queue.jobs.iter().map(|job| job.key.as_str()).collect();
        // Prefers one without waiting calls: without its state, waiting calls could not be compared.
        let longest_unused = self
            .candidates
            .iter()
            .min_by_key(|(key, (turn, _))| (waiting.contains(key.as_str()), *turn));
        if let Some(key) = longest_unused.map(|(key, _)| key.clone()) {
            self.candidates.remove(&key);
            queue.forget(&key);
        }
    }
}
