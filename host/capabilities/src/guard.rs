//! The checks between a request and its backend: the grant, the quota, and the reports when one of them refuses.
//!
//! The checks run inside the request. A refusal is therefore recorded like any other answer, and a replay does not
//! refuse again.
//!
//! ```text
//! request -> Guard: quota, grant -> backend
//!                      \-> refused: metric (each), log (first of a call), audit (first of a call and scope)
//! ```

use std::collections::BTreeSet;

use trueup_base::text;

use crate::backends::Backends;
use crate::grants::{Access, Grants};
use crate::identity::Identity;
use crate::quota::Blast;

/// The maximum number of refusals of one call in the audit log. A guest that guesses identifiers makes 100,000
/// requests, and one call must not use up the lines per minute of all the guest's calls.
pub const AUDITED_PER_CALL_MAX: usize = 100;

/// What the running call was already refused.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// The call's entry in its journal; `None` if it has no entry.
    pub(crate) entry: Option<u64>,
    logged: bool,
    /// Whether the host repeats the call: it refused something only to count first, or until an approval. Then
    /// the host logs the guest's warnings and errors at debug.
    pub(crate) is_repeated: bool,
    /// By call and scope.
    audited: BTreeSet<(String, String)>,
}

/// Decides whether a request is allowed. Borrowed separately from the tape.
pub(crate) struct Guard<'a> {
    /// The request, `interface.function`.
    pub(crate) call: &'a str,
    pub(crate) identity: &'a Identity,
    pub(crate) grants: &'a Grants,
    pub(crate) backends: &'a Backends,
    pub(crate) refused: &'a mut Refused,
    pub(crate) blast: &'a mut Blast,
    /// As [`crate::Host::removing`].
    pub(crate) removing: bool,
    /// As [`crate::Host::foreseen`].
    pub(crate) foreseen: Option<u64>,
}

impl Guard<'_> {
    /// Checks the grant. The guest gets the error.
    pub(crate) fn check(
        &mut self,
        capability: &str,
        access: Access,
        scope: &str,
        what: impl FnOnce() -> String,
    ) -> Result<(), String> {
        if self.grants.allow(capability, access, scope) {
            return Ok(());
        }
        Err(self.refuse(scope, what(), 1))
    }

    /// Counts the request against `calls_per_minute`, over all instances of this guest. If the quota refuses a list, it
    /// refuses each of its `entries`.
    pub(crate) fn count(&mut self, capability: &str, entries: usize) -> Result<(), String> {
        let limit = self.grants.grant(capability).and_then(|grant| grant.calls_per_minute);
        let Some(limit) = limit else { return Ok(()) };
        let now_ms = self.backends.clock.steady_ms();
        if self.backends.quotas.admit(capability, limit, now_ms) {
            return Ok(());
        }
        let times = if limit == 1 { "once" } else { &format!("{limit} times") };
        let what = format!("`{capability}` was asked {times} within a minute, the limit `calls_per_minute`");
        Err(self.refuse("calls_per_minute", what, entries))
    }

    /// Reports a refusal everywhere but to the guest, and returns the text for the guest.
    pub(crate) fn refuse(&mut self, scope: &str, what: String, entries: usize) -> String {
        let call = self.call;
        let Self { identity, backends, .. } = self;
        let labels = [("guest", identity.guest.as_str()), ("call", call)];
        let metrics = &backends.metrics;
        metrics.count("trueup_access_denied_total", &labels, entries as u64);
        if !std::mem::replace(&mut self.refused.logged, true) {
            tracing::warn!(
                guest = %identity.guest, version = %identity.version, digest = %identity.digest, instance = %identity.instance,
                call, "access denied: {what}; further refusals of this call are counted, not logged",
            );
        }
        self.audit(scope, &what);
        what
    }

    /// Audits the first refusal of a call and scope. The refusal applies even if the line can't be written.
    fn audit(&mut self, scope: &str, what: &str) {
        let call = self.call;
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
            let error = text::causes(&error);
            tracing::error!(guest = %self.identity.guest, call, scope, "a refusal is not in the audit log: {error}");
        }
    }
}

/// Refuses an action of the host for a guest, before the host calls the guest. It is counted, logged and audited like a
/// guest's request. Returns `what`.
pub fn refuse_call(identity: &Identity, backends: &Backends, call: &str, scope: &str, what: String) -> String {
    let nothing = Grants::default();
    let mut guard = Guard {
        call,
        identity,
        grants: &nothing,
        backends,
        refused: &mut Refused::default(),
        blast: &mut Blast::default(),
        removing: false,
        foreseen: None,
    };
    guard.refuse(scope, what, 1)
}
