//! The four requests of an election, and their answers. Each has a timeout: a host that waits for the API server for
//! ever would keep a lease that it no longer has.

use std::future::ready;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use tokio::time::timeout;

use trueup_base::text;

use super::settings::Settings;

/// The server ends a watch after this time and the host begins it anew. The API server's own default is some minutes,
/// and a connection that died silently would block for as long.
const WATCH_SECONDS: u32 = 60;

/// How much later the host ends the watch itself.
const WATCH_GRACE: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failed {
    /// Another writer wrote in between.
    Conflict,
    /// One line. It is unknown whether a write happened.
    Other(String),
}

/// One Lease at the API server.
#[derive(Clone)]
pub(super) struct Requests {
    leases: Api<Lease>,
    settings: Settings,
}

impl Requests {
    pub(super) fn new(client: kube::Client, settings: &Settings) -> Self {
        Self {
            leases: Api::namespaced(client, &settings.namespace),
            settings: settings.clone(),
        }
    }

    /// The Lease. `None` if it does not exist.
    pub(super) async fn get(&self, within: Duration) -> Result<Option<Lease>, Failed> {
        let lease = self.leases.get_opt(&self.settings.name);
        self.answer("get", within, lease).await
    }

    /// Writes it: replaces the version that it names, or creates it if it names none.
    pub(super) async fn put(&self, lease: &Lease, within: Duration) -> Result<Lease, Failed> {
        let parameters = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            let replaced = self.leases.replace(&self.settings.name, &parameters, lease);
            self.answer("update", within, replaced).await
        } else {
            let created = self.leases.create(&parameters, lease);
            self.answer("create", within, created).await
        }
    }

    /// The Lease after each change. `None` if it was deleted. Begins with the server's current one. Ends when the
    /// server or the time limit ends it.
    pub(super) async fn changes(&self, within: Duration) -> Result<impl Stream<Item = Option<Lease>>, Failed> {
        let name = format!("metadata.name={}", self.settings.name);
        let parameters = WatchParams::default().fields(&name).timeout(WATCH_SECONDS);
        // "0" accepts any version that the server has at hand. The server never answers that this version is too old.
        let watch = self.leases.watch(&parameters, "0");
        let events = self.answer("watch", within, watch).await?;
        let end = tokio::time::sleep(Duration::from_secs(WATCH_SECONDS.into()) + WATCH_GRACE);
        let name = self.settings.name.clone();
        // A server may ignore the selector.
        let is_named = move |lease: &Lease| lease.metadata.name.as_deref() == Some(&*name);
        let change = move |event| match event {
            Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) if is_named(&lease) => Some(Some(lease)),
            Ok(WatchEvent::Deleted(lease)) if is_named(&lease) => Some(None),
            _ => None,
        };
        let events = events.take_while(|event| ready(!matches!(event, Ok(WatchEvent::Error(_)) | Err(_))));
        let changes = events.filter_map(move |event| ready(change(event)));
        Ok(changes.take_until(end))
    }

    async fn answer<T>(
        &self,
        verb: &str,
        within: Duration,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failed> {
        let what = || format!("can't {verb} lease `{}`", self.settings.lease());
        match timeout(within, request).await {
            Ok(Ok(answer)) => Ok(answer),
            // "Already exists" is also a conflict: another host created it in between.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Failed::Conflict),
            Ok(Err(error)) => Err(Failed::Other(format!("{}: {}", what(), cause(&error)))),
            Err(_) => {
                let ms = within.as_millis();
                Err(Failed::Other(format!("{}: no answer within {ms} ms", what())))
            }
        }
    }
}

/// The cause on one line, with a hint if there is one.
fn cause(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        return text::line(&text::causes(error));
    };
    let said = match status.message.as_str() {
        "" => &status.reason,
        message => message,
    };
    let hint = match status.code {
        403 => "; allow `get`, `create`, `update` and `watch` of `leases` in `coordination.k8s.io`",
        // A missing Lease is no error, so this is about its namespace.
        404 => "; create the namespace with `kubectl create namespace`, or name another in `[election]`",
        _ => "",
    };
    format!("{} ({}){hint}", text::line(said), status.code)
}
