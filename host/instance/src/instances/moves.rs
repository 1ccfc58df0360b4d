//! What becomes of an instance that is open: it moves to another version, or goes on in a new segment; and instances
//! that are only tried.

use std::sync::Arc;
use std::time::Duration;

use trueup_base::clock::{Clock as _, SystemClock, VirtualClock};
use trueup_capabilities::Backends;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::NoLog;
use trueup_journal::Tape;

use super::{Instances, OpenError, with_causes};
use crate::instance::{Instance, StartError};

/// How long a version that takes over may sleep in `init` and `restore`. Everything that waits for the instance waits
/// as long.
const START_MAX: Duration = Duration::from_secs(30);

impl Instances {
    /// Backends for an instance that is only tried or planned: no log, a virtual clock on which sleeping takes no time,
    /// and nothing else.
    pub fn trial() -> Backends {
        Backends {
            clock: Arc::new(VirtualClock::new(SystemClock.now_ms())),
            log: Arc::new(NoLog),
            ..Backends::default()
        }
    }

    /// An instance on `backends` that is not recorded, for trials and plans. `snapshot` is its state; with `None` it
    /// has only its settings.
    ///
    /// # Errors
    /// If the guest refuses its settings or its state.
    pub async fn start_unrecorded(
        &self,
        key: &str,
        backends: Backends,
        snapshot: Option<&str>,
    ) -> Result<Instance, StartError> {
        self.start(self.host(key, Tape::memory(), backends), snapshot).await
    }

    /// Moves an instance of another version to this one, with its state, in a new segment. Checks everything that can
    /// be refused before the old instance ends. Calls `commit` between the two.
    ///
    /// # Errors
    /// Why it did not move. If the error carries the old instance, nothing changed.
    pub async fn take_over(
        &self,
        key: &str,
        mut old: Instance,
        commit: impl AsyncFnOnce() -> Result<(), String>,
    ) -> Result<Instance, (Option<Box<Instance>>, String)> {
        let snapshot = match self.begins_afresh(&old.program.guest.digest.to_string()) {
            true => self.initial.clone(),
            false => old.snapshot().await.map_err(|error| (None, with_causes(error)))?,
        };
        let may_end = async {
            let header = self.header(snapshot.clone()).map_err(with_causes)?;
            // This version must accept the state, on an instance that has no access to anything.
            let mut host = self.host(key, Tape::memory(), Self::trial());
            host.grants = Grants::default();
            let mut tried = self.start(host, Some(&snapshot)).await.map_err(with_causes)?;
            // The host must not switch to a version that it can't leave again.
            tried.snapshot().await.map_err(with_causes)?;
            drop(tried);
            commit().await.map(|()| header)
        };
        let header = match may_end.await {
            Ok(header) => header,
            Err(error) => return Err((Some(Box::new(old)), error)),
        };
        let mut host = old.into_host();
        host.identity = self.identity(key);
        host.grants = self.grants.clone();
        host.meter.limits = self.limits;
        host.tape.rotate(&header).map_err(|error| (None, with_causes(error)))?;
        match tokio::time::timeout(START_MAX, self.start(host, Some(&snapshot))).await {
            Ok(started) => started.map_err(|error| (None, with_causes(error))),
            Err(_) => Err((None, format!("it did not start within {} s", START_MAX.as_secs()))),
        }
    }

    /// Continues in a new segment and a new instance if the old segment is long enough: a segment always begins with
    /// what `init` and `restore` ask.
    ///
    /// # Errors
    /// If the guest gives no snapshot or refuses it, or the segment can't be written. The instance is then gone.
    pub async fn rotate_if_long(&self, mut instance: Instance) -> Result<Instance, OpenError> {
        if !instance.host().tape.wants_rotation() {
            return Ok(instance);
        }
        let snapshot = instance.snapshot().await.map_err(StartError::from)?;
        let header = self.header(snapshot.clone())?;
        let mut host = instance.into_host();
        host.tape.rotate(&header)?;
        Ok(self.start(host, Some(&snapshot)).await?)
    }
}
