//! What others see of a Service: that this host manages it, where it is served, and what went wrong.
//!
//! For manifests that is a status file beside the state; for a cluster also the Service itself. Decides nothing about
//! load balancers: `job.rs` says before and after what is in service.
//!
//! ```text
//! claim -> (create, change) -> serve -> ... -> (remove) -> release
//! ```

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use trueup_base::fence::Fence;
use trueup_sources::kubernetes::Kubernetes;
use trueup_work::files;
use trueup_work::input::Input;
use trueup_work::keyed;
use trueup_work::kubernetes::{Events, Said};

use crate::lbaas::adapter::{self, Key};
use crate::lbaas::guest::AddressPorts;
use crate::lbaas::write::{self, WriteError};

/// A future of the publication's result.
pub(crate) type Published<'a> = Pin<Box<dyn Future<Output = Result<(), Unpublished>> + Send + 'a>>;

/// Why something was not published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unpublished {
    /// The Service has changed since. Nothing is wrong, and the newer Service has its own job.
    Outdated,
    /// One line.
    Failed(String),
}

impl From<String> for Unpublished {
    fn from(error: String) -> Self {
        Self::Failed(error)
    }
}

impl From<WriteError> for Unpublished {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Changed(_) => Self::Outdated,
            WriteError::Unseen(_) | WriteError::NotAllowed(_) | WriteError::Failed { .. } => {
                Self::Failed(error.to_string())
            }
        }
    }
}

/// Publishes the state of Services. A job publishes through the fence of its own epoch. Each method does nothing unless
/// it is overridden.
pub(crate) trait Publish: Send + Sync {
    /// Before anything is created for a Service: from here on it can't be deleted without this host.
    fn claim<'a>(&'a self, _key: &'a Key, _uid: &'a str, _fence: &'a Fence) -> Published<'a> {
        Box::pin(async { Ok(()) })
    }

    /// The Service is in its desired state; `in_service` is what it serves.
    fn serve<'a>(
        &'a self,
        _key: &'a Key,
        _uid: &'a str,
        _in_service: &'a [AddressPorts],
        _fence: &'a Fence,
    ) -> Published<'a> {
        Box::pin(async { Ok(()) })
    }

    /// Nothing is left of a Service that this host no longer manages.
    fn release<'a>(&'a self, _key: &'a Key, _fence: &'a Fence) -> Published<'a> {
        Box::pin(async { Ok(()) })
    }

    /// Reports an event on the Service, without waiting for it.
    fn say(&self, _key: &Key, _news: News<'_>) {}

    /// Waits until reported events are written, within limits.
    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {})
    }
}

/// Publishes status: in status files below `folder`, and in the cluster itself, if the input is one, while `fence`
/// allows it.
pub(crate) fn of(input: &Input, folder: PathBuf, fence: Fence) -> Arc<dyn Publish> {
    match &input.cluster {
        Some(cluster) => Arc::new(InCluster::new(folder, cluster.clone(), fence)),
        None => Arc::new(StatusFiles::new(folder)),
    }
}

/// What happened to a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News<'a> {
    /// It is in its desired state, and the host changed something for that.
    Ensured {
        created: u64,
        destroyed: u64,
        in_service: &'a [(String, Vec<u16>)],
    },
    /// Its objects are gone.
    Deleted { destroyed: u64 },
    /// It is not in its desired state.
    Not(keyed::News<'a>),
}

/// For manifests: a file per Service, in the form of its `status`.
pub(crate) struct StatusFiles {
    folder: PathBuf,
}

impl StatusFiles {
    /// Writes files below `folder`.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.folder.join(&key.namespace).join(format!("{}.json", key.name))
    }

    fn write(&self, key: &Key, in_service: &[AddressPorts]) -> Result<(), String> {
        files::replace_json(&self.file(key), &adapter::status(in_service)).map_err(|error| error.to_string())
    }

    fn remove(&self, key: &Key) -> Result<(), String> {
        files::remove(&self.file(key)).map_err(|error| error.to_string())
    }
}

impl Publish for StatusFiles {
    fn serve<'a>(&'a self, key: &'a Key, _: &'a str, in_service: &'a [AddressPorts], _: &'a Fence) -> Published<'a> {
        Box::pin(async { Ok(self.write(key, in_service)?) })
    }

    fn release<'a>(&'a self, key: &'a Key, _: &'a Fence) -> Published<'a> {
        Box::pin(async { Ok(self.remove(key)?) })
    }
}

/// For a plan: nothing.
pub(crate) struct Nowhere;

impl Publish for Nowhere {}

/// For a cluster: the files, the Service itself, and its events.
pub(crate) struct InCluster {
    files: StatusFiles,
    cluster: Kubernetes,
    events: Events,
}

impl InCluster {
    /// Writes events to the cluster while `fence` allows it. Must be called within a tokio runtime with time.
    pub(crate) fn new(folder: PathBuf, cluster: Kubernetes, fence: Fence) -> Self {
        Self {
            files: StatusFiles::new(folder),
            events: Events::new(cluster.clone(), fence),
            cluster,
        }
    }
}

