//! Keeps renderers in step: resyncs those that are out of step beside the loop, and shows the state of each.

use serde_json::json;
use tokio::task::{self, JoinError};
use trueup_controller::Outcome;
use trueup_work::event::{Message, seconds};
use trueup_work::lifecycle::active::{Active, Handover};

use super::{Serving, Work};
use crate::node::rendering::RendererStatus;
use crate::node::{guest_of, own};

impl Serving {
    /// Starts a full resync of a renderer, beside the loop.
    pub(super) fn begin_resync(&mut self, renderer: usize) {
        let rendering = self.rendering.clone();
        let resync = async move { rendering.resync_beside(renderer).await.is_ok() };
        self.progress
            .resyncing
            .insert(self.progress.retries.spawn(resync).id(), renderer);
        if let Some(at) = self.progress.shown.get(&renderer) {
            self.host_status.began(guest_of(&at.name), &at.name);
        }
    }

    /// Makes another version of a renderer active. The renderer is not in a full resync.
    pub(super) async fn hand_over_renderer(&mut self, renderer: usize, handover: Handover) {
        if !self.rendering.hand_over(renderer, handover).await {
            return;
        }
        self.follow_renderers().await;
        // The new version has no failures.
        self.controller.forget(&Work::Renderer(renderer));
        if self.progress.out_of_step.contains(&renderer) {
            self.enqueue(Work::Renderer(renderer));
        }
    }

    /// Takes in the end of a full resync: whether the renderer took everything.
    pub(super) async fn retry_ended(&mut self, retried: Result<(task::Id, bool), JoinError>) {
        let task = retried.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
        let Some(renderer) = self.progress.resyncing.remove(&task) else {
            return;
        };
        if retried.is_err() {
            self.rendering.resync_aborted(renderer).await;
        }
        let took = retried.is_ok_and(|(_, took)| took);
        let outcome = if took { Outcome::Success } else { Outcome::Failure };
        self.done(Work::Renderer(renderer), outcome);
        // Its next try is a new one, whatever it answered.
        self.progress.shown.remove(&renderer);
        self.follow_renderers().await;
        let is_out = self.progress.out_of_step.contains(&renderer);
        if !took {
            if let Some(at) = self.progress.shown.get(&renderer).filter(|at| !at.is_set_aside) {
                self.report_out_of_step(renderer, at);
            }
            if is_out {
                // The queue may have forgotten it meanwhile.
                self.enqueue_retry(Work::Renderer(renderer));
            }
            return;
        }
        // It rests until it is out of step again.
        self.controller.forget(&Work::Renderer(renderer));
        if is_out {
            // A call that it took since counted as refused.
            self.enqueue(Work::Renderer(renderer));
        }
        // Only once: a renderer that takes a full resync and then refuses one call must not get another resync in
        // each of its pauses.
        if self.progress.is_pending && !std::mem::replace(&mut self.progress.is_tried_anew, true) {
            self.enqueue(Work::Service);
        }
    }

    /// Queues a full resync of each renderer that fell out of step.
    pub(super) async fn follow_renderers(&mut self) {
        for (renderer, entry) in self.rendering.set_aside().await {
            self.controller.forget(&Work::Renderer(renderer));
            _ = self.events.send((&entry).into());
        }
        let statuses = self.rendering.statuses().await;
        for (renderer, at) in statuses.into_iter().enumerate() {
            if at.is_out_of_step {
                if self.progress.out_of_step.insert(renderer) {
                    self.enqueue_retry(Work::Renderer(renderer));
                    self.report_out_of_step(renderer, &at);
                }
            } else if self.progress.out_of_step.remove(&renderer) && !at.is_set_aside {
                self.controller.forget(&Work::Renderer(renderer));
                let said = Message::outcome(&at.name, "true", "it has everything");
                let content = json!({ "renderer": at.name });
                _ = self.events.send(own("in_step", content, said));
            }
            if self.progress.shown.get(&renderer) == Some(&at) {
                continue;
            }
            if at.is_in_step {
                self.rendering.took_all(renderer).await;
            }
            if let Some(guest) = self.rendering.active(renderer).await {
                self.show_renderer(renderer, &at, &guest);
            }
            self.progress.shown.insert(renderer, at);
        }
    }

    fn report_out_of_step(&self, renderer: usize, at: &RendererStatus) {
        let again_in_ms = self.again_in_ms(Work::Renderer(renderer));
        let said = match &at.error {
            Some(error) => {
                let when = again_in_ms.map_or_else(|| "at once".to_owned(), |ms| format!("in {}", seconds(ms)));
                Message::Warning(format!("{}: {error}; it gets everything again {when}", at.name))
            }
            // It is new.
            None => Message::outcome(&at.name, "waits", "it gets everything again"),
        };
        let content = json!({ "renderer": at.name, "error": at.error, "again_in_ms": again_in_ms });
        _ = self.events.send(own("out_of_step", content, said));
    }

    fn show_renderer(&self, renderer: usize, at: &RendererStatus, guest: &Active) {
        let work = Work::Renderer(renderer);
        let host_status = &self.host_status;
        let name = &at.name;
        let of = guest_of(&at.name);
        if at.is_set_aside {
            let error = at.error.as_deref().unwrap_or_default();
            host_status.set_aside(of, name, error, self.failures(work));
        } else if at.is_resyncing {
            host_status.began(of, name);
        } else if !at.is_in_step && at.error.is_none() {
            host_status.changed(of, name);
        } else {
            let error = at.error.as_ref().filter(|_| !at.is_in_step);
            host_status.began(of, name);
            host_status.finished(of, name, self.finished(work, guest, error));
        }
    }
}

/// Why a renderer without an error has not received the Services.
pub(super) fn not_received(is_stopped: bool, wait: Option<&str>) -> String {
    let cause = match wait {
        _ if is_stopped => ": the host was stopped before".to_owned(),
        None => String::new(),
        Some(what) => format!(": they wait for {what}"),
    };
    format!("it has not received the Services{cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_start_says_why_nothing_is_rendered() {
        let why = |is_stopped| not_received(is_stopped, Some("an approval"));
        assert_eq!(
            why(true),
            "it has not received the Services: the host was stopped before"
        );
        assert_eq!(
            why(false),
            "it has not received the Services: they wait for an approval"
        );
    }
}
