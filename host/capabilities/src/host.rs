//! The host as one guest instance sees it: every request goes through here.
//!
//! Each import calls [`ask`], which counts the request against the limits and has the tape record or replay it. The
//! grant is checked inside the request, so that a refusal is recorded like any other answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tracing::{Instrument as _, Span};
use trueup_base::clock::{Clock, SystemClock};
use trueup_journal::{By, Journal, Refusal, Tape, TapeError};

use crate::audit::Audit;
use crate::bindings::host::{clock, log, metrics, random, timers};
use crate::checkpoint;
use crate::cri;
use crate::etcd;
use crate::grants::Grants;
use crate::guard::{Guard, Refused};
use crate::lbaas;
use crate::log::{Log, TracingLog};
use crate::meter::{CHANGES_MAX, Change, Limits, Meter, Usage};
use crate::metrics::{HOST, Line, Origin, Registry};
use crate::neg;
use crate::nftables;
use crate::pace::Pace;
use crate::quota::{Blast, Quotas};
use crate::random::{Random, Seeded};
use crate::renderer;
use crate::size::{AnswerSize, json_bytes};
use crate::timers::Timers;
use crate::trace;
use crate::wasi::Slot;

/// The guest instance, as named in logs, audits and traps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The guest's name, such as `lbaas`.
    pub guest: String,
    /// The guest's version, such as `1`.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    /// The key of this instance, such as `default/web`.
    pub instance: String,
}

/// The backends that answer a guest's requests.
#[derive(Clone)]
pub struct Backends {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Receives log lines.
    pub log: Arc<dyn Log>,
    /// Receives metrics.
    pub metrics: Arc<Registry>,
    /// The Engine. Without one in the configuration, every call returns `unavailable`.
    pub lbaas: Option<Arc<dyn lbaas::Api>>,
    /// This instance's own durable storage. If `None`, every call returns `unavailable`.
    pub checkpoint: Option<Arc<dyn checkpoint::Store>>,
    /// The container runtime. If `None`, every call returns an error.
    pub sandboxes: Option<Arc<dyn cri::Runtime>>,
    /// Network endpoint groups, for this instance alone: it receives the results of the operations that it starts.
    /// Without a configured backend, every call returns `unavailable`.
    pub neg: Option<Arc<dyn neg::Api>>,
    /// etcd, or a store in its place. Without one in the configuration, every call returns `unavailable`.
    pub etcd: Option<Arc<dyn etcd::Api>>,
    /// The kernel's packet filter. If `None`, every call returns an error.
    pub nftables: Option<Arc<dyn nftables::Api>>,
    /// The renderers for the output of a service processor. If `None`, every call returns an error.
    pub renderers: Option<Arc<dyn renderer::Renderers>>,
    /// Counts the guest's requests, shared by all instances and versions of one configured guest.
    pub quotas: Arc<Quotas>,
    /// The audit log for refusals. If `None`, the host only counts and logs them.
    pub audit: Option<Arc<Audit>>,
    /// The combined resources of the instances that share this.
    pub usage: Arc<Usage>,
    /// Decides when a long computation continues. If `None`, it continues at once.
    pub pace: Option<Arc<dyn Pace>>,
}

impl Default for Backends {
    /// The machine's clock, randomness from seed 0, the process's log, and no other backend.
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            random: Arc::new(Seeded::new(0, 0)),
            log: Arc::new(TracingLog),
            metrics: Arc::default(),
            lbaas: None,
            checkpoint: None,
            sandboxes: None,
            neg: None,
            etcd: None,
            nftables: None,
            renderers: None,
            quotas: Arc::default(),
            audit: None,
            usage: Arc::default(),
            pace: None,
        }
    }
}

/// The state of one guest instance. It outlives the instance: after a trap the next instance gets it.
pub struct Host {
    /// The guest instance.
    pub identity: Identity,
    /// Records, replays, or does neither.
    pub tape: Tape,
    /// What the guest may access.
    pub grants: Grants,
    /// Answer the guest's requests.
    pub backends: Backends,
    /// The usage of the limits.
    pub meter: Meter,
    /// The wake-ups that the instance requested.
    pub timers: Timers,
    /// What was created and destroyed since the caller last took it, in order; at most [`CHANGES_MAX`].
    pub changes: Vec<Change>,
    /// The other guest's request that the next call answers; `None` if there is none. That call takes it.
    pub by: Option<By>,
    pub(crate) owners: lbaas::Owners,
    pub(crate) blast: Blast,
    pub(crate) refused: Refused,
    pub(crate) removing: bool,
    /// The last output of the running call that may explain why it ended: the text of a panic, or the last line that it
    /// printed to stderr.
    pub(crate) last_words: Option<String>,
    /// When the running call began. With a request's number, it identifies the request for good.
    pub(crate) began: neg::Began,
    /// WASI state of the running instance; `None` until first used.
    #[cfg_attr(not(feature = "wasi"), expect(dead_code, reason = "without WASI it holds nothing"))]
    pub(crate) wasi: Slot,
}

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

