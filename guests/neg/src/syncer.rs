//! The syncer: lists the NEGs, starts the missing operations, and tracks them.
//!
//! Never waits for an operation: [`Neg::on_operation`] reports its end.
//!
//! ```text
//! ensure -> list -> compare -> migrator -> leave alone what is in flight -> start
//!    \________\______________________________________________________________\__ an error: retry by a timer
//! ```

use crate::bindings::exports::trueup::neg::syncer::{Error, SyncReport};
use crate::bindings::trueup::neg::api::{self, NegRef};
use crate::bindings::trueup::neg::types::{Endpoint, EndpointGroup, Location};
use crate::compare::{self, Flying};
use crate::entry::{Groups, Locations, Mark, Set};
use crate::filter::{Committed, Decision};
use crate::neg::Neg;
use crate::operations::{Kind, Operation};
use crate::target;
use crate::world::{self, World};

impl Neg {
    /// `syncer.sync`
    ///
    /// # Errors
    /// A mistake in the target, without any effect; or the first error of the API.
    pub fn sync(&mut self, world: &mut impl World, target: Vec<EndpointGroup>) -> Result<SyncReport, Error> {
        let target = match target::read(target, &self.settings.neg_names) {
            Ok(target) => target,
            Err(text) => {
                world::count(world, world::SYNCS, &[("result", "invalid-input")], 1);
                return Err(Error::InvalidInput(text));
            }
        };
        let mut pass = Pass {
            world,
            report: SyncReport {
                attaching: 0,
                detaching: 0,
                in_flight: 0,
                migration: None,
            },
            error: None,
        };
        self.pass(&mut pass, target);
        let Pass { world, report, error } = pass;
        let result = if error.is_some() { "api-error" } else { "ok" };
        world::count(world, world::SYNCS, &[("result", result)], 1);
        self.show_in_flight(world);
        let Some(error) = error else {
            self.sync_retry.cancel(world);
            self.sync_retry.count = 0;
            return Ok(report);
        };
        world.warn("sync met an error", &[("error", &world::words(&error))]);
        // A NEG may have been deleted.
        self.ensured.clear();
        self.sync_retry.after_sync_error(world, &self.settings, &error);
        Err(Error::Api(error))
    }

    /// Does as much as the API lets it.
    fn pass(&mut self, pass: &mut Pass<'_, impl World>, mut target: Groups) {
        let Some(left_out) = self.ensure(pass, &target) else {
            return;
        };
        if !target.is_empty() && left_out.len() == target.len() {
            return;
        }
        target.retain(|location, _| !left_out.contains(location));
        let Some(listed) = self.list(pass, &target, &left_out) else {
            return;
        };
        let mut decision = self.compare(pass, target, listed);
        pass.report.in_flight = self.leave_alone(&mut decision);
        self.start(pass, decision);
    }

    /// Ensures the target's NEGs; returns the locations to leave out. `None` ends the sync.
    fn ensure(&mut self, pass: &mut Pass<'_, impl World>, target: &Groups) -> Option<Locations> {
        let mut left_out = Locations::new();
        for location in target.keys() {
            if self.ensured.contains(location) {
                continue;
            }
            let neg = self.neg(location)?;
            match pass.world.ensure(&neg, &location.subnet) {
                Ok(_) => {
                    self.known.insert(location.clone());
                    self.ensured.insert(location.clone());
                }
                Err(error) => {
                    if !pass.meet(error) {
                        return None;
                    }
                    left_out.insert(location.clone());
                }
            }
        }
        Some(left_out)
    }

    /// Lists the NEGs of the target and of all other locations that may hold endpoints. `None` ends the sync.
    fn list(&mut self, pass: &mut Pass<'_, impl World>, target: &Groups, left_out: &Locations) -> Option<Groups> {
        let mut locations: Locations = target.keys().chain(&self.known).cloned().collect();
        locations.extend(self.operations.by_location().into_keys().cloned());
        for zone in &self.settings.zones {
            locations.extend(self.settings.neg_names.keys().map(|subnet| Location {
                zone: zone.clone(),
                subnet: subnet.clone(),
            }));
        }
        let mut listed = Groups::new();
        for location in locations.into_iter().filter(|location| !left_out.contains(location)) {
            // An earlier instance had a name for this subnet; the settings no longer tell which NEG that was.
            let Some(neg) = self.neg(&location) else {
                continue;
            };
            let set = match pass.world.list_endpoints(&neg) {
                Ok(endpoints) => compare::listed(endpoints),
                Err(api::Error::NotFound) if !target.contains_key(&location) => {
                    self.known.remove(&location);
                    self.ensured.remove(&location);
                    Set::new()
                }
                Err(error) => {
                    pass.meet(error);
                    return None;
                }
            };
            listed.insert(location, set);
        }
        Some(listed)
    }

    /// The difference, without the endpoints whose migration waits.
    fn compare(&mut self, pass: &mut Pass<'_, impl World>, mut target: Groups, listed: Groups) -> Decision {
        let (mut add, mut remove) = (Groups::new(), Groups::new());
        let mut committed = Committed::default();
        let operations = self.operations.by_location();
        for (location, mut there) in listed {
            if let Some(operations) = operations.get(&location) {
                there = compare::current(there, operations);
            }
            let wanted = target.remove(&location).unwrap_or_default();
            let (missing, surplus) = compare::difference(wanted, there, &mut committed);
            add.insert(location.clone(), missing);
            remove.insert(location, surplus);
        }
        let sets = (add, remove);
        self.migrator
            .filter(pass.world, &self.settings, sets, || committed, self.in_error_state)
    }

