//! Whether this host acts: always if it is alone, else while it holds the Lease. Outlives the configurations that a
//! host runs one after another, so that a reload does not change which host acts.
//!
//! ```text
//! election -> role -> acts (loops begin turns, or rest)
//!     +-----> fence (requests to backends are let through, or not)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use trueup_base::fence::Fence;
use trueup_base::regular;
use trueup_config::Config;
use trueup_election::{Election, Role, Settings, identity_of_this_process};
use trueup_sources::{Source, kubernetes};

use crate::setup::SetupError;

/// How long giving the Lease back may take when the host ends. After that, the Lease expires by itself.
const RESIGN_MAX: Duration = Duration::from_secs(5);

/// One host's part in the leader election.
pub struct Leading {
    leadership: Leadership,
    /// `None` if this host is alone.
    campaign: Option<Campaign>,
}

/// The settings of an election. It continues over a reload only if all of them stay the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BegunWith {
    election: trueup_config::Election,
    cluster: kubernetes::Settings,
    /// The contents of the kubeconfig file, which is read once. `None` for a pod's own credentials, which are
    /// refreshed, or if the configuration names no file.
    kubeconfig: Option<Vec<u8>>,
}

impl BegunWith {
    /// `None` if this configuration has no election.
    fn new(config: &Config) -> Option<Self> {
        let Source::Kubernetes(cluster) = config.source()? else {
            return None;
        };
        let kubeconfig = cluster.kubeconfig.as_ref();
        Some(Self {
            election: config.election.clone()?,
            cluster: cluster.clone(),
            kubeconfig: kubeconfig.and_then(|file| regular::read(file, regular::SMALL).ok()),
        })
    }
}

/// A term in which this host acts. A different term means that other hosts may have acted in between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Term {
    /// The number of this term among those in which this process acted.
    number: u64,
    /// How often the Lease had changed holders by then. `None` if this host is alone.
    pub transitions: Option<i32>,
}

/// Whether this host acts. Observes changes.
#[derive(Clone)]
pub struct Leadership {
    /// `None` if another host acts, or no host does.
    term: watch::Receiver<Option<Term>>,
    fence: Fence,
    /// This host left calls behind when it had to end. What they still do is unknown.
    left_behind: Arc<AtomicBool>,
}

impl Leadership {
    /// Whether this host may begin anything now.
    pub(crate) fn may_act(&self) -> bool {
        self.term.borrow().is_some() && self.fence.may_act()
    }

    /// The term this host acts in, even if the fence lets nothing through at this moment. `None` if it does not act.
    pub fn term(&self) -> Option<Term> {
        *self.term.borrow()
    }

    /// Notes that calls did not end in time and were left behind.
    pub(crate) fn leave_behind(&self) {
        self.left_behind.store(true, Ordering::SeqCst);
    }

    /// How long requests are let through.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Returns when a term has begun or ended. Never returns if terms can't change.
    pub(crate) async fn changed(&mut self) {
        if self.term.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.term.mark_unchanged();
    }
}

