//! Holds answers back until the changes that they report are durable.
//!
//! ```text
//! actor --answer, changes written so far--> waiting --one sync for all of them--> the requester
//! ```
//! The actor goes on meanwhile, so that requests that come together share a sync. If the sync fails, every answer
//! that waited for it becomes an error, and so does every later one, until the actor has rebuilt the instance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use trueup_capabilities::checkpoint::Store;

use super::protocol::{Answer, Refusal};

/// Gives answers out when they are durable. One per instance.
pub(super) struct Answers {
    store: Option<Arc<dyn Store>>,
    shared: Arc<Shared>,
    /// The life of the instance to which the answers belong.
    life: u64,
    waiting: mpsc::UnboundedSender<Waiting>,
    /// What was lost: the instance is to be rebuilt.
    pub(super) lost: mpsc::UnboundedReceiver<Lost>,
    task: JoinHandle<()>,
}

/// A loss before the changes were durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    /// The store's error.
    pub(super) error: String,
    /// The last entry of the journal whose changes are durable.
    pub(super) valid_entry: u64,
}

#[derive(Default)]
struct Shared {
    /// The number of durable changes.
    durable: AtomicU64,
    /// The last entry of the journal that is known to be valid.
    valid_entry: AtomicU64,
    /// Answers of this life of the instance and of earlier ones are lost.
    lost_life: AtomicU64,
}

struct Waiting {
    written: u64,
    entry: u64,
    life: u64,
    answer: Answer,
    reply: oneshot::Sender<Answer>,
}

impl Answers {
    /// Must be called inside a runtime.
    pub(super) fn new(store: Option<Arc<dyn Store>>) -> Self {
        let shared = Arc::new(Shared::default());
        // The queue is bounded: each answer belongs to a request that holds its place in the queue or on the socket.
        let (waiting, waits) = mpsc::unbounded_channel();
        let (report_lost, lost) = mpsc::unbounded_channel();
        let task = tokio::spawn(give_out(store.clone(), Arc::clone(&shared), waits, report_lost));
        Self {
            store,
            shared,
            life: 1,
            waiting,
            lost,
            task,
        }
    }

    /// Begins a life of the instance from what is durable. The life before must have ended. Waits until earlier
    /// writes are settled: when this returns they are durable or gone. Entries up to this one are valid.
    pub(super) async fn begin_life(&mut self, entry: u64) {
        let written = self.written();
        if let Some(store) = &self.store
            && let Err(error) = store.durable(written).await
        {
            // This loss ended the life before; what came after it may be lost too.
            tracing::debug!("{}: {}", error.kind(), error.text());
        }
        self.life = self.shared.lost_life.load(Ordering::SeqCst) + 1;
        self.shared.durable.fetch_max(written, Ordering::SeqCst);
        self.shared.valid_entry.store(entry, Ordering::SeqCst);
    }

    /// Whether this life of the instance has lost something.
    pub(super) fn is_lost(&self) -> bool {
        self.life <= self.shared.lost_life.load(Ordering::SeqCst)
    }

    /// Gives the answer of a call that ended with this entry of the journal, as soon as everything written so far is
    /// durable.
    pub(super) fn give(&self, entry: u64, answer: Answer, reply: oneshot::Sender<Answer>) {
        let written = self.written();
        if !self.is_lost() && written <= self.shared.durable.load(Ordering::SeqCst) {
            self.shared.valid_entry.fetch_max(entry, Ordering::SeqCst);
            // The requester may have disconnected; that changes nothing.
            let _ = reply.send(answer);
            return;
        }
        let waiting = Waiting {
            written,
            entry,
            life: self.life,
            answer,
            reply,
        };
        if let Err(mpsc::error::SendError(waiting)) = self.waiting.send(waiting) {
            let _ = waiting.reply.send(Err(lost("the host ends")));
        }
    }

