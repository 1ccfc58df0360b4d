//! The calls of the processor, their results, and its input that is set aside because it fails with it.

use serde_json::json;
use trueup_base::text::counted;
use trueup_controller::Outcome;
use trueup_journal::By;
use trueup_work::event::{Event, Message};
use trueup_work::lifecycle::failure::{Blame, Failure};
use trueup_work::lifecycle::quarantine::SetAside;

use super::{Serving, Work};
use crate::node::guests::nodesync::Node;
use crate::node::guests::service::{self, ObjectId, Resync, State, Update};
use crate::node::{guest_of, names, own};

impl Serving {
    /// Queues a resync at once, unless the last one failed and its pause is on.
    pub(super) fn enqueue_resync(&mut self) {
        if self.knows_nodes && self.controller.status(&Work::Service).is_none() {
            self.enqueue(Work::Service);
        }
    }

    pub(super) async fn update(&mut self, event: service::Event) {
        let is_of_nodes = matches!(event, service::Event::Nodes(_));
        let by = is_of_nodes.then(|| self.by_nodes()).flatten();
        let Some(guest) = &mut self.processor else { return };
        let object = object_of(&event);
        let answer = guest.instance.call("processor.update", &Update { event }, by).await;
        let is_applied = matches!(answer, Ok(Ok(())));
        if matches!(&answer, Err(failure) if failure.blame == Blame::Guest) {
            self.progress.suspect.clone_from(&object);
        }
        self.take_answer(answer).await;
        if let Some(object) = object.filter(|_| is_applied) {
            let (node, renderers) = (&self.node, self.in_step().await);
            let said = Message::outcome(node, "true", &format!("{object} applied by {}", names(&renderers)));
            let content = json!({ "node": node, "object": object, "renderers": renderers });
            _ = self.events.send(own("applied", content, said));
        }
    }

    /// Renderers that have everything, in the order of the configuration.
    async fn in_step(&self) -> Vec<String> {
        let mut all = self.rendering.statuses().await;
        all.retain(|renderer| renderer.is_in_step);
        all.into_iter().map(|renderer| renderer.name).collect()
    }

    /// Sends the processor a full resync, or the nodes once more, which makes it send its pending changes.
    pub(super) async fn call_processor(&mut self) {
        if self.progress.is_synced {
            self.update(service::Event::Nodes(self.nodes())).await;
        } else {
            self.resync().await;
        }
        if self.progress.set_aside.is_some() {
            // It rests until its input or the guest changes.
            self.done(Work::Service, Outcome::Success);
            self.controller.forget(&Work::Service);
            return;
        }
        let is_true = self.progress.is_synced && !self.progress.is_pending;
        self.done(Work::Service, if is_true { Outcome::Success } else { Outcome::Failure });
        self.show();
        if is_true {
            // It rests until there is a change.
            self.controller.forget(&Work::Service);
            let (node, renderers) = (&self.node, self.in_step().await);
            let services = self.rendering.services().await;
            let what = counted(services, "service", "services");
            let said = Message::outcome(node, "true", &format!("{what} rendered by {}", names(&renderers)));
            let content = json!({ "node": node, "services": services, "renderers": renderers });
            _ = self.events.send(own("rendered", content, said));
            return;
        }
        let guest = self.processor.as_ref();
        _ = self.events.send(Event::Failed {
            key: guest.map(|guest| guest.instance.name()).unwrap_or_default(),
            error: self.progress.error.clone().unwrap_or_default(),
            again_in_ms: self.again_in_ms(Work::Service),
        });
    }

    pub(super) fn nodes(&self) -> Vec<Node> {
        let nodes = self.nodes.as_ref();
        nodes.map(|nodes| nodes.borrow().nodes.clone()).unwrap_or_default()
    }

    /// The entry of the recording from which they follow.
    fn by_nodes(&self) -> Option<By> {
        self.nodes.as_ref()?.borrow().by.clone()
    }