    /// Leaves out what has an operation in flight, itself or by its twin; returns how many.
    fn leave_alone(&self, decision: &mut Decision) -> u32 {
        let mut count = 0;
        for (location, operations) in self.operations.by_location() {
            let flying = Flying::new(&operations);
            for groups in [&mut decision.add, &mut decision.remove] {
                count += groups.get_mut(location).map_or(0, |set| flying.leave_alone(set));
            }
        }
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Starts all attachments, then all detachments, until an error that concerns the whole API.
    fn start(&mut self, pass: &mut Pass<'_, impl World>, decision: Decision) {
        for (kind, groups) in [(Kind::Attach, decision.add), (Kind::Detach, decision.remove)] {
            for (location, set) in groups {
                let Some(neg) = self.neg(&location) else {
                    continue;
                };
                for (endpoints, is_migration) in batches(set, self.settings.max_endpoints_per_operation) {
                    let operation = Operation {
                        kind,
                        location: location.clone(),
                        endpoints,
                        is_migration,
                    };
                    if !self.start_one(pass, &neg, operation) {
                        return;
                    }
                }
            }
        }
    }

    /// `None` if the settings have no name for the subnet.
    fn neg(&self, location: &Location) -> Option<NegRef> {
        Some(NegRef {
            name: self.settings.neg_names.get(&location.subnet)?.clone(),
            zone: location.zone.clone(),
        })
    }

    /// False if no further operation may start.
    fn start_one(&mut self, pass: &mut Pass<'_, impl World>, neg: &NegRef, operation: Operation) -> bool {
        if operation.is_migration {
            self.migrator.pause(pass.world, &self.settings);
        }
        let started = match operation.kind {
            Kind::Attach => pass.world.attach(neg, &operation.endpoints),
            Kind::Detach => pass.world.detach(neg, &operation.endpoints),
        };
        let kind = ("operation", operation.kind.word());
        match started {
            Ok(number) => {
                let count = operation.endpoints.len();
                world::count(pass.world, "trueup_neg_operation_endpoints_total", &[kind], count);
                let total = match operation.kind {
                    Kind::Attach => &mut pass.report.attaching,
                    Kind::Detach => &mut pass.report.detaching,
                };
                *total = total.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
                if operation.is_migration {
                    pass.report.migration = Some(operation.location.clone());
                }
                self.operations.by_number.insert(number, operation);
                true
            }
            Err(error) => {
                world::count(pass.world, world::OPERATIONS, &[kind, ("result", "not-started")], 1);
                if operation.is_migration {
                    self.operations.keep(world::words(&error));
                    self.end_migration(pass.world);
                }
                pass.meet(error)
            }
        }
    }

    /// If no operation of the migration is in flight, the migrator continues with their result.
    fn end_migration(&mut self, world: &mut impl World) {
        let mut in_flight = self.operations.by_number.values();
        if !in_flight.any(|operation| operation.is_migration) {
            let failure = self.operations.failure.take();
            self.migrator.end_detachment(world, &self.settings, failure.as_deref());
        }
    }

    /// `syncer.on-operation`
    pub fn on_operation(&mut self, world: &mut impl World, number: u64, failure: Option<String>) -> bool {
        let has_succeeded = failure.is_none();
        // An operation that an earlier instance started has changed a NEG all the same.
        let Some(operation) = self.operations.by_number.remove(&number) else {
            return has_succeeded;
        };
        let result = if has_succeeded { "success" } else { "failure" };
        let labels = [("operation", operation.kind.word()), ("result", result)];
        world::count(world, world::OPERATIONS, &labels, 1);
        self.show_in_flight(world);
        if let Some(failure) = &failure {
            let Location { zone, subnet } = &operation.location;
            let [kind, _] = labels;
            let fields = [kind, ("zone", zone), ("subnet", subnet), ("failure", failure)];
            world.warn("operation failed", &fields);
        }
        if operation.is_migration {
            if let Some(failure) = failure {
                self.operations.keep(failure);
            }
            self.end_migration(world);
        }
        if has_succeeded {
            self.operation_retry.count = 0;
        } else {
            self.ensured.clear();
            self.operation_retry.after_failed_operation(world, &self.settings);
        }
        has_succeeded
    }

    /// `syncer.set-error-state`
    pub fn set_error_state(&mut self, world: &mut impl World, in_error_state: bool) {
        self.in_error_state = in_error_state;
        world::show_whether(world, "trueup_neg_error_state", in_error_state);
    }

    fn show_in_flight(&self, world: &mut impl World) {
        let in_flight = self.operations.by_number.values();
        let endpoints = in_flight.map(|operation| operation.endpoints.len());
        world.gauge_count("trueup_neg_in_flight_endpoints", &[], endpoints.sum());
    }
}

/// One sync: its questions, what it started, and the first error.
struct Pass<'w, W> {
    world: &'w mut W,
    report: SyncReport,
    error: Option<api::Error>,
}

impl<W> Pass<'_, W> {
    /// Keeps the first error. True if it concerns one NEG or operation, so that the others go on.
    fn meet(&mut self, error: api::Error) -> bool {
        let concerns_one = matches!(error, api::Error::NotFound | api::Error::Refused(_));
        self.error.get_or_insert(error);
        concerns_one
    }
}

/// Splits a set into operations, each with whether it contains an endpoint whose migration starts now.
fn batches(set: Set, most: usize) -> impl Iterator<Item = (Vec<Endpoint>, bool)> {
    let mut rest = set.into_iter();
    std::iter::from_fn(move || {
        let mut is_migration = false;
        let mut endpoints = Vec::with_capacity(most.min(rest.len()));
        for entry in rest.by_ref().take(most) {
            is_migration |= entry.mark == Mark::PutBack;
            endpoints.push(entry.endpoint);
        }
        (!endpoints.is_empty()).then_some((endpoints, is_migration))
    })
}
