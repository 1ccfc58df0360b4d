//! Replays a recording: the guest gets the recorded answers, and its behaviour is compared.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use trueup_base::clock::VirtualClock;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::{Log, NoLog};
use trueup_capabilities::meter::Limits;
use trueup_capabilities::pace::Pace;
use trueup_capabilities::timers::Timers;
use trueup_capabilities::{Backends, Host, questions};
use trueup_engine::{CallError, Engine};
use trueup_journal::{Accepted, Divergence, Outcome, ReadError, Segment, Tally, Tape};

use crate::dispatch::InvokeError;
use crate::instance::{Instance, REPLAY_GUARD, Start, StartError};
use crate::program::Program;

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Its header does not permit to start a guest, or one of its answers is none of its question.
    #[error(transparent)]
    Damaged(#[from] ReadError),
    /// The guest did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// This guest does not support a call in the recording.
    #[error("entry {n}: {error}")]
    Call {
        /// The entry.
        n: u64,
        /// What is wrong with it.
        error: String,
    },
}

impl ReplayError {
    /// Why there was no room for an instance: the engine's pool of instances is full, or the machine is out of memory.
    /// If the guest could be instantiated before, this is not the guest's fault. `None`: it failed for another reason.
    pub fn no_room(&self) -> Option<&str> {
        match self {
            Self::Start(StartError::Call(CallError::Trap(text))) if text.contains(" in `instantiate`: ") => Some(text),
            _ => None,
        }
    }
}

/// The comparison, the accepted differences, and the time limit of a replay.
#[derive(Clone, Default)]
pub struct Options {
    /// The comparison.
    pub compare: Compare,
    /// Accepted differences.
    pub accepted: Arc<Accepted>,
    /// The CPU time of one call.
    pub cpu: Cpu,
    /// Decides when a long computation continues. `None`: at once.
    pub pace: Option<Arc<dyn Pace>>,
    /// Where the guest's log lines go: nowhere without one.
    pub log: Option<Arc<dyn Log>>,
}

/// What a replay compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compare {
    /// Every question in its order, and every result.
    #[default]
    Everything,
    /// Results, and the order of writes to each object. Different reads are counted; an unrecorded read makes a call
    /// undecided; clock, randomness and timers do not count.
    Decisions,
}

/// The CPU time of one call in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cpu {
    /// Only [`REPLAY_GUARD`]: time is no decision.
    #[default]
    Guarded,
    /// The recorded limit, `cpu_ms` in the header, for a caller that waits for the outcome.
    AsRecorded,
    /// This much for `init`, `restore` and `snapshot`, and `REPEATED_TIMES` as much for a call: a running host
    /// rebuilds a state within a limit.
    Rebuild(Duration),
}

/// How many times its limit a repeated call may take: the speed of a machine varies.
const REPEATED_TIMES: u32 = 3;

/// Why replayed calls yield no state.
#[derive(Debug, thiserror::Error)]
pub enum NoState {
    /// This guest cannot repeat them. One line.
    #[error("{0}")]
    Calls(String),
    /// They were repeated, but the guest returned no snapshot.
    #[error(transparent)]
    Snapshot(CallError),
}

/// Replays one segment with `program` and compares it.
///
/// # Errors
/// If the guest cannot be started or called according to the recording.
pub async fn replay(
    engine: &Engine,
    program: &Arc<Program>,
    segment: Segment,
    options: Options,
) -> Result<Outcome, ReplayError> {
    let (file, first) = (segment.name.clone(), segment.first);
    let outcome = match run(engine, program, segment, options).await? {
        Ok(instance) => outcome(instance.host()),
        Err(outcome) => outcome,
    };
    match outcome {
        // The host can't give such an answer to any guest: the guest is not the one that differs.
        Outcome::Diverged {
            n,
            divergence: Divergence::Answer { ask, reason },
        } => Err(ReplayError::Damaged(ReadError::Damaged {
            file,
            line: n.saturating_sub(first) + 1,
            reason: format!(
                "the answer to `{ask}` can't be read: {reason}; move the file away once the host has begun a newer one"
            ),
        })),
        outcome => Ok(outcome),
    }
}

/// The state of a guest after the calls of `segment`, as a snapshot. `cpu_max`: the CPU time of `init`, `restore` and
/// `snapshot`, each.
///
/// # Errors
/// Why there is none.
pub async fn state_after(
    engine: &Engine,
    program: &Arc<Program>,
    segment: Segment,
    cpu_max: Duration,
    pace: Option<Arc<dyn Pace>>,
) -> Result<String, NoState> {
    let options = Options {
        cpu: Cpu::Rebuild(cpu_max),
        pace,
        ..Options::default()
    };
    let mut instance = match run(engine, program, segment, options).await {
        Ok(Ok(instance)) => instance,
        Ok(Err(outcome)) => return Err(NoState::Calls(in_words(&outcome))),
        Err(error) => return Err(NoState::Calls(error.to_string())),
    };
    let outcome = instance.host().tape.replay_outcome();
    if let Some(outcome) = outcome.filter(|outcome| !outcome.is_identical()) {
        return Err(NoState::Calls(in_words(&outcome)));
    }
    instance.set_cpu_max(cpu_max);
    instance.snapshot().await.map_err(NoState::Snapshot)
}

