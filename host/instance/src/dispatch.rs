//! Translates a call's name and JSON arguments into a typed call, and back.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use trueup_engine::CallError;

use crate::world::Running;

/// A call's answer as JSON, or why there is none.
pub type Answer = Result<Box<RawValue>, InvokeError>;

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum InvokeError {
    /// The call was not made: the guest has no such export, or the arguments do not fit it.
    #[error("{0}")]
    Misuse(String),
    /// The call was made and gave no result.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl InvokeError {
    /// Whether the guest failed in this call. If not, the host could not record the call, and a retry may help.
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Call(CallError::Tape(_)))
    }
}

/// Parses the answer of a call. An answer of the wrong form is a fault of the guest, like a trap.
pub fn read<T: DeserializeOwned>(call: &str, answer: &RawValue) -> Result<T, InvokeError> {
    let unreadable = |error| CallError::Trap(format!("the answer of `{call}`: {error}"));
    Ok(serde_json::from_str(answer.get()).map_err(unreadable)?)
}

/// The exports of `trueup:guest/lifecycle`, which every world has.
const LIFECYCLE: [&str; 3] = ["lifecycle.init", "lifecycle.snapshot", "lifecycle.restore"];

/// The arguments of `lifecycle.init`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Init {
    /// The settings, as JSON.
    pub config: String,
}

/// The arguments of `lifecycle.restore`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    /// The state that the guest gave before.
    pub snapshot: String,
}

/// Calls without arguments.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Nothing {}

/// Parses the arguments of a call. Unknown keys at any depth are errors: the generated types would ignore a misspelt
/// key.
pub fn args<T: DeserializeOwned>(call: &str, args: &RawValue) -> Result<T, InvokeError> {
    let misuse = |what: String| InvokeError::Misuse(format!("arguments of `{call}`: {what}"));
    let mut unknown = None;
    let mut json = serde_json::Deserializer::from_str(args.get());
    let mut track = serde_path_to_error::Track::new();
    let json = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let typed = serde_ignored::deserialize(json, |key| {
        unknown.get_or_insert_with(|| key.to_string());
    });
    match (typed, unknown) {
        (Err(error), _) => {
            let text = error.to_string();
            // Its place in this JSON says nothing to the author of a scenario.
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            Err(misuse(format!("{}: {what}", track.path())))
        }
        (Ok(_), Some(key)) => Err(misuse(format!("unknown key `{key}`"))),
        (Ok(typed), None) => Ok(typed),
    }
}

/// The export does not exist.
pub fn unknown(call: &str, calls: &[&str]) -> InvokeError {
    let all: Vec<&str> = LIFECYCLE.iter().chain(calls).copied().collect();
    InvokeError::Misuse(format!("the guest has no export `{call}`; it has: {}", all.join(", ")))
}

/// Ends a typed call and returns its result as JSON. A result above the size limit ends the call: a recording would
/// have to hold it, and every segment header its snapshot.
pub fn answer<R: Serialize>(instance: &mut Running, call: &str, result: wasmtime::Result<R>) -> Answer {
    let limit = instance.host().meter.limits.answer_bytes;
    let result = result.and_then(|result| {
        let json = to_raw_value(&result)?;
        match json.get().len() as u64 {
            bytes if bytes > limit => Err(wasmtime::format_err!(
                "its answer is {bytes} bytes, above the limit `answer_bytes` of {limit}"
            )),
            _ => Ok(json),
        }
    });
    Ok(instance.leave(call, result)?)
}
