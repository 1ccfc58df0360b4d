//! What stands between a question and its backend: the grant, the quota, and what is said where one of them refuses.
//!
//! Asked inside the question, so that a refusal is recorded like any other answer, and a replay refuses nothing anew.
//!
//! ```text
//! question -> Guard: quota, grant -> backend
//!                       \-> refused: metric (each), log (first of a call), audit (first of a call and scope)
//! ```

use std::collections::BTreeSet;

use crate::bindings::host::metrics::Label;
use crate::grants::{Access, Grants};
use crate::host::{Backends, Identity};
use crate::metrics::{HOST, Line};

/// So many refusals of one call the audit log names: a guest that guesses identifiers asks 100,000 questions, and one call
/// must not use up what all calls of the guest may have written in a minute.
pub const AUDITED_PER_CALL_MAX: usize = 100;

/// What the running call was refused already.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// The call's entry in its journal; none where it is no entry.
    entry: Option<u64>,
    logged: bool,
    /// By call and scope.
    audited: BTreeSet<(String, String)>,
}

impl Refused {
    /// A call begins, which is this entry of its journal.
    pub(crate) fn begin(&mut self, entry: Option<u64>) {
        *self = Self {
            entry,
            ..Self::default()
        };
    }
}

/// What decides whether a question is asked: borrowed apart from the tape.
pub(crate) struct Guard<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) grants: &'a Grants,
    pub(crate) backends: &'a Backends,
    pub(crate) refused: &'a mut Refused,
}

impl Guard<'_> {
    /// Checks the grant; the error is what the guest is told.
    pub(crate) fn check(
        &mut self,
        call: &str,
        capability: &str,
        access: Access,
        scope: &str,
        what: impl FnOnce() -> String,
    ) -> Result<(), String> {
        if self.grants.allow(capability, access, scope) {
            return Ok(());
        }
        Err(self.refuse(call, scope, what(), 1))
    }

    /// Counts the question against `calls_per_minute`, over all instances of this guest. A list that is refused is refused
    /// in each of its `entries`.
    pub(crate) fn count(&mut self, call: &str, capability: &str, entries: usize) -> Result<(), String> {
        let limit = self.grants.grant(capability).and_then(|grant| grant.calls_per_minute);
        let Some(limit) = limit else { return Ok(()) };
        let now_ms = self.backends.clock.now_ms();
        if self.backends.quotas.admit(capability, limit, now_ms) {
            return Ok(());
        }
        let times = if limit == 1 { "once" } else { &format!("{limit} times") };
        let what = format!("`{capability}` was asked {times} within a minute, the limit `calls_per_minute`");
        Err(self.refuse(call, "calls_per_minute", what, entries))
    }

    /// Says that something is refused, to everyone but the guest; gives back what the guest is told.
    pub(crate) fn refuse(&mut self, call: &str, scope: &str, what: String, entries: usize) -> String {
        let Self { identity, backends, .. } = self;
        let label = |key: &str, value: &str| Label {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let labels = [label("guest", &identity.guest), label("call", call)];
        let line = Line::CounterAdd(entries as u64);
        backends.metrics.take(HOST, "trueup_access_denied_total", &labels, line);
        if !std::mem::replace(&mut self.refused.logged, true) {
            tracing::warn!(
                guest = %identity.guest, version = %identity.version, digest = %identity.digest, instance = %identity.instance,
                call, "access denied: {what}; further refusals of this call are counted, not logged",
            );
        }
        self.audit(call, scope, &what);
        what
    }

    /// Writes down the first refusal of a call and scope. The refusal stands whatever becomes of its line.
    fn audit(&mut self, call: &str, scope: &str, what: &str) {
        let Some(audit) = &self.backends.audit else { return };
        let count = self.refused.audited.len();
        if count > AUDITED_PER_CALL_MAX || !self.refused.audited.insert((call.to_owned(), scope.to_owned())) {
            return;
        }
        let (scope, outcome) = if count == AUDITED_PER_CALL_MAX {
            let more = format!("access denied: after {count} refusals, further ones of this decision are only counted");
            ("*", more)
        } else {
            (scope, format!("access denied: {what}"))
        };
        let at_ms = self.backends.clock.now_ms();
        if let Err(error) = audit.refused(at_ms, self.identity, self.refused.entry, call, scope, &outcome) {
            let cause = std::error::Error::source(&error);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            tracing::error!(guest = %self.identity.guest, call, scope, "a refusal is not in the audit log: {error}{cause}");
        }
    }
}

/// Refuses what the host itself was to do for a guest, before the guest is called: counted, logged and audited as a
/// question of the guest is. Gives back `what`.
pub fn refuse_call(identity: &Identity, backends: &Backends, call: &str, scope: &str, what: String) -> String {
    let nothing = Grants::default();
    let mut guard = Guard {
        identity,
        grants: &nothing,
        backends,
        refused: &mut Refused::default(),
    };
    guard.refuse(call, scope, what, 1)
}
