//! How a call without a result ended, with the names of the guest, the export and the guest's own functions.

use std::fmt::Display;

use trueup_base::text;
use trueup_capabilities::Stop;
use trueup_journal::{Ending, TapeError};
use wasmtime::WasmBacktrace;

use crate::Data;

/// Why a call gave no result. The instance is unusable; the host continues.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The guest trapped, or exceeded a limit of its requests.
    #[error("{0}")]
    Trap(String),
    /// The guest used up its CPU time, or the time of a whole call.
    #[error("{0}")]
    Deadline(String),
    /// The guest needed more memory than allowed.
    #[error("{0}")]
    Memory(String),
    /// The tape could not record, or the replay ended here.
    #[error(transparent)]
    Tape(#[from] TapeError),
}

impl CallError {
    /// Its form in a journal; `None` if the tape itself is the reason.
    pub fn ending(&self) -> Option<Ending> {
        match self {
            Self::Trap(text) => Some(Ending::Trap(text.clone())),
            Self::Deadline(text) => Some(Ending::Deadline(text.clone())),
            Self::Memory(text) => Some(Ending::Memory(text.clone())),
            Self::Tape(_) => None,
        }
    }

    /// Converts a wasmtime error: why the call ended, and where in the guest. Function names come from the guest and
    /// may have any length.
    pub(crate) fn of(data: &Data, error: wasmtime::Error, export: &str) -> Self {
        let identity = &data.host.identity;
        let guest = format!("guest `{}@{}` in `{export}`", identity.guest, identity.version);
        let backtrace = error.downcast_ref::<WasmBacktrace>().map(frames).unwrap_or_default();
        let text = |cause: &dyn Display| text::cut(format!("{guest}: {cause}{backtrace}"), TEXT_BYTES_MAX);
        let error = match error.downcast::<Stop>() {
            Ok(Stop::Tape(TapeError::Refused(refusal))) => return Self::Trap(text(&refusal)),
            Ok(Stop::Tape(tape)) => return Self::Tape(tape),
            Ok(stop @ Stop::TooLong { .. }) => return Self::Deadline(text(&stop)),
            Ok(stop) => return Self::Trap(text(&stop)),
            Err(error) => error,
        };
        if let Some(exceeded) = error.downcast_ref::<DeadlineExceeded>() {
            return Self::Deadline(text(exceeded));
        }
        if let Some((wanted, limit)) = data.limiter.refused_bytes {
            return Self::Memory(text(&format_args!(
                "wanted {wanted} bytes of memory, above the limit `memory_bytes` of {limit}"
            )));
        }
        if let Some(full) = error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>() {
            return Self::Trap(text(&format_args!(
                "no room for one more instance in this host: {full}; let fewer run at once, or spread them over hosts"
            )));
        }
        Self::Trap(match error.downcast_ref::<wasmtime::Trap>() {
            // A replay finds the same words in the same log.
            Some(wasmtime::Trap::UnreachableCodeReached) => {
                let last_words = data.host.last_words.as_deref();
                let why = last_words.unwrap_or("`unreachable` (a panic, or an abort)");
                text(&format_args!("trapped: {why}"))
            }
            Some(trap) => text(&format_args!("trapped: {trap}")),
            None => text(&format_args!("failed: {}", error.root_cause())),
        })
    }
}

/// The CPU deadline of a call has passed.
#[derive(Debug, thiserror::Error)]
#[error("computed for more than {limit_ms} ms by the wall clock, its limit `cpu_ms`")]
pub(crate) struct DeadlineExceeded {
    pub(crate) limit_ms: u128,
}

/// The maximum length in bytes; longer texts are cut. The frames of a program in C++ or Rust with its longest names
/// have a few thousand.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// The maximum number of frames in a text: enough to show the place, and that it recursed.
const FRAMES_MAX: usize = 16;

/// Prefixes of Rust's own runtime functions: they show that the guest panicked, not where.
const RUNTIME: [&str; 6] = ["std::", "core::", "alloc::", "__rustc::", "rust_", "__rust_"];

/// The guest's functions, innermost first, on the same line: ` (at f <- g <- h)`. Omits those of Rust's runtime, unless
/// there are no others.
fn frames(backtrace: &WasmBacktrace) -> String {
    let names = backtrace.frames().iter().filter_map(|frame| frame.func_name());
    let names = names.map(|name| format!("{:#}", rustc_demangle::demangle(name)));
    let mut names: Vec<String> = names.collect();
    let is_guest = |name: &String| !RUNTIME.iter().any(|runtime| name.starts_with(runtime));
    if names.iter().any(is_guest) {
        names.retain(is_guest);
    }
    if names.is_empty() {
        return String::new();
    }
    let more = names.len().saturating_sub(FRAMES_MAX);
    names.truncate(FRAMES_MAX);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    format!(" (at {})", names.join(" <- "))
}
