//! Writes our parts of a Service: our finalizer, and the addresses in service.
//!
//! Each write is a patch of exactly those fields, and applies only to the version it was based on. After a conflict the
//! Service is read again and the patch computed anew. Otherwise the patch is based on the watched version, without a
//! separate read.
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
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use trueup_base::fence::Fence;
use trueup_sources::kubernetes::Kubernetes;

use crate::lbaas::adapter::{self, FINALIZER, Key};

/// How often a Service is read again after a conflict before the key's own retry takes over.
const CONFLICTS_MAX: u32 = 10;

/// How long to wait until the watch shows the result of a write. The delay is rarely more than some ms.
const WATCH_BEHIND_MAX: Duration = Duration::from_secs(3);

/// The interval of this check.
const WATCH_BEHIND_LOOK: Duration = Duration::from_millis(50);

/// Why something was not published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unpublished {
    /// The Service is known to be gone, replaced, or no longer ours. Nothing is wrong: the newer Service has its own
    /// turn.
    Outdated,
    /// One line.
    Failed(String),
}

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

/// Adds our finalizer to a Service that is ours: from now on it is not removed before its objects.
pub(crate) async fn claim(cluster: &Kubernetes, key: &Key, uid: &str, fence: &Fence) -> Result<(), Unpublished> {
    let claimed = |service: &Service| {
        if adapter::is_claimed(service) {
            return Change::None;
        }
        let mut finalizers = finalizers(service);
        finalizers.push(FINALIZER.to_owned());
        with_finalizers(&finalizers)
    };
    write_ours(cluster, key, uid, fence, claimed).await
}

/// Sets the addresses in service.
pub(crate) async fn serve(
    cluster: &Kubernetes,
    key: &Key,
    uid: &str,
    ingress: &[LoadBalancerIngress],
    fence: &Fence,
) -> Result<(), Unpublished> {
    write_ours(cluster, key, uid, fence, |service| with_ingress(service, ingress)).await
}

/// Changes a Service that is ours and has this UID.
async fn write_ours(
    cluster: &Kubernetes,
    key: &Key,
    uid: &str,
    fence: &Fence,
    change: impl Fn(&Service) -> Change,
) -> Result<(), Unpublished> {
    let change = |service: &Service| match is_ours(service, uid) {
        true => change(service),
        false => Change::Stop,
    };
    let is_written = write(cluster, key, fence, change).await?;
    let known = || cluster.service(&key.namespace, &key.name);
    expect(known, cluster.is_watched(), key, uid, is_written).await
}

/// Releases a Service that is no longer ours and has no objects left: removes all addresses and our finalizer. A
/// Service that is gone, or ours again, is not changed.
pub(crate) async fn release(cluster: &Kubernetes, key: &Key, fence: &Fence) -> Result<(), Unpublished> {
    let cleared = |service: &Service| match adapter::is_ours(service) {
        true => Change::Stop,
        // Its class belongs to another controller, so the addresses do too.
        false if !adapter::is_claimed(service) || adapter::is_anothers(service) => Change::None,
        false => with_ingress(service, &[]),
    };
    if !write(cluster, key, fence, cleared).await? {
        return Ok(());
    }
    let released = |service: &Service| {
        if adapter::is_ours(service) {
            return Change::Stop;
        }
        if !adapter::is_claimed(service) {
            return Change::None;
        }
        let mut finalizers = finalizers(service);
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        with_finalizers(&finalizers)
    };
    write(cluster, key, fence, released).await.map(drop)
}

/// If nothing was written, waits until the watch shows the reason: before that, a retry would do the same again.
/// `known`: the Service as the watch has it now.
async fn expect(
    known: impl Fn() -> Option<Arc<Service>>,
    is_watched: bool,
    key: &Key,
    uid: &str,
    is_written: bool,
) -> Result<(), Unpublished> {
    if is_written {
        return Ok(());
    }
    let until = Instant::now() + WATCH_BEHIND_MAX;
    loop {
        if !known().is_some_and(|service| is_ours(&service, uid)) {
            return Err(Unpublished::Outdated);
        }
        if !is_watched || Instant::now() >= until {
            return Err(unseen(key));
        }
        sleep(WATCH_BEHIND_LOOK).await;
    }
}

/// The watch does not show yet why nothing was written.
fn unseen(key: &Key) -> Unpublished {
    Unpublished::Failed(format!(
        "service `{key}` is not the one any more that it was: waiting for the API server to say what it is"
    ))
}

/// Returns whether the Service is as desired. It is not if it does not exist, or has changed so that this write no
/// longer applies.
async fn write(
    cluster: &Kubernetes,
    key: &Key,
    fence: &Fence,
    change: impl Fn(&Service) -> Change,
) -> Result<bool, Unpublished> {
    let failed = |cause: String| Unpublished::Failed(format!("service `{key}`: {cause}"));
    let (namespace, name) = (&key.namespace, &key.name);
    let Some(mut service) = cluster.service(namespace, name) else {
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
            return Err(failed("not written, since this host may not act now".to_owned()));
        };
        match cluster.patch_service(&service, patch, status, left).await {
            Ok(()) => return Ok(true),
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(failed(error.text)),
        }
        service = match cluster.read_service(namespace, name).await {
            Ok(service) => service,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(failed(error.text)),
        };
    }
    Err(failed(format!(
        "somebody else wrote to it {CONFLICTS_MAX} times while it was to be written"
    )))
}

fn is_ours(service: &Service, uid: &str) -> bool {
    adapter::is_ours(service) && service.metadata.uid.as_deref() == Some(uid)
}

fn finalizers(service: &Service) -> Vec<String> {
    service.metadata.finalizers.clone().unwrap_or_default()
}

fn with_finalizers(finalizers: &[String]) -> Change {
    // In a merge patch, null removes a field.
    let finalizers = if finalizers.is_empty() {
        Value::Null
    } else {
        Value::from(finalizers)
    };
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
        LoadBalancerIngress {
            ip_mode: same
                .and_then(|same| same.ip_mode.clone())
                .or_else(|| wanted.ip_mode.clone()),
            ..wanted.clone()
        }
    };
    let ingress: Vec<LoadBalancerIngress> = wanted.iter().map(entry).collect();
    let ingress = if ingress.is_empty() {
        Value::Null
    } else {
        json!(ingress)
    };
    Change::Patch {
        patch: json!({"metadata": {}, "status": {"loadBalancer": {"ingress": ingress}}}),
        status: true,
    }
}

/// The address, name, and ports with protocols of an entry.
type Shown<'a> = (Option<&'a str>, Option<&'a str>, BTreeSet<(i32, &'a str)>);

/// The content of entries, independent of order and of fields that the API server adds.
fn shown(ingress: &[LoadBalancerIngress]) -> BTreeSet<Shown<'_>> {
    ingress
        .iter()
        .map(|entry| {
            let ports = entry.ports.iter().flatten();
            (
                // Kubernetes writes an empty text for none.
                entry.ip.as_deref().filter(|ip| !ip.is_empty()),
                entry.hostname.as_deref().filter(|hostname| !hostname.is_empty()),
                ports.map(|port| (port.port, port.protocol.as_str())).collect(),
            )
        })
        .collect()
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
        let changed = Err(Unpublished::Outdated);
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
