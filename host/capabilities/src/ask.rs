//! One request of a guest: counted against the limits, and recorded or replayed by the tape.
//!
//! The grant is checked inside the request, so that a refusal is recorded like any other answer.

use std::time::{Duration, Instant};

use serde::Serialize;
use tracing::Instrument as _;
use trueup_journal::{Tape, TapeError};

use crate::guard::Guard;
use crate::meter::Meter;
use crate::size::{AnswerSize, json_bytes};
use crate::{Host, questions, trace};

/// Why the host ended a call at a request. The instance no longer exists then.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The call made more requests than allowed.
    #[error(
        "asked more than {limit} questions in one call, the last one `{name}`; a guest that needs more must split its work, or get a higher `imports_per_call`"
    )]
    TooManyQuestions {
        /// `imports_per_call`.
        limit: u32,
        /// The request that exceeded the limit.
        name: &'static str,
    },
    /// The call's arguments are larger than allowed.
    #[error(
        "asked with more than {limit} bytes of arguments in one call, the last question was `{name}`; a guest that needs more must split its work, or get a higher `question_bytes`"
    )]
    TooLargeQuestions {
        /// `question_bytes`.
        limit: u64,
        /// The request that exceeded the limit.
        name: &'static str,
    },
    /// The call took longer than allowed, including all waiting.
    #[error("took longer than {limit_ms} ms, its limit `call_ms`")]
    TooLong {
        /// `call_ms`.
        limit_ms: u64,
    },
    /// The call drew more of `wasi:random` than allowed.
    #[error("drew more than {limit} random bytes in one call; a guest that needs more stretches what it has")]
    TooMuchRandom {
        /// [`crate::wasi::RANDOM_BYTES_PER_CALL_MAX`].
        limit: u64,
    },
    /// The guest called `wasi:cli/exit`.
    #[error("exited with status {status}; a guest answers its calls, and must not exit")]
    Exited {
        /// 0 for success.
        status: u8,
    },
    /// The tape could not record, or the replay ended here.
    #[error(transparent)]
    Tape(#[from] TapeError),
}

/// The arguments of a request: an object of these variables by name, in this order.
macro_rules! args {
    ($($name:ident: $type:ty),+) => {{
        #[derive(serde::Serialize)]
        struct Args<'a> {
            $($name: &'a $type),+
        }
        Args { $($name: &$name),+ }
    }};
}
pub(crate) use args;

impl Host {
    /// Makes one request of a capability: counted, and recorded or replayed. `answer` checks it with the guard, and
    /// asks the backend. In a scenario, a fault answers instead.
    ///
    /// # Errors
    /// A [`Stop`]: the guest gets no answer, and its call ends.
    pub(crate) async fn ask<'a, R: AnswerSize + Send, Fut: Future<Output = R> + Send>(
        &'a mut self,
        name: &'static str,
        args: &(impl Serialize + Sync + ?Sized),
        answer: impl FnOnce(Guard<'a>) -> Fut + Send,
    ) -> wasmtime::Result<R> {
        let limit = self.meter.limits.answer_bytes;
        let guard = Guard {
            call: name,
            identity: &self.identity,
            grants: &self.grants,
            backends: &self.backends,
            refused: &mut self.refused,
            blast: &mut self.blast,
            removing: self.removing,
            foreseen: self.foreseen,
        };
        let question = async || {
            // The backend of a request with an answer for each element looks for faults of its elements.
            let faults = guard.backends.faults.as_ref();
            let faults = faults.filter(|_| questions::question(name).list.is_none());
            let answer = match faults.and_then(|faults| faults.whole(name, args)) {
                Some(fault) => fault,
                None => answer(guard).await,
            };
            sized(answer, name, limit)
        };
        ask_or_end(&mut self.tape, &mut self.meter, name, args, question).await
    }
}

/// [`Host::ask`] for a request without a guard, which may end the call.
pub(crate) async fn ask_or_end<R: AnswerSize + Send, Fut: Future<Output = Result<R, TapeError>> + Send>(
    tape: &mut Tape,
    meter: &mut Meter,
    name: &'static str,
    args: &(impl Serialize + Sync + ?Sized),
    question: impl FnOnce() -> Fut + Send,
) -> wasmtime::Result<R> {
    let entered = Instant::now();
    count(meter, entered, name, args)?;
    let span = trace::question(name, args);
    let asking = tape.call(name, args, question);
    let answer = asking.instrument(span.clone()).await;
    trace::answered(&span, &answer);
    meter.used.waited += entered.elapsed();
    answer.map_err(|stop| match stop {
        TapeError::Refused(_) if meter.is_over(Instant::now()) => too_long(meter).into(),
        stop => Stop::from(stop).into(),
    })
}

/// [`Host::ask`] for a request without a guard that is answered at once.
pub(crate) fn ask_now<R: AnswerSize>(
    tape: &mut Tape,
    meter: &mut Meter,
    name: &'static str,
    args: &(impl Serialize + ?Sized),
    question: impl FnOnce() -> R,
) -> wasmtime::Result<R> {
    // Answering takes no time, but recording may wait for the disk if every line is synced.
    let entered = Instant::now();
    count(meter, entered, name, args)?;
    let limit = meter.limits.answer_bytes;
    let span = trace::question(name, args);
    let answer = span.in_scope(|| tape.ask_now(name, args, || sized(question(), name, limit)));
    trace::answered(&span, &answer);
    meter.used.waited += entered.elapsed();
    answer.map_err(|stop| Stop::from(stop).into())
}

fn count<A: Serialize + ?Sized>(meter: &mut Meter, now: Instant, name: &'static str, args: &A) -> Result<(), Stop> {
    // A call that waits for an answer does not compute.
    meter.holding.end();
    if meter.is_over(now) {
        return Err(too_long(meter));
    }
    let limit = meter.limits.imports_per_call;
    meter.used.imports = meter.used.imports.saturating_add(1);
    if meter.used.imports > limit {
        return Err(Stop::TooManyQuestions { limit, name });
    }
    let limit = meter.limits.question_bytes;
    // Check before the tape: a recording never holds a request that is too large, and a replay refuses it again.
    let Some(bytes) = json_bytes(args, limit.saturating_sub(meter.used.question_bytes)) else {
        return Err(Stop::TooLargeQuestions { limit, name });
    };
    meter.used.question_bytes += bytes;
    Ok(())
}

fn too_long(meter: &Meter) -> Stop {
    Stop::TooLong {
        limit_ms: meter.limits.call_ms,
    }
}

fn sized<R: AnswerSize>(answer: R, name: &str, limit: u64) -> Result<R, TapeError> {
    let bytes = answer.bytes() as u64;
    if bytes <= limit {
        return Ok(answer);
    }
    let text = format!("the answer of `{name}` is {bytes} bytes, above the limit `answer_bytes` of {limit}");
    Err(TapeError::Refused(text))
}

/// Sleeps for the request `name`, but no longer than the call's remaining time `left`. `None` means no limit.
pub(crate) async fn sleep_within<R>(
    name: &str,
    left: Option<Duration>,
    sleeping: impl Future<Output = R>,
) -> Result<R, TapeError> {
    let Some(left) = left else {
        return Ok(sleeping.await);
    };
    let slept = tokio::time::timeout(left, sleeping).await;
    slept.map_err(|_| TapeError::Refused(format!("`{name}` would last longer than the call may")))
}

#[derive(Serialize)]
pub(crate) struct Nothing {}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
