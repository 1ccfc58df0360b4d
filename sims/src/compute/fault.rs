//! A fault of the simulated Compute Engine.

use crate::base::faults::{When, fault_text};

fault_text! {
    /// The fields of a fault: exactly one of `status`, `delay_ms`, `close` and `fail_operations`.
    ///
    /// With `fail_operations`, the next operations to begin fail without an effect. `method` and `path` are then those
    /// of the requests that begin them; `code` is `INTERNAL_ERROR` by default.
    ComputeFaultText, fail = "fail_operations", fail_has_message = true,
    {
        method: String,
        path: String,
        times: u32,
        status: u16,
        reason: String,
        message: String,
        retry_after_s: u64,
        body: String,
        delay_ms: u64,
        close: When,
        #[serde(rename = "fail_operations")]
        fail: u32,
        code: String,
        when: When,
    }
}

/// A fault of the simulated Compute Engine.
pub type Fault = crate::Fault<ComputeFaultText>;
