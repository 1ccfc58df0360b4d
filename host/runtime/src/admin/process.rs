//! Process metrics from `/proc`, under the names that Prometheus client libraries use.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use trueup_work::status::MemoryShown;

/// Clock ticks per second of the times in `/proc/*/stat`, the same on every supported architecture (`USER_HZ` in Linux'
/// `asm-generic/param.h`).
const TICKS_PER_SECOND: f64 = 100.0;

/// See the module. A value is `None` if the system does not report it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Process {
    pub(super) resident_bytes: Option<u64>,
    pub(super) peak_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) cpu_seconds: f64,
    pub(super) open_files: Option<u64>,
    pub(super) files_max: Option<u64>,
    pub(super) threads: Option<u64>,
    pub(super) started_seconds: Option<f64>,
}

impl Process {
    /// Reads the values: a few small files, and one directory entry for each open file.
    pub(super) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let kib = |name: &str| number(&status, name).map(|kib| kib * 1024);
        // The directory itself is open while it is read.
        let files = fs::read_dir("/proc/self/fd").map(|files| (files.count() as u64).saturating_sub(1));
        Self {
            resident_bytes: kib("VmRSS:"),
            peak_bytes: kib("VmHWM:"),
            virtual_bytes: kib("VmSize:"),
            cpu_seconds: cpu_seconds(),
            open_files: files.ok(),
            files_max: number(&limits, "Max open files"),
            threads: number(&status, "Threads:"),
            started_seconds: started_seconds(),
        }
    }

    pub(super) fn memory(guests_bytes: u64) -> MemoryShown {
        let now = Self::now();
        MemoryShown {
            resident_bytes: now.resident_bytes.unwrap_or_default(),
            peak_bytes: now.peak_bytes.unwrap_or_default(),
            guests_bytes,
        }
    }
}

/// The first number of the line that begins with `name`.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let whole = u64::try_from(used.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(used.tv_nsec).unwrap_or_default();
    Duration::new(whole, nanos).as_secs_f64()
}

/// When this process started: the boot time plus the start offset.
fn started_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let boot = number(&fs::read_to_string("/proc/stat").ok()?, "btime")?;
    // The program name, in parentheses, may contain anything. The 22nd field is the 20th after it.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "ticks and seconds of a machine fit a float")]
    Some(boot as f64 + ticks as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let now = Process::now();
        assert!(now.resident_bytes.unwrap() > 1 << 20);
        assert!(now.peak_bytes.unwrap() >= now.resident_bytes.unwrap() / 2);
        assert!(now.open_files.unwrap() >= 3 && now.files_max.unwrap() >= now.open_files.unwrap());
        assert!(now.cpu_seconds > 0.0 && now.threads.unwrap() >= 1);
        let since_1970 = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        let age = since_1970.as_secs_f64() - now.started_seconds.unwrap();
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
