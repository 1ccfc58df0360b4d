//! What others see of a Service: that this host manages it, where it is served, and what went wrong.
//!
//! For manifests that is a status file beside the state; for a cluster also the Service itself. Decides nothing about
//! load balancers: `turn.rs` says before and after what is in service.
//!
//! ```text
//! claim -> (create, change) -> serve -> ... -> (remove) -> release
//! ```
//!
//! Each write to a Service is a patch of exactly our fields, and applies only to the version it was based on. After a
//! conflict the Service is read again and the patch computed anew. Otherwise the patch is based on the watched version,
//! without a separate read.
//!
//! ```text
//! Service as known -> what differs? -> nothing: done
//!     ^                   |
//!     |                   v
//!     +-- read <- 409 - patch -> done, or the Service is gone
//! ```
//!
//! *Whose entries*: `status.loadBalancer` of a Service belongs to the one controller that its class names, so all
//! entries are ours: an entry that is not in service is removed, no matter which client wrote it. `ipMode` of a
//! remaining entry is not changed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use trueup_base::fence::Fence;
use trueup_capabilities::meter::Effects;
use trueup_sources::kubernetes::Kubernetes;
use trueup_work::files;
use trueup_work::input::Input;
use trueup_work::keyed::KeyProblem;
use trueup_work::kubernetes::{Events, ObjectEvent};
use trueup_work::lifecycle::failure::Failure;

use crate::lbaas::adapter::{self, FINALIZER, Key};
use crate::lbaas::guest::AddressPorts;

/// How often a Service is read again after a conflict before the key's own retry takes over.
const CONFLICTS_MAX: u32 = 10;

/// How long to wait until the watch shows the result of a write. The delay is rarely more than some ms.
const WATCH_BEHIND_MAX: Duration = Duration::from_secs(3);

/// The interval of this check.
const WATCH_BEHIND_LOOK: Duration = Duration::from_millis(50);

/// The desired change of a Service.
enum Change {
    None,
    /// The Service has changed, so this write no longer applies.
    Stop,
    Patch {
        patch: Value,
        status: bool,
    },
}

/// Publishes the state of Services: in status files, and in the cluster itself if the source is one. A turn publishes
/// through the fence of its own epoch. A Service that is known to be gone, replaced, or no longer ours cuts the turn:
/// nothing is wrong, and the key runs again at once, with the current Service.
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

    /// Before anything is created for a Service, adds our finalizer: from here on it can't be deleted without this
    /// host.
    pub(crate) async fn claim(&self, key: &Key, uid: &str, fence: &Fence) -> Result<(), Failure> {
        let claimed = |service: &Service| {
            if adapter::is_claimed(service) {
                return Change::None;
            }
            let mut finalizers = finalizers(service);
            finalizers.push(FINALIZER.to_owned());
            with_finalizers(&finalizers)
        };
        self.write_if_ours(key, uid, fence, claimed).await
    }

    /// The Service is in its desired state; `in_service` is what it serves.
    pub(crate) async fn serve(
        &self,
        key: &Key,
        uid: &str,
        in_service: &[AddressPorts],
        fence: &Fence,
    ) -> Result<(), Failure> {
        let status = adapter::status(in_service);
        if let Some(file) = self.file(key) {
            files::replace_json(&file, &status).map_err(|error| error.to_string())?;
        }
        let ingress = status.load_balancer.and_then(|status| status.ingress);
        let ingress = ingress.unwrap_or_default();
        let served = |service: &Service| with_ingress(service, &ingress);
        self.write_if_ours(key, uid, fence, served).await
    }

    /// Nothing is left of a Service that this host no longer manages: removes all addresses and our finalizer. A
    /// Service that is gone, or ours again, is not changed.
    pub(crate) async fn release(&self, key: &Key, fence: &Fence) -> Result<(), Failure> {
        if let Some(file) = self.file(key) {
            files::remove(&file).map_err(|error| error.to_string())?;
        }
        let cleared = |service: &Service| match adapter::is_ours(service) {
            true => Change::Stop,
            // Its class belongs to another controller, so the addresses do too.
            false if !adapter::is_claimed(service) || adapter::is_anothers(service) => Change::None,
            false => with_ingress(service, &[]),
        };
        let released = |service: &Service| match adapter::is_ours(service) {
            true => Change::Stop,
            false if !adapter::is_claimed(service) => Change::None,
            false => {
                let mut finalizers = finalizers(service);
                finalizers.retain(|finalizer| finalizer != FINALIZER);
                with_finalizers(&finalizers)
            }
        };
        if self.write(key, fence, cleared).await? {
            self.write(key, fence, released).await?;
        }
        Ok(())
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

    /// Changes a Service that is ours and has this UID. Without a cluster there is nothing to change.
    async fn write_if_ours(
        &self,
        key: &Key,
        uid: &str,
        fence: &Fence,
        change: impl Fn(&Service) -> Change,
    ) -> Result<(), Failure> {
        let Some((cluster, _)) = &self.cluster else {
            return Ok(());
        };
        let change = |service: &Service| match is_ours(service, uid) {
            true => change(service),
            false => Change::Stop,
        };
        let is_written = self.write(key, fence, change).await?;
        let known = || cluster.service(&key.namespace, &key.name);
        expect(known, cluster.is_watched(), key, uid, is_written).await
    }

    /// Returns whether the Service is as desired. It is not if there is no cluster, it does not exist, or has changed
    /// so that this write no longer applies.
    async fn write(&self, key: &Key, fence: &Fence, change: impl Fn(&Service) -> Change) -> Result<bool, Failure> {
        let Some((cluster, _)) = &self.cluster else {
            return Ok(false);
        };
        let failed = |cause: &str| Failure::from(format!("service `{key}`: {cause}"));
        let Some(mut service) = cluster.service(&key.namespace, &key.name) else {
            return Ok(false);
        };
        for _ in 0..CONFLICTS_MAX {
            let (patch, status) = match change(&service) {
                Change::None => return Ok(true),
                Change::Stop => return Ok(false),
                Change::Patch { patch, status } => (patch, status),
            };
            // Check this right before the write: the preceding steps may have taken long.
            let Some(left) = fence.left() else {
                return Err(failed("not written, since this host may not act now"));
            };
            match cluster.patch_service(&service, patch, status, left).await {
                Ok(()) => return Ok(true),
                Err(error) if error.is_not_found() => return Ok(false),
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(failed(&error.text)),
            }
            service = match cluster.read_service(&key.namespace, &key.name).await {
                Ok(service) => service,
                Err(error) if error.is_not_found() => return Ok(false),
                Err(error) => return Err(failed(&error.text)),
            };
        }
        Err(failed(&format!(
            "somebody else wrote to it {CONFLICTS_MAX} times while it was to be written"
        )))
    }
}

