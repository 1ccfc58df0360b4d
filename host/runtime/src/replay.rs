//! Decides a recording again: the guest is given the recorded answers, and held against what it did.

use std::sync::Arc;

use serde_json::Value;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::{Log, NoLog};
use trueup_capabilities::meter::Limits;
use trueup_capabilities::{Backends, Host, Identity};
use trueup_engine::{CallError, Engine};
use trueup_journal::{Outcome, Segment, Tape};

use crate::guests::Program;
use crate::guests::dispatch::InvokeError;
use crate::instance::{Instance, REPLAY_GUARD, Start, StartError};

/// Why a recording could not be replayed at all.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The header is not one that this host can start a guest from.
    #[error("the recording's header: {0}")]
    Header(String),
    /// The guest did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The recording holds a call that this guest can't be asked.
    #[error("entry {n}: {error}")]
    Call {
        /// The entry.
        n: u64,
        /// What is wrong with it.
        error: String,
    },
}

/// Replays one segment with `program` and says how it compares. Lines of the guest's log go to `log`.
///
/// # Errors
/// Where the guest can't be started as the recording says, or can't be called so.
pub async fn replay(
    engine: &Engine,
    program: &Arc<Program>,
    segment: Segment,
    log: Arc<dyn Log>,
) -> Result<Outcome, ReplayError> {
    match run(engine, program, segment, log).await? {
        Ok(instance) => Ok(instance
            .host()
            .tape
            .replay_outcome()
            .unwrap_or(Outcome::Identical { calls: 0, entries: 0, accepted: 0 })),
        Err(outcome) => Ok(outcome),
    }
}

/// The state of a guest after the calls of `segment`, as a snapshot.
///
/// # Errors
/// One line: why the calls can't be repeated by this guest.
pub async fn state_after(engine: &Engine, program: &Arc<Program>, segment: Segment) -> Result<String, String> {
    let mut instance = match run(engine, program, segment, Arc::new(NoLog)).await {
        Ok(Ok(instance)) => instance,
        Ok(Err(outcome)) => return Err(one_line(&outcome)),
        Err(error) => return Err(error.to_string()),
    };
    let outcome = instance.host().tape.replay_outcome();
    match outcome {
        Some(outcome) if !outcome.is_identical() => Err(one_line(&outcome)),
        _ => instance.snapshot().await.map_err(|error| error.to_string()),
    }
}

fn one_line(outcome: &Outcome) -> String {
    outcome.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The instance after all calls; or how the replay ended where the instance is gone.
async fn run(
    engine: &Engine,
    program: &Arc<Program>,
    segment: Segment,
    log: Arc<dyn Log>,
) -> Result<Result<Instance, Outcome>, ReplayError> {
    let header = segment.header.clone();
    let settings: Value = serde_json::from_str(header.settings.get())
        .map_err(|error| ReplayError::Header(format!("settings: {error}")))?;
    let limits: Limits =
        serde_json::from_str(header.limits.get()).map_err(|error| ReplayError::Header(format!("limits: {error}")))?;
    let digest = program.guest.digest.to_string();
    let identity = Identity {
        guest: program.guest.name.clone(),
        version: program.guest.version.clone(),
        digest: digest.clone(),
        instance: "replay".to_owned(),
    };
    let backends = Backends {
        log,
        ..Backends::default()
    };
    // Nothing is asked but the tape, so there is nothing to grant.
    let host = Host::new(
        identity,
        Tape::replay(segment, &digest),
        Grants::default(),
        backends,
        limits,
    );
    let start = Start {
        settings: &settings,
        snapshot: header.snapshot.as_deref(),
        cpu_max: REPLAY_GUARD,
    };
    let mut instance = match Instance::start(engine, program, host, start).await {
        Ok(instance) => instance,
        Err((host, StartError::Call(CallError::Tape(_)))) => return Ok(Err(outcome(&host))),
        Err((_, error)) => return Err(error.into()),
    };
    while let Some(call) = instance.host_mut().tape.next_call() {
        match instance.call_at(call.at_ms, &call.name, &call.args).await {
            Ok(_) => {}
            Err(InvokeError::Misuse(error)) => return Err(ReplayError::Call { n: call.n, error }),
            Err(InvokeError::Call(_)) => return Ok(Err(outcome(instance.host()))),
        }
    }
    Ok(Ok(instance))
}

fn outcome(host: &Host) -> Outcome {
    // A tape in a replay always has an outcome.
    host.tape
        .replay_outcome()
        .unwrap_or(Outcome::Identical { calls: 0, entries: 0, accepted: 0 })
}
