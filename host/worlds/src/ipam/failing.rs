//! Requests in which the guest fails repeatedly: counts them, and sets them aside if the failure policy says so.
//!
//! The requester retries by itself, so the host never repeats a request. It refuses a request that is set aside at
//! once, so that the request no longer ends an instance that others use.

use trueup_work::lifecycle::failure::Failure;
use trueup_work::supervisor::Supervisor;

use super::datastore::Datastore;
use super::protocol::{Command, named};

/// The maximum number of requests that are set aside; the newest stay. A retried pod has a new name each time, and
/// the client may never report that it gave up on the old one.
const SET_ASIDE_MAX: usize = 1_000;

/// The failing requests of one instance.
pub(super) struct Failing(pub(super) Supervisor);

impl Failing {
    /// Why a request is refused without calling the guest. `None` if the guest is to be called.
    pub(super) fn set_aside(&self, command: &Command, datastore: &Datastore) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let request = name_of(command, datastore.slot.key())?;
        let held = self.0.held(&datastore.slot.instances(), &request, &request)?;
        Some(format!(
            "the guest failed in this {} times in a row, and is not asked again until another version is active: {}",
            held.failures, held.error
        ))
    }

    /// The guest answered a request, whatever the answer.
    pub(super) fn answered(&mut self, command: &Command, datastore: &Datastore) {
        if self.0.is_empty() {
            return;
        }
        // There are no further requests about a pod that has ended.
        let ended = match command {
            Command::Del(key) => vec![Command::Add(key.clone()), Command::Check(key.clone())],
            _ => Vec::new(),
        };
        for request in std::iter::once(command).chain(&ended) {
            if let Some(request) = name_of(request, datastore.slot.key()) {
                self.0.succeeded(&request);
                self.0.release(&request);
            }
        }
    }

    /// The guest gave no answer. If the guest is to blame, may set the request aside and request another version.
    pub(super) fn failed(&mut self, command: &Command, failure: &Failure, datastore: &Datastore) {
        let Some(request) = name_of(command, datastore.slot.key()) else {
            return;
        };
        let Some(too_much) = self.0.failed(&request, failure) else {
            return;
        };
        tracing::warn!(
            "{request}: set aside after {} failures in a row: {}",
            too_much.failures,
            too_much.error
        );
        self.0.set_aside(
            &datastore.slot.instances(),
            datastore.slot.key(),
            &request,
            &request,
            too_much,
        );
        self.0.keep_newest(SET_ASIDE_MAX);
    }

    /// Another version is active: everything is tried again.
    pub(super) fn forget(&mut self) {
        self.0.began_version();
    }
}

/// The request in words. `None` if it is not about a pod.
fn name_of(command: &Command, instance: &str) -> Option<String> {
    let verb = match command {
        Command::Add(_) => "ADD",
        Command::Del(_) => "DEL",
        Command::Check(_) => "CHECK",
        Command::Gc(_) | Command::Status | Command::Show => return None,
    };
    Some(format!("{instance} {verb} {}", named(command.key()?)))
}
