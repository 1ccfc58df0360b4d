//! Holds answers back until what they tell of is durable.
//!
//! ```text
//! actor --answer, changes written so far--> waiting --one sync for all of them--> whoever asked
//! ```
//! The actor goes on meanwhile, so that requests that come together share a sync. Where the sync fails, every answer that
//! waited for it becomes an error, and so does every later one, until the actor has built the instance again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use trueup_capabilities::checkpoint::Store;

use super::protocol::{Answer, Refusal};

/// Gives answers out when they are durable. One an instance.
pub(super) struct Answers {
    store: Option<Arc<dyn Store>>,
    shared: Arc<Shared>,
    /// Which life of the instance the answers are of.
    life: u64,
    waiting: mpsc::UnboundedSender<Waiting>,
    lost: mpsc::UnboundedReceiver<Lost>,
    task: JoinHandle<()>,
}

/// What was lost before it was durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    /// What the store said.
    pub(super) error: String,
    /// The last entry of the journal whose changes are durable.
    pub(super) stands: u64,
}

#[derive(Default)]
struct Shared {
    /// So many changes are durable.
    durable: AtomicU64,
    /// The last entry of the journal that is known to stand.
    stands: AtomicU64,
    /// Answers of this life of the instance and of those before are lost.
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
        // Each answer is one of a request that holds its place in the queue or on the socket: there are no more of them.
        let (waiting, waits) = mpsc::unbounded_channel();
        let (tell_lost, lost) = mpsc::unbounded_channel();
        let task = tokio::spawn(give_out(store.clone(), Arc::clone(&shared), waits, tell_lost));
        Self {
            store,
            shared,
            life: 1,
            waiting,
            lost,
            task,
        }
    }

    /// A life of the instance begins with what is durable; the one before it must have ended. Waits until what was written
    /// so far is settled: it is durable when this returns, or no longer there. Entries up to this one stand.
    pub(super) async fn begin_life(&mut self, entry: u64) {
        let written = self.written();
        if let Some(store) = &self.store
            && let Err(error) = store.durable(written).await
        {
            // That is why the life before ended; what came after the loss may be lost too.
            tracing::debug!("{}: {}", error.kind(), error.text());
        }
        self.life = self.shared.lost_life.load(Ordering::SeqCst) + 1;
        self.shared.durable.fetch_max(written, Ordering::SeqCst);
        self.shared.stands.store(entry, Ordering::SeqCst);
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
            self.shared.stands.fetch_max(entry, Ordering::SeqCst);
            // Whoever asked may have gone; that changes nothing.
            let _ = reply.send(answer);
            return;
        }
        let life = self.life;
        let waiting = Waiting {
            written,
            entry,
            life,
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
    /// Where it may be lost; then [`Answers::next_lost`] says so too.
    pub(super) async fn settle(&self, entry: u64) -> Result<(), String> {
        let (reply, settled) = oneshot::channel();
        self.give(entry, Ok(super::protocol::Done::Nothing {}), reply);
        match settled.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(refusal)) => Err(refusal.msg),
            Err(_) => Err("the host ends".to_owned()),
        }
    }

    /// Answers when something was lost: the instance is to be built again.
    pub(super) async fn next_lost(&mut self) -> Lost {
        match self.lost.recv().await {
            Some(lost) => lost,
            // Its task is gone, and nothing is given out any more.
            None => std::future::pending().await,
        }
    }

    /// Waits until every answer was given.
    pub(super) async fn end(self) {
        drop(self.waiting);
        // It ends by itself when nothing waits any more; a panic of it is told by the runtime.
        let _ = self.task.await;
    }

    fn written(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.written())
    }
}

/// What an answer becomes whose changes may be lost.
fn lost(error: &str) -> Refusal {
    Refusal::later(format!("backing-store: {error}"))
}

async fn give_out(
    store: Option<Arc<dyn Store>>,
    shared: Arc<Shared>,
    mut waits: mpsc::UnboundedReceiver<Waiting>,
    tell_lost: mpsc::UnboundedSender<Lost>,
) {
    let Some(store) = store else { return };
    while let Some(first) = waits.recv().await {
        let mut batch = vec![first];
        while let Ok(next) = waits.try_recv() {
            batch.push(next);
        }
        let lost_life = shared.lost_life.load(Ordering::SeqCst);
        let (late, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|waiting| waiting.life <= lost_life);
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
                    shared.stands.fetch_max(waiting.entry, Ordering::SeqCst);
                    let _ = waiting.reply.send(waiting.answer);
                }
            }
            Err(error) => {
                let error = format!("{}: {}", error.kind(), error.text());
                let life = batch.iter().map(|waiting| waiting.life).max().unwrap_or(lost_life);
                shared.lost_life.fetch_max(life, Ordering::SeqCst);
                let stands = shared.stands.load(Ordering::SeqCst);
                for waiting in batch {
                    let _ = waiting.reply.send(Err(lost(&error)));
                }
                let _ = tell_lost.send(Lost { error, stands });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use trueup_capabilities::Answer as Soon;
    use trueup_capabilities::checkpoint::{Error, Saved};

    use super::super::protocol::Done;
    use super::*;

    /// Who waits for how many changes.
    type Sync = (u64, oneshot::Sender<Result<(), Error>>);

    /// A store whose syncs are let through, or fail, one by one.
    #[derive(Default)]
    struct Manual {
        written: AtomicU64,
        syncs: Mutex<Vec<Sync>>,
        came: tokio::sync::Notify,
    }

    impl Store for Manual {
        fn checkpoint<'a>(&'a self, _: &'a str) -> Soon<'a, Result<(), Error>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn append<'a>(&'a self, _: &'a str) -> Soon<'a, Result<(), Error>> {
            self.written.fetch_add(1, Ordering::SeqCst);
            Box::pin(std::future::ready(Ok(())))
        }

        fn restore(&self) -> Soon<'_, Result<Option<Saved>, Error>> {
            Box::pin(std::future::ready(Ok(None)))
        }

        fn written(&self) -> u64 {
            self.written.load(Ordering::SeqCst)
        }

        fn durable(&self, written: u64) -> Soon<'_, Result<(), Error>> {
            let (done, waits) = oneshot::channel();
            self.syncs.lock().unwrap().push((written, done));
            self.came.notify_one();
            Box::pin(async move { waits.await.unwrap() })
        }
    }

    impl Manual {
        /// Answers the next sync, and says for how many changes it was.
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

    /// Begins a life, and answers the sync that it asks for: for so many changes.
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
            answers.next_lost().await,
            Lost {
                error: "unavailable: EIO".to_owned(),
                stands: 9
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
