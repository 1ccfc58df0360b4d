//! A test's controls: faults, the log of requests, the history of Leases.
//!
//! Knows nothing about answering requests; `http.rs` asks for pending faults, and reports what was done.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::store::{Change, Happened};

/// The log's size; the oldest requests drop out. 100,000 take some 40 MB, and cover 8 minutes at 200 a second.
pub(super) const REQUESTS_MAX: usize = 100_000;

/// How many changes of Leases are kept: with three hosts that renew each second, 9 hours.
pub(super) const LEASE_CHANGES_MAX: usize = 100_000;

/// The meaning of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The user of its token; `system:anonymous` without one.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; for other paths, the HTTP
    /// method in lower case.
    pub verb: String,
    /// The API group; empty for core, and for paths without a resource.
    pub group: String,
    /// Such as `services`; empty for paths without a resource.
    pub resource: String,
    /// `status`, or empty.
    pub subresource: String,
    /// Empty for kinds without a namespace, and for all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// The path as sent.
    pub path: String,
    /// The parameters, in the order sent.
    pub query: Vec<(String, String)>,
}

impl Asked {
    /// A parameter; empty if it is missing.
    pub fn parameter(&self, name: &str) -> &str {
        self.query
            .iter()
            .find(|(known, _)| known == name)
            .map_or("", |(_, value)| value)
    }

    /// Whether the request has this verb for this resource.
    pub fn is(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }
}

/// A request, answered or not.
#[derive(Clone, Debug)]
pub struct Logged {
    /// When it arrived.
    pub at: Instant,
    pub asked: Asked,
    /// The HTTP status; 0 if the answer was lost. A watch is logged when it begins.
    pub status: u16,
    /// For a list and a watch the requested resourceVersion, otherwise that of the object in the answer.
    pub version: String,
}

/// A change of a Lease.
#[derive(Clone, Debug)]
pub struct LeaseChange {
    /// When it was made.
    pub at: Instant,
    pub namespace: String,
    pub name: String,
    /// Empty without a holder.
    pub holder: String,
    /// As written, RFC 3339 with microseconds; empty if missing.
    pub renew_time: String,
    /// `leaseDurationSeconds`; 0 if missing.
    pub duration_s: i64,
    pub transitions: i64,
    /// The writer.
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

/// A fault of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server refuses it with this HTTP status, and does nothing.
    Refused {
        code: u16,
        /// The header `Retry-After`, in seconds.
        retry_after_s: Option<u64>,
    },
    /// The server acts this much later, even if the caller went away meanwhile.
    Late(Duration),
    /// The server acts at once, and answers this much later.
    AnsweredLate(Duration),
    /// The connection ends, and the server does nothing.
    Lost,
    /// The server acts, and the connection ends without an answer.
    AnswerLost,
}

/// Which requests a fault applies to, and how many.
struct Rule {
    number: u64,
    when: Box<dyn Fn(&Asked) -> bool + Send>,
    fault: Fault,
    /// `None` means all.
    left: Option<u32>,
}

/// Identifies a fault, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// The requests, the faults, and the history of Leases.
#[derive(Default)]
pub(super) struct Controls {
    rules: Vec<Rule>,
    numbers: u64,
    log: VecDeque<Logged>,
    leases: VecDeque<LeaseChange>,
    /// Tokens and their users.
    users: Vec<(String, String)>,
    /// Refuses unknown tokens.
    pub strict: bool,
    /// Enforces the roles in the store.
    pub rbac: bool,
    /// Answers a watch from a forgotten version with HTTP 410 instead of an error in its first event.
    pub gone_as_status: bool,
    /// Refuses `sendInitialEvents`, like servers without the gate `WatchList`.
    pub no_streaming_lists: bool,
    /// How often a watch with bookmarks gets one.
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
    /// Adds a fault.
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

    /// Removes a fault.
    pub(super) fn heal(&mut self, id: FaultId) {
        self.rules.retain(|rule| rule.number != id.0);
    }

    /// Removes all faults.
    pub(super) fn heal_all(&mut self) {
        self.rules.clear();
    }

    /// The fault of a request: the first that applies to it.
    pub(super) fn fault_for(&mut self, asked: &Asked) -> Option<Fault> {
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.left != Some(0) && (rule.when)(asked))?;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.fault.clone())
    }

    /// Remembers the user of a token.
    pub(super) fn know(&mut self, user: &str, token: &str) {
        self.users.retain(|(known, _)| known != token);
        self.users.push((token.to_owned(), user.to_owned()));
    }

    /// The user of a token. Unless tokens are checked, an unknown token is its own user's name. `None` if the server
    /// must refuse it.
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

    /// The requests, in the order of their answers.
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
