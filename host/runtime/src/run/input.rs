//! Where what should be comes from: the source that the configuration names, all at once or as it changes, and whoever
//! shows there what is true of it.
//!
//! Opens sources; what they say is taken in by `services.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use trueup_capabilities::fence::Fence;

use super::publish::{InCluster, Publish, StatusFiles};
use super::setup::SetupError;
use crate::config::Source;
use crate::sources::kubernetes::events::Events;
use crate::sources::kubernetes::{ClusterError, Kubernetes};
use crate::sources::{Batch, Batches, Objects, manifests};

/// What the source says.
pub(crate) struct Input {
    pub(crate) from: From,
    /// For its status; none: the source is a folder.
    pub(super) cluster: Option<Kubernetes>,
}

/// All at once, or as it changes.
pub(crate) enum From {
    Once(Batch),
    Watched(Batches),
}

impl Input {
    /// Everything that is there now.
    ///
    /// # Errors
    /// Where there is no such source, or it does not answer.
    pub(super) async fn once(source: &Source) -> Result<Self, SetupError> {
        let (all, cluster) = all(source).await?;
        Ok(Self {
            from: From::Once(all),
            cluster,
        })
    }

    /// The same for another loop, which takes all of it for itself.
    ///
    /// # Errors
    /// Where there is no such source any more.
    pub(super) fn once_more(&self, source: &Source) -> Result<Self, SetupError> {
        let from = match (&self.from, &self.cluster, source) {
            (From::Once(all), ..) => From::Once(all.clone()),
            (From::Watched(_), Some(cluster), _) => From::Watched(cluster.batches()),
            (From::Watched(_), None, Source::Manifests(folder)) => {
                From::Watched(manifests::watch(folder).map_err(SetupError::misused)?)
            }
            (From::Watched(_), None, Source::Kubernetes(_)) => {
                return Err(SetupError::Failed("the cluster is not watched".to_owned()));
            }
        };
        Ok(Self {
            from,
            cluster: self.cluster.clone(),
        })
    }

    /// Whether there is such a source.
    ///
    /// # Errors
    /// As [`Input::watched`].
    pub(super) async fn check(source: &Source) -> Result<(), SetupError> {
        match source {
            Source::Manifests(folder) => std::fs::read_dir(folder).map(drop).map_err(|cause| {
                SetupError::misused(manifests::FolderError {
                    folder: folder.clone(),
                    source: cause,
                })
            }),
            Source::Kubernetes(settings) => Kubernetes::check(settings).await.map_err(SetupError::misused),
        }
    }

    /// Everything that is there, and then what changes. A cluster that does not answer is waited for.
    ///
    /// # Errors
    /// Where there is no such source.
    pub(super) async fn watched(source: &Source) -> Result<Self, SetupError> {
        Ok(match source {
            Source::Manifests(folder) => Self {
                from: From::Watched(manifests::watch(folder).map_err(SetupError::misused)?),
                cluster: None,
            },
            Source::Kubernetes(settings) => {
                let cluster = Kubernetes::start(settings, chance()).await;
                let cluster = cluster.map_err(SetupError::misused)?;
                Self {
                    from: From::Watched(cluster.batches()),
                    cluster: Some(cluster),
                }
            }
        })
    }

    /// Speaks to the API server of a source; none: it has none.
    ///
    /// # Errors
    /// As [`Input::watched`].
    pub(super) async fn client(source: &Source) -> Result<Option<kube::Client>, SetupError> {
        match source {
            Source::Manifests(_) => Ok(None),
            Source::Kubernetes(settings) => {
                let client = Kubernetes::connect(settings).await.map_err(SetupError::misused)?;
                Ok(Some(client))
            }
        }
    }

    /// Where something can be said at an object; none: the source is a folder.
    pub(crate) fn events(&self) -> Option<Events> {
        let cluster = self.cluster.clone()?;
        Some(Events::new(cluster, Fence::open()))
    }

    /// Whoever shows what is true: status files below `folder`, and the cluster itself, while `fence` lets it.
    pub(super) fn publish(&self, folder: PathBuf, fence: Fence) -> Arc<dyn Publish> {
        match &self.cluster {
            Some(cluster) => Arc::new(InCluster::new(folder, cluster.clone(), fence)),
            None => Arc::new(StatusFiles::new(folder)),
        }
    }
}

/// Everything that a source holds now, and the cluster, where it is one.
///
/// # Errors
/// As [`Input::once`].
pub(crate) async fn all(source: &Source) -> Result<(Batch, Option<Kubernetes>), SetupError> {
    match source {
        Source::Manifests(folder) => {
            let snapshot = manifests::load(folder).map_err(SetupError::misused)?;
            let all = Batch {
                changes: Objects::default().changes_to(&snapshot.objects),
                new_problems: snapshot.problems.clone(),
                complete: snapshot.is_complete(),
                problems: snapshot.problems,
                ..Batch::default()
            };
            Ok((all, None))
        }
        Source::Kubernetes(settings) => {
            let cluster = Kubernetes::once(settings).await.map_err(|error| match error {
                ClusterError::Misused(text) => SetupError::Misused(text),
                ClusterError::Failed(text) => SetupError::Failed(text),
            })?;
            // Everything was listed, or this were an error.
            let all = cluster.known().unwrap_or_default();
            Ok((all, Some(cluster)))
        }
    }
}

/// Another number in each process: hosts that lost one API server must not come back to it together.
fn chance() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// The next batch; never one where nothing is watched.
pub(crate) async fn next(batches: &mut Option<Batches>) -> Option<Batch> {
    match batches {
        Some(batches) => batches.recv().await,
        None => std::future::pending().await,
    }
}
