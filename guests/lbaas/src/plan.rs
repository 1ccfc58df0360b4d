//! Decides for one load balancer what its own resources need: changes, a reset, or time.
//!
//! Pure, and n log n. Each own resource finds what it fulfils of the desired state. Then the plan creates what has no
//! resource, and destroys each resource that is not desired. It never changes anything in place.
//!
//! ```text
//! own resources -> states -> (failed | recovering | progressing)
//!                         -> kept backends -> kept frontends -> kept binds, servers -> changes
//! ```

use crate::bindings::trueup::lbaas::types::{Object, ObjectRef, Spec, State};
use crate::desired::DesiredState;
use crate::order;
use crate::own::{Found, Own};
use crate::settings::{FailedObjects, Settings};

/// What one load balancer needs.
#[derive(Debug)]
pub enum Verdict<'a> {
    /// These changes; empty if it is in sync.
    Change(Changes<'a>),
    /// Some failed, and the setting asks for a reset.
    Failed {
        /// to reset
        failed: Vec<ObjectRef>,
        /// reset earlier, not done yet
        updating: Vec<ObjectRef>,
    },
    /// Reset earlier, not done yet.
    Recovering(Vec<ObjectRef>),
    /// Created earlier, not deployed yet.
    Progressing(Vec<ObjectRef>),
}

/// The work to do, in no particular order.
#[derive(Debug, Default)]
pub struct Changes<'a> {
    /// those whose parents exist
    pub create: Vec<Spec>,
    /// those that are not desired
    pub destroy: Vec<&'a Object>,
}

/// Whether a resource in this state needs nothing more.
pub fn is_ready(failed_objects: FailedObjects, state: State) -> bool {
    match state {
        State::Ok => true,
        State::Updating => failed_objects == FailedObjects::Destroy,
        State::Pending | State::Failed => false,
    }
}

/// The first that applies: failed resources, updating ones, pending ones, and otherwise the difference from the
/// desired state.
pub fn decide<'a>(settings: &Settings, load_balancer: &str, desired: &DesiredState<'_>, own: &Own<'a>) -> Verdict<'a> {
    let any = |state| own.in_state(state).next().is_some();
    let all = |state| own.in_state(state).map(order::reference).collect();
    match settings.failed_objects {
        FailedObjects::Destroy if any(State::Failed) => Verdict::Change(Changes {
            create: Vec::new(),
            destroy: failed_with_dependents(own),
        }),
        FailedObjects::Reset if any(State::Failed) => Verdict::Failed {
            failed: all(State::Failed),
            updating: all(State::Updating),
        },
        FailedObjects::Reset if any(State::Updating) => Verdict::Recovering(all(State::Updating)),
        _ if any(State::Pending) => Verdict::Progressing(all(State::Pending)),
        _ => Verdict::Change(difference(load_balancer, desired, own)),
    }
}

/// The failed ones and all that refer to them, directly or not: a parent that others refer to can't be destroyed.
fn failed_with_dependents<'a>(own: &Own<'a>) -> Vec<&'a Object> {
    let mut doomed = Vec::new();
    let none = Vec::new();
    let backends = doom(&own.backends, &none, &mut doomed);
    let frontends = doom(&own.frontends, &backends, &mut doomed);
    doom(&own.binds, &frontends, &mut doomed);
    doom(&own.servers, &backends, &mut doomed);
    doomed
}

/// Which of these failed or have a parent that must go.
fn doom<'a, T>(found: &[Found<'a, T>], parents: &[bool], doomed: &mut Vec<&'a Object>) -> Vec<bool> {
    let goes = |found: &Found<'a, T>| {
        let parent_goes = found.parent.and_then(|parent| parents.get(parent));
        let goes = found.object.state == State::Failed || parent_goes == Some(&true);
        doomed.extend(goes.then_some(found.object));
        goes
    };
    found.iter().map(goes).collect()
}

