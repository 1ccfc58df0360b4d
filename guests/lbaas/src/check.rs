//! The changes that would be needed now: one plan for all load balancers, or why there is none.

use crate::bindings::exports::trueup::lbaas::reconciliation::{Error, Plan};
use crate::desired::DesiredState;
use crate::order;
use crate::outcome;
use crate::own::Own;
use crate::plan::{self, Verdict};
use crate::settings::Settings;

/// The plans of all load balancers as one, in the order in which `reconcile` takes them.
///
/// # Errors
/// If a load balancer's resources are not ready to be planned for.
pub fn plan(settings: &Settings, desired: &DesiredState<'_>, owned: &[Own<'_>]) -> Result<Plan, Error> {
    let mut errors = Vec::new();
    let mut create = Vec::new();
    let mut destroy = Vec::new();
    for (load_balancer, own) in desired.load_balancers.iter().zip(owned) {
        match plan::decide(settings, load_balancer, desired, own) {
            Verdict::Change(changes) => {
                create.extend(changes.create);
                destroy.extend(changes.destroy);
            }
            Verdict::Failed { failed, .. } => errors.push(Error::Failed(failed)),
            Verdict::Recovering(updating) => errors.push(Error::RecoveryPending(updating)),
            Verdict::Progressing(pending) => errors.push(Error::Progressing(pending)),
        }
    }
    if let Some(error) = outcome::joined(errors) {
        return Err(error);
    }
    create.sort_by(order::specs);
    destroy.sort_by(|left, right| order::destruction(left, right));
    Ok(Plan {
        create,
        destroy: destroy.into_iter().cloned().collect(),
    })
}
