//! One guest instance and its tape: every call is recorded or replayed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use trueup_capabilities::Host;
use trueup_engine::{CallError, Engine};
use trueup_journal::Ending;

use crate::dispatch::{Answer, InvokeError, Nothing, read};
use crate::program::Program;
use crate::world::Running;

/// A replay has no CPU deadline, since the deadline is no decision. This wall-clock limit ends a replay that would run
/// forever. If a recorded call ended at its deadline, the replay ends at the same point without waiting for this limit.
pub const REPLAY_GUARD: Duration = Duration::from_secs(120);

/// An instance that has received its settings and, if it had one, its state.
pub struct Instance {
    running: Running,
    /// The guest of this instance.
    pub program: Arc<Program>,
}

/// Why an instance did not start. It returns the host for the next try.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// `lifecycle.init` refused the settings.
    #[error("guest `{guest}` refuses its settings: {error}")]
    Settings {
        /// Name and version.
        guest: String,
        /// The guest's error.
        error: String,
    },
    /// `lifecycle.restore` refused the snapshot.
    #[error("guest `{guest}` refuses the snapshot: {error}")]
    Snapshot {
        /// Name and version.
        guest: String,
        /// The guest's error.
        error: String,
    },
    /// It gave no answer.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// The parameters of a start.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The JSON object for `lifecycle.init`.
    pub settings: &'a Value,
    /// The argument of `lifecycle.restore`. `None`: it is not called.
    pub snapshot: Option<&'a str>,
    /// The CPU time of one call: the limit, or [`REPLAY_GUARD`] in a replay.
    pub cpu_max: Duration,
}

impl Instance {
    /// Creates an instance and passes it its settings, then its state.
    ///
    /// # Errors
    /// Why it did not start, with the host for another try.
    pub async fn start(
        engine: &Engine,
        program: &Arc<Program>,
        mut host: Host,
        start: Start<'_>,
    ) -> Result<Self, (Box<Host>, StartError)> {
        host.begin_unrecorded_call();
        let running = (program.linked)(engine, host, start.cpu_max).await;
        let running = running.map_err(|(host, error)| (host, error.into()))?;
        let mut instance = Self {
            running,
            program: Arc::clone(program),
        };
        match instance.give(start).await {
            Ok(()) => Ok(instance),
            Err(error) => Err((Box::new(instance.into_host()), error)),
        }
    }

    async fn give(&mut self, start: Start<'_>) -> Result<(), StartError> {
        let guest = format!("{}@{}", self.program.guest.name, self.program.guest.version);
        let settings = BTreeMap::from([("config", start.settings.to_string())]);
        let init: Result<(), String> = self.lifecycle("lifecycle.init", &settings).await?;
        init.map_err(|error| StartError::Settings {
            guest: guest.clone(),
            error: said(&error),
        })?;
        if let Some(snapshot) = start.snapshot {
            let snapshot = BTreeMap::from([("snapshot", snapshot)]);
            let restored: Result<(), String> = self.lifecycle("lifecycle.restore", &snapshot).await?;
            restored.map_err(|error| StartError::Snapshot {
                guest,
                error: said(&error),
            })?;
        }
        Ok(())
    }

    async fn lifecycle<R: DeserializeOwned>(&mut self, call: &str, args: &impl Serialize) -> Result<R, CallError> {
        let args = to_raw_value(args).map_err(|error| CallError::Trap(format!("arguments of `{call}`: {error}")))?;
        self.running.host_mut().begin_unrecorded_call();
        let answer = self.dispatch(call, &args).await.and_then(|answer| read(call, &answer));
        answer.map_err(|error| match error {
            InvokeError::Misuse(text) => CallError::Trap(text),
            InvokeError::Call(error) => error,
        })
    }

    async fn dispatch(&mut self, call: &str, args: &RawValue) -> Answer {
        let bindings = Arc::clone(self.running.bindings());
        bindings.dispatch(&mut self.running, call, args).await
    }

    /// Sets the CPU time of later calls.
    pub fn set_cpu_max(&mut self, cpu_max: Duration) {
        self.running.set_cpu_max(cpu_max);
    }

    /// Calls an export, on the tape: `interface.function`, and its arguments as an object by parameter name.
    ///
    /// # Errors
    /// Why there is no result. After any error except a misuse the instance is gone.
    pub async fn call(&mut self, call: &str, args: &RawValue) -> Answer {
        let at_ms = self.host().backends.clock.now_ms();
        self.call_at(at_ms, call, args).await
    }

    /// Like [`Instance::call`], at a time given by a recording.
    pub async fn call_at(&mut self, at_ms: u64, call: &str, args: &RawValue) -> Answer {
        let begun = self.host_mut().begin_call(at_ms, call, args);
        begun.map_err(CallError::from)?;
        let answer = self.dispatch(call, args).await;
        self.host().report_dropped(call);
        let ending = match &answer {
            Ok(result) => Some(Ending::Result(result.clone())),
            // No host records such a call, so the recording was edited: the caller of the replay gets the error.
            // The recording itself is wrong, so there is nothing to compare.
            Err(InvokeError::Misuse(_)) if self.host().tape.is_replay() => None,
            Err(InvokeError::Misuse(text)) => Some(Ending::Trap(text.clone())),
            Err(InvokeError::Call(error)) => error.ending(),
        };
        if let Some(ending) = ending {
            let ended = self.host_mut().tape.end_call(&ending);
            ended.map_err(CallError::from)?;
        }
        answer
    }

    /// The guest's whole state as JSON text.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn snapshot(&mut self) -> Result<String, CallError> {
        self.lifecycle("lifecycle.snapshot", &Nothing {}).await
    }

    /// True until a call ends without a result or is dropped. Then the instance is gone, except its host.
    pub fn is_usable(&self) -> bool {
        self.running.is_usable()
    }

    /// The host that answers the guest.
    pub fn host(&self) -> &Host {
        self.running.host()
    }

    /// The host that answers the guest.
    pub fn host_mut(&mut self) -> &mut Host {
        self.running.host_mut()
    }

    /// Ends the instance and returns its host.
    pub fn into_host(self) -> Host {
        self.running.into_host()
    }
}

/// A guest's error text, which may be empty.
fn said(error: &str) -> String {
    match trueup_base::text::line(error) {
        line if line.is_empty() => "it does not say why".to_owned(),
        line => line,
    }
}
