//! Stops a reconcile that the grants cover only in part, before the host calls the guest.
//!
//! The host also checks the grants at each request. A single request can't show what this module checks: a reconcile
//! of two load balancers with a grant for one of them would be half applied.

use trueup_capabilities::grants::{Access, Grants};
use trueup_capabilities::guard::refuse_call;
use trueup_capabilities::{Backends, Identity, lbaas};

use super::turn::describe;
use crate::lbaas::guest::{Error, NAME};

/// The call that is stopped.
const CALL: &str = "reconciliation.reconcile";

/// Refuses a reconcile of these load balancers if the grants allow writing only some of them, or do not allow reading
/// one of them. Writes a line of the audit log. If the grants allow writing none of them, the host calls the guest:
/// it reads, and the host refuses each write. The same holds if nothing at all is granted of the capability: each
/// request then fails.
///
/// # Errors
/// The operator's message, on one line.
pub(crate) fn check(
    identity: &Identity,
    grants: &Grants,
    backends: &Backends,
    load_balancers: &[String],
) -> Result<(), String> {
    let Some((access, missing)) = not_granted(grants, load_balancers) else {
        return Ok(());
    };
    let what = format!("no grant to {access} load balancer `{missing}`");
    let what = refuse_call(identity, backends, CALL, missing, what);
    Err(describe(&Error::Api(lbaas::Error::AccessDenied(what))))
}

fn not_granted<'a>(grants: &Grants, load_balancers: &'a [String]) -> Option<(Access, &'a str)> {
    let first_without = |access| {
        load_balancers
            .iter()
            .find(|identifier| !grants.allow(NAME, access, identifier))
            .map(|identifier| (access, identifier.as_str()))
    };
    let writes_some = load_balancers
        .iter()
        .any(|identifier| grants.allow(NAME, Access::Write, identifier));
    if ![Access::Read, Access::Write]
        .iter()
        .any(|access| grants.allow_some(NAME, *access))
    {
        return None;
    }
    let unwritable = writes_some.then(|| first_without(Access::Write)).flatten();
    unwritable.or_else(|| first_without(Access::Read))
}

#[cfg(test)]
mod tests {
    use trueup_capabilities::grants::Grant;

    use super::*;

    #[test]
    fn a_reconcile_that_would_be_half_applied_is_stopped() {
        let check = |read: &[&str], write: &[&str], named: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let grant = Grant {
                read: owned(read),
                write: owned(write),
                ..Grant::default()
            };
            let grants = Grants::new([("lbaas".to_owned(), grant)].into());
            let named: Vec<String> = owned(named).into_iter().collect::<Vec<String>>();
            not_granted(&grants, &named).map(|(access, missing)| format!("{access} {missing}"))
        };
        let both: &[&str] = &["a", "b"];
        assert_eq!(check(both, both, both), None);
        assert_eq!(check(&["*"], &["*"], both), None);
        assert_eq!(check(&["a"], &["a"], both).as_deref(), Some("write b"));
        assert_eq!(check(both, &["b"], both).as_deref(), Some("write a"));
        assert_eq!(check(&["a"], both, both).as_deref(), Some("read b"));
        assert_eq!(check(&["c"], &["c"], &["a"]).as_deref(), Some("read a"));
        assert_eq!(check(&[], &[], both), None, "it may ask nothing");
        assert_eq!(check(both, &[], both), None, "it may look, and writes nothing");
        assert_eq!(check(both, &["c"], both), None, "as before: it writes to none of these");
    }
}