/// If nothing was written, waits until the watch shows the reason: before that, a retry would do the same again.
/// `known`: the Service as the watch has it now.
async fn expect(
    known: impl Fn() -> Option<Arc<Service>>,
    is_watched: bool,
    key: &Key,
    uid: &str,
    is_written: bool,
) -> Result<(), Failure> {
    if is_written {
        return Ok(());
    }
    let until = Instant::now() + WATCH_BEHIND_MAX;
    loop {
        if !known().is_some_and(|service| is_ours(&service, uid)) {
            return Err(Failure::cut());
        }
        if !is_watched || Instant::now() >= until {
            return Err(unseen(key));
        }
        sleep(WATCH_BEHIND_LOOK).await;
    }
}

/// The watch does not show yet why nothing was written.
fn unseen(key: &Key) -> Failure {
    Failure::from(format!(
        "service `{key}` is not the one any more that it was: waiting for the API server to say what it is"
    ))
}

fn is_ours(service: &Service, uid: &str) -> bool {
    adapter::is_ours(service) && service.metadata.uid.as_deref() == Some(uid)
}

fn finalizers(service: &Service) -> Vec<String> {
    service.metadata.finalizers.clone().unwrap_or_default()
}

fn with_finalizers(finalizers: &[String]) -> Change {
    // In a merge patch, null removes a field.
    let finalizers = (!finalizers.is_empty()).then_some(finalizers);
    Change::Patch {
        patch: json!({"metadata": {"finalizers": finalizers}}),
        status: false,
    }
}

fn with_ingress(service: &Service, wanted: &[LoadBalancerIngress]) -> Change {
    let status = service.status.as_ref();
    let now = status.and_then(|status| status.load_balancer.as_ref()?.ingress.as_deref());
    let now = now.unwrap_or_default();
    if shown(now) == shown(wanted) {
        return Change::None;
    }
    let entry = |wanted: &LoadBalancerIngress| {
        let same = now.iter().find(|now| now.ip == wanted.ip);
        let mode = same.and_then(|same| same.ip_mode.as_ref());
        LoadBalancerIngress {
            ip_mode: mode.or(wanted.ip_mode.as_ref()).cloned(),
            ..wanted.clone()
        }
    };
    // In a merge patch, null removes a field.
    let ingress = (!wanted.is_empty()).then(|| wanted.iter().map(entry).collect::<Vec<_>>());
    Change::Patch {
        patch: json!({"metadata": {}, "status": {"loadBalancer": {"ingress": ingress}}}),
        status: true,
    }
}

