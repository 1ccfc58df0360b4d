//! Asks for another version of a guest to become active when the failure policy says so.
//!
//! One request at a time: that version also releases whatever else fails meanwhile.

use tokio::sync::{mpsc, oneshot};

use crate::lifecycle::quarantine::SetAside;
use crate::swap::Fallen;

/// The requests for another version of one guest.
pub(crate) struct Falling {
    wishes: mpsc::UnboundedSender<Fallen>,
    /// Receives an answer when the request was fulfilled or refused. `None` if there is no request.
    under_way: Option<oneshot::Receiver<()>>,
}

impl Falling {
    /// Starts without a request. If the policy names no other version, the receiver does not exist.
    pub(crate) fn new(wishes: mpsc::UnboundedSender<Fallen>) -> Self {
        Self {
            wishes,
            under_way: None,
        }
    }

    /// Requests the other version because of what was set aside, unless a request is under way.
    pub(crate) fn wish(&mut self, entry: &SetAside) {
        if self.is_under_way() {
            return;
        }
        let (answer, answered) = oneshot::channel();
        let fallen = Fallen {
            digest: entry.digest.clone(),
            why: format!("{} failed {} times: {}", entry.instance, entry.failures, entry.error),
            answer,
        };
        self.under_way = self.wishes.send(fallen).is_ok().then_some(answered);
    }

    /// Whether a request waits for its answer. A request whose receiver is gone does not.
    pub(crate) fn is_under_way(&mut self) -> bool {
        let waits = |answer: &mut oneshot::Receiver<()>| answer.try_recv() == Err(oneshot::error::TryRecvError::Empty);
        let is_under_way = self.under_way.as_mut().is_some_and(waits);
        if !is_under_way {
            self.under_way = None;
        }
        is_under_way
    }

    /// Returns when the request was answered, either way. Never returns if there is none. Safe to drop.
    pub(crate) async fn answered(&mut self) {
        match &mut self.under_way {
            Some(answer) => _ = answer.await,
            None => std::future::pending().await,
        }
        self.under_way = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(instance: &str) -> SetAside {
        SetAside {
            instance: instance.to_owned(),
            error: "trapped".to_owned(),
            failures: 3,
            at_ms: 1,
            digest: "sha256:1".to_owned(),
            input: "sha256:2".to_owned(),
            journal: "journals".into(),
        }
    }

    #[tokio::test]
    async fn one_wish_is_under_way_until_it_is_answered_or_cannot_be() {
        let (wishes, mut wished) = mpsc::unbounded_channel();
        let mut falling = Falling::new(wishes);
        assert!(!falling.is_under_way());
        falling.wish(&entry("a"));
        falling.wish(&entry("b"));
        let first = wished.recv().await.unwrap();
        assert_eq!(
            (first.digest.as_str(), first.why.as_str()),
            ("sha256:1", "a failed 3 times: trapped")
        );
        assert!(wished.try_recv().is_err() && falling.is_under_way());
        first.answer.send(()).unwrap();
        falling.answered().await;
        assert!(!falling.is_under_way());

        falling.wish(&entry("c"));
        drop(wished.recv().await.unwrap());
        assert!(!falling.is_under_way(), "no receiver answers");
        drop(wished);
        falling.wish(&entry("d"));
        assert!(!falling.is_under_way(), "no receiver takes it");
    }
}