fn in_words(outcome: &Outcome) -> String {
    outcome.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The instance after all calls, or the outcome if the instance ended before.
async fn run(
    engine: &Engine,
    program: &Arc<Program>,
    segment: Segment,
    options: Options,
) -> Result<Result<Instance, Outcome>, ReplayError> {
    let mut begun = begin(engine, program, segment, options).await?;
    if let Ok(instance) = &mut begun
        && let Some(outcome) = go_on(instance).await?
    {
        return Ok(Err(outcome));
    }
    Ok(begun)
}

/// An instance started according to `segment`, before its calls. Or the outcome, if it asked something that was not
/// recorded.
///
/// # Errors
/// If the guest cannot be started according to the recording.
pub async fn begin(
    engine: &Engine,
    program: &Arc<Program>,
    segment: Segment,
    options: Options,
) -> Result<Result<Instance, Outcome>, ReplayError> {
    let header = segment.header.clone();
    let damaged = |what: &str, error: serde_json::Error| ReadError::Damaged {
        file: segment.name.clone(),
        line: 1,
        reason: format!("{what}: {error}"),
    };
    let settings: Value = serde_json::from_str(header.settings.get()).map_err(|error| damaged("settings", error))?;
    let limits: Limits = serde_json::from_str(header.limits.get()).map_err(|error| damaged("limits", error))?;
    let identity = program.identity("replay");
    let begun_ms = segment.entries.iter().find_map(|entry| Some(entry.call()?.at_ms));
    // The answers that are not on the tape: the time of the recording, and fixed random numbers.
    let backends = Backends {
        clock: Arc::new(VirtualClock::new(begun_ms.unwrap_or_default())),
        log: options.log.unwrap_or_else(|| Arc::new(NoLog)),
        pace: options.pace,
        ..Backends::default()
    };
    let tape = match options.compare {
        Compare::Everything => Tape::replay_accepting(segment, &identity.digest, options.accepted),
        Compare::Decisions => Tape::compare_decisions(segment, &identity.digest, options.accepted, questions::question),
    };
    // Only the tape answers, so no grants are needed.
    let mut host = Host::new(identity, tape, Grants::default(), backends, limits);
    host.timers = Timers::after(TIMERS_OF_ITS_OWN);
    let start = Start {
        settings: &settings,
        snapshot: header.snapshot.as_deref(),
        cpu_max: match options.cpu {
            Cpu::Guarded => REPLAY_GUARD,
            Cpu::AsRecorded => Duration::from_millis(limits.cpu_ms),
            Cpu::Rebuild(cpu_max) => cpu_max,
        },
    };
    match Instance::start(engine, program, host, start).await {
        Ok(mut instance) => {
            if let Cpu::Rebuild(cpu_max) = options.cpu {
                instance.set_cpu_max(cpu_max.saturating_mul(REPEATED_TIMES));
            }
            Ok(Ok(instance))
        }
        Err((host, StartError::Call(CallError::Tape(_)))) => Ok(Err(outcome(&host))),
        Err((_, error)) => Err(error.into()),
    }
}

/// The first id of timers that are not in the recording: no recording has so many.
const TIMERS_OF_ITS_OWN: u64 = 1 << 32;

/// Makes the remaining calls of the recording. `None`: all are made, and the instance is usable. Otherwise the outcome,
/// and the instance is gone.
///
/// # Errors
/// If this guest does not support a call in the recording.
pub async fn go_on(instance: &mut Instance) -> Result<Option<Outcome>, ReplayError> {
    while let Some((n, call)) = instance.host_mut().tape.next_call() {
        match instance.call_at(call.at_ms, &call.name, &call.args).await {
            Ok(_) => {}
            Err(InvokeError::Misuse(error)) => return Err(ReplayError::Call { n, error }),
            Err(InvokeError::Call(_)) => return Ok(Some(outcome(instance.host()))),
        }
    }
    Ok(None)
}

/// The outcome so far.
pub fn outcome(host: &Host) -> Outcome {
    // A tape in a replay always has an outcome.
    let outcome = host.tape.replay_outcome();
    outcome.unwrap_or(Outcome::Identical(Tally::default()))
}
