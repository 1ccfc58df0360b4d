//! What the renderers have acknowledged, and the calls for the rest.
//!
//! A refused call stops no other: its part stays pending, and every later event retries it as long as there is a
//! difference.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::address::Address;

use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::id::Id;
use crate::interfaces::Interfaces;
use crate::parse;
use crate::processor::Known;
use crate::world::{Rendered, World};

/// The acknowledged state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rendering {
    /// If false, nothing is acknowledged, and the next event hands over everything.
    pub(crate) is_in_step: bool,
    pub(crate) services: BTreeMap<Id, ContivService>,
    pub(crate) node_ips: BTreeSet<Address>,
    /// True if the node IPs of the inputs differ.
    node_ips_differ: bool,
    /// Services that may differ from the inputs because a call was refused.
    pending: BTreeSet<Id>,
}

/// The renderers' answers to one event.
struct Answers<'w, W> {
    world: &'w mut W,
    /// The error of the first refused call.
    error: Option<String>,
}

impl<W: World> Answers<'_, W> {
    /// Makes a call; true if it was taken.
    fn ask(&mut self, call: &str, service: Option<&Id>, ask: impl FnOnce(&mut W) -> Rendered) -> bool {
        let Err(error) = ask(self.world) else {
            return true;
        };
        let mut fields = vec![("call", call)];
        fields.extend(service.into_iter().flat_map(|id| parse::of(id.object())));
        fields.push(("error", &error));
        self.world
            .warn("a renderer refused; the next event tries again", &fields);
        self.error.get_or_insert(error);
        false
    }
}

impl Known {
    /// The renderers' state comes from a snapshot: the next event handles any difference to it.
    pub(crate) fn compare(&mut self) {
        let (inputs, rendering) = (&self.inputs, &mut self.rendering);
        let ids: BTreeSet<&Id> = inputs.services.keys().chain(rendering.services.keys()).collect();
        for id in ids {
            let differs = self.view.combine(inputs, id).as_ref() != rendering.services.get(id);
            rendering.pending.extend(differs.then(|| id.clone()));
        }
        self.compare_node_ips();
    }

    /// Hands everything over.
    ///
    /// # Errors
    /// A renderer's error; then the next event does the same.
    pub(crate) fn resync(&mut self, world: &mut impl World) -> Rendered {
        let inputs = &self.inputs;
        let view = &mut self.view;
        let rendering = &mut self.rendering;
        let ids: BTreeSet<Id> = inputs.services.keys().chain(view.services()).cloned().collect();
        let combined = |id| view.combine(inputs, &id).map(|service| (id, service));
        let (ids, services): (Vec<Id>, Vec<ContivService>) = ids.into_iter().filter_map(combined).unzip();
        let event = ResyncEvent {
            node_ips: texts(&inputs.node_ips),
            services,
            frontend_ifs: view.frontends.wanted(),
            backend_ifs: view.backends.wanted(),
        };
        let mut answers = Answers { world, error: None };
        *rendering = Rendering::default();
        if answers.ask("resync", None, |world| world.resync(&event)) {
            rendering.is_in_step = true;
            rendering.node_ips = inputs.node_ips.clone();
            rendering.services = ids.into_iter().zip(event.services).collect();
            view.frontends.acknowledge();
            view.backends.acknowledge();
        }
        answers.error.map_or(Ok(()), Err)
    }

    /// Sends the changes of services that may have changed, and of what was refused before. The interfaces of clients
    /// come before services, so that a new client finds them, or `frontends_last`: their pod is gone.
    ///
    /// # Errors
    /// The error of the first refused call.
    pub(crate) fn follow(&mut self, world: &mut impl World, touched: BTreeSet<Id>, frontends_last: bool) -> Rendered {
        if !self.rendering.is_in_step {
            return self.resync(world);
        }
        let mut answers = Answers { world, error: None };
        if !frontends_last {
            send_frontends(&mut answers, &mut self.view.frontends);
        }
        self.send_services(&mut answers, touched);
        self.send_node_ips(&mut answers);
        let call = "update-local-backend-ifs";
        let backends = &mut self.view.backends;
        send_interfaces(&mut answers, call, backends, World::update_local_backend_ifs);
        if frontends_last {
            send_frontends(&mut answers, &mut self.view.frontends);
        }
        answers.error.map_or(Ok(()), Err)
    }

    fn send_services(&mut self, answers: &mut Answers<'_, impl World>, mut ids: BTreeSet<Id>) {
        let rendering = &mut self.rendering;
        ids.append(&mut rendering.pending);
        for id in ids {
            let new = self.view.combine(&self.inputs, &id);
            let old = rendering.services.get(&id);
            let is_taken = match (old, &new) {
                (None, None) => true,
                (Some(old), Some(new)) if old == new => true,
                (None, Some(new)) => answers.ask("add-service", Some(&id), |world| world.add_service(new)),
                (Some(old), Some(new)) => {
                    answers.ask("update-service", Some(&id), |world| world.update_service(old, new))
                }
                (Some(old), None) => answers.ask("delete-service", Some(&id), |world| world.delete_service(old)),
            };
            match new {
                _ if !is_taken => _ = rendering.pending.insert(id),
                Some(service) => _ = rendering.services.insert(id, service),
                None => _ = rendering.services.remove(&id),
            }
        }
    }

    /// The node IPs of the inputs may have changed.
    pub(crate) fn compare_node_ips(&mut self) {
        self.rendering.node_ips_differ = self.rendering.node_ips != self.inputs.node_ips;
    }

    fn send_node_ips(&mut self, answers: &mut Answers<'_, impl World>) {
        let rendering = &mut self.rendering;
        if !rendering.node_ips_differ {
            return;
        }
        let has_node_port = |service: &&ContivService| service.ports.iter().any(|port| port.node_port != 0);
        let services: Vec<ContivService> = rendering.services.values().filter(has_node_port).cloned().collect();
        let ips = texts(&self.inputs.node_ips);
        let call = "update-node-port-services";
        if answers.ask(call, None, |world| world.update_node_port_services(&ips, &services)) {
            rendering.node_ips = self.inputs.node_ips.clone();
            rendering.node_ips_differ = false;
        }
    }
}

fn send_frontends(answers: &mut Answers<'_, impl World>, frontends: &mut Interfaces) {
    let call = "update-local-frontend-ifs";
    send_interfaces(answers, call, frontends, World::update_local_frontend_ifs);
}

fn send_interfaces<W: World>(
    answers: &mut Answers<'_, W>,
    call: &str,
    interfaces: &mut Interfaces,
    send: fn(&mut W, &[String], &[String]) -> Rendered,
) {
    if interfaces.differ() {
        let (old, new) = (interfaces.acknowledged(), interfaces.wanted());
        if answers.ask(call, None, |world| send(world, &old, &new)) {
            interfaces.acknowledge();
        }
    }
}

fn texts(ips: &BTreeSet<Address>) -> Vec<String> {
    ips.iter().map(Address::to_string).collect()
}
