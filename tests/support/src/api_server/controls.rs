//! What a test can do to the server and read off it: faults, the log of requests, the history of Leases.
//!
//! Nothing here knows how requests are answered; `http.rs` asks what shall go wrong, and says what was done.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::store::{Change, Happened};

/// So many requests are remembered, then the oldest are forgotten: 100,000 are some 40 MB, and 8 minutes at 200 a second.
pub(super) const REQUESTS_MAX: usize = 100_000;

/// So many changes of Leases are remembered: with three hosts that renew each second, 9 hours.
pub(super) const LEASE_CHANGES_MAX: usize = 100_000;

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Whose token came with it; `system:anonymous` without one.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; of other paths, the HTTP
    /// method in lower case.
    pub verb: String,
    /// The API group; empty is core, and what is no resource.
    pub group: String,
    /// Such as `services`; empty for what is no resource.
    pub resource: String,
    /// `status`, or empty.
    pub subresource: String,
    /// Empty for what is in no namespace, and for all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// The path as it was sent.
    pub path: String,
    /// The parameters, in the order in which they were sent.
    pub query: Vec<(String, String)>,
}

impl Asked {
    /// A parameter; empty if it is not there.
    pub fn parameter(&self, name: &str) -> &str {
        self.query
            .iter()
            .find(|(known, _)| known == name)
            .map_or("", |(_, value)| value)
    }

    /// Whether the request is one with this verb for this resource.
    pub fn is(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }
}

/// A request that was answered, or was not.
#[derive(Clone, Debug)]
pub struct Logged {
    /// When it arrived.
    pub at: Instant,
    pub asked: Asked,
    /// The HTTP status; 0 where the answer was lost. A watch is logged when it begins.
    pub status: u16,
    /// Of a list and a watch the resourceVersion that was asked for, otherwise that of the object in the answer.
    pub version: String,
}

/// A change of a Lease.
#[derive(Clone, Debug)]
pub struct LeaseChange {
    /// When it was made.
    pub at: Instant,
    pub namespace: String,
    pub name: String,
    /// Empty if nobody holds it.
    pub holder: String,
    /// As it was written, RFC 3339 with microseconds; empty if it was not.
    pub renew_time: String,
    /// `leaseDurationSeconds`; 0 if it was not written.
    pub duration_s: i64,
    pub transitions: i64,
    /// Who wrote.
    pub user: String,
    /// The resourceVersion that the change made.
    pub version: u64,
    /// The Lease was deleted.
    pub deleted: bool,
}

impl LeaseChange {
    /// Reads a change, if it is one of a Lease.
    pub fn of(change: &Change, user: &str) -> Option<Self> {
        if change.object["kind"] != "Lease" {
            return None;
        }
        let spec = &change.object["spec"];
        let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
        Some(Self {
            at: Instant::now(),
            namespace: change.key.namespace.clone(),
            name: change.key.name.clone(),
            holder: text("holderIdentity"),
            renew_time: text("renewTime"),
            duration_s: spec["leaseDurationSeconds"].as_i64().unwrap_or(0),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or(0),
            user: user.to_owned(),
            version: change.version,
            deleted: change.happened == Happened::Deleted,
        })
    }
}

/// What can go wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this HTTP status, and nothing is done.
    Refused {
        code: u16,
        /// The header `Retry-After`, in seconds.
        retry_after_s: Option<u64>,
    },
    /// It is done this much later. It is done also if the caller went away meanwhile.
    Late(Duration),
    /// It is done at once, and answered this much later.
    AnsweredLate(Duration),
    /// The connection ends, and nothing is done.
    Lost,
    /// It is done, and the connection ends without an answer.
    AnswerLost,
}

/// What a fault is made for, and for how many requests.
struct Rule {
    number: u64,
    when: Box<dyn Fn(&Asked) -> bool + Send>,
    fault: Fault,
    /// `None` is for all.
    left: Option<u32>,
}

/// Takes a fault away again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// What was asked, what shall go wrong, and what happened to Leases.
#[derive(Default)]
pub(super) struct Controls {
    rules: Vec<Rule>,
    numbers: u64,
    log: VecDeque<Logged>,
    leases: VecDeque<LeaseChange>,
    /// Tokens and who they belong to.
    users: Vec<(String, String)>,
    /// A token that belongs to nobody is refused.
    pub strict: bool,
    /// What a user may do is read off the roles in the store.
    pub rbac: bool,
    /// A watch from a version that is forgotten is refused with HTTP 410, not told so in its first event.
    pub gone_as_status: bool,
    /// `sendInitialEvents` is understood, as by servers with the gate `WatchList`.
    pub no_streaming_lists: bool,
    /// How often a watch that wants bookmarks gets one.
    pub bookmarks_every: Option<Duration>,
}

impl fmt::Debug for Controls {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Controls")
            .field("rules", &self.rules.len())
            .field("log", &self.log.len())
            .finish_non_exhaustive()
    }
}

impl Controls {
    /// Makes a fault.
    pub(super) fn fault(
        &mut self,
        when: impl Fn(&Asked) -> bool + Send + 'static,
        fault: Fault,
        times: Option<u32>,
    ) -> FaultId {
        self.numbers += 1;
        self.rules.push(Rule {
            number: self.numbers,
            when: Box::new(when),
            fault,
            left: times,
        });
        FaultId(self.numbers)
    }

    /// Takes a fault away.
    pub(super) fn heal(&mut self, id: FaultId) {
        self.rules.retain(|rule| rule.number != id.0);
    }

    /// Takes all faults away.
    pub(super) fn heal_all(&mut self) {
        self.rules.clear();
    }

    /// What shall go wrong with a request: the first fault that is made for it.
    pub(super) fn fault_for(&mut self, asked: &Asked) -> Option<Fault> {
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.left != Some(0) && (rule.when)(asked))?;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.fault.clone())
    }

    /// Remembers who a token belongs to.
    pub(super) fn know(&mut self, user: &str, token: &str) {
        self.users.retain(|(known, _)| known != token);
        self.users.push((token.to_owned(), user.to_owned()));
    }

    /// Whose a token is. Where tokens are not checked, an unknown one is its own user's name. `None` is to be refused.
    pub(super) fn user_of(&self, token: Option<&str>) -> Option<String> {
        let Some(token) = token else {
            return Some("system:anonymous".to_owned());
        };
        let known = self
            .users
            .iter()
            .find(|(known, _)| known == token)
            .map(|(_, user)| user.clone());
        known.or_else(|| (!self.strict).then(|| token.to_owned()))
    }

    /// Remembers a request.
    pub(super) fn log(&mut self, logged: Logged) {
        push(&mut self.log, logged, REQUESTS_MAX);
    }

    /// Remembers a change of a Lease.
    pub(super) fn lease(&mut self, change: LeaseChange) {
        push(&mut self.leases, change, LEASE_CHANGES_MAX);
    }

    /// The requests, in the order in which they were answered.
    pub(super) fn requests(&self) -> Vec<Logged> {
        self.log.iter().cloned().collect()
    }

    /// Forgets the requests.
    pub(super) fn clear_requests(&mut self) {
        self.log.clear();
    }

    /// The changes of one Lease, in their order.
    pub(super) fn lease_changes(&self, namespace: &str, name: &str) -> Vec<LeaseChange> {
        let of = |change: &&LeaseChange| change.namespace == namespace && change.name == name;
        self.leases.iter().filter(of).cloned().collect()
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T, bound: usize) {
    queue.push_back(item);
    if queue.len() > bound {
        queue.pop_front();
    }
}

/// The resourceVersion of an object, for the log.
pub(super) fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
