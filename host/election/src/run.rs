//! Campaigns, leads, renews and gives back: makes the requests of `campaign.rs`, moves the fence, and reports
//! changes.
//!
//! Decides nothing itself. Makes one request at a time. A watch beside it only triggers an early look.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use trueup_base::fence::{Fence, Moment};
use trueup_base::text;

use super::campaign::{Action, Campaign, Why};
use super::settings::Settings;

/// The maximum number of tries to give a Lease back. The first succeeds, or one after a conflict with a renewal that
/// was still under way. More conflicts mean that another writer writes all the time; the Lease then expires by
/// itself.
const RELEASES_MAX: u32 = 3;

/// The server ends a watch after this time and the host begins it anew. The API server's own default is some minutes,
/// and a connection that died silently would block for as long.
const WATCH_SECONDS: u32 = 60;

/// How much later the host ends the watch itself.
const WATCH_GRACE: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Failed {
    /// Another writer wrote in between.
    Conflict,
    /// One line. It is unknown whether a write happened.
    Other(String),
}

/// Whether this host acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Another host acts, or none does yet.
    Standby {
        /// The holder of the Lease, as last seen. `None` if there is none, or it was not seen yet.
        holder: Option<String>,
    },
    /// This host acts.
    Leading {
        /// By the wall clock. Only for display.
        since: Timestamp,
    },
}

impl Role {
    /// Whether this host acts.
    pub fn is_leading(&self) -> bool {
        matches!(self, Self::Leading { .. })
    }
}

/// The status of an election for operators: the leader, as this host knows it. Its times are those of wall clocks and
/// decide nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `namespace/name` of the Lease.
    pub lease: String,
    /// This host's name in it.
    pub identity: String,
    /// Whether this host leads.
    pub leading: bool,
    /// Since when it leads (RFC 3339). Absent if it does not lead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leading_since: Option<String>,
    /// The holder of the Lease, as last seen. Absent if there is none, or it was not seen yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub holder: Option<String>,
    /// Since when the holder holds it, by the holder's clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub acquired: Option<String>,
    /// When the holder last renewed it, by the holder's clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub renewed: Option<String>,
    /// How often it went from one holder to another.
    pub transitions: i32,
    /// How often this host began to lead.
    pub terms: u64,
    /// Successful renewals of this host, including acquisitions.
    pub renewals: u64,
    /// Requests for the Lease that failed, not counting conflicts.
    pub failures: u64,
    /// Why the last request failed, on one line. Absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// One host's part in an election.
pub struct Election {
    leases: Api<Lease>,
    settings: Settings,
    fence: Fence,
    state: Mutex<State>,
    /// Notified when the Lease changed.
    hurry: Notify,
}

struct State {
    campaign: Campaign,
    /// As in [`Status`].
    terms: u64,
    renewals: u64,
    failures: u64,
    /// Why the last read of the Lease failed. `None` if it did not.
    read_error: Option<String>,
    /// Why the last write of the Lease failed. `None` if it did not, or if another host holds the Lease since.
    write_error: Option<String>,
}

impl Election {
    /// Makes no request yet. The fence should be closed; it is opened while this host leads. All times are by its
    /// clock. The seed is for pauses, which also differ between hosts by their identity.
    pub fn new(client: kube::Client, settings: Settings, fence: Fence, seed: u64) -> Self {
        let state = State {
            campaign: Campaign::new(&settings, seed, fence.now()),
            terms: 0,
            renewals: 0,
            failures: 0,
            read_error: None,
            write_error: None,
        };
        Self {
            leases: Api::namespaced(client, &settings.namespace),
            settings,
            fence,
            state: Mutex::new(state),
            hurry: Notify::new(),
        }
    }

    /// The Lease, and this host's identity.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether this host leads now, or which one does.
    pub fn role(&self) -> Role {
        self.state.lock().role()
    }

