//! `/metrics`: the series of the host, of the guests and of the process, in Prometheus' text format. What `/proc` says
//! of the process is read here, also for the status.
//!
//! The number of series does not grow with the number of keys: labels are guests, states, kinds and outcomes. The
//! registry of the guests' series limits their number.

use std::fs;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use rustix::time::{ClockId, clock_gettime};
use trueup_capabilities::metrics::{BUCKETS, HOST, Sample, Shown};
use trueup_work::status::{BOUNDS, Histogram, MemoryShown, Outcome, Role, Status};

use super::families::{self, Families};
use super::{Reads, status};
use crate::http::Refused;

pub(super) async fn metrics(State(reads): State<Arc<Reads>>) -> Result<Response, Refused> {
    let text = text(&reads).map_err(|error| Refused::internal(format_args!("writing metrics: {error}")))?;
    Ok(([(CONTENT_TYPE, families::CONTENT_TYPE)], text).into_response())
}

/// The gauge of the guest `ipam` that only its store tells.
const ASSIGNED: &str = "trueup_ipam_assigned_ips";

/// The families of the host, one a line: the name, and the help text.
const HELP: &str = "\
trueup_build_info The host's version; always 1.
trueup_leader 1 where this host acts: it leads, or is alone. 0: it is a standby.
trueup_healthy 1 where trueup status would say so.
trueup_pod_addresses_serving 1 where pods get addresses.
trueup_source_objects Objects of the source, by kind.
trueup_source_synced 1 where the source was looked at since the start.
trueup_source_complete 1 where nothing hides an object: what is not there is gone.
trueup_source_problems What can't be read or is not used.
trueup_source_changes_total Changed objects.
trueup_source_last_change_timestamp_seconds When the last change came, in seconds since 1970.
trueup_keys Keys, by how they stand.
trueup_keys_in_trouble Keys with an error, whatever they do now: also those that wait for a try, or are tried right now.
trueup_queue_keys Keys that could run now, wait for their next try, are worked on; of these, those that sleep.
trueup_queue_oldest_waiting_seconds How long the key that could run the longest has waited.
trueup_decisions_total Work on a key that ended, by outcome.
trueup_decision_seconds How long work on a key took, with what it waited.
trueup_change_to_effect_seconds From a change of the source until its key was true.
trueup_objects_created_total Objects created.
trueup_objects_destroyed_total Objects destroyed.
trueup_guest_info The version that decides; always 1.
trueup_instances Instances, by whether they are in a call.
trueup_guest_memory_bytes Linear memory of all instances.
trueup_quarantined_inputs Inputs that are set aside.
trueup_guest_calls_total Calls of the guest that were answered, in which it failed, that were cut while they slept.
trueup_guest_awaiting_approval_objects Objects that the guest destroys once `trueup approve` lets it; 0: nothing waits.
trueup_guest_call_seconds How long calls of the guest took, with what they waited.
trueup_loops_late Loops of the host that did not go round for 30 s.
trueup_metric_series Series that guests and backends keep in this host, which holds 10000 of guests at most.
trueup_metric_series_left_out Series that guests keep and that are not here, since their names are taken.
trueup_access_denied_total Calls that were refused to a guest.
trueup_log_lines_dropped_total Lines of a guest's log above the limit.
trueup_metric_lines_dropped_total Lines of a guest's metrics above a limit.
trueup_engine_requests_total HTTP requests to the Engine.
trueup_engine_requests_in_flight HTTP requests to the Engine that are under way.
trueup_shadow_calls_total Calls of a candidate in shadow, by how they compare.
trueup_checkpoint_torn_tails_total Torn ends of the checkpoint that were cut off.
process_resident_memory_bytes Resident memory.
process_virtual_memory_bytes Virtual memory.
process_open_fds Open files.
process_max_fds So many files may be open.
process_threads Threads.
process_start_time_seconds When the process began, in seconds since 1970.
process_cpu_seconds_total Time of the processors that the process used.
";

/// The help text of a family of the host. `None`: it is a guest's.
fn help(name: &str) -> Option<&'static str> {
    HELP.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

