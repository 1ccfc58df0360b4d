//! Finds the API server and sends it requests with limits. Errors have one line that says what to do.
//!
//! This module knows nothing about the meaning of objects. Every request has a timeout, and every answer a maximum
//! length.
//!
//! ```text
//! settings -> kubeconfig, or the pod's own account -> Cluster -> list, watch, get, patch
//! ```

use std::path::PathBuf;
use std::time::Duration;

use futures_util::io::{AsyncBufRead, AsyncReadExt as _};
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use serde_json::Value;
use trueup_base::regular;
use trueup_base::text::{self, scrub, without_credentials};

use super::kubeconfig::{ClusterError, chain, from_kubeconfig, is_of_pod};
use super::settings::Settings;
use super::store::Scope;
use crate::object::Kind;

/// The timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A longer page is an error. 500 objects of the maximum size in etcd, 1.5 MiB, are 750 MiB.
const PAGE_BYTES_MAX: u64 = 1 << 30;

/// A longer list is not read at once. 20,000 Services or Nodes of 12 KiB reach this size, and are no problem in pages.
const WHOLE_BYTES_MAX: u64 = 256 << 20;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// One line: the request, and the API server's error.
    pub text: String,
    /// The API server's status code. `None` if it did not answer.
    pub code: Option<u16>,
}

impl Failed {
    /// Whether the requested version is too old, so that a new list is needed.
    pub(super) fn is_expired(&self) -> bool {
        self.code == Some(410)
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == Some(404)
    }

    /// Whether the object has another version by now.
    pub fn is_conflict(&self) -> bool {
        self.code == Some(409)
    }
}

/// A client of an API server.
#[derive(Clone)]
pub(super) struct Cluster {
    client: kube::Client,
    /// The API server's URL.
    pub(super) server: String,
    pub(super) settings: Settings,
    secrets: Secrets,
}

/// Texts that must not be shown.
#[derive(Clone)]
struct Secrets {
    token: Option<String>,
    /// The file of a token that is renewed.
    token_file: Option<PathBuf>,
}

impl Secrets {
    fn new(config: &kube::Config) -> Self {
        let auth = &config.auth_info;
        // The library offers no other access to it.
        let shown = serde_json::to_value(auth).unwrap_or_default();
        Self {
            token: shown.get("token").and_then(Value::as_str).map(str::to_owned),
            token_file: auth.token_file.as_ref().map(PathBuf::from),
        }
    }

    fn hide(&self, text: String) -> String {
        let read = |file: &PathBuf| regular::read_text(file, regular::SMALL).ok();
        let in_file = self.token_file.as_ref().and_then(read);
        let known = self.token.iter().chain(&in_file);
        let text = known.fold(text, |text, secret| scrub(secret.trim(), text));
        without_credentials(&text)
    }
}