    /// The status for operators.
    pub fn status(&self) -> Status {
        let state = self.state.lock();
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
            error: state.error().cloned(),
        }
    }

    /// Takes the Lease, or returns the holder that was seen to renew it. If the holder is dead, that takes as long as
    /// its lease. A host that leads keeps leading while [`Election::run`] runs.
    ///
    /// # Errors
    /// One line, if the API server did not answer for as long as a holder would try.
    pub async fn try_once(&self) -> Result<Role, String> {
        let give_up_at = self.fence.now() + self.settings.times.renew_deadline;
        let mut watched = None;
        loop {
            self.step().await;
            let state = self.state.lock();
            let role = state.role();
            if role.is_leading() {
                return Ok(role);
            }
            if let Some(error) = state.error().cloned().filter(|_| self.fence.now() >= give_up_at) {
                return Err(error);
            }
            let Some(seen) = state.campaign.seen().filter(|_| !state.campaign.is_mine()) else {
                continue;
            };
            if seen.record.holder.is_some() && *watched.get_or_insert(seen.since) != seen.since {
                return Ok(role);
            }
        }
    }

    /// Campaigns for ever, and renews while it leads. Sends each change of the role. Once `resign` resolves,
    /// closes the fence and gives the Lease back, so that another host leads at once. `resign` must not resolve
    /// before everything that was begun while leading has ended. Dropping this future gives nothing back; the fence
    /// then expires by itself.
    pub async fn run(&self, role: watch::Sender<Role>, resign: impl Future<Output = ()>) {
        tokio::select! {
            never = self.campaign(&role) => match never {},
            never = self.watch() => match never {},
            () = resign => {}
        }
        // Comes first: another host that sees the Lease given back may act at once.
        self.fence.close();
        self.state.lock().campaign.gave_up(Why::Taken, self.fence.now());
        self.tell(&role);
        self.release().await;
        self.tell(&role);
    }

    async fn campaign(&self, role: &watch::Sender<Role>) -> Infallible {
        loop {
            self.tell(role);
            self.step().await;
        }
    }

    /// Does the next step.
    async fn step(&self) {
        let now = self.fence.now();
        let action = self.state.lock().campaign.next(now);
        match action {
            Action::HoldOn(until) | Action::WaitUntil(until) => {
                tokio::select! {
                    () = sleep(until.since(now)) => {}
                    // Also for a change that came during the last request, whose answer may be older.
                    () = self.hurry.notified() => self.state.lock().campaign.hurry(self.fence.now()),
                }
            }
            Action::Observe => self.observe().await,
            Action::Acquire | Action::Renew => self.write().await,
            Action::GiveUp(why) => self.give_up(why, now),
        }
        let state = self.state.lock();
        if state.campaign.acts_until().is_none() && !state.campaign.is_mine() && self.fence.may_act() {
            // The fence should have expired before another host could be the holder.
            self.fence.close();
        }
    }

    async fn observe(&self) {
        let sent = self.fence.now();
        let lease = self.leases.get_opt(&self.settings.name);
        let answer = self.answer("get", self.within(sent), lease).await;
        let now = self.fence.now();
        let mut state = self.state.lock();
        match answer {
            Ok(lease) => {
                state.campaign.observed(now, lease);
                state.answered(false);
            }
            Err(failed) => state.read_error = state.failed(failed, sent, now),
        }
    }

    async fn write(&self) {
        let draft = self.state.lock().campaign.draft(Timestamp::now());
        // Read just before the request is sent. This host's right to act is counted from here.
        let sent = self.fence.now();
        let answer = self.put(&draft, self.within(sent)).await;
        let now = self.fence.now();
        let mut state = self.state.lock();
        match answer {
            Ok(lease) => {
                state.answered(true);
                let began = state.campaign.leading_since().is_none();
                state.campaign.wrote(sent, now, lease, Timestamp::now());
                if let Some(until) = state.campaign.acts_until() {
                    self.fence.extend_to(until);
                    state.renewals += 1;
                    if began {
                        state.terms += 1;
                        let (lease, identity) = (self.settings.lease(), &self.settings.identity);
                        tracing::info!(lease, identity, "leading");
                    }
                }
            }
            Err(failed) => state.write_error = state.failed(failed, sent, now),
        }
    }

    fn give_up(&self, why: Why, now: Moment) {
        let mut state = self.state.lock();
        let holder = state.campaign.seen().and_then(|seen| seen.record.holder.clone());
        state.campaign.gave_up(why, now);
        let (lease, identity) = (self.settings.lease(), &self.settings.identity);
        match why {
            // Calls under way may still end; the fence knows until when.
            Why::Late => {
                let error = state.error();
                tracing::warn!(lease, identity, error, "no longer leading: could not renew in time");
            }
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

    /// The timeout of the next request. While leading, not beyond the moment at which this host gives up.
    fn within(&self, sent: Moment) -> Duration {
        let usual = self.settings.times.request_timeout();
        let deadline = self.state.lock().campaign.renew_deadline();
        deadline.map_or(usual, |deadline| usual.min(deadline.since(sent)))
    }

    /// Watches the Lease, so that one that is given back is taken at once. If the API server allows this host no
    /// watch, it still looks at every retry period.
    async fn watch(&self) -> Infallible {
        let times = self.settings.times;
        loop {
            let began = self.fence.now();
            match self.changes(times.request_timeout()).await {
                Ok(changes) => {
                    let mut changes = std::pin::pin!(changes);
                    while let Some(lease) = changes.next().await {
                        if self.state.lock().campaign.is_news(lease.as_ref()) {
                            self.hurry.notify_one();
                        }
                    }
                }
                Err(failed) => tracing::debug!(lease = self.settings.lease(), ?failed, "no watch of the lease"),
            }
            // At most one per retry period, whatever the server does.
            sleep(times.retry_period.saturating_sub(self.fence.now().since(began))).await;
        }
    }

    /// Gives the Lease back if this process holds it. The fence is already closed.
    async fn release(&self) {
        if !self.state.lock().campaign.has_claimed() {
            return;
        }
        for _ in 0..RELEASES_MAX {
            // A write may have been under way when this host resigned. Only this look shows its result.
            self.observe().await;
            if self.state.lock().read_error.is_some() || !self.state.lock().campaign.is_mine() {
                return;
            }
            let draft = self.state.lock().campaign.release(Timestamp::now());
            let sent = self.fence.now();
            let answer = self.put(&draft, self.settings.times.request_timeout()).await;
            let now = self.fence.now();
            let mut state = self.state.lock();
            match answer {
                Ok(lease) => {
                    state.answered(true);
                    state.campaign.observed(now, Some(lease));
                    let (lease, identity) = (self.settings.lease(), &self.settings.identity);
                    tracing::info!(lease, identity, "lease given back");
                    return;
                }
                Err(Failed::Conflict) => state.campaign.conflicted(now),
                Err(failed) => {
                    state.write_error = state.failed(failed, sent, now);
                    return;
                }
            }
        }
    }

    /// Writes the Lease: replaces the version that it names, or creates it if it names none.
    async fn put(&self, lease: &Lease, within: Duration) -> Result<Lease, Failed> {
        let parameters = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            let replaced = self.leases.replace(&self.settings.name, &parameters, lease);
            self.answer("update", within, replaced).await
        } else {
            let created = self.leases.create(&parameters, lease);
            self.answer("create", within, created).await
        }
    }

    /// The Lease after each change. `None` if it was deleted. Begins with the server's current one. Ends when the
    /// server or the time limit ends it.
    async fn changes(&self, within: Duration) -> Result<impl Stream<Item = Option<Lease>>, Failed> {
        let name = format!("metadata.name={}", self.settings.name);
        let parameters = WatchParams::default().fields(&name).timeout(WATCH_SECONDS);
        // "0" accepts any version that the server has at hand. The server never answers that this version is too old.
        let watch = self.leases.watch(&parameters, "0");
        let events = self.answer("watch", within, watch).await?;
        let end = sleep(Duration::from_secs(WATCH_SECONDS.into()) + WATCH_GRACE);
        let name = self.settings.name.clone();
        // A server may ignore the selector.
        let is_named = move |lease: &Lease| lease.metadata.name.as_deref() == Some(&*name);
        let change = move |event| match event {
            Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) if is_named(&lease) => Some(Some(lease)),
            Ok(WatchEvent::Deleted(lease)) if is_named(&lease) => Some(None),
            _ => None,
        };
        let events = events.take_while(|event| ready(!matches!(event, Ok(WatchEvent::Error(_)) | Err(_))));
        let changes = events.filter_map(move |event| ready(change(event)));
        Ok(changes.take_until(end))
    }

    /// The answer of a request. Each has a timeout: a host that waits for the API server for ever would keep a lease
    /// that it no longer has.
    async fn answer<T>(
        &self,
        verb: &str,
        within: Duration,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failed> {
        let what = || format!("can't {verb} lease `{}`", self.settings.lease());
        match timeout(within, request).await {
            Ok(Ok(answer)) => Ok(answer),
            // "Already exists" is also a conflict: another host created it in between.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Failed::Conflict),
            Ok(Err(error)) => Err(Failed::Other(format!("{}: {}", what(), cause(&error)))),
            Err(_) => {
                let ms = within.as_millis();
                Err(Failed::Other(format!("{}: no answer within {ms} ms", what())))
            }
        }
    }

    fn tell(&self, role: &watch::Sender<Role>) {
        let now = self.role();
        role.send_if_modified(|sent| std::mem::replace(sent, now.clone()) != now);
    }
}