impl Host {
    /// A host for one instance without any requests yet.
    pub fn new(identity: Identity, tape: Tape, grants: Grants, backends: Backends, limits: Limits) -> Self {
        Self {
            identity,
            tape,
            grants,
            backends,
            meter: Meter::new(limits),
            timers: Timers::default(),
            changes: Vec::new(),
            by: None,
            owners: lbaas::Owners::default(),
            blast: Blast::default(),
            refused: Refused::default(),
            removing: false,
            last_words: None,
            began: neg::Began::default(),
            wasi: Slot::default(),
        }
    }

    /// Sets whether the desired state of the next calls is that nothing remains. If so, the call may destroy
    /// everything, and `destroy_percent` does not apply; `destroy_max` does. False by default.
    pub fn removing(&mut self, removing: bool) {
        self.removing = removing;
    }

    /// Begins a call of the guest: resets the meter, and records the call on the tape. A replay has it already.
    ///
    /// # Errors
    /// If the tape can't record the call; then the caller must not make it.
    pub fn begin_call(&mut self, at_ms: u64, name: &str, args: &RawValue) -> Result<(), TapeError> {
        self.begin_unrecorded_call();
        self.began = neg::Began::Entry(at_ms);
        self.refused.begin(self.tape.journal().map(Journal::next_n));
        let by = self.by.take();
        if self.tape.is_replay() {
            self.backends.clock.at_least_ms(at_ms);
            Ok(())
        } else {
            self.tape.begin_call_by(at_ms, name, args, by.as_ref())
        }
    }

    /// How many objects of an Engine the last call left to this instance; `None` if it did not look.
    pub fn left(&self) -> Option<u64> {
        self.blast.left()
    }

    /// Begins a call without an entry of its own (`init`, `restore`, `snapshot`).
    pub fn begin_unrecorded_call(&mut self) {
        self.meter.begin_call(!self.tape.is_replay());
        self.last_words = None;
        self.began = neg::Began::Unrecorded(self.backends.clock.now_ms());
        self.owners.clear();
        self.blast.clear();
        self.refused.begin(None);
        self.begin_wasi_call();
    }

    /// The last output of the running call, on one line, if it may explain a trap: the text of a panic, or else the
    /// last line that it printed to stderr. `None` without output.
    pub fn last_words(&self) -> Option<&str> {
        self.last_words.as_deref()
    }

    /// Stores what a call changed.
    pub(crate) fn changed(&mut self, changes: impl Iterator<Item = Change>) {
        let room = CHANGES_MAX.saturating_sub(self.changes.len());
        self.changes.extend(changes.take(room));
    }

    /// Reports once what the finished call dropped.
    pub fn report_dropped(&self, call: &str) {
        let used = &self.meter.used;
        if used.log_lines_dropped > 0 || used.metric_lines_dropped > 0 {
            tracing::warn!(
                guest = %self.identity.guest, version = %self.identity.version, instance = %self.identity.instance,
                "`{call}` wrote more than it may: {} lines of log and {} lines of metrics were dropped",
                used.log_lines_dropped, used.metric_lines_dropped,
            );
        }
    }

    /// Counts a metric of the host about this guest.
    fn count(&self, name: &str) {
        let labels = [metrics::Label {
            key: "guest".to_owned(),
            value: self.identity.guest.clone(),
        }];
        self.backends.metrics.take(HOST, name, &labels, Line::CounterAdd(1));
    }

    /// Splits the host for a capability's request: the tape and the meter, and separately the guard.
    pub(crate) fn apart(&mut self) -> (&mut Tape, &mut Meter, Guard<'_>) {
        let guard = Guard {
            identity: &self.identity,
            grants: &self.grants,
            backends: &self.backends,
            refused: &mut self.refused,
        };
        (&mut self.tape, &mut self.meter, guard)
    }
}