/// The address, name, and ports with protocols of an entry. Kubernetes writes an empty text for none.
type Shown<'a> = (&'a str, &'a str, BTreeSet<(i32, &'a str)>);

/// The content of entries, independent of order and of fields that the API server adds.
fn shown(ingress: &[LoadBalancerIngress]) -> BTreeSet<Shown<'_>> {
    let shown = ingress.iter().map(|entry| {
        let ports = entry.ports.iter().flatten();
        (
            entry.ip.as_deref().unwrap_or_default(),
            entry.hostname.as_deref().unwrap_or_default(),
            ports.map(|port| (port.port, port.protocol.as_str())).collect(),
        )
    });
    shown.collect()
}

/// What the host does for a Service, in the words of Kubernetes' own controllers.
const ENSURE: &str = "EnsureLoadBalancer";

/// The event of a Service that is in its desired state, or gone. `did`: what was done. `None` if that is nothing.
pub(crate) fn success(key: &Key, gone: bool, effects: Effects, did: &str) -> Option<ObjectEvent> {
    let (reason, action, note) = match gone {
        true => (
            "DeletedLoadBalancer",
            "DeleteLoadBalancer",
            format!("{did}; nothing is left of it"),
        ),
        false if effects == Effects::default() => return None,
        false => ("EnsuredLoadBalancer", ENSURE, did.to_owned()),
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
    use std::cell::RefCell;

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

    #[tokio::test]
    async fn a_changed_service_is_reported_once_known_and_not_awaited_unwatched() {
        let key = key();
        let web = service(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "1"},
            "spec": {"type": "LoadBalancer"},
        }));
        let known = RefCell::new(Some(Arc::new(web)));
        let expect =
            async |uid, written, is_watched| expect(|| known.borrow().clone(), is_watched, &key, uid, written).await;
        assert_eq!(expect("u1", true, false).await, Ok(()));
        assert_eq!(expect("u1", false, false).await, Err(unseen(&key)));
        let changed = Err(Failure::cut());
        assert_eq!(expect("u0", false, false).await, changed, "another UID is known");

        let gone = async {
            tokio::task::yield_now().await;
            known.replace(None);
        };
        let (expected, ()) = tokio::join!(expect("u1", false, true), gone);
        assert_eq!(expected, changed);
    }

    fn service(value: Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    fn patch_of(change: Change) -> Option<Value> {
        match change {
            Change::Patch { patch, .. } => Some(patch),
            Change::None => None,
            Change::Stop => panic!("stopped"),
        }
    }

    fn wanted(entries: &[(&str, i32)]) -> Vec<LoadBalancerIngress> {
        let entries = entries.iter().map(|(ip, port)| {
            serde_json::from_value(json!({"ip": ip, "ports": [{"port": port, "protocol": "TCP"}]})).unwrap()
        });
        entries.collect()
    }

    fn serving(ingress: Value) -> Service {
        service(json!({"metadata": {"name": "web"}, "status": {"loadBalancer": {"ingress": ingress}}}))
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written() {
        let now = serving(json!([
            {"ip": "192.0.2.2", "ports": [{"port": 80, "protocol": "TCP"}]},
            {"ip": "192.0.2.1", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]},
        ]));
        assert_eq!(
            patch_of(with_ingress(&now, &wanted(&[("192.0.2.1", 80), ("192.0.2.2", 80)]))),
            None
        );
        assert_eq!(patch_of(with_ingress(&serving(Value::Null), &[])), None);
        assert_eq!(patch_of(with_ingress(&service(json!({"metadata": {}})), &[])), None);
    }

    #[test]
    fn entries_are_replaced_whole_and_their_mode_stays() {
        let now = serving(json!([
            {"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]},
            {"hostname": "stale.example"},
        ]));
        let patch = patch_of(with_ingress(&now, &wanted(&[("192.0.2.1", 443)]))).unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {}, "status": {"loadBalancer": {"ingress": [
                {"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [{"port": 443, "protocol": "TCP"}]},
            ]}}})
        );
        let patch = patch_of(with_ingress(&now, &[])).unwrap();
        assert_eq!(patch["status"]["loadBalancer"]["ingress"], Value::Null);
    }

    #[test]
    fn finalizers_of_others_stay() {
        let patch = patch_of(with_finalizers(&["example.com/other".to_owned()])).unwrap();
        assert_eq!(patch, json!({"metadata": {"finalizers": ["example.com/other"]}}));
        let patch = patch_of(with_finalizers(&[])).unwrap();
        assert_eq!(patch, json!({"metadata": {"finalizers": null}}));
    }
}