impl Cluster {
    /// Reads the API server's address and our credentials. Sends nothing yet. Requires a tokio runtime.
    ///
    /// # Errors
    /// If these are not available.
    pub(super) async fn new(settings: &Settings) -> Result<Self, ClusterError> {
        // Ignore the error: all of this process use the first one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = if is_of_pod(settings) {
            kube::Config::incluster_env().map_err(|error| {
                let cause = chain(&error);
                ClusterError::Misused(format!(
                    "reading the service account of this pod: {cause}; or name a `kubeconfig` under [source.kubernetes]"
                ))
            })?
        } else {
            from_kubeconfig(settings).await?
        };
        config.connect_timeout = Some(CONNECT);
        // Watches are quiet for a long time, and each request has its own timeout here.
        config.read_timeout = None;
        // A write must not be repeated automatically: another host may act by then.
        config.default_retry = false;
        let secrets = Secrets::new(&config);
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = kube::Client::try_from(config).map_err(|error| {
            ClusterError::Misused(format!("connecting to the API server {server}: {}", chain(&error)))
        })?;
        Ok(Self {
            client,
            server,
            settings: settings.clone(),
            secrets,
        })
    }

    pub(super) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Requests a page of a list; `whole` requests all of it at once.
    pub(super) async fn page(&self, scope: &Scope, next: Option<&str>, whole: bool) -> Result<Vec<u8>, Failed> {
        let purpose = Purpose::new("list", scope);
        let parameters = ListParams {
            limit: (!whole).then_some(self.settings.page_size),
            continue_token: next.map(str::to_owned),
            field_selector: self.field_selector(scope),
            ..ListParams::default()
        };
        let request = Request::new(path(scope)).list(&parameters);
        let request = request.map_err(|error| self.failed(&purpose, &chain(&error)))?;
        let asking = async {
            let answer = self.client.request_stream(request).await;
            let mut reader = Box::pin(answer.map_err(|error| self.refused(&purpose, &error))?);
            let bytes_max = if whole { WHOLE_BYTES_MAX } else { PAGE_BYTES_MAX };
            let cause = match (read_up_to(&mut reader, bytes_max).await, whole) {
                (Ok(Some(page)), _) => return Ok(page),
                (Ok(None), true) => format!(
                    "all of it at once is more than {bytes_max} bytes, and page by page it grew too old: set another \
                     `page_size` under [source.kubernetes], or leave the kind out of `watch`"
                ),
                (Ok(None), false) => {
                    format!("a page is more than {bytes_max} bytes: lower `page_size` under [source.kubernetes]")
                }
                (Err(error), _) => chain(&error),
            };
            Err(self.failed(&purpose, &cause))
        };
        self.within(&purpose, asking).await
    }

    /// Selects objects of a scope. `None`: all. A Pod never moves to another Node, so the selection is stable.
    fn field_selector(&self, scope: &Scope) -> Option<String> {
        let node = self.settings.pods_of.as_ref().filter(|_| scope.kind == Kind::Pod)?;
        Some(format!("spec.nodeName={node}"))
    }

    /// Starts a watch at a version.
    pub(super) async fn watch(
        &self,
        scope: &Scope,
        version: &str,
        seconds: u32,
    ) -> Result<impl AsyncBufRead + Unpin + use<>, Failed> {
        let purpose = Purpose::new("watch", scope);
        let parameters = WatchParams {
            field_selector: self.field_selector(scope),
            ..WatchParams::default().timeout(seconds)
        };
        let request = Request::new(path(scope)).watch(&parameters, version);
        let request = request.map_err(|error| self.failed(&purpose, &chain(&error)))?;
        let asking = self.client.request_stream(request);
        self.asked(&purpose, asking).await.map(Box::pin)
    }

    /// The answer within its time.
    pub(super) async fn asked<T>(
        &self,
        purpose: &Purpose,
        asking: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failed> {
        let asking = async { asking.await.map_err(|error| self.refused(purpose, &error)) };
        self.within(purpose, asking).await
    }

    async fn within<T>(&self, purpose: &Purpose, asking: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        let ms = self.settings.request_timeout_ms;
        let answer = tokio::time::timeout(Duration::from_millis(ms), asking).await;
        answer.unwrap_or_else(|_| Err(self.failed(purpose, &format!("no answer within {ms} ms"))))
    }

    /// An error before the API server answered.
    pub(super) fn failed(&self, purpose: &Purpose, cause: &str) -> Failed {
        let cause = self.secrets.hide(text::line(cause));
        let text = format!("{purpose} at the API server {}: {cause}", self.server);
        Failed { text, code: None }
    }

    fn refused(&self, purpose: &Purpose, error: &kube::Error) -> Failed {
        let kube::Error::Api(status) = error else {
            return self.failed(purpose, &chain(error));
        };
        let text = match status.code {
            401 => "it does not take our credentials (401): check the user of the kubeconfig's context, or the service account".to_owned(),
            403 => format!(
                "not allowed (403): give this account `{}` on `{}` in a role, as in deploy/trueup.yaml",
                purpose.verb, purpose.resource
            ),
            code => format!("{} ({code})", status.message.trim_end_matches('.')),
        };
        Failed {
            code: Some(status.code),
            ..self.failed(purpose, &text)
        }
    }
}

/// Reads to the end. `None` if that is more than `bytes_max`.
async fn read_up_to(reader: &mut (impl AsyncBufRead + Unpin), bytes_max: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    reader.take(bytes_max + 1).read_to_end(&mut read).await?;
    let is_all = u64::try_from(read.len()).is_ok_and(|length| length <= bytes_max);
    Ok(is_all.then_some(read))
}

/// The purpose of a request.
pub(super) struct Purpose {
    verb: &'static str,
    resource: &'static str,
    on: String,
}

impl Purpose {
    pub(super) fn new(verb: &'static str, scope: &Scope) -> Self {
        let resource = scope.kind.resource();
        let namespace = scope.namespace.iter();
        let on = namespace.map(|it| format!(" in namespace {it}")).collect();
        Self { verb, resource, on }
    }

