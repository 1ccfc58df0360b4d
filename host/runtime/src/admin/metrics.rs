//! `/metrics`: the series of the host, of the guests and of the process, in Prometheus' text format.
//!
//! The number of series does not grow with the number of keys: labels are guests, states, kinds and outcomes. The
//! registry of the guests' series limits their number.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use trueup_capabilities::metrics::{BUCKETS, HOST, Sample, Shown};
use trueup_work::board::{BOUNDS, Histogram, Measured, StandingShown, Status};

use super::families::{self, Families, Value};
use super::process::Process;
use super::{Reads, failed, status};

pub(super) fn routes() -> Router<Arc<Reads>> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(State(reads): State<Arc<Reads>>) -> Response {
    match text(&reads) {
        Ok(text) => ([(CONTENT_TYPE, families::CONTENT_TYPE)], text).into_response(),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, format!("writing metrics: {error}")),
    }
}

fn text(reads: &Reads) -> Result<String, prometheus::Error> {
    let status = status::status(reads);
    let mut all = Families::default();
    of_host(&mut all, &status);
    of_source(&mut all, &status);
    of_keys(&mut all, reads, &status);
    of_guests(&mut all, reads, &status);
    of_process(&mut all);
    let late = number(reads.board.late().len());
    let help = "Loops of the host that did not go round for 30 s.";
    all.add("trueup_loops_late", help, &[], Value::Gauge(late));
    // The guests' series come last, unchanged: a name that the host uses stays the host's.
    let samples = reads.metrics.samples();
    for sample in &samples {
        kept(&mut all, sample);
    }
    let count = number(samples.len());
    let help = "Series that guests and backends keep in this host, which holds 10000 of guests at most.";
    all.add("trueup_metric_series", help, &[], Value::Gauge(count));
    let left_out = Value::Gauge(number(usize::try_from(all.left_out()).unwrap_or(usize::MAX)));
    let help = "Series that guests keep and that are not here, since their names are taken.";
    all.add("trueup_metric_series_left_out", help, &[], left_out);
    all.text()
}

fn of_host(all: &mut Families, status: &Status) {
    let labels = [("version", status.host.version.as_str())];
    all.add(
        "trueup_build_info",
        "The host's version; always 1.",
        &labels,
        Value::Gauge(1.0),
    );
    let acts = truth(status.host.standing != StandingShown::Standby);
    all.add(
        "trueup_leader",
        "1 where this host acts: it leads, or is alone. 0: it is a standby.",
        &[],
        acts,
    );
    let healthy = truth(status.problems.is_empty());
    all.add("trueup_healthy", "1 where trueup status would say so.", &[], healthy);
    if let Some(pods) = &status.pods {
        let help = "1 where pods get addresses.";
        all.add("trueup_pod_addresses_serving", help, &[], truth(pods.serving));
    }
}

fn of_source(all: &mut Families, status: &Status) {
    let Some(source) = &status.source else { return };
    for (kind, count) in &source.objects {
        let help = "Objects of the source, by kind.";
        all.add(
            "trueup_source_objects",
            help,
            &[("kind", kind)],
            Value::Gauge(number(*count)),
        );
    }
    let help = "1 where the source was looked at since the start.";
    all.add("trueup_source_synced", help, &[], truth(source.synced));
    let help = "1 where nothing hides an object: what is not there is gone.";
    all.add("trueup_source_complete", help, &[], truth(source.complete));
    let problems = Value::Gauge(number(source.problem_count));
    all.add(
        "trueup_source_problems",
        "What can't be read or is not used.",
        &[],
        problems,
    );
    let changes = Value::Counter(count(source.changes));
    all.add("trueup_source_changes_total", "Changed objects.", &[], changes);
    if let Some(at_ms) = source.changed_ms {
        let help = "When the last change came, in seconds since 1970.";
        let at = Value::Gauge(seconds(at_ms));
        all.add("trueup_source_last_change_timestamp_seconds", help, &[], at);
    }
}

fn of_keys(all: &mut Families, reads: &Reads, status: &Status) {
    let Some(queue) = &status.queue else { return };
    for (state, count) in &status.keys {
        let labels = [("state", state.name())];
        all.add(
            "trueup_keys",
            "Keys, by how they stand.",
            &labels,
            Value::Gauge(number(*count)),
        );
    }
    let help = "Keys with an error, whatever they do now: also those that wait for a try, or are tried right now.";
    let in_trouble = Value::Gauge(number(status.in_trouble_count));
    all.add("trueup_keys_in_trouble", help, &[], in_trouble);
    let stages = [
        ("ready", queue.ready),
        ("delayed", queue.delayed),
        ("running", queue.running),
        ("sleeping", queue.sleeping),
    ];
    for (stage, count) in stages {
        let help = "Keys that could run now, wait for their next try, are worked on; of these, those that sleep.";
        all.add(
            "trueup_queue_keys",
            help,
            &[("stage", stage)],
            Value::Gauge(number(count)),
        );
    }
    let help = "How long the key that could run the longest has waited.";
    let oldest = Value::Gauge(seconds(queue.oldest_waiting_ms));
    all.add("trueup_queue_oldest_waiting_seconds", help, &[], oldest);
    for measured in reads.board.measured() {
        of_work(all, &measured);
    }
}

