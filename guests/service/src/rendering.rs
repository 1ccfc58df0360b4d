//! What the renderers have acknowledged, and the calls for the rest.
//!
//! A refused call stops no other: its part stays pending, and every later event retries it as long as there is a
//! difference.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::address::Address;

use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::id::Id;
use crate::inputs::Inputs;
use crate::interfaces::Interfaces;
use crate::view::View;
use crate::world::{Rendered, World};

/// When to send the interfaces of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Before services, so that a new client finds them.
    FrontendsFirst,
    /// After everything else: the pod is gone.
    FrontendsLast,
}

/// The acknowledged state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rendering {
    /// If false, nothing is acknowledged, and the next event hands over everything.
    is_in_step: bool,
    services: BTreeMap<Id, ContivService>,
    /// Those of `services` with a node port.
    with_node_ports: BTreeSet<Id>,
    node_ips: BTreeSet<Address>,
    /// True if the node IPs of the inputs differ.
    node_ips_differ: bool,
    /// Services that may differ from the inputs because a call was refused.
    pending: BTreeSet<Id>,
}

/// The renderers' answers to one event.
struct Answers<'w, W> {
    world: &'w mut W,
    /// The result of the first refused call.
    result: Rendered,
}

impl<W: World> Answers<'_, W> {
    /// Makes a call; true if it was taken.
    fn ask(&mut self, call: &str, service: Option<&Id>, ask: impl FnOnce(&mut W) -> Rendered) -> bool {
        let Err(error) = ask(self.world) else {
            return true;
        };
        let mut fields = vec![("call", call)];
        if let Some(id) = service {
            fields.push(("namespace", &id.object().namespace));
            fields.push(("name", &id.object().name));
        }
        fields.push(("error", &error));
        self.world
            .warn("a renderer refused; the next event tries again", &fields);
        if self.result.is_ok() {
            self.result = Err(error);
        }
        false
    }
}

impl Rendering {
    /// The services that the renderers have, for a snapshot; `None` if unknown.
    pub(crate) fn services(&self) -> Option<impl Iterator<Item = &ContivService>> {
        self.is_in_step.then_some(self.services.values())
    }

    /// The node IPs that the renderers have.
    pub(crate) fn node_ips(&self) -> &BTreeSet<Address> {
        &self.node_ips
    }

    /// The renderers' state from a snapshot: the next event handles any difference.
    pub(crate) fn restored(
        inputs: &Inputs,
        view: &mut View,
        node_ips: BTreeSet<Address>,
        services: Vec<ContivService>,
    ) -> Self {
        let mut rendering = Self {
            is_in_step: true,
            node_ips,
            ..Self::default()
        };
        for service in services {
            rendering.acknowledge(&Id::from(service.id.clone()), Some(service));
        }
        let ids: BTreeSet<Id> = inputs
            .services
            .keys()
            .chain(rendering.services.keys())
            .cloned()
            .collect();
        for id in ids {
            if view.combine(inputs, &id).as_ref() != rendering.services.get(&id) {
                rendering.pending.insert(id);
            }
        }
        rendering.compare_node_ips(inputs);
        rendering
    }

    /// Nothing is acknowledged, according to a snapshot: the next event hands over everything.
    pub(crate) fn refused(inputs: &Inputs, view: &mut View) -> Self {
        for id in inputs.services.keys() {
            view.combine(inputs, id);
        }
        Self::default()
    }

    /// Hands everything over.
    ///
    /// # Errors
    /// A renderer's error; then the next event does the same.
    pub(crate) fn resync(&mut self, world: &mut impl World, inputs: &Inputs, view: &mut View) -> Rendered {
        let ids: BTreeSet<Id> = inputs.services.keys().chain(view.services()).cloned().collect();
        let services = ids
            .into_iter()
            .filter_map(|id| view.combine(inputs, &id).map(|service| (id, service)));
        let (ids, services): (Vec<Id>, Vec<ContivService>) = services.unzip();
        let event = ResyncEvent {
            node_ips: texts(&inputs.node_ips),
            services,
            frontend_ifs: view.frontends.wanted(),
            backend_ifs: view.backends.wanted(),
        };
        let mut answers = Answers { world, result: Ok(()) };
        *self = Self::default();
        if answers.ask("resync", None, |world| world.resync(&event)) {
            self.is_in_step = true;
            self.node_ips = inputs.node_ips.clone();
            view.frontends.acknowledge();
            view.backends.acknowledge();
            for (id, service) in ids.iter().zip(event.services) {
                self.acknowledge(id, Some(service));
            }
        }
        answers.result
    }

