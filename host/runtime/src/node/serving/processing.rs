//! What the processor is told, what comes of it, and what it is not told because it fails in it.

use std::collections::BTreeMap;

use trueup_controller::Outcome;

use super::{Serving, Work};
use crate::board::{self, Finished};
use crate::guests::nodesync::Node;
use crate::guests::service::{self, ObjectId, Resync, State, Update};
use crate::node::seat::{NoAnswer, Seat};
use crate::node::{Event, culprits, guest_of};
use crate::run::quarantine::SetAside;

impl Serving {
    pub(super) async fn tell_event(&mut self, event: service::Event) {
        let Some(processor) = &self.parts.processor else { return };
        let what = what_of(&processor.wiring.processor, &event);
        if let Some(what) = &what
            && self.left_out.contains_key(what)
        {
            // It changed: all of it is told again.
            processor.failing.release(what);
            self.show_tried_again(what);
            self.is_synced = false;
        }
        if !self.is_synced {
            // A resync comes, which has it.
            self.wish_resync();
            return;
        }
        self.update(event, what).await;
    }

    /// At once, unless it failed: then it waits for its pause.
    pub(super) fn wish_resync(&mut self) {
        if self.knows_nodes && self.controller.status(&Work::Service).is_none() {
            self.wish(Work::Service);
        }
    }

    pub(super) async fn update(&mut self, event: service::Event, what: Option<String>) {
        let Some(processor) = &mut self.parts.processor else {
            return;
        };
        let by = match &event {
            service::Event::Nodes(_) => self.parts.nodes.as_ref().and_then(|nodes| nodes.borrow().by.clone()),
            _ => None,
        };
        let args = Update { event };
        let answer = processor.wiring.ask(&args, by).await;
        let applied = what.clone().filter(|_| matches!(answer, Ok(Ok(()))));
        let suspect = what.map(|what| (what, args.event));
        self.came(answer, suspect).await;
        if let Some(what) = applied {
            self.tell_applied(&what).await;
        }
    }

    /// A change of one object was taken by the processor and by each renderer that is in step.
    async fn tell_applied(&self, what: &str) {
        let object = what.split_once(' ').map_or(what, |(_, object)| object);
        _ = self.parts.events.send(Event::Applied {
            node: self.parts.node.clone(),
            object: object.to_owned(),
            renderers: self.in_step().await,
        });
    }

    /// Renderers that have everything, in the order of the configuration.
    async fn in_step(&self) -> Vec<String> {
        let all = self.parts.rendering.standing().await.into_iter();
        all.filter(|renderer| renderer.is_in_step)
            .map(|renderer| renderer.name)
            .collect()
    }

    /// The processor is told everything, or once more the nodes, which has it tell what it still has to.
    pub(super) async fn tell_service(&mut self) {
        if self.is_synced {
            let nodes = self.nodes();
            self.update(service::Event::Nodes(nodes), None).await;
        } else {
            self.resync().await;
        }
        let is_left_out_anew = std::mem::take(&mut self.is_left_out_anew);
        let outcome = match self.is_synced && !self.is_pending {
            true => Outcome::Success,
            // It is told something else next, at once.
            false if is_left_out_anew => Outcome::Interrupted,
            false => Outcome::Failure,
        };
        let now_ms = self.now_ms();
        let due_ms = self.controller.done(&Work::Service, outcome, now_ms);
        self.show();
        if outcome == Outcome::Success {
            // It rests until there is something to tell.
            self.controller.forget(&Work::Service);
            let services = self.parts.rendering.services().await;
            let renderers = self.in_step().await;
            _ = self.parts.events.send(Event::Rendered {
                node: self.parts.node.clone(),
                services,
                renderers,
            });
            return;
        }
        _ = self.parts.events.send(Event::NotRendered {
            node: self.parts.node.clone(),
            error: self.error.clone().unwrap_or_default(),
            again_in_ms: due_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
        });
    }

    pub(super) fn nodes(&self) -> Vec<Node> {
        self.parts
            .nodes
            .as_ref()
            .map(|nodes| nodes.borrow().nodes.clone())
            .unwrap_or_default()
    }

    async fn resync(&mut self) {
        let mut state = self.state();
        self.leave_out(&mut state);
        let by = self.parts.nodes.as_ref().and_then(|nodes| nodes.borrow().by.clone());
        let Some(processor) = &mut self.parts.processor else {
            return;
        };
        let answer = processor.wiring.tell_all(&Resync { state }, by).await;
        // Whatever renderers answered, the processor has its inputs.
        self.is_synced = answer.is_ok();
        if self.is_synced {
            let left_out = &self.left_out;
            processor.failing.took_all_but(|what| left_out.contains_key(what));
        }
        self.came(answer, None).await;
    }

    /// Everything there is.
    fn state(&self) -> State {
        let cluster = &self.parts.cluster;
        State {
            context: self.parts.context.clone(),
            nodes: self.nodes(),
            local_pods: cluster.local_pods(),
            remote_pods: Vec::new(),
            endpoints: cluster.endpoints(),
            services: cluster.services(),
            ip_allocations: Vec::new(),
        }
    }