fn text(reads: &Reads) -> Result<String, prometheus::Error> {
    let status = status::status(reads);
    let mut all = Series(Families::default());
    of_host(&mut all, &status);
    of_source(&mut all, &status);
    of_keys(&mut all, reads, &status);
    of_guests(&mut all, reads, &status);
    for (name, value) in process_gauges() {
        all.gauge(name, &[], value);
    }
    all.add("process_cpu_seconds_total", &[], families::counter(cpu_seconds()));
    all.gauge("trueup_loops_late", &[], number(reads.host_status.late().len()));
    // The guests' series come last, unchanged: a name that the host uses stays the host's.
    let samples = reads.metrics.samples();
    // A guest that has not read its store knows of no pod: the number is unknown, not 0.
    let is_unread = status.pods.as_ref().is_some_and(|pods| !pods.serving);
    for sample in samples.iter().filter(|sample| !is_unread || sample.name != ASSIGNED) {
        kept(&mut all.0, sample);
    }
    all.gauge("trueup_metric_series", &[], number(samples.len()));
    all.gauge("trueup_metric_series_left_out", &[], count(all.0.left_out));
    all.0.text()
}

/// The series of the host, whose names are in [`HELP`].
struct Series(Families);

impl Series {
    fn gauge(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.add(name, labels, families::gauge(value));
    }

    fn counter(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.add(name, labels, families::counter(count(value)));
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], of: &Histogram) {
        let buckets = BOUNDS.into_iter().zip(of.counts);
        self.add(name, labels, families::histogram(buckets, of.count, of.sum));
    }

    fn add(&mut self, name: &str, labels: &[(&str, &str)], series: families::Series) {
        self.0.add(name, help(name).unwrap_or_default(), labels, series);
    }
}

fn of_host(all: &mut Series, status: &Status) {
    all.gauge("trueup_build_info", &[("version", &status.host.version)], 1.0);
    all.gauge("trueup_leader", &[], truth(status.host.role != Role::Standby));
    all.gauge("trueup_healthy", &[], truth(status.problems.is_empty()));
    if let Some(pods) = &status.pods {
        all.gauge("trueup_pod_addresses_serving", &[], truth(pods.serving));
    }
}

fn of_source(all: &mut Series, status: &Status) {
    let Some(source) = &status.source else { return };
    for (kind, count) in &source.objects {
        all.gauge("trueup_source_objects", &[("kind", kind)], number(*count));
    }
    all.gauge("trueup_source_synced", &[], truth(source.synced));
    all.gauge("trueup_source_complete", &[], truth(source.complete));
    all.gauge("trueup_source_problems", &[], number(source.problem_count));
    all.counter("trueup_source_changes_total", &[], source.changes);
    if let Some(at_ms) = source.changed_ms {
        all.gauge("trueup_source_last_change_timestamp_seconds", &[], seconds(at_ms));
    }
}

fn of_keys(all: &mut Series, reads: &Reads, status: &Status) {
    let Some(queue) = &status.queue else { return };
    for (state, count) in &status.keys {
        all.gauge("trueup_keys", &[("state", state.name())], number(*count));
    }
    all.gauge("trueup_keys_in_trouble", &[], number(status.in_trouble_count));
    let mut stage = |stage, count| all.gauge("trueup_queue_keys", &[("stage", stage)], number(count));
    stage("ready", queue.ready);
    stage("delayed", queue.delayed);
    stage("running", queue.running);
    stage("sleeping", queue.sleeping);
    let oldest = seconds(queue.oldest_waiting_ms);
    all.gauge("trueup_queue_oldest_waiting_seconds", &[], oldest);
    for (guest, measured) in reads.host_status.measured() {
        let guest = ("guest", guest.as_str());
        for outcome in Outcome::ALL {
            let times = measured.outcomes.get(outcome).copied().unwrap_or_default();
            all.counter("trueup_decisions_total", &[guest, ("outcome", outcome.name())], times);
        }
        all.histogram("trueup_decision_seconds", &[guest], &measured.took);
        all.histogram("trueup_change_to_effect_seconds", &[guest], &measured.to_effect);
        let effects = &measured.effects;
        all.counter("trueup_objects_created_total", &[guest], effects.created);
        all.counter("trueup_objects_destroyed_total", &[guest], effects.destroyed);
    }
}

