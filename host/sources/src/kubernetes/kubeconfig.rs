//! Finds the kubeconfig and reads it. Errors have one line that says what to do.

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use trueup_base::{regular, text};

use super::settings::Settings;

/// Why a cluster is unusable, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The configuration is invalid or incomplete, for the operator to fix.
    #[error("{0}")]
    Misused(String),
    /// It does not answer, or not as expected.
    #[error("{0}")]
    Failed(String),
}

/// Whether our credentials are those of the pod's service account. A context exists only in a kubeconfig.
pub(super) fn is_of_pod(settings: &Settings) -> bool {
    let is_named = settings.kubeconfig.is_some() || settings.context.is_some();
    !is_named && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Reads the kubeconfig of the settings, or by kubectl's rules `$KUBECONFIG`, then `~/.kube/config`.
pub(super) async fn from_kubeconfig(settings: &Settings) -> Result<kube::Config, ClusterError> {
    let (named, read) = match &settings.kubeconfig {
        Some(file) => {
            // The library would block on a named pipe.
            let opened = regular::open(file).map_err(|error| KubeconfigError::ReadConfig(error, file.clone()));
            let read = opened.and_then(|_| Kubeconfig::read_from(file));
            (format!("the kubeconfig `{}`", file.display()), read)
        }
        None => {
            let named = "the kubeconfig of $KUBECONFIG or ~/.kube/config";
            (named.to_owned(), Kubeconfig::read())
        }
    };
    let refused = |cause: &str| ClusterError::Misused(format!("reading {named}: {}", text::line(cause)));
    let read = read.map_err(|error| {
        let cause = match &error {
            KubeconfigError::ReadConfig(cause, file) => format!("`{}`: {cause}", file.display()),
            error => chain(error),
        };
        refused(&format!("{cause}; check `kubeconfig` under [source.kubernetes]"))
    })?;
    let contexts: Vec<String> = read.contexts.iter().map(|context| context.name.clone()).collect();
    let options = KubeConfigOptions {
        context: settings.context.clone(),
        ..KubeConfigOptions::default()
    };
    let proxy = proxy(&read, &options);
    let config = kube::Config::from_custom_kubeconfig(read, &options).await;
    let mut config = config.map_err(|error| {
        let all = contexts.join(", ");
        let contexts = if contexts.is_empty() { "none" } else { &all };
        let context = format!("`context` under [source.kubernetes] (contexts: {contexts})");
        refused(&match &error {
            KubeconfigError::CurrentContextNotSet => format!("it has no current-context: set {context}"),
            KubeconfigError::LoadContext(name) => format!("no context `{name}` in it: check {context}"),
            KubeconfigError::LoadClusterOfContext(name) => {
                format!("no cluster `{name}` in it, which its context names")
            }
            error => chain(error),
        })
    })?;
    if let Some(proxy) = proxy {
        return Err(refused(&format!("proxy-url {proxy}: proxies are not supported")));
    }
    // This proxy is from the environment: kubectl skips it for addresses in NO_PROXY, and this client cannot use one.
    config.proxy_url = None;
    Ok(config)
}

/// The proxy in the kubeconfig itself.
fn proxy(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Option<String> {
    let name = options.context.as_ref().or(kubeconfig.current_context.as_ref())?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == *name)?;
    let cluster = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|other| other.name == *cluster)?;
    let proxy = cluster.cluster.as_ref()?.proxy_url.clone()?;
    (!proxy.is_empty()).then_some(proxy)
}

/// An error and its causes on one line, without repetitions.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    text::line(&text::causes(error))
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::{Path, PathBuf};

    use super::super::client::Cluster;
    use super::*;

    pub(in super::super) fn settings(kubeconfig: &Path, context: Option<&str>) -> Settings {
        Settings {
            kubeconfig: Some(kubeconfig.to_owned()),
            context: context.map(str::to_owned),
            ..Settings::default()
        }
    }

    /// A file with this text. It goes away with its folder.
    pub(in super::super) fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, text).unwrap();
        (folder, file)
    }

    async fn refused(kubeconfig: &str, context: Option<&str>) -> String {
        let (_folder, file) = written(kubeconfig);
        let refused = match Cluster::new(&settings(&file, context)).await {
            Ok(cluster) => panic!("{}", cluster.server),
            Err(refused) => refused.to_string(),
        };
        assert!(!refused.contains('\n'), "{refused}");
        refused.replace(&file.display().to_string(), "FILE")
    }

    pub(in super::super) const ONE: &str = "apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: lost, context: {cluster: nowhere, user: u}}]
";

    #[tokio::test]
    async fn each_mistake_in_a_kubeconfig_is_one_line() {
        assert_eq!(
            refused(ONE, None).await,
            "reading the kubeconfig `FILE`: it has no current-context: set `context` under [source.kubernetes] (contexts: one, lost)"
        );
        assert_eq!(
            refused(ONE, Some("two")).await,
            "reading the kubeconfig `FILE`: no context `two` in it: check `context` under [source.kubernetes] (contexts: one, lost)"
        );
        assert_eq!(
            refused(ONE, Some("lost")).await,
            "reading the kubeconfig `FILE`: no cluster `nowhere` in it, which its context names"
        );
        let broken = refused("clusters: {", Some("one")).await;
        assert!(broken.starts_with("reading the kubeconfig `FILE`: "), "{broken}");
        let missing = Cluster::new(&settings(Path::new("/nonexistent/config"), None)).await;
        let Err(missing) = missing else { panic!() };
        assert_eq!(
            missing.to_string(),
            "reading the kubeconfig `/nonexistent/config`: `/nonexistent/config`: No such file or directory (os error 2); \
             check `kubeconfig` under [source.kubernetes]"
        );
        let proxied = ONE.replace("'http://127.0.0.1:1'", "'http://127.0.0.1:1', proxy-url: 'http://p:1'");
        assert!(
            refused(&proxied, Some("one"))
                .await
                .ends_with("proxies are not supported")
        );
    }
}