    async fn resync(&mut self) {
        let state = self.state();
        let by = self.by_nodes();
        let Some(guest) = &mut self.processor else { return };
        let name = guest.instance.name();
        let instances = guest.instance.slot.instances();
        if let Some(entry) = guest.supervisor.held(&instances, &name, &state) {
            self.show_set_aside(entry);
            return;
        }
        guest.supervisor.quarantine.release(&name);
        self.progress.set_aside = None;
        let answer = guest.instance.call("processor.resync", &Resync { state }, by).await;
        // The processor has its inputs, whatever the renderers answered.
        self.progress.is_synced = answer.is_ok();
        if self.progress.is_synced {
            guest.supervisor.took_all();
        }
        self.take_answer(answer).await;
    }

    /// The processor's input is set aside: it stays as it is until it or the guest changes.
    fn show_set_aside(&mut self, entry: SetAside) {
        let name = &entry.instance;
        let host_status = &self.host_status;
        host_status.set_aside(guest_of(name), name, &entry.error, entry.failures);
        self.progress.error = Some(entry.error.clone());
        if self.progress.set_aside.as_ref() != Some(&entry) {
            _ = self.events.send((&entry).into());
        }
        self.progress.set_aside = Some(entry);
    }

    /// The full state.
    fn state(&self) -> State {
        let cluster = &self.cluster;
        State {
            context: self.context.clone(),
            nodes: self.nodes(),
            local_pods: cluster.local_pods(),
            remote_pods: Vec::new(),
            endpoints: cluster.endpoints(),
            services: cluster.services(),
            ip_allocations: Vec::new(),
        }
    }

    /// Takes in the result of a processor's call, and which renderers are out of step since.
    async fn take_answer(&mut self, answer: Result<Result<(), String>, Failure>) {
        let error = match answer {
            Ok(answer) => {
                if let Some(processor) = &mut self.processor {
                    processor.supervisor.succeeded(&processor.instance.name());
                }
                self.progress.suspect = None;
                self.progress.is_pending = answer.is_err();
                self.progress.is_tried_anew &= self.progress.is_pending;
                answer.err()
            }
            Err(failure) => {
                // The host rebuilds its instance without this call, and resyncs it.
                self.progress.is_synced = false;
                self.failed(&failure);
                Some(failure.error)
            }
        };
        let failed = error.is_some();
        self.progress.error = error;
        // Only here: a retry is not a call of the processor, so the processor had no chance to request again.
        self.rendering.settle().await;
        let services = self.rendering.services().await;
        self.host_status.node(|node| node.services = services);
        self.follow_renderers().await;
        if self.progress.set_aside.is_some() {
            return;
        }
        if failed {
            self.enqueue_retry(Work::Service);
        }
        // A job from the queue is shown once the queue knows its outcome.
        let status = self.controller.status(&Work::Service);
        if status.is_none_or(|status| !status.running) {
            self.show();
        }
    }

    /// The processor gave no answer. If it failed once too often, sets its input aside.
    fn failed(&mut self, failure: &Failure) {
        let state = self.state();
        let Some(guest) = &mut self.processor else { return };
        let name = guest.instance.name();
        let instances = guest.instance.slot.instances();
        let Some(mut too_much) = guest.supervisor.failed(&name, failure) else {
            return;
        };
        if let Some(object) = &self.progress.suspect {
            too_much.error.push_str(&format!("; it first failed with {object}"));
        }
        let supervisor = &mut guest.supervisor;
        let entry = supervisor.set_aside(&instances, &name, &name, &state, too_much);
        self.show_set_aside(entry);
    }
}

/// The object of an event, in messages. `None` if the event is about several.
fn object_of(event: &service::Event) -> Option<String> {
    let (kind, ObjectId { namespace, name }) = match event {
        service::Event::ServicePut(it) => ("Service", &it.id),
        service::Event::ServiceDeleted(id) => ("Service", id),
        service::Event::EndpointsPut(it) => ("endpoints", &it.id),
        service::Event::EndpointsDeleted(id) => ("endpoints", id),
        service::Event::PodAdded(it) => ("Pod", &it.id),
        service::Event::PodDeleted(id) => ("Pod", id),
        _ => return None,
    };
    Some(format!("{kind} {namespace}/{name}"))
}
