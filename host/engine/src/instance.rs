//! One instance of a guest: one store, one host, its limits.
//!
//! A caller brackets each call: [`Instance::enter`], the typed call on the parts it returns, [`Instance::leave`]. A
//! call whose future was dropped never leaves. Such an instance, like one that trapped, can't be entered again, and its
//! host is taken out for the next.

use std::sync::Arc;
use std::time::{Duration, Instant as Now};

use trueup_capabilities::meter::Usage;
use trueup_capabilities::pace::SLICE;
use trueup_capabilities::wasi::{self, HasHost};
use trueup_capabilities::{Host, Stop};
use trueup_journal::TapeError;
use wasmtime::component::Linker;
use wasmtime::{ResourceLimiter, Store, UpdateDeadline};

use crate::ending::{CallError, DeadlineExceeded};
use crate::{Engine, Guest};

/// The data of a store.
pub struct Data {
    /// Answers the guest's requests.
    pub host: Host,
    pub(crate) limiter: Limiter,
    entered: Now,
    cpu_max: Duration,
}

/// One instance; `B` are its world's bindings.
pub struct Instance<B> {
    store: Store<Data>,
    bindings: B,
    usable: bool,
}

impl<B> Instance<B> {
    /// Creates a store for an instance whose calls may take `cpu_max` each, and instantiates with `instantiate`.
    ///
    /// # Errors
    /// Why instantiation failed, with the host, for another try.
    pub async fn new(
        engine: &Engine,
        mut host: Host,
        cpu_max: Duration,
        instantiate: impl AsyncFnOnce(&mut Store<Data>) -> wasmtime::Result<B>,
    ) -> Result<Self, (Box<Host>, CallError)> {
        host.begin_instance();
        let limiter = Limiter::new(host.meter.limits.memory_bytes, Arc::clone(&host.backends.usage));
        let data = Data {
            host,
            limiter,
            entered: Now::now(),
            cpu_max,
        };
        let mut store = Store::new(&engine.wasmtime, data);
        store.limiter(|data| &mut data.limiter);
        store.epoch_deadline_callback(|mut context| {
            let data = context.data_mut();
            // A replay has no CPU deadline of its own: a call that a deadline ended is over where its recording ends.
            if data.host.tape.stop_at_end() {
                return Err(Stop::Tape(TapeError::Ended).into());
            }
            let meter = &mut data.host.meter;
            if meter.is_over(Now::now()) {
                let limit_ms = meter.limits.call_ms;
                return Err(Stop::TooLong { limit_ms }.into());
            }
            meter.used.waited += meter.holding.take_waited();
            let computed = data.entered.elapsed().saturating_sub(meter.used.waited);
            if computed >= data.cpu_max {
                let limit_ms = data.cpu_max.as_millis();
                return Err(DeadlineExceeded { limit_ms }.into());
            }
            // Yield to others: a busy guest holds no thread for longer than an epoch.
            Ok(match &data.host.backends.pace {
                Some(pace) if computed >= SLICE => {
                    let next = meter.holding.clone().wait(Arc::clone(pace), computed);
                    UpdateDeadline::YieldCustom(1, Box::pin(next))
                }
                _ => UpdateDeadline::Yield(1),
            })
        });
        store.set_epoch_deadline(1);
        let instantiated = instantiate(&mut store).await;
        store.data_mut().host.end_printing();
        match instantiated {
            Ok(bindings) => Ok(Self {
                store,
                bindings,
                usable: true,
            }),
            Err(error) => {
                let error = CallError::of(store.data(), error, "instantiate");
                Err((Box::new(store.into_data().host), error))
            }
        }
    }

    /// Returns true until a call ends without a result or is dropped. After that, it can't be entered again.
    pub fn is_usable(&self) -> bool {
        self.usable
    }

    /// Begins a call: its CPU time counts from here. Returns the parts for a typed call.
    pub fn enter(&mut self) -> (&mut Store<Data>, &B) {
        // Unusable until it leaves: a dropped future leaves the store in the middle of a call.
        self.usable = false;
        let data = self.store.data_mut();
        data.entered = Now::now();
        data.host.meter.holding.take_waited();
        data.limiter.refused_bytes = None;
        self.store.set_epoch_deadline(1);
        (&mut self.store, &self.bindings)
    }

    /// The typed exports.
    pub fn bindings(&self) -> &B {
        &self.bindings
    }

    /// Sets the maximum computing time of later calls.
    pub fn set_cpu_max(&mut self, cpu_max: Duration) {
        self.store.data_mut().cpu_max = cpu_max;
    }

    /// Ends a call.
    ///
    /// # Errors
    /// Why the call gave no result; the instance is then unusable.
    pub fn leave<R>(&mut self, export: &str, result: wasmtime::Result<R>) -> Result<R, CallError> {
        self.host_mut().end_printing();
        self.host().meter.holding.end();
        match result {
            Ok(result) => {
                self.usable = true;
                Ok(result)
            }
            Err(error) => Err(CallError::of(self.store.data(), error, export)),
        }
    }

    /// Answers the guest's requests.
    pub fn host(&self) -> &Host {
        &self.store.data().host
    }

    /// Answers the guest's requests.
    pub fn host_mut(&mut self) -> &mut Host {
        &mut self.store.data_mut().host
    }

    /// Ends the instance and returns its host.
    pub fn into_host(self) -> Host {
        let host = self.store.into_data().host;
        // A dropped call has not ended it.
        host.meter.holding.end();
        host
    }
}

impl HasHost for Data {
    fn host(&mut self) -> &mut Host {
        &mut self.host
    }
}

/// A linker that offers WASI if `guest` imports any of it, and nothing else yet.
///
/// # Errors
/// If WASI can't be linked.
pub fn linker_for(engine: &Engine, guest: &Guest) -> wasmtime::Result<Linker<Data>> {
    let mut linker = Linker::new(&engine.wasmtime);
    if guest.imports.iter().any(|import| wasi::is_wasi(import)) {
        wasi::add_to_linker(&mut linker)?;
    }
    Ok(linker)
}

/// The maximum number of elements in a guest's table: one per function whose address is taken.
const TABLE_ELEMENTS_MAX: usize = 100_000;

/// Keeps an instance's memory within its limit.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit_bytes: usize,
    used_bytes: usize,
    /// The total that the guest requested when it was refused, and the limit.
    pub(crate) refused_bytes: Option<(usize, usize)>,
    /// The usage of all instances of the guest.
    usage: Arc<Usage>,
}

impl Limiter {
    fn new(memory_bytes: u64, usage: Arc<Usage>) -> Self {
        usage.begin();
        Self {
            limit_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX),
            used_bytes: 0,
            refused_bytes: None,
            usage,
        }
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.usage.end(self.used_bytes as u64);
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        // A guest may have several memories: the limit is on their sum.
        let total = self.used_bytes.saturating_sub(current).saturating_add(desired);
        if total > self.limit_bytes {
            self.refused_bytes = Some((total, self.limit_bytes));
            return Ok(false);
        }
        // A memory never shrinks.
        self.usage.grow(total.saturating_sub(self.used_bytes) as u64);
        self.used_bytes = total;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }
}
