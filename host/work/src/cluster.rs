//! Ties a state folder to one cluster. With another cluster, every Service that the folder knows would look deleted.
//!
//! As is usual, the UID of the namespace `kube-system` identifies a cluster: it lives as long as the cluster does.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde::{Deserialize, Serialize};
use trueup_sources::Source;

use crate::files;

/// The name of the file in the state folder.
const FILE: &str = "cluster.json";

/// The namespace whose UID identifies the cluster.
const NAMESPACE: &str = "kube-system";

/// The timeout of one request for the UID, and the pause before the next.
const ASK_MAX: Duration = Duration::from_secs(5);

/// The contents of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    /// The UID.
    uid: String,
}

/// Checks that a state folder belongs to the cluster. A folder that belongs to no cluster yet becomes this one's. If
/// the API server does not answer, asks again. If it refuses to give the UID, logs a warning and accepts the cluster.
pub async fn belongs(state_dir: &Path, client: &kube::Client) -> Result<(), String> {
    loop {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        match tokio::time::timeout(ASK_MAX, namespaces.get(NAMESPACE)).await {
            Ok(Ok(namespace)) => return same(state_dir, &namespace.metadata.uid.unwrap_or_default()),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403 | 404) => {
                tracing::warn!(
                    "namespace `{NAMESPACE}`, by which clusters are told apart, can't be read: {}; that `{}` is another cluster's \
                     would not be noticed",
                    status.message,
                    state_dir.display()
                );
                return Ok(());
            }
            Ok(Err(error)) => tracing::debug!("asking for namespace `{NAMESPACE}`: {error}"),
            Err(_) => tracing::debug!("asking for namespace `{NAMESPACE}`: no answer"),
        }
        tokio::time::sleep(ASK_MAX).await;
    }
}

/// The same for a source that is no cluster: the folder must not belong to a cluster.
pub fn is_no_clusters(state_dir: &Path, source: &Source) -> Result<(), String> {
    match (source, remembered(state_dir)?) {
        (Source::Manifests(folder), Some(_)) => Err(format!(
            "{}: holds what is known of a cluster's Services, which the manifests in `{}` are not: give them a `state_dir` of their \
             own; nothing was done",
            state_dir.display(),
            folder.display()
        )),
        _ => Ok(()),
    }
}

fn same(state_dir: &Path, uid: &str) -> Result<(), String> {
    match remembered(state_dir)? {
        Some(remembered) if remembered.uid == uid => Ok(()),
        Some(Remembered { uid: other }) => Err(format!(
            "{}: holds what is known of another cluster (its `{NAMESPACE}` has uid {other}, this one's {uid}), whose Services would be \
             taken for gone: check `kubeconfig` and `context` under [source.kubernetes], or give this cluster a `state_dir` of its \
             own; nothing was done",
            state_dir.display()
        )),
        None => {
            let file = state_dir.join(FILE);
            let written = files::replace_json(&file, &Remembered { uid: uid.to_owned() });
            written.map_err(|error| format!("writing {}: {error}", file.display()))
        }
    }
}

fn remembered(state_dir: &Path) -> Result<Option<Remembered>, String> {
    files::read_json(&state_dir.join(FILE)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_of_the_first_cluster_and_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let manifests = Source::Manifests("manifests".into());
        is_no_clusters(folder.path(), &manifests).unwrap();
        same(folder.path(), "u1").unwrap();
        same(folder.path(), "u1").unwrap();
        let error = same(folder.path(), "u2").unwrap_err().to_string();
        assert!(error.contains("uid u1, this one's u2"), "{error}");
        let error = is_no_clusters(folder.path(), &manifests).unwrap_err().to_string();
        assert!(error.contains("the manifests in `manifests`"), "{error}");

        std::fs::write(folder.path().join(FILE), "{").unwrap();
        let error = same(folder.path(), "u1").unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
    }
}
