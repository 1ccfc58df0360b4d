//! Keeps an instance's memory within its limit, and records a refusal.

use std::sync::Arc;

use trueup_capabilities::meter::Usage;
use wasmtime::ResourceLimiter;

/// The maximum number of elements in a guest's table: one per function whose address is taken.
const TABLE_ELEMENTS_MAX: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Limiter {
    pub(crate) limit_bytes: usize,
    used_bytes: usize,
    /// The total that the guest requested when it was refused.
    pub(crate) refused_bytes: Option<usize>,
    /// The usage of all instances of the guest.
    usage: Arc<Usage>,
}

impl Limiter {
    pub(crate) fn new(memory_bytes: u64, usage: Arc<Usage>) -> Self {
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
            self.refused_bytes = Some(total);
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
