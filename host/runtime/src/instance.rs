//! One guest instance and its tape: every call is recorded, or replayed, on its way in and out.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use trueup_capabilities::Host;
use trueup_engine::{CallError, Engine};
use trueup_journal::Ending;

use crate::guests::dispatch::{Answer, InvokeError};
use crate::guests::{Program, Running};

/// A replay has no CPU deadline, since that is no decision; this ends one that never would, in wall-clock time. A call
/// whose recording was ended by its deadline does not wait for this: it is over where its recording is.
pub const REPLAY_GUARD: Duration = Duration::from_secs(120);

/// An instance that was given its settings, and its state where it had one.
pub struct Instance {
    running: Running,
    program: Arc<Program>,
    settings: Value,
}

/// Why an instance did not start; the host goes on to the next try.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// `lifecycle.init` refused the settings.
    #[error("guest `{guest}` refuses its settings: {error}")]
    Settings {
        /// Name and version.
        guest: String,
        /// What the guest said.
        error: String,
    },
    /// `lifecycle.restore` refused the snapshot.
    #[error("guest `{guest}` refuses the snapshot: {error}")]
    Snapshot {
        /// Name and version.
        guest: String,
        /// What the guest said.
        error: String,
    },
    /// It gave no answer at all.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// What every instance is started with.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The JSON object for `lifecycle.init`.
    pub settings: &'a Value,
    /// What `lifecycle.restore` gets; none: it is not called.
    pub snapshot: Option<&'a str>,
    /// CPU time of one call: the limit, or [`REPLAY_GUARD`] in a replay.
    pub cpu_max: Duration,
}

impl Instance {
    /// Instantiates, gives it its settings, then its state.
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
        let running = program
            .instantiate(engine, host, start.cpu_max)
            .await
            .map_err(|(host, error)| (host, error.into()))?;
        let mut instance = Self {
            running,
            program: Arc::clone(program),
            settings: start.settings.clone(),
        };
        match instance.give(start).await {
            Ok(()) => Ok(instance),
            Err(error) => Err((Box::new(instance.into_host()), error)),
        }
    }

    async fn give(&mut self, start: Start<'_>) -> Result<(), StartError> {
        #[derive(Serialize)]
        struct Init {
            config: String,
        }
        #[derive(Serialize)]
        struct Restore<'a> {
            snapshot: &'a str,
        }
        let guest = format!("{}@{}", self.program.guest.name, self.program.guest.version);
        self.lifecycle(
            "lifecycle.init",
            &Init {
                config: start.settings.to_string(),
            },
        )
        .await?
        .map_err(|error| StartError::Settings {
            guest: guest.clone(),
            error: said(&error),
        })?;
        if let Some(snapshot) = start.snapshot {
            self.lifecycle("lifecycle.restore", &Restore { snapshot })
                .await?
                .map_err(|error| StartError::Snapshot {
                    guest,
                    error: said(&error),
                })?;
        }
        Ok(())
    }

    async fn lifecycle(&mut self, call: &str, args: &impl Serialize) -> Result<Result<(), String>, CallError> {
        let args = to_raw_value(args).map_err(|error| CallError::Trap(format!("arguments of `{call}`: {error}")))?;
        self.running.host_mut().begin_unrecorded_call();
        let answer = unrecorded(self.running.dispatch(call, &args).await)?;
        serde_json::from_str(answer.get()).map_err(|error| CallError::Trap(format!("the answer of `{call}`: {error}")))
    }

    /// Calls from here on may compute for so long.
    pub(crate) fn set_cpu_max(&mut self, cpu_max: Duration) {
        self.running.set_cpu_max(cpu_max);
    }

    /// The guest that this is an instance of.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What it was given in `lifecycle.init`.
    pub fn settings(&self) -> &Value {
        &self.settings
    }

    /// Calls an export, on the tape: `interface.function`, and its arguments as an object by parameter name.
    ///
    /// # Errors
    /// Why there is no result. After anything but a misuse the instance is gone.
    pub async fn call(&mut self, call: &str, args: &RawValue) -> Answer {
        let at_ms = self.host().backends.clock.now_ms();
        self.call_at(at_ms, call, args).await
    }

    /// As [`Instance::call`], at a time that a recording gives.
    pub async fn call_at(&mut self, at_ms: u64, call: &str, args: &RawValue) -> Answer {
        self.running
            .host_mut()
            .begin_call(at_ms, call, args)
            .map_err(CallError::from)?;
        let answer = self.running.dispatch(call, args).await;
        self.host().report_dropped(call);
        if let (Err(InvokeError::Misuse(_)), true) = (&answer, self.host().tape.is_replay()) {
            // The recording's own fault: there is nothing to compare.
            return answer;
        }
        let ending = match &answer {
            Ok(result) => Some(Ending::Result(result.clone())),
            // No host records such a call, so the recording was edited: whoever replays it is told what is wrong with it.
            Err(InvokeError::Misuse(_)) if self.host().tape.is_replay() => None,
            Err(InvokeError::Misuse(text)) => Some(Ending::Trap(text.clone())),
            Err(InvokeError::Call(error)) => error.ending(),
        };
        if let Some(ending) = ending {
            self.running
                .host_mut()
                .tape
                .end_call(&ending)
                .map_err(CallError::from)?;
        }
        answer
    }

    /// The guest's whole state as JSON text.
    ///
    /// # Errors
    /// Why it gave none.
    pub async fn snapshot(&mut self) -> Result<String, CallError> {
        self.running.host_mut().begin_unrecorded_call();
        let nothing = to_raw_value(&serde_json::Map::new()).map_err(|error| CallError::Trap(error.to_string()))?;
        let answer = unrecorded(self.running.dispatch("lifecycle.snapshot", &nothing).await)?;
        serde_json::from_str(answer.get())
            .map_err(|error| CallError::Trap(format!("the answer of `lifecycle.snapshot`: {error}")))
    }

    /// True until a call ends without a result, or was dropped: then it is gone, but for its host.
    pub fn is_usable(&self) -> bool {
        self.running.is_usable()
    }

    /// What answers the guest.
    pub fn host(&self) -> &Host {
        self.running.host()
    }

    /// What answers the guest.
    pub fn host_mut(&mut self) -> &mut Host {
        self.running.host_mut()
    }

    /// Ends the instance and keeps what answered it.
    pub fn into_host(self) -> Host {
        self.running.into_host()
    }
}

fn unrecorded(answer: Answer) -> Result<Box<RawValue>, CallError> {
    answer.map_err(|error| match error {
        InvokeError::Misuse(text) => CallError::Trap(text),
        InvokeError::Call(error) => error,
    })
}

/// What a guest says of why it refuses: any text, or none.
fn said(error: &str) -> String {
    let line = crate::text::line(error);
    if line.is_empty() {
        "it does not say why".to_owned()
    } else {
        line
    }
}