    /// `on`: the one object, or empty.
    pub(super) fn one(verb: &'static str, resource: &'static str, on: &str) -> Self {
        let blank = if on.is_empty() { "" } else { " " };
        let on = format!("{blank}{on}");
        Self { verb, resource, on }
    }
}

impl std::fmt::Display for Purpose {
    /// `list services in namespace a`, `patch services/status default/web`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}{}", self.verb, self.resource, self.on)
    }
}

fn path(scope: &Scope) -> String {
    let version = scope.kind.api_version();
    let group = if version.contains('/') { "apis" } else { "api" };
    let within: String = scope.namespace.iter().map(|it| format!("namespaces/{it}/")).collect();
    format!("/{group}/{version}/{within}{}", scope.kind.resource())
}

/// The scopes in the settings.
pub(super) fn scopes(settings: &Settings) -> Vec<Scope> {
    let of_kind = |kind: &Kind| -> Vec<Scope> {
        let scope = |namespace| Scope { kind: *kind, namespace };
        match settings.namespaces.is_empty() || !kind.has_namespace() {
            true => vec![scope(None)],
            false => settings.namespaces.iter().cloned().map(Some).map(scope).collect(),
        }
    };
    settings.watch.iter().flat_map(of_kind).collect()
}

#[cfg(test)]
mod tests {
    use super::super::kubeconfig::tests::{ONE, settings, written};
    use super::*;

    #[test]
    fn a_token_is_not_shown_wherever_it_comes_from() {
        let (_folder, file) = written("renewed-1\n");
        let mut config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let auth_info = serde_json::json!({ "token": "fixed-1", "tokenFile": file });
        config.auth_info = serde_json::from_value(auth_info).unwrap();
        let secrets = Secrets::new(&config);
        let shown = secrets.hide("fixed-1, renewed-1 and Bearer of-a-helper-xyz".to_owned());
        assert_eq!(shown, "***, *** and Bearer ***");
        std::fs::write(&file, "renewed-2").unwrap();
        assert_eq!(secrets.hide("renewed-2".to_owned()), "***");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_said_in_one_line() {
        let (_folder, file) = written(ONE);
        let cluster = Cluster::new(&settings(&file, Some("one"))).await.unwrap();
        let scope = Scope {
            kind: Kind::EndpointSlice,
            namespace: Some("apps".to_owned()),
        };
        let failed = cluster.page(&scope, None, false).await.unwrap_err();
        assert_eq!(failed.code, None);
        let begin = "list endpointslices in namespace apps at the API server http://127.0.0.1:1: ";
        assert!(
            failed.text.starts_with(begin) && failed.text.contains("refused"),
            "{}",
            failed.text
        );
    }

    #[tokio::test]
    async fn of_one_node_pods_alone_are_asked_for() {
        let (_folder, file) = written(ONE);
        let selectors = async |pods_of: Option<&str>| {
            let settings = Settings {
                pods_of: pods_of.map(str::to_owned),
                ..settings(&file, Some("one"))
            };
            let cluster = Cluster::new(&settings).await.unwrap();
            Kind::ALL.map(|kind| cluster.field_selector(&Scope { kind, namespace: None }))
        };
        assert_eq!(selectors(None).await, [const { None }; 4]);
        let of_pods = Some("spec.nodeName=node-a".to_owned());
        assert_eq!(selectors(Some("node-a")).await, [None, None, of_pods, None]);
    }

    #[tokio::test]
    async fn what_is_longer_than_its_limit_is_not_taken_for_all_of_it() {
        for (limit, read) in [(3, None), (4, Some(b"list".to_vec())), (5, Some(b"list".to_vec()))] {
            let mut list: &[u8] = b"list";
            assert_eq!(read_up_to(&mut list, limit).await.unwrap(), read, "{limit}");
        }
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let of = |kind, namespace: Option<&str>| {
            path(&Scope {
                kind,
                namespace: namespace.map(str::to_owned),
            })
        };
        assert_eq!(of(Kind::Node, None), "/api/v1/nodes");
        assert_eq!(of(Kind::Service, Some("a")), "/api/v1/namespaces/a/services");
        assert_eq!(
            of(Kind::EndpointSlice, None),
            "/apis/discovery.k8s.io/v1/endpointslices"
        );
    }
}