/// Makes one request: counted, and recorded or replayed. The future borrows the backend, not the tape.
///
/// # Errors
/// A [`Stop`]: the guest gets no answer, and its call ends.
pub(crate) async fn ask<A, R, F, Fut>(
    tape: &mut Tape,
    meter: &mut Meter,
    name: &'static str,
    args: &A,
    question: F,
) -> wasmtime::Result<R>
where
    A: Serialize + Sync + ?Sized,
    R: Serialize + DeserializeOwned + AnswerSize + Send,
    F: FnOnce() -> Fut + Send,
    Fut: Future<Output = R> + Send,
{
    let limit = meter.limits.answer_bytes;
    ask_or_end(tape, meter, name, args, async || sized(question().await, name, limit)).await
}

/// [`ask`] for a request that may end the call.
pub(crate) async fn ask_or_end<A, R, F, Fut>(
    tape: &mut Tape,
    meter: &mut Meter,
    name: &'static str,
    args: &A,
    question: F,
) -> wasmtime::Result<R>
where
    A: Serialize + Sync + ?Sized,
    R: Serialize + DeserializeOwned + AnswerSize + Send,
    F: FnOnce() -> Fut + Send,
    Fut: Future<Output = Result<R, Refusal>> + Send,
{
    let entered = Instant::now();
    count(meter, entered, name, args)?;
    let span = trace::question(name, args);
    let asking = tape.call(name, args, question);
    let answer = asking.instrument(span.clone().unwrap_or_else(Span::none)).await;
    trace::answered(span.as_ref(), &answer);
    meter.used.waited += entered.elapsed();
    answer.map_err(|stop| match stop {
        TapeError::Refused(_) if meter.is_over(Instant::now()) => too_long(meter).into(),
        stop => Stop::from(stop).into(),
    })
}

/// [`ask`] for a request that is answered at once.
pub(crate) fn ask_now<A, R, F>(
    tape: &mut Tape,
    meter: &mut Meter,
    name: &'static str,
    args: &A,
    question: F,
) -> wasmtime::Result<R>
where
    A: Serialize + ?Sized,
    R: Serialize + DeserializeOwned + AnswerSize,
    F: FnOnce() -> R,
{
    // Answering takes no time, but recording may wait for the disk if every line is synced.
    let entered = Instant::now();
    count(meter, entered, name, args)?;
    let limit = meter.limits.answer_bytes;
    let span = trace::question(name, args);
    let answer = {
        let _in_span = span.as_ref().map(Span::enter);
        tape.ask_now(name, args, || sized(question(), name, limit))
    };
    trace::answered(span.as_ref(), &answer);
    meter.used.waited += entered.elapsed();
    answer.map_err(|stop| Stop::from(stop).into())
}

/// The beginning of a panic's text in Rust.
const PANICKED: &str = "panicked at ";