fn of_guests(all: &mut Series, reads: &Reads, status: &Status) {
    for shown in &status.guests {
        let guest = ("guest", shown.guest.as_str());
        let revision = shown.revision.map_or_else(String::new, |revision| revision.to_string());
        let labels = [
            guest,
            ("name", &shown.name),
            ("version", &shown.version),
            ("digest", &shown.digest),
            ("revision", &revision),
        ];
        all.gauge("trueup_guest_info", &labels, 1.0);
        for (state, count) in [("working", shown.working), ("resting", shown.resting)] {
            all.gauge("trueup_instances", &[guest, ("state", state)], number(count));
        }
        all.gauge("trueup_guest_memory_bytes", &[guest], count(shown.memory_bytes));
        all.gauge("trueup_quarantined_inputs", &[guest], number(shown.quarantined));
    }
    let Some(manager) = reads.manager.get() else { return };
    for (managed, _) in manager.each() {
        let guest = ("guest", managed.name);
        let calls = &managed.active.calls;
        for (outcome, times) in calls.outcomes() {
            all.counter("trueup_guest_calls_total", &[guest, ("outcome", outcome)], times);
        }
        let waiting = managed.active.quotas.holdings.waiting();
        let waiting = count(waiting.map_or(0, |waiting| waiting.objects));
        all.gauge("trueup_guest_awaiting_approval_objects", &[guest], waiting);
        all.histogram("trueup_guest_call_seconds", &[guest], &calls.took());
    }
}

/// A series of a guest, or one that a backend of the host keeps.
fn kept(all: &mut Families, sample: &Sample) {
    let labels = sample.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let labels: Vec<(&str, &str)> = labels.collect();
    let help = match help(&sample.name) {
        Some(help) => help.to_owned(),
        None if sample.guest == HOST => "Kept by the host.".to_owned(),
        None => format!("Kept by guest `{}`.", sample.guest),
    };
    let series = match &sample.shown {
        Shown::Counter(sum) => families::counter(count(*sum)),
        Shown::Gauge(sum) => families::gauge(*sum),
        Shown::Histogram { counts, count, sum } => families::histogram(BUCKETS.into_iter().zip(*counts), *count, *sum),
    };
    all.add(&sample.name, &help, &labels, series);
}

fn truth(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// A metric is a float wherever it is shown.
fn count(count: u64) -> f64 {
    count as f64
}

fn number(number: usize) -> f64 {
    count(number as u64)
}

fn seconds(ms: u64) -> f64 {
    count(ms) / 1000.0
}

/// Clock ticks per second of the times in `/proc/*/stat`, the same on every supported architecture (`USER_HZ` in Linux'
/// `asm-generic/param.h`).
const TICKS_PER_SECOND: f64 = 100.0;

/// The gauges that the system reports, under the names that Prometheus client libraries use: a few small files, and one
/// directory entry for each open file.
fn process_gauges() -> Vec<(&'static str, f64)> {
    let status = proc_status();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    // The directory itself is open while it is read.
    let files = fs::read_dir("/proc/self/fd").map(|files| (files.count() as u64).saturating_sub(1));
    let all = [
        ("process_resident_memory_bytes", kib(&status, "VmRSS:").map(count)),
        ("process_virtual_memory_bytes", kib(&status, "VmSize:").map(count)),
        ("process_open_fds", files.ok().map(count)),
        ("process_max_fds", number_of(&limits, "Max open files").map(count)),
        ("process_threads", number_of(&status, "Threads:").map(count)),
        ("process_start_time_seconds", started_seconds()),
    ];
    Vec::from_iter(all.into_iter().filter_map(|(name, value)| Some((name, value?))))
}

/// The memory of the process, and of all instances in it. What the system does not report is 0.
pub(super) fn memory(guests_bytes: u64) -> MemoryShown {
    let status = proc_status();
    MemoryShown {
        resident_bytes: kib(&status, "VmRSS:").unwrap_or_default(),
        peak_bytes: kib(&status, "VmHWM:").unwrap_or_default(),
        guests_bytes,
    }
}

fn proc_status() -> String {
    fs::read_to_string("/proc/self/status").unwrap_or_default()
}

fn kib(status: &str, name: &str) -> Option<u64> {
    number_of(status, name).map(|kib| kib * 1024)
}

/// The first number of the line that begins with `name`.
fn number_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How long the process has used processors.
fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// When this process started: the boot time plus the start offset.
fn started_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let boot = number_of(&fs::read_to_string("/proc/stat").ok()?, "btime")?;
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
        let gauges: BTreeMap<_, _> = process_gauges().into_iter().collect();
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
