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
use crate::election::{Election, Settings, Standing, Tried};

/// Giving the Lease back may take so long when the host ends; then its time ends it.
const RESIGN_MAX: Duration = Duration::from_secs(5);

/// One host's part in who acts.
pub(crate) struct Leading {
    /// What the election was begun with; none: this host is alone.
    config: Option<crate::config::Election>,
    acts: Acts,
    campaign: Option<Campaign>,
}

/// Whether this host acts, as it changes.
#[derive(Clone)]
pub(crate) struct Acts {
    /// Which term this is of those that it acted in; none: another host acts, or nobody. Another number means that others may
    /// have acted between.
    term: watch::Receiver<Option<u64>>,
    fence: Fence,
}

impl Acts {
    /// Whether anything may be begun now.
    pub(crate) fn may(&self) -> bool {
        self.term.borrow().is_some() && self.fence.may_act()
    }

    /// Until when requests are let through.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Answers when a term has begun or ended; never where that can't be.
    pub(crate) async fn changed(&mut self) {
        if self.term.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.term.mark_unchanged();
    }
}

struct Campaign {
    election: Arc<Election>,
    resign: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Leading {
    /// For a host that is alone: it acts.
    pub(crate) fn alone() -> Self {
        let acts = Acts {
            // Without a sender there is never news.
            term: watch::Sender::new(Some(0)).subscribe(),
            fence: Fence::open(),
        };
        Self {
            config: None,
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
        let term_of = {
            let campaign = Arc::clone(&campaign);
            move |standing: &Standing| standing.is_leading().then(|| campaign.status().terms)
        };
        let (acting, term) = watch::channel(term_of(&standing.borrow()));
        let (resign, resigned) = oneshot::channel::<()>();
        let task = {
            let campaign = Arc::clone(&campaign);
            tokio::spawn(async move {
                let run = campaign.run(told, async {
                    if resigned.await.is_err() {
                        // A host that goes without a word may leave calls behind: the Lease ends by its time.
                        std::future::pending::<()>().await;
                    }
                });
                let relay = async {
                    while standing.changed().await.is_ok() {
                        let now = term_of(&standing.borrow_and_update());
                        acting.send_if_modified(|term| std::mem::replace(term, now) != now);
                    }
                };
                tokio::join!(run, relay);
            })
        };
        Ok(Self {
            config: Some(election.clone()),
            acts: Acts { term, fence },
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

    /// Whether this host acts, as it changes.
    pub(crate) fn acts(&self) -> Acts {
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
