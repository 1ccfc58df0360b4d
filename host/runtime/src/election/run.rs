//! Campaigns, leads, renews and gives back: makes the requests that `campaign.rs` asks for, moves the fence, and tells who
//! wants to know.
//!
//! Decides nothing itself. One request at a time; a watch beside it only says that it is worth to look now.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use trueup_capabilities::fence::{Fence, Moment};

use super::campaign::Campaign;
use super::decide::{Action, Why};
use super::requests::{Failed, Requests};
use super::settings::Settings;
use super::status::Status;

/// A Lease is given back at the first try, or after a conflict with a renewal that was still under way; more mean that
/// somebody else writes all the time, and then its time ends it.
const RELEASES_MAX: u32 = 3;

/// Whether this host is the one that acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Another one is, or nobody yet.
    Standby {
        /// Who holds the Lease, as it was seen last. None: nobody, or it was not seen yet.
        holder: Option<String>,
    },
    /// This one is.
    Leading {
        /// By the wall clock, for people.
        since: Timestamp,
    },
}

impl Standing {
    /// Whether this host is the one that acts.
    pub fn is_leading(&self) -> bool {
        matches!(self, Self::Leading { .. })
    }
}

/// What became of [`Election::try_once`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// This host leads. It stays so while [`Election::run`] runs.
    Leading,
    /// Another host does, and was seen to renew.
    HeldBy {
        /// Its name.
        holder: String,
    },
}

/// One host's part in an election.
pub struct Election {
    requests: Requests,
    settings: Settings,
    fence: Fence,
    state: Mutex<State>,
    /// There is news of the Lease.
    hurry: Notify,
}

struct State {
    campaign: Campaign,
    terms: u64,
    renewals: u64,
    failures: u64,
    error: Option<String>,
}

impl Election {
    /// Nothing is asked yet. The fence should be a closed one; it is opened while this host leads. All times are by its
    /// clock. The seed is for pauses, which differ from host to host by the identity.
    pub fn new(client: kube::Client, settings: Settings, fence: Fence, seed: u64) -> Self {
        let state = State {
            campaign: Campaign::new(&settings, seed, fence.now()),
            terms: 0,
            renewals: 0,
            failures: 0,
            error: None,
        };
        Self {
            requests: Requests::new(client, &settings.namespace, &settings.name),
            settings,
            fence,
            state: Mutex::new(state),
            hurry: Notify::new(),
        }
    }

    /// Which Lease, and under which name.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether this host leads now, or who does.
    pub fn standing(&self) -> Standing {
        self.state().standing()
    }

    /// What an operator is shown.
    pub fn status(&self) -> Status {
        let state = self.state();
        let seen = state.campaign.seen().filter(|seen| seen.exists);
        let text = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let leading_since = state.campaign.leading_since();
        Status {
            lease: self.settings.lease(),
            identity: self.settings.identity.clone(),
            leading: leading_since.is_some(),
            leading_since: text(leading_since),
            holder: seen.and_then(|seen| seen.record.holder.clone()),
            acquired: seen.and_then(|seen| text(seen.record.acquired)),
            renewed: seen.and_then(|seen| text(seen.record.renewed)),
            transitions: seen.map_or(0, |seen| seen.record.transitions),
            terms: state.terms,
            renewals: state.renewals,
            failures: state.failures,
            error: state.error.clone(),
        }
    }

    /// Takes the Lease, or answers who holds it. Where the holder shows no sign of life that takes as long as its lease;
    /// one that lives is known by its next renewal.
    ///
    /// # Errors
    /// One line, where the API server could not be asked for as long as a holder would try.
    pub async fn try_once(&self) -> Result<Tried, String> {
        let give_up_at = self.fence.now() + self.settings.times.renew_deadline;
        let mut watched = None;
        loop {
            self.step().await;
            let state = self.state();
            if state.campaign.leading_since().is_some() {
                return Ok(Tried::Leading);
            }
            if let Some(error) = state.error.clone().filter(|_| self.fence.now() >= give_up_at) {
                return Err(error);
            }
            let Some(seen) = state.campaign.seen().filter(|_| !state.campaign.is_mine()) else {
                continue;
            };
            let Some(holder) = seen.record.holder.clone() else {
                continue;
            };
            if *watched.get_or_insert(seen.since) != seen.since {
                return Ok(Tried::HeldBy { holder });
            }
        }
    }

    /// Campaigns for ever, and renews while it leads. Each change of the standing is told. Once `resign` resolves the
    /// fence is closed and the Lease given back, so that another host leads at once: it must not resolve before
    /// everything that was begun while leading has ended. A future that is dropped instead gives nothing back; the fence
    /// ends by its time.
    pub async fn run(&self, standing: watch::Sender<Standing>, resign: impl Future<Output = ()>) {
        tokio::select! {
            never = self.campaign(&standing) => match never {},
            never = self.watch() => match never {},
            () = resign => {}
        }
        // First: whoever sees the Lease given back may act at once.
        self.fence.close();
        self.state().campaign.gave_up(Why::Taken, self.fence.now());
        self.tell(&standing);
        self.release().await;
        self.tell(&standing);
    }

    async fn campaign(&self, standing: &watch::Sender<Standing>) -> Infallible {
        loop {
            self.tell(standing);
            self.step().await;
        }
    }

    /// The next step, to its end.
    async fn step(&self) {
        let now = self.fence.now();
        let action = self.state().campaign.next(now);
        match action {
            Action::HoldOn(until) | Action::WaitUntil(until) => {
                tokio::select! {
                    () = sleep(until.since(now)) => {}
                    () = self.hurry.notified() => {}
                }
            }
            Action::Observe => self.observe().await,
            Action::Acquire | Action::Renew => self.write().await,
            Action::GiveUp(why) => self.give_up(why, now),
        }
        let state = self.state();
        if state.campaign.acts_until().is_none() && !state.campaign.is_mine() && self.fence.may_act() {
            // By rights it ended before another host could have its name there.
            self.fence.close();
        }
    }