/// The difference between desired and observed. Covers a port only as far as its own parents exist.
fn difference<'a>(load_balancer: &str, desired: &DesiredState<'_>, own: &Own<'a>) -> Changes<'a> {
    let mut changes = Changes::default();
    let destroy = &mut changes.destroy;

    let mut uses = References::to(&own.backends);
    uses.count(&own.frontends);
    uses.count(&own.servers);
    let fits = own
        .backends
        .iter()
        .map(|found| desired.port_of_backend(found.spec))
        .collect();
    let backends = Kept::of(desired.ports.len(), &own.backends, fits, &uses, destroy);

    let mut uses = References::to(&own.frontends);
    uses.count(&own.binds);
    let fits = own.frontends.iter().map(|found| {
        let port = backends.port_of(found.parent)?;
        desired.is_frontend_of(port, found.spec).then_some(port)
    });
    let frontends = Kept::of(desired.ports.len(), &own.frontends, fits.collect(), &uses, destroy);

    let binds = frontends.children(&own.binds, desired.addresses.len(), destroy, |port, spec| {
        desired.address_of_bind(port, spec)
    });
    let servers = backends.children(&own.servers, desired.targets.len(), destroy, |port, spec| {
        desired.target_of_server(port, spec)
    });

    let create = &mut changes.create;
    for (index, port) in desired.ports.iter().enumerate() {
        let Some(backend) = backends.identifier(index, &own.backends) else {
            create.push(Spec::Backend(port.backend(load_balancer)));
            continue;
        };
        let targets = missing(&desired.targets, &servers, index);
        create.extend(targets.map(|target| Spec::Server(port.server(backend, target))));
        let Some(frontend) = frontends.identifier(index, &own.frontends) else {
            create.push(Spec::Frontend(port.frontend(load_balancer, backend)));
            continue;
        };
        let addresses = missing(&desired.addresses, &binds, index);
        create.extend(addresses.map(|address| Spec::Bind(port.bind(frontend, address))));
    }
    changes
}

/// The desired children of a port that do not exist. `there` has, for each port, which of them do.
fn missing<'d, T>(desired: &'d [T], there: &[Vec<bool>], port: usize) -> impl Iterator<Item = &'d T> {
    let there = there.get(port).into_iter().flatten();
    desired
        .iter()
        .zip(there)
        .filter(|(_, there)| !**there)
        .map(|(child, _)| child)
}

/// How many own resources refer to each parent of a list.
struct References(Vec<usize>);

impl References {
    fn to<T>(parents: &[Found<'_, T>]) -> Self {
        Self(vec![0; parents.len()])
    }

    fn count<T>(&mut self, children: &[Found<'_, T>]) {
        for child in children {
            if let Some(count) = child.parent.and_then(|parent| self.0.get_mut(parent)) {
                *count = count.saturating_add(1);
            }
        }
    }

    fn of(&self, parent: usize) -> usize {
        self.0.get(parent).copied().unwrap_or(0)
    }
}

/// The backends or frontends to keep: at most one for each port.
struct Kept {
    /// by port: the index in the list of existing ones
    by_port: Vec<Option<usize>>,
    /// by index in that list: the port that keeps it
    ports: Vec<Option<usize>>,
}

impl Kept {
    /// `fits` has, for each existing one, the port that wants it. Of several, keeps the one with the most references,
    /// then the one with the smallest identifier (`found` ascends by it). The others go.
    fn of<'a, T>(
        ports: usize,
        found: &[Found<'a, T>],
        fits: Vec<Option<usize>>,
        uses: &References,
        destroy: &mut Vec<&'a Object>,
    ) -> Self {
        let mut by_port: Vec<Option<usize>> = vec![None; ports];
        for (place, port) in fits.iter().enumerate() {
            if let Some(slot) = port.and_then(|port| by_port.get_mut(port))
                && slot.is_none_or(|kept| uses.of(place) > uses.of(kept))
            {
                *slot = Some(place);
            }
        }
        let mut ports = fits;
        for (place, (port, found)) in ports.iter_mut().zip(found).enumerate() {
            *port = port.filter(|&port| by_port.get(port) == Some(&Some(place)));
            if port.is_none() {
                destroy.push(found.object);
            }
        }
        Self { by_port, ports }
    }

    /// The port that keeps the parent at this index.
    fn port_of(&self, parent: Option<usize>) -> Option<usize> {
        self.ports.get(parent?).copied().flatten()
    }

    /// The identifier of the resource that this port keeps.
    fn identifier<'a, T>(&self, port: usize, found: &[Found<'a, T>]) -> Option<&'a str> {
        let place = self.by_port.get(port).copied().flatten()?;
        found.get(place).map(|found| found.object.identifier.as_str())
    }

    /// Which of the `width` children that each port wants exist. `fits` tells which one an existing child is. Nothing
    /// refers to a child, so of several the first stays: the one with the smallest identifier.
    fn children<'a, T>(
        &self,
        found: &[Found<'a, T>],
        width: usize,
        destroy: &mut Vec<&'a Object>,
        fits: impl Fn(usize, &T) -> Option<usize>,
    ) -> Vec<Vec<bool>> {
        // Without the parent, nothing can be created yet.
        let wanted = |kept: &Option<usize>| if kept.is_some() { vec![false; width] } else { Vec::new() };
        let mut there: Vec<Vec<bool>> = self.by_port.iter().map(wanted).collect();
        for child in found {
            let slot = self.port_of(child.parent).and_then(|port| {
                let wanted = fits(port, child.spec)?;
                there.get_mut(port)?.get_mut(wanted)
            });
            match slot {
                Some(there) if !*there => *there = true,
                _ => destroy.push(child.object),
            }
        }
        there
    }
}
