//! The candidate's thread: takes calls from the queue, has the candidate make them, and counts the results.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use lru::LruCache;
use tokio::sync::{mpsc, oneshot, watch};
use trueup_instance::Instances;

use super::candidate::{CandidateInstance, Judged};
use super::kept::Kept;
use super::status::{Difference, Verdict};
use super::{Job, Setup, Shared};

/// The maximum number of keys for which the candidate has instances. Above it, drops the one that was not called for
/// the longest. All guests share the engine's pool of instances, and the active guest must not lack room.
pub const KEYS_MAX: usize = 64;

struct Worker {
    versions: Setup,
    shared: Arc<Shared>,
    same_in_a_row: watch::Sender<u64>,
    kept: Kept,
    candidates: LruCache<String, CandidateInstance>,
}

/// Works until it is stopped, or its owner is gone.
pub(super) fn run(
    versions: Setup,
    shared: Arc<Shared>,
    same_in_a_row: watch::Sender<u64>,
    jobs: mpsc::Receiver<Job>,
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
            candidates: LruCache::new(NonZeroUsize::new(KEYS_MAX).unwrap_or(NonZeroUsize::MIN)),
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
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = stopped => {}
                () = worker.work(jobs) => {}
            }
        });
    }
}

impl Worker {
    async fn work(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.recv().await {
            self.one(&job).await;
            self.shared.status.lock().waiting -= 1;
        }
    }

    async fn one(&mut self, job: &Job) {
        let before = self.candidates.pop(&job.key);
        let folder = self.versions.active.recording(&job.key);
        let mut candidate = match CandidateInstance::at(&folder, job.n, before, &self.versions) {
            Ok(candidate) => candidate,
            Err(why) => return self.skip(job, &why),
        };
        match candidate.call(&self.versions, job).await {
            Judged::Same => self.same(),
            Judged::NotSame { verdict, n, what } => self.not_same(job, &candidate, verdict, n, what),
            Judged::Not(why) => return self.skip(job, &why),
        }
        if !candidate.is_long() {
            self.candidates.push(job.key.clone(), candidate);
        }
    }

    fn same(&mut self) {
        self.shared.status.lock().same();
        self.shared.count(Verdict::Same);
        self.same_in_a_row.send_modify(|count| *count += 1);
    }

    fn not_same(&mut self, job: &Job, candidate: &CandidateInstance, verdict: Verdict, n: Option<u64>, what: String) {
        let now = Instant::now();
        let recording = self
            .kept
            .has_room(now)
            .then(|| candidate.recording_of(job.n, &self.versions));
        let file = recording.and_then(|recording| self.kept.keep(&job.key, &recording.ok()?, now));
        self.shared.status.lock().not_same(Difference {
            key: job.key.clone(),
            verdict,
            n,
            what,
            file,
        });
        self.shared.count(verdict);
        self.same_in_a_row.send_modify(|count| *count = 0);
    }

    /// The call is not compared. The next one of its key begins anew, with a state of the active guest.
    fn skip(&self, job: &Job, why: &str) {
        tracing::debug!(instance = job.key, "not compared in shadow: {why}");
        self.shared.skip(&mut self.shared.status.lock());
    }
}
