//! Process metrics from `/proc`, under the names that Prometheus client libraries use.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use trueup_work::status::MemoryShown;

use super::metrics::count;

/// Clock ticks per second of the times in `/proc/*/stat`, the same on every supported architecture (`USER_HZ` in Linux'
/// `asm-generic/param.h`).
const TICKS_PER_SECOND: f64 = 100.0;

/// The gauges that the system reports: a few small files, and one directory entry for each open file.
pub(super) fn gauges() -> Vec<(&'static str, f64)> {
    let status = status();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    // The directory itself is open while it is read.
    let files = fs::read_dir("/proc/self/fd").map(|files| (files.count() as u64).saturating_sub(1));
    let all = [
        ("process_resident_memory_bytes", kib(&status, "VmRSS:").map(count)),
        ("process_virtual_memory_bytes", kib(&status, "VmSize:").map(count)),
        ("process_open_fds", files.ok().map(count)),
        ("process_max_fds", number(&limits, "Max open files").map(count)),
        ("process_threads", number(&status, "Threads:").map(count)),
        ("process_start_time_seconds", started_seconds()),
    ];
    Vec::from_iter(all.into_iter().filter_map(|(name, value)| Some((name, value?))))
}

/// The memory of the process, and of all instances in it. What the system does not report is 0.
pub(super) fn memory(guests_bytes: u64) -> MemoryShown {
    let status = status();
    MemoryShown {
        resident_bytes: kib(&status, "VmRSS:").unwrap_or_default(),
        peak_bytes: kib(&status, "VmHWM:").unwrap_or_default(),
        guests_bytes,
    }
}

fn status() -> String {
    fs::read_to_string("/proc/self/status").unwrap_or_default()
}

fn kib(status: &str, name: &str) -> Option<u64> {
    number(status, name).map(|kib| kib * 1024)
}

/// The first number of the line that begins with `name`.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How long the process has used processors.
pub(super) fn cpu_seconds() -> f64 {
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
    Some(count(boot) + count(ticks) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn this_process_uses_something() {
        let gauges: BTreeMap<_, _> = gauges().into_iter().collect();
        let memory = memory(0);
        assert!(memory.resident_bytes > 1 << 20 && gauges["process_resident_memory_bytes"] > 1_048_576.0);
        assert!(memory.peak_bytes >= memory.resident_bytes / 2);
        assert!(gauges["process_open_fds"] >= 3.0 && gauges["process_max_fds"] >= gauges["process_open_fds"]);
        assert!(cpu_seconds() > 0.0 && gauges["process_threads"] >= 1.0);
        let since_1970 = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        let age = since_1970.as_secs_f64() - gauges["process_start_time_seconds"];
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
