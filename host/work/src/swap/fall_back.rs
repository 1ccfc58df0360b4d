//! Falling back: makes another version of a guest active when its failure policy says so.

use std::sync::Arc;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use trueup_config::{FailurePolicy, OnFailure};
use trueup_registry::Reference;

use super::manager::Manager;
use crate::lifecycle::quarantine::SetAside;

/// A request for the version that a failure policy names: the guest failed with an input so often that the input is set
/// aside.
pub struct FallBack {
    pub(super) guest: &'static str,
    pub(super) to: Reference,
    /// `sha256:` and the digest of the version that failed.
    pub(super) digest: String,
    /// The input, how often and how it failed, in one line.
    pub why: String,
    /// Notified when the other version is active, or will not be. Dropped without an answer if the host ends.
    answer: oneshot::Sender<()>,
}

/// The requests of one guest. One at a time: the other version also releases whatever else fails meanwhile.
pub(crate) struct FallBackRequests {
    requests: mpsc::UnboundedSender<FallBack>,
    /// `None` if the policy names no other version.
    to: Option<Reference>,
    /// Receives an answer when the request was fulfilled or refused. `None` if there is no request.
    under_way: Option<oneshot::Receiver<()>>,
}

impl FallBackRequests {
    /// Starts without a request.
    pub(crate) fn new(requests: mpsc::UnboundedSender<FallBack>, policy: &FailurePolicy) -> Self {
        let to = match &policy.on_failure {
            OnFailure::FallBack(to) => Some(to.clone()),
            OnFailure::Hold | OnFailure::Retry => None,
        };
        Self {
            requests,
            to,
            under_way: None,
        }
    }

    /// Requests the other version because of what was set aside, unless a request is under way.
    pub(crate) fn request(&mut self, guest: &'static str, entry: &SetAside) {
        let Some(to) = self.to.clone() else { return };
        if self.is_under_way() {
            return;
        }
        let (answer, answered) = oneshot::channel();
        let request = FallBack {
            guest,
            to,
            digest: entry.digest.clone(),
            why: format!("{} failed {} times: {}", entry.instance, entry.failures, entry.error),
            answer,
        };
        self.under_way = self.requests.send(request).is_ok().then_some(answered);
    }

    /// Whether a request waits for its answer. A request whose receiver is gone does not.
    pub(crate) fn is_under_way(&mut self) -> bool {
        self.under_way
            .take_if(|answer| answer.try_recv() != Err(TryRecvError::Empty));
        self.under_way.is_some()
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

/// Handles the requests of all guests. No guest waits for another's.
pub async fn fall_back(manager: &Arc<Manager>, mut requests: mpsc::UnboundedReceiver<FallBack>) {
    let mut falling = tokio::task::JoinSet::new();
    while let Some(request) = requests.recv().await {
        let manager = Arc::clone(manager);
        while falling.try_join_next().is_some() {}
        falling.spawn(async move {
            if let Err(error) = manager.fall_back(&request).await {
                manager.report_refused(&error);
            }
            // The requester may be gone.
            let _ = request.answer.send(());
        });
    }
    falling.join_all().await;
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
    async fn one_request_is_under_way_until_it_is_answered_or_cannot_be() {
        let (sender, mut requested) = mpsc::unbounded_channel();
        let policy = |on_failure| FailurePolicy {
            on_failure,
            ..FailurePolicy::default()
        };
        let to = policy(OnFailure::FallBack(Reference::builtin("lbaas@1")));
        let mut requests = FallBackRequests::new(sender.clone(), &to);
        assert!(!requests.is_under_way());
        requests.request("lbaas", &entry("a"));
        requests.request("lbaas", &entry("b"));
        let first = requested.recv().await.unwrap();
        assert_eq!(
            (first.guest, first.digest.as_str(), first.why.as_str()),
            ("lbaas", "sha256:1", "a failed 3 times: trapped")
        );
        assert!(requested.try_recv().is_err() && requests.is_under_way());
        first.answer.send(()).unwrap();
        requests.answered().await;
        assert!(!requests.is_under_way());

        requests.request("lbaas", &entry("c"));
        drop(requested.recv().await.unwrap());
        assert!(!requests.is_under_way(), "no receiver answers");
        let mut without = FallBackRequests::new(sender, &policy(OnFailure::Retry));
        without.request("lbaas", &entry("d"));
        assert!(
            requested.try_recv().is_err() && !without.is_under_way(),
            "no version is named"
        );
        drop(requested);
        requests.request("lbaas", &entry("d"));
        assert!(!requests.is_under_way(), "no receiver takes it");
    }
}