impl Publish for InCluster {
    fn claim<'a>(&'a self, key: &'a Key, uid: &'a str, fence: &'a Fence) -> Published<'a> {
        Box::pin(async move {
            let claimed = write::claim(&self.cluster, key, uid, fence).await;
            claimed.map_err(Unpublished::from)
        })
    }

    fn serve<'a>(
        &'a self,
        key: &'a Key,
        uid: &'a str,
        in_service: &'a [AddressPorts],
        fence: &'a Fence,
    ) -> Published<'a> {
        Box::pin(async move {
            self.files.write(key, in_service)?;
            let status = adapter::status(in_service).load_balancer.unwrap_or_default();
            let ingress = status.ingress.unwrap_or_default();
            let served = write::serve(&self.cluster, key, uid, &ingress, fence).await;
            served.map_err(Unpublished::from)
        })
    }

    fn release<'a>(&'a self, key: &'a Key, fence: &'a Fence) -> Published<'a> {
        Box::pin(async move {
            self.files.remove(key)?;
            let released = write::release(&self.cluster, key, fence).await;
            released.map_err(Unpublished::from)
        })
    }

    fn say(&self, key: &Key, news: News<'_>) {
        if let Some(said) = said(key, news) {
            self.events.say(said);
        }
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.events.flush())
    }
}

/// News as an event, in the words of Kubernetes' own controllers where they have any. `None` if it is not worth an
/// event.
fn said(key: &Key, news: News<'_>) -> Option<Said> {
    const ENSURE: &str = "EnsureLoadBalancer";
    let (warning, reason, action, note) = match news {
        News::Ensured {
            created: 0,
            destroyed: 0,
            ..
        } => return None,
        News::Ensured {
            created,
            destroyed,
            in_service,
        } => {
            let note = format!(
                "{created} created, {destroyed} destroyed; in service: {}",
                shown(in_service)
            );
            (false, "EnsuredLoadBalancer", ENSURE, note)
        }
        News::Deleted { destroyed } => (
            false,
            "DeletedLoadBalancer",
            "DeleteLoadBalancer",
            format!("{destroyed} destroyed; nothing is left of it"),
        ),
        News::Not(keyed::News::Failed(error)) => (true, "SyncLoadBalancerFailed", ENSURE, error.to_owned()),
        News::Not(keyed::News::SetAside(error)) => {
            let note = format!("set aside until it or the guest changes: {error}");
            (true, "LoadBalancerSetAside", ENSURE, note)
        }
        News::Not(keyed::News::Refused(error)) => (true, "InvalidLoadBalancer", ENSURE, error.to_owned()),
    };
    Some(Said {
        key: key.clone(),
        warning,
        reason,
        action,
        note,
    })
}

/// `203.0.113.10:80,443 and [2001:db8::20]:443`, or `nothing`.
fn shown(in_service: &[(String, Vec<u16>)]) -> String {
    let entry = |(address, ports): &(String, Vec<u16>)| {
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let address = if address.contains(':') {
            format!("[{address}]")
        } else {
            address.clone()
        };
        format!("{address}:{}", ports.join(","))
    };
    if in_service.is_empty() {
        return "nothing".to_owned();
    }
    in_service.iter().map(entry).collect::<Vec<_>>().join(" and ")
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
    fn news_are_said_in_the_words_of_kubernetes() {
        let in_service = [
            ("203.0.113.10".to_owned(), vec![80, 443]),
            ("2001:db8::20".to_owned(), vec![443]),
        ];
        let ensured = |created| News::Ensured {
            created,
            destroyed: 0,
            in_service: &in_service,
        };
        assert_eq!(said(&key(), ensured(0)), None, "nothing was done");
        let event = said(&key(), ensured(3)).unwrap();
        assert_eq!((event.warning, event.reason), (false, "EnsuredLoadBalancer"));
        assert_eq!(
            event.note,
            "3 created, 0 destroyed; in service: 203.0.113.10:80,443 and [2001:db8::20]:443"
        );
        for news in [
            keyed::News::Failed("why"),
            keyed::News::SetAside("why"),
            keyed::News::Refused("why"),
        ] {
            let event = said(&key(), News::Not(news)).unwrap();
            assert!(event.warning && event.note.ends_with("why"), "{event:?}");
            assert!(event.reason.chars().all(|c| c.is_ascii_alphabetic()), "{event:?}");
        }
    }

    #[test]
    fn a_service_that_changed_meanwhile_is_no_failure() {
        assert_eq!(Unpublished::from(WriteError::Changed(key())), Unpublished::Outdated);
        for error in [WriteError::Unseen(key()), WriteError::NotAllowed(key())] {
            assert_eq!(Unpublished::from(error.clone()), Unpublished::Failed(error.to_string()));
        }
    }

    #[tokio::test]
    async fn a_status_file_is_there_while_the_service_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let files = StatusFiles::new(folder.path().to_owned());
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
