//! Decides for one load balancer what its own resources need: changes, a reset, or time. For all load balancers, it is
//! one plan of the changes, or why there is none.
//!
//! Pure, and n log n. Each own resource finds what it fulfils of the desired state. Then the plan creates what has no
//! resource, and destroys each resource that is not desired. It never changes anything in place.
//!
//! ```text
//! own resources -> states -> (failed | recovering | progressing)
//!                         -> what each fulfils, by kind: parents first -> changes
//! ```

use crate::bindings::exports::trueup::lbaas::reconciliation::{Error, Plan};
use crate::bindings::trueup::lbaas::types::{Object, ObjectRef, Spec, State};
use crate::desired::{BACKEND, DesiredState, FRONTEND};
use crate::order;
use crate::outcome;
use crate::own::{Found, Own};
use crate::settings::Settings;

/// The work to do for one load balancer, in no particular order; empty if it is in sync.
#[derive(Debug, Default)]
pub struct Changes<'a> {
    /// those whose parents exist
    pub create: Vec<Spec>,
    /// those that are not desired
    pub destroy: Vec<&'a Object>,
}

/// The plans of all load balancers as one, in the order in which `reconcile` takes them.
///
/// # Errors
/// If a load balancer's resources are not ready to be planned for.
pub fn of_all(settings: &Settings, desired: &DesiredState<'_>, owned: &[Own<'_>]) -> Result<Plan, Error> {
    let mut errors = Vec::new();
    let mut all = Changes::default();
    for (load_balancer, own) in desired.load_balancers.iter().zip(owned) {
        match decide(settings, load_balancer, desired, own) {
            Ok(changes) => {
                all.create.extend(changes.create);
                all.destroy.extend(changes.destroy);
            }
            Err(error) => errors.push(error),
        }
    }
    if let Some(error) = outcome::joined(errors) {
        return Err(error);
    }
    all.create.sort_by(order::specs);
    all.destroy.sort_by(|left, right| order::destruction(left, right));
    Ok(Plan {
        create: all.create,
        destroy: all.destroy.into_iter().cloned().collect(),
    })
}

/// The changes of one load balancer: to what failed, and otherwise the difference from the desired state.
///
/// # Errors
/// The first that applies: `failed` with what must be reset first, `recovery-pending` with what was reset earlier,
/// `progressing` with what was created earlier and is not deployed yet.
pub fn decide<'a>(
    settings: &Settings,
    load_balancer: &str,
    desired: &DesiredState<'_>,
    own: &[Found<'a>],
) -> Result<Changes<'a>, Error> {
    let any = |state| own.iter().any(|found| found.object.state == state);
    match settings.resets_failed {
        true if any(State::Failed) => Err(Error::Failed(in_state(own, State::Failed))),
        true if any(State::Updating) => Err(Error::RecoveryPending(in_state(own, State::Updating))),
        false if any(State::Failed) => Ok(Changes {
            create: Vec::new(),
            destroy: failed_with_dependents(own),
        }),
        _ if any(State::Pending) => Err(Error::Progressing(in_state(own, State::Pending))),
        _ => Ok(difference(load_balancer, desired, own)),
    }
}

/// The own resources in this state.
pub fn in_state(own: &[Found<'_>], state: State) -> Vec<ObjectRef> {
    let in_state = own.iter().filter(|found| found.object.state == state);
    in_state.map(|found| order::reference(found.object)).collect()
}

/// The failed ones and all that refer to them, directly or not: a parent that others refer to can't be destroyed.
fn failed_with_dependents<'a>(own: &[Found<'a>]) -> Vec<&'a Object> {
    let mut goes: Vec<bool> = Vec::with_capacity(own.len());
    for found in own {
        let parent_goes = found.parent.and_then(|parent| goes.get(parent)) == Some(&true);
        goes.push(parent_goes || found.object.state == State::Failed);
    }
    let doomed = own.iter().zip(goes).filter(|(_, goes)| *goes);
    doomed.map(|(found, _)| found.object).collect()
}

/// The difference between desired and observed. Covers a port only as far as its own parents exist.
fn difference<'a>(load_balancer: &str, desired: &DesiredState<'_>, own: &[Found<'a>]) -> Changes<'a> {
    let kept = Kept::of(desired, own);
    let mut changes = Changes::default();
    let gone = (own.iter().enumerate()).filter(|&(place, _)| kept.cell(place).is_none());
    changes.destroy = gone.map(|(_, found)| found.object).collect();

    let create = &mut changes.create;
    for (row, port) in desired.ports.iter().enumerate() {
        let identifier = |column| {
            let found = own.get(kept.place(desired.cell(row, column))?)?;
            Some(&found.object.identifier)
        };
        let Some(backend) = identifier(BACKEND) else {
            create.push(Spec::Backend(port.backend(load_balancer)));
            continue;
        };
        let targets =
            (desired.target_columns().zip(&desired.targets)).filter(|&(column, _)| identifier(column).is_none());
        create.extend(targets.map(|(_, target)| Spec::Server(port.server(backend, target))));
        let Some(frontend) = identifier(FRONTEND) else {
            create.push(Spec::Frontend(port.frontend(load_balancer, backend)));
            continue;
        };
        let addresses =
            (desired.address_columns().zip(&desired.addresses)).filter(|&(column, _)| identifier(column).is_none());
        create.extend(addresses.map(|(_, &address)| Spec::Bind(port.bind(frontend, address))));
    }
    changes
}

/// The resources to keep: at most one for each cell of the desired state.
struct Kept {
    /// by cell: the index of the resource that fulfils it
    places: Vec<Option<usize>>,
    /// by that index: the cell that the resource could fulfil
    cells: Vec<Option<usize>>,
}

impl Kept {
    /// Of several resources that fit, keeps the one with the most references, then the one with the smallest
    /// identifier (`own` ascends by it). A child fits only if its parent is kept.
    fn of(desired: &DesiredState<'_>, own: &[Found<'_>]) -> Self {
        let mut uses = vec![0_usize; own.len()];
        for parent in own.iter().filter_map(|found| found.parent) {
            if let Some(uses) = uses.get_mut(parent) {
                *uses = uses.saturating_add(1);
            }
        }
        let uses_of = |place: usize| uses.get(place).copied().unwrap_or(0);
        let mut kept = Self {
            places: vec![None; desired.cell(desired.ports.len(), 0)],
            cells: Vec::with_capacity(own.len()),
        };
        for (place, found) in own.iter().enumerate() {
            // All that compete with the parent came before, as they are of its kind.
            let parent = found.parent.and_then(|parent| kept.cell(parent));
            let cell = desired.fulfilled(parent, &found.object.spec);
            if let Some(slot) = cell.and_then(|cell| kept.places.get_mut(cell))
                && slot.is_none_or(|other| uses_of(place) > uses_of(other))
            {
                *slot = Some(place);
            }
            kept.cells.push(cell);
        }
        kept
    }

    /// The resource that fulfils this cell.
    fn place(&self, cell: usize) -> Option<usize> {
        self.places.get(cell).copied().flatten()
    }

    /// The cell that this resource fulfils; `None` if it must go.
    fn cell(&self, place: usize) -> Option<usize> {
        let cell = self.cells.get(place).copied().flatten();
        cell.filter(|&cell| self.place(cell) == Some(place))
    }
}
