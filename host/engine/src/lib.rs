//! Compiles, caches, limits and instantiates guests: bytes in, limited instances out.
//!
//! Generic over the calls: knows no guest's world, no journal's content and no configuration file.
//!
//! ```text
//! bytes -> Guest (compiled once, kept on disk) -> Instance (one store, one host, its limits)
//! ```
#![deny(unsafe_code)]

mod cache;
mod ending;
mod guest;
mod instance;
mod types;

pub use cache::users_cache;
pub use ending::CallError;
pub use guest::{Guest, LoadError, UNKNOWN};
pub use instance::{Data, Instance, linker_for};
pub use trueup_base::component::Digest;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cache::Cache;

/// How often the engine checks whether a call has used up its CPU time. A call may overrun its limit by this much.
const EPOCH: Duration = Duration::from_millis(10);

/// Call stack of a guest, in bytes: deep recursion ends in a trap, not in the host's own stack.
const WASM_STACK_BYTES: usize = 512 << 10;

/// The largest linear memory of any instance, in bytes. The pool reserves the full address space in any case, since a
/// 32-bit memory can reach it.
const MEMORY_BYTES_MAX: usize = 1 << 32;

/// The maximum number of core module instances in one guest. wit-component makes one to three of a module; a guest in
/// Python has 16 (the interpreter, its libraries, their shims), and each native extension adds one.
const CORE_INSTANCES_MAX: u32 = 32;

/// The setup of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder for compiled guests; if `None`, they are compiled each time.
    pub cache_dir: Option<PathBuf>,
    /// Whether the log says, once, that guests are compiled: a host that is silent for seconds looks stuck.
    pub tells_compiling: bool,
    /// The pool's maximum number of instances; it reserves address space for each, but no memory.
    pub instances_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_dir: None,
            tells_compiling: false,
            instances_max: 3_000,
        }
    }
}

/// Compiles guests and makes room for their instances. Cheap to clone; clones share the engine.
#[derive(Clone)]
pub struct Engine {
    /// The compiler and its settings, for creating a linker.
    pub wasmtime: wasmtime::Engine,
    cache: Arc<Cache>,
    /// Used up by the first guest that is compiled.
    pub(crate) tells_compiling: Arc<AtomicBool>,
    /// The thread that counts epochs stops when the last engine is dropped, and this with it.
    _epochs: std::sync::mpsc::Sender<()>,
}

impl Engine {
    /// An engine whose guests compute the same on every machine: one NaN, no threads, deterministic relaxed SIMD.
    ///
    /// # Errors
    /// One line, if the machine can't run it.
    pub fn new(options: &Options) -> Result<Self, LoadError> {
        let engine = wasmtime::Engine::new(&config(Some(options))).or_else(|error| {
            // A machine with little address space (`ulimit -v`, some containers) can't reserve any.
            tracing::warn!("no pool of instances, each is allocated by itself: {error:#}");
            wasmtime::Engine::new(&config(None))
        });
        let failed = |error: String| LoadError(format!("starting the WebAssembly engine: {error}"));
        let wasmtime = engine.map_err(|error| failed(format!("{error:#}")))?;
        let (epochs, dropped) = std::sync::mpsc::channel::<()>();
        let weak = wasmtime.weak();
        std::thread::Builder::new()
            .name("epochs".to_owned())
            .spawn(move || {
                while dropped.recv_timeout(EPOCH) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    let Some(engine) = weak.upgrade() else { return };
                    engine.increment_epoch();
                }
            })
            .map_err(|error| failed(format!("starting the thread that counts epochs: {error}")))?;
        let cache = Arc::new(Cache::new(options.cache_dir.as_deref(), &wasmtime));
        Ok(Self {
            wasmtime,
            cache,
            tells_compiling: Arc::new(options.tells_compiling.into()),
            _epochs: epochs,
        })
    }

    /// Loads a guest from a component, or from a core module with wit-bindgen's type section.
    ///
    /// # Errors
    /// What the bytes are if they are neither, or why they can't be compiled.
    pub fn load(&self, bytes: &[u8]) -> Result<Guest, LoadError> {
        Guest::load(self, &self.cache, bytes)
    }
}

fn config(pool: Option<&Options>) -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable);
    if let Some(options) = pool {
        let mut pooling = wasmtime::PoolingAllocationConfig::new();
        pooling
            .total_component_instances(options.instances_max)
            // Counted, not reserved: neither costs anything until it is used.
            .total_core_instances(options.instances_max.saturating_mul(CORE_INSTANCES_MAX))
            .max_core_instances_per_component(CORE_INSTANCES_MAX)
            // A guest of one module has one memory and, with its shim, two tables; one in Python has no more. 4 GiB of
            // address space each: a process has 128 TiB, and may have several engines.
            .total_memories(options.instances_max)
            .total_tables(options.instances_max.saturating_mul(2))
            .total_stacks(options.instances_max)
            .max_memory_size(MEMORY_BYTES_MAX)
            .table_elements(100_000)
            .max_unused_warm_slots(100);
        config.allocation_strategy(wasmtime::InstanceAllocationStrategy::Pooling(pooling));
    }
    config
}