    /// Sends the changes of services that may have changed, and of what was refused before.
    ///
    /// # Errors
    /// The error of the first refused call.
    pub(crate) fn follow(
        &mut self,
        world: &mut impl World,
        inputs: &Inputs,
        view: &mut View,
        touched: BTreeSet<Id>,
        order: Order,
    ) -> Rendered {
        if !self.is_in_step {
            return self.resync(world, inputs, view);
        }
        let mut answers = Answers { world, result: Ok(()) };
        if order == Order::FrontendsFirst {
            send_frontends(&mut answers, view);
        }
        self.send_services(&mut answers, inputs, view, touched);
        self.send_node_ips(&mut answers, inputs);
        send_backends(&mut answers, view);
        if order == Order::FrontendsLast {
            send_frontends(&mut answers, view);
        }
        answers.result
    }

    fn send_services<W: World>(
        &mut self,
        answers: &mut Answers<'_, W>,
        inputs: &Inputs,
        view: &mut View,
        mut ids: BTreeSet<Id>,
    ) {
        ids.append(&mut self.pending);
        for id in ids {
            let new = view.combine(inputs, &id);
            let old = self.services.get(&id);
            let is_taken = match (old, &new) {
                (None, None) => true,
                (Some(old), Some(new)) if old == new => true,
                (None, Some(new)) => answers.ask("add-service", Some(&id), |world| world.add_service(new)),
                (Some(old), Some(new)) => {
                    answers.ask("update-service", Some(&id), |world| world.update_service(old, new))
                }
                (Some(old), None) => answers.ask("delete-service", Some(&id), |world| world.delete_service(old)),
            };
            if is_taken {
                self.acknowledge(&id, new);
            } else {
                self.pending.insert(id);
            }
        }
    }

    fn acknowledge(&mut self, id: &Id, service: Option<ContivService>) {
        let has_node_port = |service: &ContivService| service.ports.iter().any(|port| port.node_port != 0);
        if service.as_ref().is_some_and(has_node_port) {
            self.with_node_ports.insert(id.clone());
        } else {
            self.with_node_ports.remove(id);
        }
        match service {
            Some(service) => self.services.insert(id.clone(), service),
            None => self.services.remove(id),
        };
    }

    /// The node IPs of the inputs may have changed.
    pub(crate) fn compare_node_ips(&mut self, inputs: &Inputs) {
        self.node_ips_differ = self.node_ips != inputs.node_ips;
    }

    fn send_node_ips<W: World>(&mut self, answers: &mut Answers<'_, W>, inputs: &Inputs) {
        if !self.node_ips_differ {
            return;
        }
        let services = self.with_node_ports.iter().filter_map(|id| self.services.get(id));
        let services: Vec<ContivService> = services.cloned().collect();
        let ips = texts(&inputs.node_ips);
        let call = "update-node-port-services";
        if answers.ask(call, None, |world| world.update_node_port_services(&ips, &services)) {
            self.node_ips = inputs.node_ips.clone();
            self.node_ips_differ = false;
        }
    }
}

fn send_frontends<W: World>(answers: &mut Answers<'_, W>, view: &mut View) {
    let call = "update-local-frontend-ifs";
    send_interfaces(answers, call, &mut view.frontends, W::update_local_frontend_ifs);
}

fn send_backends<W: World>(answers: &mut Answers<'_, W>, view: &mut View) {
    let call = "update-local-backend-ifs";
    send_interfaces(answers, call, &mut view.backends, W::update_local_backend_ifs);
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
