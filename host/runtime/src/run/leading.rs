//! Whether this host acts: always where it is alone, else while it holds the Lease. Outlives the configurations that a host
//! runs with one after another, so that a changed one is no change of the host that acts.
//!
//! ```text
//! election -> standing -> acts (the loop of Services begins jobs, or rests)
//!     +-----> fence (requests to the Engine are let through, or not)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use trueup_capabilities::fence::Fence;
use trueup_journal::regular;

use super::setup::SetupError;
use crate::config::{Config, Lbaas, LbaasBackend, Source};
use crate::election::{Election, Settings, Standing, Tried};
use crate::sources::kubernetes;

/// Giving the Lease back may take so long when the host ends; then its time ends it.
const RESIGN_MAX: Duration = Duration::from_secs(5);

/// One host's part in who acts.
pub(crate) struct Leading {
    /// What the election was begun with; none: this host is alone.
    begun_with: Option<BegunWith>,
    acts: Acts,
    campaign: Option<Campaign>,
}

/// What an election goes on with over a changed configuration, where all of it stays.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BegunWith {
    election: crate::config::Election,
    cluster: kubernetes::Settings,
    /// Credentials in a file are read once. None: a pod's own, which are looked after, or a file that nobody named.
    kubeconfig: Option<Vec<u8>>,
}

impl BegunWith {
    /// None: this configuration has no election.
    fn new(config: &Config) -> Option<Self> {
        let election = config.election.clone()?;
        let Source::Kubernetes(cluster) = config.source()? else {
            return None;
        };
        let kubeconfig = cluster.kubeconfig.as_ref();
        Some(Self {
            election,
            cluster: cluster.clone(),
            kubeconfig: kubeconfig.and_then(|file| regular::read(file, regular::SMALL).ok()),
        })
    }
}

/// A term in which this host acts. Another one means that others may have acted between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Term {
    /// Which it is of those that this process acted in.
    number: u64,
    /// How often the Lease had gone from one holder to another by then; none: this host is alone.
    pub(crate) transitions: Option<i32>,
}

/// Whether this host acts, as it changes.
#[derive(Clone)]
pub(crate) struct Acts {
    /// None: another host acts, or nobody.
    term: watch::Receiver<Option<Term>>,
    fence: Fence,
    /// Calls of this host were left behind when it had to end: nobody knows what they still do.
    left_behind: Arc<AtomicBool>,
}

impl Acts {
    /// Whether anything may be begun now.
    pub(crate) fn may(&self) -> bool {
        self.term.borrow().is_some() && self.fence.may_act()
    }

    /// Which term this host acts in, whatever is let through at this moment; none: in none.
    pub(crate) fn term(&self) -> Option<Term> {
        *self.term.borrow()
    }

    /// Calls did not end in time, and were left.
    pub(crate) fn leave_behind(&self) {
        self.left_behind.store(true, Ordering::SeqCst);
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
    /// Whether it runs: not before everything is there that is needed to act.
    begin: Option<oneshot::Sender<()>>,
    resign: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Leading {
    /// For a host that is alone: it acts.
    pub(crate) fn alone() -> Self {
        let acts = Acts {
            // Without a sender there is never news.
            term: watch::Sender::new(Some(Term {
                number: 0,
                transitions: None,
            }))
            .subscribe(),
            fence: Fence::open(),
            left_behind: Arc::default(),
        };
        Self {
            begun_with: None,
            acts,
            campaign: None,
        }
    }

    /// Ready to campaign, where the configuration has an election.
    ///
    /// # Errors
    /// One line: this host can't be named.
    pub(crate) fn new(config: &Config, client: Option<kube::Client>) -> Result<Self, SetupError> {
        let (Some(begun_with), Some(client)) = (BegunWith::new(config), client) else {
            return Ok(Self::alone());
        };
        let election = &begun_with.election;
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
        let (told, mut standing) = watch::channel(campaign.standing());
        let term_of = {
            let campaign = Arc::clone(&campaign);
            move |standing: &Standing| {
                let status = standing.is_leading().then(|| campaign.status())?;
                Some(Term {
                    number: status.terms,
                    transitions: Some(status.transitions),
                })
            }
        };
        let (acting, term) = watch::channel(term_of(&standing.borrow()));
        let (begin, begun) = oneshot::channel::<()>();
        let (resign, resigned) = oneshot::channel::<()>();
        let task = {
            let campaign = Arc::clone(&campaign);
            tokio::spawn(async move {
                if begun.await.is_err() {
                    return;
                }
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
        let left_behind = Arc::default();
        Ok(Self {
            begun_with: Some(begun_with),
            acts: Acts {
                term,
                fence,
                left_behind,
            },
            campaign: Some(Campaign {
                election: campaign,
                begin: Some(begin),
                resign,
                task,
            }),
        })
    }

    /// Begins to campaign, where it has not begun. With `at_once`, the Lease must be free now.
    ///
    /// # Errors
    /// One line: at once, another host holds the Lease, or nobody can say who does.
    pub(crate) async fn begin(&mut self, at_once: bool) -> Result<(), SetupError> {
        let Some(campaign) = &mut self.campaign else {
            return Ok(());
        };
        let Some(begin) = campaign.begin.take() else {
            return Ok(());
        };
        let settings = campaign.election.settings();
        let (lease, identity) = (settings.lease(), &settings.identity);
        if at_once {
            let tried = campaign.election.try_once().await.map_err(SetupError::Failed)?;
            if let Tried::HeldBy { holder } = tried {
                return Err(SetupError::Failed(format!(
                    "lease `{lease}` is held by `{holder}`, which acts: stop it, or leave it to it; nothing was done"
                )));
            }
        }
        tracing::info!(lease, identity, "of all hosts with this lease, one acts");
        // Its task waits for nothing else.
        let _ = begin.send(());
        if at_once {
            // It leads already; that is told as soon as its task runs.
            let _ = self.acts.term.wait_for(Option::is_some).await;
        }
        Ok(())
    }

    /// Whether it goes on with this configuration.
    pub(crate) fn fits(&self, config: &Config) -> bool {
        self.begun_with == BegunWith::new(config) && !self.acts.left_behind.load(Ordering::SeqCst)
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
        let Some(Campaign {
            election,
            begin,
            resign,
            task,
        }) = self.campaign
        else {
            return;
        };
        if begin.is_some() {
            // Nothing was taken.
            task.abort();
            return;
        }
        if self.acts.left_behind.load(Ordering::SeqCst) {
            self.acts.fence.close();
            task.abort();
            tracing::warn!(
                "lease `{}` is not given back, since calls were left behind: another host acts when its time is over",
                election.settings().lease()
            );
            return;
        }
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
