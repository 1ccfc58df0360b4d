//! What others see of a Service: that this host manages it, where it is served, and what went wrong.
//!
//! For manifests that is a status file beside the state; for a cluster also the Service itself. Decides nothing about
//! load balancers: `turn.rs` says before and after what is in service.
//!
//! ```text
//! claim -> (create, change) -> serve -> ... -> (remove) -> release
//! ```

use std::path::PathBuf;

use trueup_base::fence::Fence;
use trueup_capabilities::meter::Effects;
use trueup_sources::kubernetes::Kubernetes;
use trueup_work::files;
use trueup_work::input::Input;
use trueup_work::keyed::KeyProblem;
use trueup_work::kubernetes::{Events, ObjectEvent};

use crate::lbaas::adapter::{self, Key};
use crate::lbaas::guest::AddressPorts;
use crate::lbaas::write::{self, Unpublished};

/// Publishes the state of Services: in status files, and in the cluster itself if the source is one. A turn publishes
/// through the fence of its own epoch.
#[derive(Default)]
pub(crate) struct Publisher {
    /// The folder of the status files: a file per Service, in the form of its `status`. `None` in a plan.
    folder: Option<PathBuf>,
    cluster: Option<(Kubernetes, Events)>,
}

impl Publisher {
    /// Writes status files below `folder`, and events to the cluster while `fence` allows it. Must be called within a
    /// tokio runtime with time.
    pub(crate) fn new(input: &Input, folder: PathBuf, fence: &Fence) -> Self {
        let events = |cluster: &Kubernetes| Events::new(cluster.clone(), fence.clone());
        Self {
            folder: Some(folder),
            cluster: input.cluster.as_ref().map(|cluster| (cluster.clone(), events(cluster))),
        }
    }

    /// Publishes nothing: for a plan.
    pub(crate) fn of_plan() -> Self {
        Self::default()
    }

    /// Before anything is created for a Service: from here on it can't be deleted without this host.
    pub(crate) async fn claim(&self, key: &Key, uid: &str, fence: &Fence) -> Result<(), Unpublished> {
        match &self.cluster {
            Some((cluster, _)) => write::claim(cluster, key, uid, fence).await,
            None => Ok(()),
        }
    }

    /// The Service is in its desired state; `in_service` is what it serves.
    pub(crate) async fn serve(
        &self,
        key: &Key,
        uid: &str,
        in_service: &[AddressPorts],
        fence: &Fence,
    ) -> Result<(), Unpublished> {
        let status = adapter::status(in_service);
        if let Some(file) = self.file(key) {
            files::replace_json(&file, &status).map_err(|error| Unpublished::Failed(error.to_string()))?;
        }
        let Some((cluster, _)) = &self.cluster else {
            return Ok(());
        };
        let ingress = status.load_balancer.and_then(|status| status.ingress);
        write::serve(cluster, key, uid, &ingress.unwrap_or_default(), fence).await
    }

    /// Nothing is left of a Service that this host no longer manages.
    pub(crate) async fn release(&self, key: &Key, fence: &Fence) -> Result<(), Unpublished> {
        if let Some(file) = self.file(key) {
            files::remove(&file).map_err(|error| Unpublished::Failed(error.to_string()))?;
        }
        match &self.cluster {
            Some((cluster, _)) => write::release(cluster, key, fence).await,
            None => Ok(()),
        }
    }

    /// Reports an event on the Service, without waiting for it.
    pub(crate) fn report(&self, event: Option<ObjectEvent>) {
        if let (Some((_, events)), Some(event)) = (&self.cluster, event) {
            events.say(event);
        }
    }

    /// Waits until reported events are written, within limits.
    pub(crate) async fn flush(&self) {
        if let Some((_, events)) = &self.cluster {
            events.flush().await;
        }
    }

    fn file(&self, key: &Key) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(&key.namespace).join(format!("{}.json", key.name)))
    }
}

/// What the host does for a Service, in the words of Kubernetes' own controllers.
const ENSURE: &str = "EnsureLoadBalancer";

/// The event of a Service that is in its desired state, or gone. `did`: what was done. `None` if that is nothing.
pub(crate) fn success(key: &Key, gone: bool, effects: Effects, did: &str) -> Option<ObjectEvent> {
    let (reason, action, note) = match effects {
        _ if gone => (
            "DeletedLoadBalancer",
            "DeleteLoadBalancer",
            format!("{did}; nothing is left of it"),
        ),
        Effects {
            created: 0,
            destroyed: 0,
        } => return None,
        _ => ("EnsuredLoadBalancer", ENSURE, did.to_owned()),
    };
    Some(ObjectEvent {
        key: key.clone(),
        warning: false,
        reason,
        action,
        note,
    })
}

/// The event of a Service that is not in its desired state.
pub(crate) fn problem(key: &Key, problem: KeyProblem<'_>) -> ObjectEvent {
    let (reason, note) = match problem {
        KeyProblem::Failed(error) => ("SyncLoadBalancerFailed", error.to_owned()),
        KeyProblem::SetAside(error) => (
            "LoadBalancerSetAside",
            format!("set aside until it or the guest changes: {error}"),
        ),
        KeyProblem::Refused(error) => ("InvalidLoadBalancer", error.to_owned()),
    };
    ObjectEvent {
        key: key.clone(),
        warning: true,
        reason,
        action: ENSURE,
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        }
    }

    #[test]
    fn events_are_in_the_words_of_kubernetes() {
        let effects = |created| Effects { created, destroyed: 0 };
        let event = |created| success(&key(), false, effects(created), "3 created");
        assert_eq!(event(0), None, "nothing was done");
        let ensured = event(3).unwrap();
        assert_eq!((ensured.warning, ensured.reason), (false, "EnsuredLoadBalancer"));
        assert_eq!(ensured.note, "3 created");
        for of in [KeyProblem::Failed, KeyProblem::SetAside, KeyProblem::Refused] {
            let event = problem(&key(), of("why"));
            assert!(event.warning && event.note.ends_with("why"), "{event:?}");
            assert!(event.reason.chars().all(|c| c.is_ascii_alphabetic()), "{event:?}");
        }
    }

    #[tokio::test]
    async fn a_status_file_is_there_while_the_service_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let files = Publisher {
            folder: Some(folder.path().to_owned()),
            cluster: None,
        };
        let fence = Fence::open();
        files.claim(&key(), "u1", &fence).await.unwrap();
        let in_service = [AddressPorts {
            address: "203.0.113.10".to_owned(),
            ports: vec![80],
        }];
        files.serve(&key(), "u1", &in_service, &fence).await.unwrap();
        let file = folder.path().join("default/web.json");
        assert!(std::fs::read_to_string(&file).unwrap().contains("203.0.113.10"));
        files.release(&key(), &fence).await.unwrap();
        assert!(!file.exists());
        files.release(&key(), &fence).await.unwrap();
    }
}