impl State {
    fn role(&self) -> Role {
        match self.campaign.leading_since() {
            Some(since) => Role::Leading { since },
            None => {
                let seen = self.campaign.seen().filter(|seen| seen.exists);
                let holder = seen.and_then(|seen| seen.record.holder.clone());
                Role::Standby { holder }
            }
        }
    }

    fn error(&self) -> Option<&String> {
        self.write_error.as_ref().or(self.read_error.as_ref())
    }

    /// The Lease was read or written. A read says nothing of writes, unless another host holds the Lease: then this one
    /// need not write.
    fn answered(&mut self, wrote: bool) {
        let had_error = self.error().is_some();
        self.read_error = None;
        let is_held = matches!(self.role(), Role::Standby { holder: Some(_) });
        if wrote || (is_held && !self.campaign.is_mine()) {
            self.write_error = None;
        }
        if had_error && self.error().is_none() {
            tracing::info!("the lease can be read and written again");
        }
    }

    /// Takes in a failed request, and returns its error. `None` if another host was faster.
    fn failed(&mut self, failed: Failed, sent: Moment, now: Moment) -> Option<String> {
        match failed {
            Failed::Conflict => {
                self.campaign.conflicted(now);
                None
            }
            Failed::Other(error) => {
                self.failures += 1;
                self.campaign.failed(sent, now);
                // An API server that is down for long gets one line, not one per try.
                if self.error().is_none() {
                    tracing::warn!("{error}");
                }
                Some(error)
            }
        }
    }
}

/// The cause on one line, with a hint if there is one.
fn cause(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        return text::line(&text::causes(error));
    };
    let said = match status.message.as_str() {
        "" => &status.reason,
        message => message,
    };
    let hint = match status.code {
        403 => "; allow `get`, `create`, `update` and `watch` of `leases` in `coordination.k8s.io`",
        // A missing Lease is no error, so this is about its namespace.
        404 => "; create the namespace with `kubectl create namespace`, or name another in `[election]`",
        _ => "",
    };
    format!("{} ({}){hint}", text::line(said), status.code)
}