struct Campaign {
    begun_with: BegunWith,
    election: Arc<Election>,
    /// Starts the campaign. The host sends it once everything needed to act is ready.
    begin: Option<oneshot::Sender<()>>,
    resign: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Leading {
    /// For a host that is alone, which always acts.
    pub fn alone() -> Self {
        // Without a sender the term never changes.
        let term = watch::Sender::new(Some(Term::default())).subscribe();
        Self::of(term, Fence::open(), None)
    }

    fn of(term: watch::Receiver<Option<Term>>, fence: Fence, campaign: Option<Campaign>) -> Self {
        let leadership = Leadership {
            term,
            fence,
            left_behind: Arc::default(),
        };
        Self { leadership, campaign }
    }

    /// Ready to campaign, if the configuration has an election. `longest_request`: the setting that says how long a
    /// request to a backend may take, and its value; `None` if no backend has one.
    ///
    /// # Errors
    /// One line: this host has no valid identity.
    pub fn new(
        config: &Config,
        client: Option<kube::Client>,
        longest_request: Option<(&'static str, Duration)>,
    ) -> Result<Self, SetupError> {
        let (Some(begun_with), Some(client)) = (BegunWith::new(config), client) else {
            return Ok(Self::alone());
        };
        let election = &begun_with.election;
        if let Some((setting, timeout)) = longest_request
            && let Some(note) = election.cuts_requests(setting, timeout)
        {
            tracing::info!("{note}");
        }
        let fence = Fence::closed();
        let settings = settings(election, &client).map_err(SetupError::Failed)?;
        let campaign = Arc::new(Election::new(client, settings, fence.clone(), config.seed));
        let (roles, mut role) = watch::channel(campaign.role());
        let election = Arc::clone(&campaign);
        let led = Arc::clone(&campaign);
        let term_of = move |role: &Role| {
            let status = role.is_leading().then(|| led.status())?;
            let number = status.terms;
            let transitions = Some(status.transitions);
            Some(Term { number, transitions })
        };
        let (acting, term) = watch::channel(term_of(&role.borrow()));
        let (begin, begun) = oneshot::channel::<()>();
        let (resign, resigned) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            if begun.await.is_err() {
                return;
            }
            let run = campaign.run(roles, async {
                if resigned.await.is_err() {
                    // A host that ends without resigning may leave calls behind. The Lease then expires by itself.
                    std::future::pending::<()>().await;
                }
            });
            let relay = async {
                while role.changed().await.is_ok() {
                    let now = term_of(&role.borrow_and_update());
                    acting.send_if_modified(|term| std::mem::replace(term, now) != now);
                }
            };
            tokio::join!(run, relay);
        });
        let campaign = Campaign {
            begun_with,
            election,
            begin: Some(begin),
            resign,
            task,
        };
        Ok(Self::of(term, fence, Some(campaign)))
    }

    /// Begins to campaign, if it has not begun. With `at_once`, the Lease must be free now.
    ///
    /// # Errors
    /// One line: with `at_once`, another host holds the Lease, or the holder is unknown.
    pub async fn begin(&mut self, at_once: bool) -> Result<(), SetupError> {
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
            if let Role::Standby { holder: Some(holder) } = tried {
                return Err(SetupError::Failed(format!(
                    "lease `{lease}` is held by `{holder}`, which acts: stop it, or leave it to it; nothing was done"
                )));
            }
        }
        tracing::info!(lease, identity, "of all hosts with this lease, one acts");
        // Its task waits for nothing else.
        let _ = begin.send(());
        if at_once {
            // This host already leads; the term follows as soon as the task runs.
            let _ = self.leadership.term.wait_for(Option::is_some).await;
        }
        Ok(())
    }

    /// Whether it can continue with this configuration.
    pub fn fits(&self, config: &Config) -> bool {
        let begun_with = self.campaign.as_ref().map(|campaign| &campaign.begun_with);
        begun_with == BegunWith::new(config).as_ref() && !self.leadership.left_behind.load(Ordering::SeqCst)
    }

    /// Whether this host acts. Observes changes.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// The election, for its status. `None` if this host is alone.
    pub fn election(&self) -> Option<Arc<Election>> {
        Some(Arc::clone(&self.campaign.as_ref()?.election))
    }

    /// Gives the Lease back, so that another host acts at once. Everything that this host began must have ended.
    pub async fn resign(self) {
        let Some(campaign) = self.campaign else { return };
        if campaign.begin.is_some() {
            // This host did not take the Lease.
            campaign.task.abort();
            return;
        }
        let lease = campaign.election.settings().lease();
        if self.leadership.left_behind.load(Ordering::SeqCst) {
            self.leadership.fence.close();
            campaign.task.abort();
            tracing::warn!(
                "lease `{lease}` is not given back, since calls were left behind: another host acts when its time is over"
            );
            return;
        }
        // The task listens until it has ended.
        let _ = campaign.resign.send(());
        if tokio::time::timeout(RESIGN_MAX, campaign.task).await.is_err() {
            let seconds = RESIGN_MAX.as_secs();
            tracing::warn!(
                "lease `{lease}` was not given back within {seconds} s: another host acts when its time is over"
            );
        }
    }
}

/// Fills in what the configuration leaves out: the namespace from the client, which knows that of its pod or context,
/// and an identity that no other process has.
///
/// # Errors
/// One line, if the kernel gives no host name or no random UUID.
fn settings(election: &trueup_config::Election, client: &kube::Client) -> Result<Settings, String> {
    let identity = election.identity.clone();
    let namespace = election.namespace.as_deref().unwrap_or(client.default_namespace());
    Ok(Settings {
        namespace: namespace.to_owned(),
        name: election.name.clone(),
        identity: identity.map_or_else(identity_of_this_process, Ok)?,
        times: election.times,
    })
}
