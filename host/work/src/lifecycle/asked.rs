//! Keys that the operator wants to be worked on now, on their way from a command to the loop of their guest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

/// The answer: the key is at the front of the queue, or why not, in one line.
pub(crate) type Reply = oneshot::Sender<Result<(), String>>;

/// What the operator asked of the loop of one guest.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    waiting: Mutex<Vec<(String, Reply)>>,
    more: Notify,
    /// Whether the guest has a loop that takes keys.
    has_queue: AtomicBool,
}

impl Asked {
    /// A loop takes keys from here on.
    pub(crate) fn has_queue(&self) {
        self.has_queue.store(true, Ordering::SeqCst);
    }

    /// Puts a key at the front of the queue.
    ///
    /// # Errors
    /// Why not, in one line.
    pub(crate) async fn ask(&self, key: &str) -> Result<(), String> {
        if !self.has_queue.load(Ordering::SeqCst) {
            return Err("it has no queue of keys: the host gives it every change at once".to_owned());
        }
        let (reply, replied) = oneshot::channel();
        self.lock().push((key.to_owned(), reply));
        self.more.notify_one();
        replied
            .await
            .unwrap_or_else(|_| Err("the host stops: nothing was asked".to_owned()))
    }

    /// Resolves when something was asked.
    pub(crate) async fn more(&self) {
        self.more.notified().await;
    }

    /// What was asked since the last call of this.
    pub(crate) fn take(&self) -> Vec<(String, Reply)> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Reply)>> {
        // A panic elsewhere leaves the list intact: each change is one push or one take.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
