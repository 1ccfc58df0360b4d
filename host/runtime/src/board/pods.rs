//! The state of pod addresses, as the events report it.

use super::shown::PodsShown;
use crate::ipam::{Event, Stats};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pods {
    read: bool,
    listening: bool,
    stats: Stats,
    problems: Vec<String>,
    /// Why the list of interfaces cannot be read. `None` if it can.
    interfaces: Option<String>,
    error: Option<String>,
    again_at_ms: Option<u64>,
    since_ms: u64,
}

impl Pods {
    pub(super) fn told(&mut self, event: &Event, now_ms: u64) {
        match event {
            Event::Read { stats, .. } => {
                self.read = true;
                self.stats = *stats;
                self.error = None;
                self.again_at_ms = None;
                self.since_ms = now_ms;
            }
            Event::Counted { stats, problems, .. } => {
                self.stats = *stats;
                self.problems.clone_from(problems);
            }
            Event::Listening { .. } => self.listening = true,
            Event::ReadingFailed { error, again_in_ms, .. } | Event::Down { error, again_in_ms, .. } => {
                self.read = false;
                self.error = Some(error.clone());
                self.again_at_ms = again_in_ms.map(|ms| now_ms.saturating_add(ms));
                self.since_ms = now_ms;
            }
            Event::Ended { error, .. } | Event::RolledBack { error, .. } => {
                self.error = Some(error.clone());
                self.since_ms = now_ms;
            }
            Event::Released { .. } | Event::Spool { .. } => {}
        }
    }

    /// Why pods get no address now.
    pub(super) fn why_not(&self) -> Option<String> {
        match &self.error {
            Some(error) if !self.read => Some(error.clone()),
            _ if !self.read => Some("the store is not read yet".to_owned()),
            _ if !self.listening => Some("the socket is not there yet".to_owned()),
            _ => None,
        }
    }

    /// Updates the state of the list of interfaces.
    pub(super) fn interfaces(&mut self, problem: Option<String>) {
        self.interfaces = problem;
    }

    pub(super) fn show(&self, instance: &str, now_ms: u64) -> PodsShown {
        PodsShown {
            instance: instance.to_owned(),
            serving: self.why_not().is_none(),
            error: self.error.clone(),
            next_try_in_ms: self.again_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms)),
            since_ms: self.since_ms,
            stats: self.stats,
            problems: self.interfaces.iter().chain(&self.problems).cloned().collect(),
        }
    }
}
