//! A configuration that sets every key.

use super::*;

#[test]
fn every_key_is_read() {
    let text = r#"
state_dir = "/var/lib/trueup"
seed = 18446744073709551615
source.manifests = "/etc/trueup/manifests"

[guests.lbaas]
use = "file:guests/lbaas.wasm"
settings = { failed_objects = "reset", deep = { list = [1, -2, 2.5, true] } }
grants.lbaas = { read = ["*"], write = ["lb-1"] }
[guests.lbaas.limits]
memory_bytes = 0x4000000
cpu_ms = 2_000
imports_per_call = 3
answer_bytes = 4096
call_ms = 60000
question_bytes = 2048
log_lines_per_call = 0
metric_lines_per_call = 6

[adapter.lbaas]
cluster = "c1"
load_balancers = ["lb-1", "lb-2"]
addresses = ["::ffff:203.0.113.10", "2001:DB8:0::1"]
backoff_steps = 7

[backend.lbaas]
kind = "anexia"
url = "http://localhost:9480/"
token_file = "token"
max_concurrent_requests = 8
page_size = 9
request_timeout_ms = 10
connect_timeout_ms = 11
adopt_orphans = false

[sim.lbaas]
listen = "127.0.0.1:9480"
state_file = "engine.json"
token_env = "SIM_TOKEN"
load_balancers = ["lb-1", "lb-2"]
settle_ms = 12
latency_ms = 13
rate_limit_per_second = 14
retry_after = false
seed = 16
resource_type_in_lists = false
lose_overlapping_taggings = false
[[sim.lbaas.faults]]
path = "*/tags/*"
status = 503
times = 2

[journal]
record = true
sync = "interval"
interval_ms = 250
segment_bytes = 65536
segment_entries = 10
keep_bytes = 1000000
keep_total_bytes = 5000000
keep_gone_days = 0

[audit]
keep_bytes = 2000000
keep_days = 90

[run]
workers = 2
resync_ms = 60000
backoff_initial_ms = 5
backoff_max_ms = 500
"#;
    let config = load(text, &[]).unwrap();
    let folder = config.file.parent().unwrap().to_owned();
    assert_eq!(config.state_dir, Path::new("/var/lib/trueup"));
    assert_eq!(config.seed, u64::MAX);
    assert_eq!(
        lbaas(&config).source,
        Source::Manifests(PathBuf::from("/etc/trueup/manifests"))
    );

    let guest = &lbaas(&config).guest;
    assert_eq!(guest.reference, Reference::File(folder.join("guests/lbaas.wasm")));
    assert_eq!(
        guest.settings,
        json!({"failed_objects": "reset", "deep": {"list": [1, -2, 2.5, true]}})
    );
    assert!(guest.grants.allow("lbaas", Access::Read, "lb-9"));
    assert!(guest.grants.allow("lbaas", Access::Write, "lb-1") && !guest.grants.allow("lbaas", Access::Write, "lb-9"));
    let limits = Limits {
        memory_bytes: 64 << 20,
        cpu_ms: 2000,
        imports_per_call: 3,
        answer_bytes: 4096,
        log_lines_per_call: 0,
        metric_lines_per_call: 6,
        call_ms: 60_000,
        question_bytes: 2048,
    };
    assert_eq!(guest.limits, limits);

    let adapter = &lbaas(&config).adapter;
    assert_eq!(adapter.load_balancers, ["lb-1", "lb-2"]);
    assert_eq!(adapter.addresses, ["203.0.113.10", "2001:db8::1"], "in one spelling");
    assert_eq!(adapter.backoff_steps, 7);

    let settings = anexia(&config).settings(None);
    assert_eq!(settings.url, "http://localhost:9480");
    assert_eq!(settings.token, TokenAt::File(folder.join("token")));
    assert_eq!((settings.max_concurrent_requests, settings.page_size), (8, 9));
    assert_eq!((settings.request_timeout_ms, settings.connect_timeout_ms), (10, 11));
    assert!(!settings.adopt_orphans);

    let sim = lbaas(&config).sim.as_ref().unwrap();
    assert_eq!(sim.listen, "127.0.0.1:9480".parse().unwrap());
    assert_eq!(sim.token, TokenAt::Variable("SIM_TOKEN".to_owned()));
    let server = sim.server("secret");
    assert_eq!(server.token, "secret".into());
    assert_eq!(server.state_file, Some(folder.join("engine.json")));
    assert_eq!(server.load_balancers, ["lb-1", "lb-2"]);
    assert_eq!((server.settle_ms, server.latency_ms, server.seed), (12, 13, 16));
    assert_eq!(server.rate_limit_per_second.map(|limit| limit.get()), Some(14));
    assert!(!server.retry_after && !server.resource_type_in_lists && !server.lose_overlapping_taggings);
    let faults = serde_json::to_value(&server.faults).unwrap();
    assert_eq!(faults[0]["path"], "*/tags/*");
    assert_eq!(faults[0]["times"], 2);

    let options = Options {
        sync: Sync::Interval { ms: 250 },
        segment_bytes: 65536,
        segment_entries: 10,
        keep_bytes: 1_000_000,
    };
    let recording = Recording {
        record: true,
        options,
        keep_total_bytes: 5_000_000,
        keep_gone_days: 0,
    };
    assert_eq!(config.journal, recording);
    let kept = AuditKept {
        keep_bytes: 2_000_000,
        keep_days: 90,
    };
    assert_eq!(config.audit, kept);
    let run = Run {
        workers: 2,
        resync_ms: 60_000,
        backoff_initial_ms: 5,
        backoff_max_ms: 500,
    };
    assert_eq!(config.run, run);
}
