//! Whether this host acts: always where it is alone, else while it holds the Lease. Outlives the configurations that a host
//! runs with one after another, so that a changed one is no change of the host that acts.
//!
//! ```text
//! election -> standing -> acts (the loop of Services begins jobs, or rests)
//!     +-----> fence (requests to the Engine are let through, or not)
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use trueup_capabilities::fence::Fence;

use super::setup::SetupError;
use crate::config::{Config, Lbaas, LbaasBackend};
use crate::election::{Election, Settings, Tried};

/// Giving the Lease back may take so long when the host ends; then its time ends it.
const RESIGN_MAX: Duration = Duration::from_secs(5);

/// One host's part in who acts.
pub(crate) struct Leading {
    /// What the election was begun with; none: this host is alone.
    config: Option<crate::config::Election>,
    fence: Fence,
    acts: watch::Receiver<bool>,
    campaign: Option<Campaign>,
}

struct Campaign {
    election: Arc<Election>,
    resign: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Leading {
    /// For a host that is alone: it acts.
    pub(crate) fn alone() -> Self {
        // Without a sender there is never news.
        let acts = watch::Sender::new(true).subscribe();
        Self {
            config: None,
            fence: Fence::open(),
            acts,
            campaign: None,
        }
    }

    /// Begins to campaign, where the configuration has an election. With `at_once`, the Lease must be free now.
    ///
    /// # Errors
    /// One line: this host can't be named, or, at once, another one holds the Lease.
    pub(crate) async fn begin(
        config: &Config,
        client: Option<kube::Client>,
        at_once: bool,
    ) -> Result<Self, SetupError> {
        let (Some(election), Some(client)) = (&config.election, client) else {
            return Ok(Self::alone());
        };
        if let Some(Lbaas {
            backend: LbaasBackend::Anexia(engine),
            ..
        }) = &config.lbaas
        {
            let timeout = Duration::from_millis(engine.settings(None).request_timeout_ms);
            if let Some(note) = election.cuts_requests("backend.lbaas.request_timeout_ms", timeout) {
                tracing::info!("{note}");
            }
        }
        let fence = Fence::closed();
        let settings = Settings::new(election, &client).map_err(SetupError::Failed)?;
        let campaign = Arc::new(Election::new(client, settings, fence.clone(), config.seed));
        if at_once {
            let tried = campaign.try_once().await.map_err(SetupError::Failed)?;
            if let Tried::HeldBy { holder } = tried {
                let lease = campaign.settings().lease();
                return Err(SetupError::Failed(format!(
                    "lease `{lease}` is held by `{holder}`, which acts: stop it, or leave it to it; nothing was done"
                )));
            }
        }
        let (told, mut standing) = watch::channel(campaign.standing());
        let (acting, acts) = watch::channel(standing.borrow().is_leading());
        let (resign, resigned) = oneshot::channel::<()>();
        let task = {
            let campaign = Arc::clone(&campaign);
            tokio::spawn(async move {
                let run = campaign.run(told, async {
                    // A host that goes without a word wants it too.
                    let _ = resigned.await;
                });
                let relay = async {
                    while standing.changed().await.is_ok() {
                        let leads = standing.borrow_and_update().is_leading();
                        acting.send_if_modified(|acts| std::mem::replace(acts, leads) != leads);
                    }
                };
                tokio::join!(run, relay);
            })
        };
        Ok(Self {
            config: Some(election.clone()),
            fence,
            acts,
            campaign: Some(Campaign {
                election: campaign,
                resign,
                task,
            }),
        })
    }

    /// Whether it is what this configuration wants.
    pub(crate) fn fits(&self, config: &Config) -> bool {
        self.config == config.election
    }

    /// Until when requests are let through.
    pub(crate) fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Whether this host acts, as it changes.
    pub(crate) fn acts(&self) -> watch::Receiver<bool> {
        self.acts.clone()
    }

    /// What the election says of itself; none: this host is alone.
    pub(crate) fn election(&self) -> Option<Arc<Election>> {
        Some(Arc::clone(&self.campaign.as_ref()?.election))
    }

    /// Gives the Lease back, so that another host acts at once: everything that was begun must have ended.
    pub(crate) async fn resign(self) {
        let Some(Campaign { election, resign, task }) = self.campaign else {
            return;
        };
        // It listens until it has ended.
        let _ = resign.send(());
        if tokio::time::timeout(RESIGN_MAX, task).await.is_err() {
            tracing::warn!(
                "lease `{}` was not given back within {} s: another host acts when its time is over",
                election.settings().lease(),
                RESIGN_MAX.as_secs()
            );
        }
    }
}
