//! The calls of the processor, their results, and the objects that are left out because it fails with them.

use std::collections::BTreeMap;

use trueup_controller::Outcome;
use trueup_work::board::{self, Finished};
use trueup_work::lifecycle::failure::{Blame, Failure};
use trueup_work::lifecycle::quarantine::SetAside;

use super::{Serving, Work};
use crate::node::guests::nodesync::Node;
use crate::node::guests::service::{self, ObjectId, Resync, State, Update};
use crate::node::seat::Seat;
use crate::node::{Event, culprits, guest_of};

impl Serving {
    pub(super) async fn tell_event(&mut self, event: service::Event) {
        let Some(processor) = &self.parts.processor else { return };
        let what = what_of(&processor.wiring.processor, &event);
        if let Some(what) = &what
            && self.left_out.contains_key(what)
        {
            // The object changed, so it is tried again in a full resync.
            processor.supervisor.release(what);
            self.show_tried_again(what);
            self.is_synced = false;
        }
        if !self.is_synced {
            // The resync to come includes it.
            self.wish_resync();
            return;
        }
        self.update(event, what).await;
    }

    /// Queues a resync at once, unless the last one failed and its pause is on.
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

    /// Reports that the processor, and each renderer that is in step, took a change of one object.
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

    /// Sends the processor a full resync, or the nodes once more, which makes it send its pending changes.
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
            // The next call, at once, has other input.
            false if is_left_out_anew => Outcome::Interrupted,
            false => Outcome::Failure,
        };
        let now_ms = self.now_ms();
        let due_ms = self.controller.done(&Work::Service, outcome, now_ms);
        self.show();
        if outcome == Outcome::Success {
            // It rests until there is a change.
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
        // The processor has its inputs, whatever the renderers answered.
        self.is_synced = answer.is_ok();
        if self.is_synced {
            let left_out = &self.left_out;
            processor.supervisor.took_all_but(|what| left_out.contains_key(what));
        }
        self.came(answer, None).await;
    }

    /// The full state.
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

    /// Removes objects that are set aside in their current form.
    fn leave_out(&mut self, state: &mut State) {
        let Some(processor) = &self.parts.processor else { return };
        let (supervisor, seat) = (&processor.supervisor, &processor.wiring.processor);
        let mut left_out = BTreeMap::new();
        if !supervisor.is_empty() {
            let instances = seat.instances();
            let mut is_told = |what: String, event: &dyn Fn() -> service::Event| {
                if !supervisor.has(&what) {
                    return true;
                }
                let entry = supervisor.held(&instances, &what, &event());
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

    /// Shows what is left out from now on.
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

    /// Shows that an object is no longer left out.
    fn show_tried_again(&mut self, what: &str) {
        self.left_out.remove(what);
        let gone = Finished {
            outcome: board::Outcome::Gone,
            ..self.finished(Work::Service, None)
        };
        self.parts.board.finished(guest_of(what), what, gone);
    }

    /// Takes in the result of a processor's call, and which renderers are out of step since.
    async fn came(&mut self, answer: Result<Result<(), String>, Failure>, suspect: Option<(String, service::Event)>) {
        let error = match answer {
            Ok(answer) => {
                if let Some(processor) = &mut self.parts.processor {
                    let name = processor.wiring.processor.name();
                    processor.supervisor.succeeded(&name);
                }
                self.suspects.clear();
                self.is_pending = answer.is_err();
                self.is_tried_anew &= self.is_pending;
                answer.err()
            }
            Err(failure) => {
                // The host rebuilds its instance without this call, and resyncs it.
                self.is_synced = false;
                self.failed(&failure, suspect).await;
                Some(failure.error)
            }
        };
        let failed = error.is_some();
        self.error = error;
        // Only here: a retry is not a call of the processor, so the processor had no chance to request again.
        self.parts.rendering.settle().await;
        self.parts.board.renders(self.parts.rendering.services().await);
        self.follow_renderers().await;
        if failed {
            self.wish_retry(Work::Service);
        }
        // A job from the queue is shown once the queue knows its outcome.
        let runs = self
            .controller
            .status(&Work::Service)
            .is_some_and(|status| status.running);
        if !runs {
            self.show();
        }
    }

    /// The processor gave no answer. If it failed once too often, leaves out what it fails with.
    async fn failed(&mut self, failure: &Failure, suspect: Option<(String, service::Event)>) {
        let Some(processor) = &mut self.parts.processor else {
            return;
        };
        if failure.blame == Blame::Guest {
            self.suspects.extend(suspect);
        }
        let name = processor.wiring.processor.name();
        let Some(too_much) = processor.supervisor.failed(&name, failure) else {
            return;
        };
        let instances = processor.wiring.processor.instances();
        // Comes first, since the search below takes time.
        processor.supervisor.fall_back(&instances, &name, too_much.clone());
        let mut state = self.state();
        self.leave_out(&mut state);
        let culprits = culprits::find(&instances, state).await;
        let Some(processor) = &mut self.parts.processor else {
            return;
        };
        let seat = &processor.wiring.processor;
        let suspects = std::mem::take(&mut self.suspects);
        let fails_in: BTreeMap<String, service::Event> = match culprits {
            // It fails with them only after something that it got before.
            Some(culprits) if culprits.is_empty() => suspects,
            Some(culprits) => {
                let named = culprits.into_iter();
                named
                    .filter_map(|event| Some((what_of(seat, &event)?, event)))
                    .collect()
            }
            // The next call has the same input.
            None => BTreeMap::new(),
        };
        if fails_in.is_empty() {
            return;
        }
        self.is_left_out_anew = true;
        let mut left_out = self.left_out.clone();
        for (what, event) in fails_in {
            let entry = processor
                .supervisor
                .set_aside(&instances, &what, &what, &event, too_much.clone());
            left_out.insert(what, entry);
        }
        self.show_left_out(left_out);
    }
}

/// Kinds of objects that can be left out, in messages.
const SERVICE: &str = "Service";
const ENDPOINTS: &str = "endpoints";
const POD: &str = "Pod";

/// The name in messages of the object of an event. `None` if the event is about nothing that could be left out.
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