fn count<A: Serialize + ?Sized>(meter: &mut Meter, now: Instant, name: &'static str, args: &A) -> Result<(), Stop> {
    // A call that waits for an answer does not compute.
    meter.holding.end();
    if meter.is_over(now) {
        return Err(too_long(meter));
    }
    if !meter.question() {
        let limit = meter.limits.imports_per_call;
        return Err(Stop::TooManyQuestions { limit, name });
    }
    // Check before the tape: a recording never holds a request that is too large, and a replay refuses it again.
    let Some(bytes) = json_bytes(args, meter.question_bytes_left()) else {
        let limit = meter.limits.question_bytes;
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

fn sized<R: AnswerSize>(answer: R, name: &str, limit: u64) -> Result<R, Refusal> {
    let bytes = answer.bytes() as u64;
    if bytes > limit {
        return Err(Refusal(format!(
            "the answer of `{name}` is {bytes} bytes, above the limit `answer_bytes` of {limit}"
        )));
    }
    Ok(answer)
}

/// Sleeps for the request `name`, but no longer than the call's remaining time `left`. `None` means no limit.
pub(crate) async fn sleep_within<R>(
    name: &str,
    left: Option<Duration>,
    sleeping: impl Future<Output = R>,
) -> Result<R, Refusal> {
    let Some(left) = left else {
        return Ok(sleeping.await);
    };
    let slept = tokio::time::timeout(left, sleeping).await;
    slept.map_err(|_| Refusal(format!("`{name}` would last longer than the call may")))
}

#[derive(Serialize)]
pub(crate) struct Nothing {}

impl log::Host for Host {
    fn emit(&mut self, level: log::Level, message: String, fields: Vec<log::Field>) -> wasmtime::Result<()> {
        self.log_line(level, &message, &fields);
        Ok(())
    }
}

impl Host {
    /// Passes one line to the log, or drops and counts it if the call has reached its limit.
    pub(crate) fn log_line(&mut self, level: log::Level, message: &str, fields: &[log::Field]) {
        let is_panic = level == log::Level::Error && message.starts_with(PANICKED);
        // Rust puts the location on a line of its own.
        let on_one_line = is_panic.then(|| message.replacen('\n', " ", 1));
        let message = on_one_line.as_deref().unwrap_or(message);
        if is_panic {
            self.last_words = Some(crate::log::line(message, fields));
        }
        if self.meter.log_line() {
            // A slow log reader must not cost the guest time.
            let entered = Instant::now();
            self.backends
                .log
                .emit(&self.identity, level, &crate::log::line(message, fields));
            self.meter.used.waited += entered.elapsed();
        } else {
            self.count("trueup_log_lines_dropped_total");
        }
    }
}

impl Host {
    /// A recorded time also applies to what the host answers after it.
    fn told_the_time(&self, now_ms: u64) {
        if self.tape.is_replay() {
            self.backends.clock.at_least_ms(now_ms);
        }
    }
}

impl clock::Host for Host {
    async fn now_ms(&mut self) -> wasmtime::Result<u64> {
        let clock = &self.backends.clock;
        let now_ms = ask_now(&mut self.tape, &mut self.meter, "clock.now-ms", &Nothing {}, || {
            clock.now_ms()
        })?;
        self.told_the_time(now_ms);
        Ok(now_ms)
    }

    async fn sleep_ms(&mut self, duration_ms: u64) -> wasmtime::Result<()> {
        #[derive(Serialize)]
        struct Args {
            duration_ms: u64,
        }
        let clock = &self.backends.clock;
        let due_ms = clock.now_ms().saturating_add(duration_ms);
        let left = self.meter.time_left();
        let name = "clock.sleep-ms";
        ask_or_end(&mut self.tape, &mut self.meter, name, &Args { duration_ms }, || {
            sleep_within(name, left, clock.sleep_ms(duration_ms))
        })
        .await?;
        self.told_the_time(due_ms);
        Ok(())
    }
}

impl timers::Host for Host {
    async fn schedule(&mut self, delay_ms: u64) -> wasmtime::Result<u64> {
        #[derive(Serialize)]
        struct Args {
            delay_ms: u64,
        }
        let (timers, clock) = (&mut self.timers, &self.backends.clock);
        ask_now(
            &mut self.tape,
            &mut self.meter,
            "timers.schedule",
            &Args { delay_ms },
            || timers.schedule(clock.steady_ms(), delay_ms),
        )
    }

    async fn cancel(&mut self, timer: u64) -> wasmtime::Result<bool> {
        #[derive(Serialize)]
        struct Args {
            timer: u64,
        }
        let timers = &mut self.timers;
        ask_now(
            &mut self.tape,
            &mut self.meter,
            "timers.cancel",
            &Args { timer },
            || timers.cancel(timer),
        )
    }
}

impl random::Host for Host {
    async fn next_u64(&mut self) -> wasmtime::Result<u64> {
        let random = &self.backends.random;
        ask_now(&mut self.tape, &mut self.meter, "random.next-u64", &Nothing {}, || {
            random.next_u64()
        })
    }
}

impl Host {
    fn metric(&mut self, name: &str, labels: &[metrics::Label], line: Line) {
        if !self.meter.metric_line() {
            self.count("trueup_metric_lines_dropped_total");
        } else if !self.backends.metrics.take_of(
            Origin {
                guest: &self.identity.guest,
                instance: &self.identity.instance,
            },
            name,
            labels,
            line,
        ) {
            self.meter.used.metric_lines_dropped += 1;
            self.count("trueup_metric_lines_dropped_total");
        }
    }
}

impl metrics::Host for Host {
    fn counter_add(&mut self, name: String, labels: Vec<metrics::Label>, delta: u64) -> wasmtime::Result<()> {
        self.metric(&name, &labels, Line::CounterAdd(delta));
        Ok(())
    }

    fn gauge_set(&mut self, name: String, labels: Vec<metrics::Label>, value: f64) -> wasmtime::Result<()> {
        self.metric(&name, &labels, Line::GaugeSet(value));
        Ok(())
    }

    fn histogram_observe(&mut self, name: String, labels: Vec<metrics::Label>, value: f64) -> wasmtime::Result<()> {
        self.metric(&name, &labels, Line::HistogramObserve(value));
        Ok(())
    }
}