    async fn observe(&self) {
        let sent = self.fence.now();
        let answer = self.requests.get(self.within(sent)).await;
        let now = self.fence.now();
        let mut state = self.state();
        match answer {
            Ok(lease) => {
                state.succeeded();
                state.campaign.observed(now, lease);
            }
            Err(failed) => state.failed(failed, sent, now),
        }
    }

    async fn write(&self) {
        let draft = self.state().campaign.draft(Timestamp::now());
        // Just before it is sent. All that this host may do is counted from here.
        let sent = self.fence.now();
        let answer = self.requests.put(&draft, self.within(sent)).await;
        let now = self.fence.now();
        let mut state = self.state();
        match answer {
            Ok(lease) => {
                state.succeeded();
                let began = state.campaign.leading_since().is_none();
                state.campaign.wrote(sent, now, lease, Timestamp::now());
                if let Some(until) = state.campaign.acts_until() {
                    self.fence.extend_to(until);
                    state.renewals += 1;
                    if began {
                        state.terms += 1;
                        tracing::info!(
                            lease = self.settings.lease(),
                            identity = self.settings.identity,
                            "leading"
                        );
                    }
                }
            }
            Err(failed) => state.failed(failed, sent, now),
        }
    }

    fn give_up(&self, why: Why, now: Moment) {
        let mut state = self.state();
        let holder = state.campaign.seen().and_then(|seen| seen.record.holder.clone());
        state.campaign.gave_up(why, now);
        let (lease, identity) = (self.settings.lease(), &self.settings.identity);
        match why {
            // What has begun may still end; the fence knows until when.
            Why::Late => tracing::warn!(
                lease,
                identity,
                error = state.error,
                "no longer leading: could not renew in time"
            ),
            Why::Taken => {
                self.fence.close();
                tracing::warn!(
                    lease,
                    identity,
                    holder,
                    "no longer leading: another host holds the lease"
                );
            }
        }
    }

    /// So long the next request may take: while leading not beyond the moment at which this host gives up.
    fn within(&self, sent: Moment) -> Duration {
        let usual = self.settings.times.request_timeout();
        let deadline = self.state().campaign.renew_deadline();
        deadline.map_or(usual, |deadline| usual.min(deadline.since(sent)))
    }

    /// Looks for changes of the Lease, so that one that is given back is taken at once. Where the API server has no
    /// watch for this host, looks at the retry period remain.
    async fn watch(&self) -> Infallible {
        let times = self.settings.times;
        loop {
            let began = self.fence.now();
            match self.requests.changes(times.request_timeout()).await {
                Ok(changes) => {
                    let mut changes = std::pin::pin!(changes);
                    while let Some(lease) = changes.next().await {
                        self.changed(lease.as_ref());
                    }
                }
                Err(failed) => tracing::debug!(lease = self.settings.lease(), ?failed, "no watch of the lease"),
            }
            // At most one a retry period, whatever the server does.
            sleep(times.retry_period.saturating_sub(self.fence.now().since(began))).await;
        }
    }

    fn changed(&self, lease: Option<&Lease>) {
        let mut state = self.state();
        if state.campaign.is_news(lease) {
            state.campaign.hurry(self.fence.now());
            self.hurry.notify_one();
        }
    }

    /// Gives the Lease back where this process holds it. The fence is closed by now.
    async fn release(&self) {
        if !self.state().campaign.has_claimed() {
            return;
        }
        for _ in 0..RELEASES_MAX {
            // A write may have been under way when this host resigned: what it came to is seen only here.
            self.observe().await;
            if self.state().error.is_some() || !self.state().campaign.is_mine() {
                return;
            }
            let draft = self.state().campaign.release(Timestamp::now());
            let sent = self.fence.now();
            let answer = self.requests.put(&draft, self.settings.times.request_timeout()).await;
            let now = self.fence.now();
            let mut state = self.state();
            match answer {
                Ok(lease) => {
                    state.succeeded();
                    state.campaign.observed(now, Some(lease));
                    tracing::info!(
                        lease = self.settings.lease(),
                        identity = self.settings.identity,
                        "lease given back"
                    );
                    return;
                }
                Err(Failed::Conflict) => state.campaign.conflicted(now),
                Err(failed) => {
                    state.failed(failed, sent, now);
                    return;
                }
            }
        }
    }

    fn tell(&self, standing: &watch::Sender<Standing>) {
        let now = self.standing();
        standing.send_if_modified(|told| {
            let is_news = *told != now;
            *told = now;
            is_news
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn standing(&self) -> Standing {
        match self.campaign.leading_since() {
            Some(since) => Standing::Leading { since },
            None => {
                let seen = self.campaign.seen().filter(|seen| seen.exists);
                let holder = seen.and_then(|seen| seen.record.holder.clone());
                Standing::Standby { holder }
            }
        }
    }

    fn succeeded(&mut self) {
        if self.error.take().is_some() {
            tracing::info!("the lease can be read and written again");
        }
    }

    fn failed(&mut self, failed: Failed, sent: Moment, now: Moment) {
        match failed {
            Failed::Conflict => self.campaign.conflicted(now),
            Failed::Other(error) => {
                self.failures += 1;
                self.campaign.failed(sent, now);
                // An API server that is away for long is worth one line, not one for each try.
                if self.error.is_none() {
                    tracing::warn!("{error}");
                }
                self.error = Some(error);
            }
        }
    }
}