/// The series about the work of one guest.
fn of_work(all: &mut Families, measured: &Measured) {
    let guest = ("guest", measured.guest.as_str());
    for (outcome, times) in &measured.outcomes {
        let labels = [guest, ("outcome", outcome.name())];
        let help = "Work on a key that ended, by outcome.";
        all.add("trueup_decisions_total", help, &labels, Value::Counter(count(*times)));
    }
    let help = "How long work on a key took, with what it waited.";
    all.add("trueup_decision_seconds", help, &[guest], histogram(&measured.took));
    let help = "From a change of the source until its key was true.";
    let to_effect = histogram(&measured.to_effect);
    all.add("trueup_change_to_effect_seconds", help, &[guest], to_effect);
    let help = "Objects created.";
    let created = Value::Counter(count(measured.effects.created));
    all.add("trueup_objects_created_total", help, &[guest], created);
    let help = "Objects destroyed.";
    let destroyed = Value::Counter(count(measured.effects.destroyed));
    all.add("trueup_objects_destroyed_total", help, &[guest], destroyed);
}

fn of_guests(all: &mut Families, reads: &Reads, status: &Status) {
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
        all.add(
            "trueup_guest_info",
            "The version that decides; always 1.",
            &labels,
            Value::Gauge(1.0),
        );
        for (state, count) in [("working", shown.working), ("resting", shown.resting)] {
            let help = "Instances, by whether they are in a call.";
            let labels = [guest, ("state", state)];
            all.add("trueup_instances", help, &labels, Value::Gauge(number(count)));
        }
        let help = "Linear memory of all instances.";
        let memory = Value::Gauge(count(shown.memory_bytes));
        all.add("trueup_guest_memory_bytes", help, &[guest], memory);
        let set_aside = Value::Gauge(number(shown.quarantined));
        all.add(
            "trueup_quarantined_inputs",
            "Inputs that are set aside.",
            &[guest],
            set_aside,
        );
    }
    let Some(manager) = reads.manager() else { return };
    for (managed, _) in manager.each() {
        let guest = ("guest", managed.name);
        let calls = &managed.active.calls;
        for (outcome, times) in calls.outcomes() {
            let labels = [guest, ("outcome", outcome)];
            let help = "Calls of the guest that were answered, in which it failed, that were cut while they slept.";
            all.add("trueup_guest_calls_total", help, &labels, Value::Counter(count(times)));
        }
        let waiting = managed.active.quotas.holdings.waiting();
        let waiting = waiting.map_or(0, |waiting| waiting.objects);
        let help = "Objects that the guest destroys once `trueup approve` lets it; 0: nothing waits.";
        let name = "trueup_guest_awaiting_approval_objects";
        all.add(name, help, &[guest], Value::Gauge(waiting as f64));
        let help = "How long calls of the guest took, with what they waited.";
        all.add("trueup_guest_call_seconds", help, &[guest], histogram(&calls.took()));
    }
}

fn of_process(all: &mut Families) {
    let process = Process::now();
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| Value::Gauge(count(bytes)));
    let gauges = [
        (
            "process_resident_memory_bytes",
            "Resident memory.",
            bytes(process.resident_bytes),
        ),
        (
            "process_virtual_memory_bytes",
            "Virtual memory.",
            bytes(process.virtual_bytes),
        ),
        ("process_open_fds", "Open files.", bytes(process.open_files)),
        (
            "process_max_fds",
            "So many files may be open.",
            bytes(process.files_max),
        ),
        ("process_threads", "Threads.", bytes(process.threads)),
        (
            "process_start_time_seconds",
            "When the process began, in seconds since 1970.",
            process.started_seconds.map(Value::Gauge),
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            all.add(name, help, &[], value);
        }
    }
    let help = "Time of the processors that the process used.";
    all.add(
        "process_cpu_seconds_total",
        help,
        &[],
        Value::Counter(process.cpu_seconds),
    );
}

/// The host's own series in the registry. All others belong to guests.
const KEPT_BY_HOST: [(&str, &str); 7] = [
    ("trueup_access_denied_total", "Calls that were refused to a guest."),
    (
        "trueup_log_lines_dropped_total",
        "Lines of a guest's log above the limit.",
    ),
    (
        "trueup_metric_lines_dropped_total",
        "Lines of a guest's metrics above a limit.",
    ),
    ("trueup_engine_requests_total", "HTTP requests to the Engine."),
    (
        "trueup_engine_requests_in_flight",
        "HTTP requests to the Engine that are under way.",
    ),
    (
        "trueup_shadow_calls_total",
        "Calls of a candidate in shadow, by how they compare.",
    ),
    (
        "trueup_checkpoint_torn_tails_total",
        "Torn ends of the checkpoint that were cut off.",
    ),
];

fn kept(all: &mut Families, sample: &Sample) {
    let labels: Vec<(&str, &str)> = sample
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let known = KEPT_BY_HOST.iter().find(|(name, _)| *name == sample.name);
    let help = match known {
        Some((_, help)) => (*help).to_owned(),
        None if sample.guest == HOST => "Kept by the host.".to_owned(),
        None => format!("Kept by guest `{}`.", sample.guest),
    };
    let value = match &sample.shown {
        Shown::Counter(sum) => Value::Counter(count(*sum)),
        Shown::Gauge(sum) => Value::Gauge(*sum),
        Shown::Histogram { counts, count, sum } => Value::Histogram {
            buckets: BUCKETS.into_iter().zip(*counts).collect(),
            count: *count,
            sum: *sum,
        },
    };
    all.add(&sample.name, &help, &labels, value);
}

fn histogram(histogram: &Histogram) -> Value {
    Value::Histogram {
        buckets: BOUNDS.into_iter().zip(histogram.counts).collect(),
        count: histogram.count,
        sum: histogram.sum,
    }
}

fn truth(is_so: bool) -> Value {
    Value::Gauge(f64::from(u8::from(is_so)))
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a float wherever it is shown")]
fn count(count: u64) -> f64 {
    count as f64
}

fn number(number: usize) -> f64 {
    count(number as u64)
}

fn seconds(ms: u64) -> f64 {
    count(ms) / 1000.0
}