    /// What is set aside, as it is, is not told.
    fn leave_out(&mut self, state: &mut State) {
        let Some(processor) = &self.parts.processor else { return };
        let (failing, seat) = (&processor.failing, &processor.wiring.processor);
        let mut left_out = BTreeMap::new();
        if !failing.is_empty() {
            let instances = seat.instances();
            let mut is_told = |what: String, event: &dyn Fn() -> service::Event| {
                if !failing.has(&what) {
                    return true;
                }
                let entry = failing.holds(&instances, &what, &event());
                let is_told = entry.is_none();
                left_out.extend(entry.map(|entry| (what, entry)));
                is_told
            };
            state.services.retain(|it| {
                is_told(name_of(seat, SERVICE, &it.id), &|| {
                    service::Event::ServicePut(it.clone())
                })
            });
            state.endpoints.retain(|it| {
                is_told(name_of(seat, ENDPOINTS, &it.id), &|| {
                    service::Event::EndpointsPut(it.clone())
                })
            });
            state
                .local_pods
                .retain(|it| is_told(name_of(seat, POD, &it.id), &|| service::Event::PodAdded(it.clone())));
        }
        self.show_left_out(left_out);
    }

    /// What is left out from now on.
    pub(super) fn show_left_out(&mut self, left_out: BTreeMap<String, SetAside>) {
        for (what, entry) in &left_out {
            if self.left_out.contains_key(what) {
                continue;
            }
            self.parts
                .board
                .set_aside(guest_of(what), what, &entry.error, entry.failures);
            _ = self.parts.events.send(Event::SetAside {
                what: what.clone(),
                error: entry.error.clone(),
                failures: entry.failures,
            });
        }
        let before: Vec<String> = self.left_out.keys().cloned().collect();
        for what in before.iter().filter(|what| !left_out.contains_key(*what)) {
            self.show_tried_again(what);
        }
        self.left_out = left_out;
    }

    /// An object is not left out any more.
    fn show_tried_again(&mut self, what: &str) {
        self.left_out.remove(what);
        let gone = Finished {
            outcome: board::Outcome::Gone,
            ..self.finished(Work::Service, None)
        };
        self.parts.board.finished(guest_of(what), what, gone);
    }

    /// What a call of the processor came to, and who is out of step since.
    async fn came(&mut self, answer: Result<Result<(), String>, NoAnswer>, suspect: Option<(String, service::Event)>) {
        let error = match answer {
            Ok(answer) => {
                if let Some(processor) = &mut self.parts.processor {
                    processor.failing.took();
                }
                self.suspects.clear();
                self.is_pending = answer.is_err();
                self.is_tried_anew &= self.is_pending;
                answer.err()
            }
            Err(no_answer) => {
                // Its instance is built again without this call, and told everything.
                self.is_synced = false;
                if no_answer.is_fault {
                    self.faulted(&no_answer.error, suspect).await;
                }
                Some(no_answer.error)
            }
        };
        let failed = error.is_some();
        self.error = error;
        // Here alone: a retry is no call of the processor, which did not have its chance to ask again.
        self.parts.rendering.settle().await;
        self.parts.board.renders(self.parts.rendering.services().await);
        self.follow_renderers().await;
        if failed {
            self.wish_retry(Work::Service);
        }
        // What the queue asked for is shown when the queue knows how it ended.
        let runs = self
            .controller
            .status(&Work::Service)
            .is_some_and(|status| status.running);
        if !runs {
            self.show();
        }
    }

    /// The processor failed: what it failed in is told no more where that was once too often.
    async fn faulted(&mut self, error: &str, suspect: Option<(String, service::Event)>) {
        self.suspects.extend(suspect);
        let Some(processor) = &mut self.parts.processor else {
            return;
        };
        let Some(too_much) = processor.failing.failed(error) else {
            return;
        };
        let instances = processor.wiring.processor.instances();
        // First: looking takes its time.
        let name = processor.wiring.processor.name();
        processor.failing.wish(&instances, &name, too_much.clone());
        let mut state = self.state();
        self.leave_out(&mut state);
        let culprits = culprits::find(&instances, state).await;
        let Some(processor) = &mut self.parts.processor else {
            return;
        };
        let seat = &processor.wiring.processor;
        let suspects = std::mem::take(&mut self.suspects);
        let fails_in: BTreeMap<String, service::Event> = match culprits {
            // It fails in them after something that it was told before.
            Some(culprits) if culprits.is_empty() => suspects,
            Some(culprits) => {
                let named = culprits.into_iter();
                named
                    .filter_map(|event| Some((what_of(seat, &event)?, event)))
                    .collect()
            }
            // It is called again as it is.
            None => BTreeMap::new(),
        };
        if fails_in.is_empty() {
            return;
        }
        self.is_left_out_anew = true;
        let mut left_out = self.left_out.clone();
        for (what, event) in fails_in {
            let entry = processor.failing.set_aside(&instances, &what, &event, too_much.clone());
            left_out.insert(what, entry);
        }
        self.show_left_out(left_out);
    }
}

/// Kinds of objects that can be left out, as operators know them.
const SERVICE: &str = "Service";
const ENDPOINTS: &str = "endpoints";
const POD: &str = "Pod";

/// What an event is about, as operators know it; none: about nothing that could be left out.
fn what_of(seat: &Seat, event: &service::Event) -> Option<String> {
    let (kind, id) = match event {
        service::Event::ServicePut(it) => (SERVICE, &it.id),
        service::Event::ServiceDeleted(id) => (SERVICE, id),
        service::Event::EndpointsPut(it) => (ENDPOINTS, &it.id),
        service::Event::EndpointsDeleted(id) => (ENDPOINTS, id),
        service::Event::PodAdded(it) => (POD, &it.id),
        service::Event::PodDeleted(id) => (POD, id),
        _ => return None,
    };
    Some(name_of(seat, kind, id))
}

fn name_of(seat: &Seat, kind: &str, id: &ObjectId) -> String {
    format!("{} {kind} {}/{}", seat.name(), id.namespace, id.name)
}
