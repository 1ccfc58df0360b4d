//! Classifies each request as the guest's means, a read of the world, or a write. This is the only such list.
//!
//! Scenarios ignore the guest's means in `expect_calls`. The gate, the shadow and `trueup replay --guest` compare
//! writes, in order for each object. The page counts writes.

use serde_json::Value;
use trueup_journal::{Kind, Question};

/// Interfaces that are a guest's means. Log and metrics return nothing and are not recorded.
const MEANS: [&str; 11] = [
    "log",
    "metrics",
    "clock",
    "random",
    "timers",
    // Those of `wasi:*`, which a language's runtime calls by itself; `random` is the name of one of them, too.
    "wall-clock",
    "monotonic-clock",
    "poll",
    "pollable",
    "insecure",
    "insecure-seed",
];

/// Requests that read the world. All others but [`MEANS`] change it.
const READS: [&str; 9] = [
    "api.get",
    "api.list-endpoints",
    "api.list-tagged",
    "api.load-balancer",
    "kv.get",
    "kv.list-keys",
    "kv.list-prefix",
    "sandboxes.list-running",
    "store.restore",
];

/// The kind of the request with this name (`interface.function`). An unknown one counts as a write.
pub fn kind(name: &str) -> Kind {
    let interface = name.split('.').next().unwrap_or_default();
    if MEANS.contains(&interface) {
        Kind::Means
    } else if READS.contains(&name) {
        Kind::Read
    } else {
        Kind::Write
    }
}

/// How to compare the request with this name.
pub fn question(name: &str) -> Question {
    let (list, object): (_, fn(&Value) -> String) = match name {
        "api.get" | "api.reset" | "api.destroy" => (Some("refs"), referred),
        "api.create" => (Some("specs"), specified),
        "api.ensure" | "api.attach" | "api.detach" => (None, group),
        "kv.put" | "kv.put-if-not-exists" | "kv.delete" => (None, key),
        "kv.commit" => (None, keys),
        _ if name.starts_with("store.") => (None, |_| "the store".to_owned()),
        _ if name.starts_with("renderer.") => (None, |_| "the renderer".to_owned()),
        _ => (None, |_| "the world".to_owned()),
    };
    let kind = kind(name);
    Question { kind, list, object }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// An existing resource of the Engine: its kind and identifier.
fn referred(object: &Value) -> String {
    format!("{} {}", text(object, "kind"), text(object, "identifier"))
}

/// A desired resource of the Engine: its kind, its name, and its owner.
fn specified(spec: &Value) -> String {
    let Some((kind, spec)) = spec.as_object().and_then(|spec| spec.iter().next()) else {
        return spec.to_string();
    };
    let owner = ["load_balancer", "frontend", "backend"].map(|field| text(spec, field));
    format!("new {kind} {} of {}", text(spec, "name"), owner.concat())
}

fn group(args: &Value) -> String {
    let neg = args.get("neg").unwrap_or(&Value::Null);
    format!("{} in {}", text(neg, "name"), text(neg, "zone"))
}

fn key(args: &Value) -> String {
    text(args, "key").to_owned()
}

/// What a transaction changes, ordered by key.
fn keys(args: &Value) -> String {
    let operations = args.get("operations").and_then(Value::as_array);
    let key = |operation: &Value| match operation {
        Value::Object(one) => one.values().next().map(|what| match what {
            Value::Array(pair) => pair.first().and_then(Value::as_str).unwrap_or_default().to_owned(),
            what => what.as_str().unwrap_or_default().to_owned(),
        }),
        _ => None,
    };
    let mut keys: Vec<String> = operations.into_iter().flatten().filter_map(key).collect();
    keys.sort();
    keys.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn means_reads_and_writes_are_told_apart() {
        for (name, expected) in [
            ("clock.sleep-ms", Kind::Means),
            ("log.emit", Kind::Means),
            ("metrics.counter-add", Kind::Means),
            ("timers.cancel", Kind::Means),
            ("monotonic-clock.now", Kind::Means),
            ("poll.poll", Kind::Means),
            ("random.get-random-bytes", Kind::Means),
            ("api.get", Kind::Read),
            ("store.restore", Kind::Read),
            ("store.append", Kind::Write),
            ("logs.get", Kind::Write),
            ("renderer.add-service", Kind::Write),
            ("nftables.apply", Kind::Write),
            ("kv.put-if-not-exists", Kind::Write),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }

    #[test]
    fn a_write_names_its_object() {
        let object = |name: &str, args: &Value| (question(name).object)(args);
        let backend = json!({"Backend": {"name": "http.web", "load_balancer": "lb-1", "mode": "Tcp"}});
        assert_eq!(object("api.create", &backend), "new Backend http.web of lb-1");
        let server = json!({"kind": "Server", "identifier": "s-1"});
        assert_eq!(object("api.destroy", &server), object("api.reset", &server));
        let commit = json!({"compares": [], "operations": [{"Put": ["/b", "1"]}, {"Delete": "/a"}]});
        assert_eq!(object("kv.commit", &commit), "/a /b");
        assert_eq!(object("kv.put", &json!({"key": "/a", "value": "1"})), "/a");
        let neg = json!({"neg": {"name": "n", "zone": "z"}, "endpoints": []});
        assert_eq!(object("api.attach", &neg), "n in z");
    }
}
