//! The source of the desired state: opens the source that the configuration names, read once or watched.
//!
//! The loops take in what the source says.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use trueup_base::fence::Fence;
use trueup_sources::kubernetes::{ClusterError, Kubernetes};
use trueup_sources::{Batch, Batches, Objects, Source, manifests};

use crate::kubernetes::Events;
use crate::setup::SetupError;

/// An opened source.
pub struct Input {
    /// Where it comes from.
    pub from: From,
    /// For its status. `None` if the source is a folder.
    pub cluster: Option<Kubernetes>,
}

/// Read once, or watched.
pub enum From {
    /// Everything, read once.
    Once(Batch),
    /// Everything, and then each change.
    Watched(Batches),
}

impl Input {
    /// Reads everything that exists now.
    ///
    /// # Errors
    /// If the source does not exist or does not answer.
    pub async fn once(source: &Source) -> Result<Self, SetupError> {
        let (all, cluster) = all(source).await?;
        let from = From::Once(all);
        Ok(Self { from, cluster })
    }

    /// The same input for another loop, which reads all of it independently.
    ///
    /// # Errors
    /// If the source does not exist any more.
    pub fn once_more(&self, source: &Source) -> Result<Self, SetupError> {
        let from = match (&self.from, &self.cluster, source) {
            (From::Once(all), ..) => From::Once(all.clone()),
            (From::Watched(_), Some(cluster), _) => From::Watched(Batches::Kubernetes(cluster.batches())),
            (From::Watched(_), None, Source::Manifests(folder)) => From::of_folder(folder)?,
            (From::Watched(_), None, Source::Kubernetes(_)) => {
                return Err(SetupError::Failed("the cluster is not watched".to_owned()));
            }
        };
        let cluster = self.cluster.clone();
        Ok(Self { from, cluster })
    }

    /// Checks that the source exists.
    ///
    /// # Errors
    /// As [`Input::watched`].
    pub async fn check(source: &Source) -> Result<(), SetupError> {
        match source {
            Source::Manifests(folder) => std::fs::read_dir(folder).map(drop).map_err(|source| {
                let folder = folder.clone();
                SetupError::misused(manifests::FolderError { folder, source })
            }),
            Source::Kubernetes(_) => Self::client(source).await.map(drop),
        }
    }

    /// Reads everything, then the changes. Waits for a cluster that does not answer.
    ///
    /// # Errors
    /// If the source does not exist.
    pub async fn watched(source: &Source) -> Result<Self, SetupError> {
        let (from, cluster) = match source {
            Source::Manifests(folder) => (From::of_folder(folder)?, None),
            Source::Kubernetes(settings) => {
                // It differs per process: hosts that lost one API server must not come back to it all at once.
                let chance = RandomState::new().hash_one(std::process::id());
                let cluster = Kubernetes::start(settings, chance).await.map_err(SetupError::misused)?;
                (From::Watched(Batches::Kubernetes(cluster.batches())), Some(cluster))
            }
        };
        Ok(Self { from, cluster })
    }

    /// A client for the API server of a source. `None` if it has none.
    ///
    /// # Errors
    /// As [`Input::watched`].
    pub async fn client(source: &Source) -> Result<Option<kube::Client>, SetupError> {
        match source {
            Source::Manifests(_) => Ok(None),
            Source::Kubernetes(settings) => {
                let client = Kubernetes::connect(settings).await;
                client.map(Some).map_err(SetupError::misused)
            }
        }
    }

    /// Writes events about objects. `None` if the source is a folder.
    pub fn events(&self) -> Option<Events> {
        Some(Events::new(self.cluster.clone()?, Fence::open()))
    }
}

/// Everything that a source holds now, and the cluster if it is one.
///
/// # Errors
/// As [`Input::once`].
pub async fn all(source: &Source) -> Result<(Batch, Option<Kubernetes>), SetupError> {
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
            // Everything was listed: otherwise the call above had returned an error.
            Ok((cluster.known().unwrap_or_default(), Some(cluster)))
        }
    }
}

impl From {
    fn of_folder(folder: &Path) -> Result<Self, SetupError> {
        let batches = manifests::watch(folder).map_err(SetupError::misused)?;
        Ok(Self::Watched(Batches::Manifests(batches)))
    }
}

/// The next batch. Never returns if nothing is watched.
pub async fn next(batches: &mut Option<Batches>) -> Option<Batch> {
    match batches {
        Some(batches) => batches.recv().await,
        None => std::future::pending().await,
    }
}

/// The message for a source without a single object, although objects of its Services exist.
pub fn nothing_there(is_cluster: bool) -> String {
    if is_cluster {
        return "the cluster holds no object at all, though there are objects of its Services: nothing is removed; check that \
                it is the right one, and create an object, such as a Node, where it is"
            .to_owned();
    }
    "the manifests hold no object at all: nothing is removed; leave one, such as a Node, where that is what you want"
        .to_owned()
}

/// The message for a source without a Node, although load balancers have servers.
pub(crate) fn no_nodes(is_cluster: bool) -> String {
    let source = match is_cluster {
        true => "the cluster has",
        false => "the manifests hold",
    };
    format!(
        "{source} no Node at all: what was known of them stays, and nothing is removed; leave one that is not Ready, where no \
         Node is what you want"
    )
}