    /// Waits until everything written so far is durable.
    ///
    /// # Errors
    /// If it may be lost; [`Answers::lost`] then reports it too.
    pub(super) async fn settle(&self, entry: u64) -> Result<(), String> {
        let (reply, settled) = oneshot::channel();
        self.give(entry, Ok(super::protocol::Done::Nothing {}), reply);
        let answer = settled.await.map_err(|_| "the host ends".to_owned())?;
        answer.map(drop).map_err(|refusal| refusal.msg)
    }

    /// Waits until every answer was given.
    pub(super) async fn end(self) {
        drop(self.waiting);
        // It ends when nothing waits any more. The runtime reports its panic.
        let _ = self.task.await;
    }

    fn written(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.written())
    }
}

/// The error for an answer whose changes may be lost.
fn lost(error: &str) -> Refusal {
    Refusal::later(format!("backing-store: {error}"))
}

async fn give_out(
    store: Option<Arc<dyn Store>>,
    shared: Arc<Shared>,
    mut waits: mpsc::UnboundedReceiver<Waiting>,
    report_lost: mpsc::UnboundedSender<Lost>,
) {
    let Some(store) = store else { return };
    let mut waiting = Vec::new();
    while waits.recv_many(&mut waiting, usize::MAX).await > 0 {
        let lost_life = shared.lost_life.load(Ordering::SeqCst);
        let (late, batch): (Vec<_>, Vec<_>) = waiting.drain(..).partition(|waiting| waiting.life <= lost_life);
        for waiting in late {
            let _ = waiting.reply.send(Err(lost("what was written before it was lost")));
        }
        let Some(written) = batch.iter().map(|waiting| waiting.written).max() else {
            continue;
        };
        let durable = if written <= shared.durable.load(Ordering::SeqCst) {
            Ok(())
        } else {
            store.durable(written).await
        };
        match durable {
            Ok(()) => {
                shared.durable.fetch_max(written, Ordering::SeqCst);
                for waiting in batch {
                    shared.valid_entry.fetch_max(waiting.entry, Ordering::SeqCst);
                    let _ = waiting.reply.send(waiting.answer);
                }
            }
            Err(error) => {
                let error = format!("{}: {}", error.kind(), error.text());
                let life = batch.iter().map(|waiting| waiting.life).max().unwrap_or(lost_life);
                shared.lost_life.fetch_max(life, Ordering::SeqCst);
                let valid_entry = shared.valid_entry.load(Ordering::SeqCst);
                for waiting in batch {
                    let _ = waiting.reply.send(Err(lost(&error)));
                }
                let _ = report_lost.send(Lost { error, valid_entry });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use trueup_capabilities::async_trait;
    use trueup_capabilities::checkpoint::{Error, Saved};

    use super::super::protocol::Done;
    use super::*;

    /// A waiting sync and its number of changes.
    type Sync = (u64, oneshot::Sender<Result<(), Error>>);

    /// A store whose syncs the test lets through, or fails, one by one.
    #[derive(Default)]
    struct Manual {
        written: AtomicU64,
        syncs: Mutex<Vec<Sync>>,
        came: tokio::sync::Notify,
    }

    #[async_trait]
    impl Store for Manual {
        async fn checkpoint(&self, _: &str) -> Result<(), Error> {
            Ok(())
        }

        async fn append(&self, _: &str) -> Result<(), Error> {
            self.written.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }

        async fn restore(&self) -> Result<Option<Saved>, Error> {
            Ok(None)
        }

        fn written(&self) -> u64 {
            self.written.load(Ordering::SeqCst)
        }

        async fn durable(&self, written: u64) -> Result<(), Error> {
            let (done, waits) = oneshot::channel();
            self.syncs.lock().unwrap().push((written, done));
            self.came.notify_one();
            waits.await.unwrap()
        }
    }

    impl Manual {
        /// Answers the next sync. Returns its number of changes.
        async fn sync(&self, result: Result<(), Error>) -> u64 {
            loop {
                let next = self.syncs.lock().unwrap().pop();
                match next {
                    Some((written, done)) => {
                        done.send(result).unwrap();
                        return written;
                    }
                    None => self.came.notified().await,
                }
            }
        }
    }

    fn allocation(n: i32) -> Answer {
        Ok(Done::Allocation {
            ip: "10.0.0.1".to_owned(),
            device_number: n,
        })
    }

    fn give(answers: &Answers, n: i32) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        answers.give(u64::try_from(n).unwrap(), allocation(n), reply);
        answer
    }

    /// Begins a life, and answers its sync. Returns that sync's number of changes.
    async fn begin(answers: &mut Answers, store: &Manual, entry: u64, result: Result<(), Error>) -> u64 {
        let ((), written) = tokio::join!(answers.begin_life(entry), store.sync(result));
        written
    }

    #[tokio::test]
    async fn where_nothing_waits_to_be_durable_an_answer_goes_at_once() {
        let answers = Answers::new(None);
        assert_eq!(give(&answers, 1).try_recv().unwrap(), allocation(1));
        assert_eq!(answers.settle(2).await, Ok(()));
        answers.end().await;
    }

    #[tokio::test]
    async fn answers_that_come_together_share_a_sync_and_none_goes_before_it() {
        let store = Arc::new(Manual::default());
        let answers = Answers::new(Some(Arc::<Manual>::clone(&store)));
        store.append("1").await.unwrap();
        let mut first = give(&answers, 1);
        store.came.notified().await;
        assert!(first.try_recv().is_err(), "not durable");
        // While the first sync runs, more come.
        let mut rest = Vec::new();
        for n in 2..5 {
            store.append("more").await.unwrap();
            rest.push(give(&answers, n));
        }
        assert_eq!(store.sync(Ok(())).await, 1);
        assert_eq!(first.await.unwrap(), allocation(1));
        assert!(rest[0].try_recv().is_err(), "not durable");
        assert_eq!(store.sync(Ok(())).await, 4, "one for all three");
        for (n, answer) in (2..).zip(rest) {
            assert_eq!(answer.await.unwrap(), allocation(n));
        }
        assert_eq!(give(&answers, 9).try_recv().unwrap(), allocation(9), "a read");
        answers.end().await;
    }

    #[tokio::test]
    async fn a_loss_takes_later_answers_along_until_the_instance_is_rebuilt() {
        let store = Arc::new(Manual::default());
        let mut answers = Answers::new(Some(Arc::<Manual>::clone(&store)));
        begin(&mut answers, &store, 7, Ok(())).await;
        store.append("1").await.unwrap();
        let first = give(&answers, 8);
        assert_eq!(store.sync(Ok(())).await, 1);
        assert_eq!(first.await.unwrap(), allocation(8));
        assert_eq!(give(&answers, 9).try_recv().unwrap(), allocation(9), "a read");

        store.append("2").await.unwrap();
        let second = give(&answers, 9);
        store.sync(Err(Error::Unavailable("EIO".to_owned()))).await;
        let refusal = second.await.unwrap().unwrap_err();
        assert_eq!(
            (refusal.code, refusal.msg.as_str()),
            (11, "backing-store: unavailable: EIO")
        );
        // The actor has not noticed yet.
        assert!(answers.is_lost());
        assert!(give(&answers, 10).await.unwrap().is_err());
        assert_eq!(
            answers.lost.recv().await.unwrap(),
            Lost {
                error: "unavailable: EIO".to_owned(),
                valid_entry: 9
            }
        );
        // What was written after the loss is no more durable than what was lost.
        store.append("2b").await.unwrap();
        assert_eq!(begin(&mut answers, &store, 12, Ok(())).await, 3);
        assert!(!answers.is_lost());
        assert_eq!(give(&answers, 13).try_recv().unwrap(), allocation(13));
        store.append("3").await.unwrap();
        let third = give(&answers, 14);
        assert_eq!(store.sync(Ok(())).await, 4);
        assert_eq!(third.await.unwrap(), allocation(14));
        answers.end().await;
    }
}
