//! Explains guests without records of their jobs (pod addresses, a node's guests): each call is a job of its own, and
//! its recording says why it was made.
//!
//! ```text
//! call n: its arguments -> what it was about    by -> the decision of another guest that it follows from
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use trueup_capabilities::Identity;
use trueup_journal::{Call, Ending, Entry, Event};

use super::calls::{CallReport, Recordings};
use super::cause::{Cause, TimedCause};
use super::explain::{Explained, Explanation, Selection, known, no_such, nothing, reported_call, set_aside};
use super::fields::is_plain;
use super::record::{Decision, FORMAT, JobResult, Record, function_of};

/// Calls that only read: they explain no change.
const LOOKS: [&str; 11] = [
    "datastore.find-address-for-sandbox",
    "datastore.allocated-ips",
    "datastore.freeable-ips",
    "datastore.get-eni-ips",
    "datastore.get-eni-infos",
    "datastore.get-eni-needs-ip",
    "datastore.get-enis",
    "datastore.get-stats",
    "datastore.get-trunk-eni",
    "node-sync.get-all-nodes",
    "node-sync.get-node-id",
];

/// Calls that a host makes at each start for each interface and address: they are news only where nothing else is.
const AT_EACH_START: [&str; 2] = ["datastore.add-eni", "datastore.add-ipv4-address-to-store"];

pub(super) fn explain(state_dir: &Path, guest: &str, key: &str, wanted: Selection) -> anyhow::Result<Explanation> {
    let instances = known(state_dir, guest)?;
    let chosen = |without_starts| chosen(state_dir, guest, (key, &instances), wanted, without_starts);
    match instances.contains(key) || wanted.decision.is_some() {
        true => chosen(false),
        false => chosen(true).or_else(|_| chosen(false)),
    }
}

fn chosen(
    state_dir: &Path,
    guest: &str,
    (key, instances): (&str, &BTreeSet<String>),
    wanted: Selection,
    without_starts: bool,
) -> anyhow::Result<Explanation> {
    let of_instance = instances.contains(key);
    let fits = |call: &Call, entries: &[Entry]| {
        let name = call.name.as_str();
        let is_no_news = LOOKS.contains(&name) || (without_starts && AT_EACH_START.contains(&name));
        !is_no_news && (of_instance || mentions(key, call, entries))
    };
    let (mut jobs, mut found) = (Vec::new(), 0);
    for instance in instances.iter().filter(|instance| !of_instance || *instance == key) {
        let mut recordings = Recordings::new(state_dir, guest, instance);
        let calls = match wanted.decision {
            Some(n) => recordings.newest(usize::MAX, |_, call| call.first().is_some_and(|entry| entry.n == n)),
            None => recordings.newest(wanted.last.max(1), fits),
        };
        found += calls.len();
        let calls = calls.iter().rev().filter(|(_, call)| wanted.takes(call.at_ms));
        jobs.extend(calls.filter_map(|(n, call)| job((guest, instance), *n, call, &mut recordings)));
    }
    if found == 0 {
        return Err(match wanted.decision {
            Some(wanted) => no_such(key, wanted, &[]),
            None => nothing(state_dir, guest, key, &Recordings::new(state_dir, guest, key)),
        });
    }
    Ok(Explanation {
        guest: guest.to_owned(),
        key: key.to_owned(),
        // The input of a node's guest is set aside under the name of its instance.
        set_aside: set_aside(state_dir, guest, key).or_else(|| set_aside(state_dir, guest, &format!("{guest}/{key}"))),
        kept: jobs.len(),
        jobs,
        ..Explanation::default()
    })
}

/// The calls of several guests about a key, in the order in which they began. `None` if no guest was called about it.
pub(super) fn explain_all<'g>(
    state_dir: &Path,
    guests: impl Iterator<Item = &'g String>,
    key: &str,
    wanted: Selection,
) -> Option<Explanation> {
    let of_guests = guests.filter_map(|guest| explain(state_dir, guest, key, wanted).ok());
    let mut all = of_guests.reduce(|mut all, of| {
        all.guest = format!("{}, {}", all.guest, of.guest);
        all.set_aside = all.set_aside.or(of.set_aside);
        all.jobs.extend(of.jobs);
        all.kept += of.kept;
        all
    })?;
    // A renderer is called within a call of the guest that asks it, which may have begun in the same millisecond.
    let is_answer = |made: &Decision| made.call.starts_with("renderer.");
    let jobs = &mut all.jobs;
    jobs.sort_by_key(|of| (of.job.began_ms, of.job.decisions.iter().any(is_answer)));
    Some(all)
}

/// Whether a call is about a text, or a question or answer contains it: as a whole value, as the beginning of a
/// container's id, or as `NAMESPACE/NAME` of an object.
fn mentions(text: &str, call: &Call, entries: &[Entry]) -> bool {
    /// Shorter prefixes match too much.
    const PREFIX_MIN: usize = 4;
    fn holds(value: &Value, text: &str) -> bool {
        match value {
            Value::String(string) => string == text || (text.len() >= PREFIX_MIN && string.starts_with(text)),
            Value::Array(values) => values.iter().any(|value| holds(value, text)),
            Value::Object(fields) => {
                object_id(value).is_some_and(|id| id == text) || fields.values().any(|value| holds(value, text))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    let in_text = |json: &str| serde_json::from_str(json).is_ok_and(|value: Value| holds(&value, text));
    let in_result = entries.iter().any(|entry| match &entry.event {
        Event::Ending(Ending::Result(result)) => in_text(result.get()),
        _ => false,
    });
    call.about.as_deref() == Some(text) || in_text(call.args.get()) || in_result
}

/// `NAMESPACE/NAME`, if a value is the id of an object.
fn object_id(value: &Value) -> Option<String> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    Some(format!("{}/{}", text("namespace")?, text("name")?))
}

/// What a call is about: the first object in its arguments outside a list; else the first name, such as a Node's; else
/// the family of addresses.
pub(super) fn subject(args: &Value) -> Option<String> {
    let text = |of: &Value, field: &str| Some(of.get(field)?.as_str()?.to_owned());
    let name = || first(args, &|value| text(value, "name"));
    first(args, &object_id).or_else(name).or_else(|| text(args, "version"))
}

fn first(args: &Value, found: &impl Fn(&Value) -> Option<String>) -> Option<String> {
    found(args).or_else(|| args.as_object()?.values().find_map(|value| first(value, found)))
}

/// The jobs of a key without an ending, among the last ones: a job has no record yet, or never gets one.
pub(super) fn open(
    of: (&str, &str),
    records: &[Record],
    wanted: Selection,
    recordings: &mut Recordings,
) -> Vec<Explained> {
    if wanted.decision.is_some() {
        return Vec::new();
    }
    let before = records.iter().rev().nth(wanted.last.max(1));
    let after = before.and_then(|record| record.decisions.iter().filter_map(|made| made.n).max());
    let calls = recordings.open_since(after.unwrap_or_default());
    let jobs = calls.into_iter().filter_map(|(n, call)| {
        let mut open = job(of, n, &call, recordings).filter(|open| wanted.takes(open.job.began_ms))?;
        for timed in &mut open.job.causes {
            let request = "not known: the host records the cause of a job when the job ends".to_owned();
            timed.cause = Cause::Request { request };
        }
        Some(open)
    });
    jobs.collect()
}

fn job((guest, instance): (&str, &str), n: u64, call: &Call, recordings: &mut Recordings) -> Option<Explained> {
    let header = recordings.header_of(n)?;
    let identity = Identity {
        name: guest.to_owned(),
        guest: header.guest,
        version: header.version,
        digest: header.digest,
        instance: instance.to_owned(),
    };
    let made = Decision::new(identity, Some(n), &call.name, call.at_ms);
    let reported = reported_call(&made, recordings);
    let report = reported.report.as_ref();
    let is_open = report.is_some_and(CallReport::is_open);
    let failed = report.filter(|it| it.failed && !is_open).map(|it| it.ending.clone());
    let made = Decision {
        asked: report.map_or(0, |report| report.asked.values().sum()),
        error: failed.clone(),
        recording: report.map(|report| report.file.clone()),
        ..made
    };
    let at_ms = call.at_ms;
    let request = requested(call);
    let cause = Cause::Request { request };
    let job = Record {
        format: FORMAT,
        key: instance.to_owned(),
        causes: vec![TimedCause { at_ms, cause }],
        began_ms: at_ms,
        decisions: vec![made],
        came: match failed {
            Some(error) => JobResult::Failed { error },
            None if is_open => JobResult::Open,
            None => JobResult::True,
        },
        ..Record::default()
    };
    Some(Explained {
        job,
        calls: vec![reported],
        ..Explained::default()
    })
}

/// The client and the request, in an operator's words.
fn requested(call: &Call) -> String {
    let args: Value = serde_json::from_str(call.args.get()).unwrap_or_default();
    let text = |path: &str| args.pointer(path).and_then(Value::as_str).unwrap_or("?").to_owned();
    let of_pod = || {
        let pod = call.about.as_ref().map(|pod| format!("pod {pod}, "));
        let key = ["container_id", "if_name", "network_name"].map(|name| text(&format!("/key/{name}")));
        let [container, interface, network] = key;
        let pod = pod.unwrap_or_default();
        format!("{pod}container {container}, interface {interface}, network {network}")
    };
    match call.name.as_str() {
        "datastore.assign-pod-ipv4-address" => format!("ADD of {}", of_pod()),
        "datastore.unassign-pod-ipv4-address" => format!("DEL of {}", of_pod()),
        "datastore.read-backing-store" => "the host reads the store".to_owned(),
        "datastore.add-eni" => format!("the list of interfaces has {}", text("/eni_id")),
        "datastore.add-ipv4-address-to-store" => format!("interface {} has {}", text("/eni_id"), text("/ipv4")),
        "datastore.del-ipv4-address-from-store" => {
            format!("interface {} has {} no more", text("/eni_id"), text("/ipv4"))
        }
        "datastore.remove-eni-from-data-store" => format!("interface {} left the list", text("/eni_id")),
        "datastore.remove-unused-eni-from-store" => "the host looks for interfaces that no pod uses".to_owned(),
        name if name.ends_with(".resync") => format!("input: everything from the beginning{}", by(call)),
        _ => format!("{}{}", given(&call.name, &args), by(call)),
    }
}

/// `, from service/node-a#57`.
fn by(call: &Call) -> String {
    let Some(by) = &call.by else { return String::new() };
    let number = by.n.map(|n| format!("#{n}")).unwrap_or_default();
    format!(", from {}/{}{number}", by.guest, by.instance)
}

/// A guest's input: `input: ServicePut shop/web`, `input: VppNodePut node-b`. Otherwise the function of the call.
fn given(call: &str, args: &Value) -> String {
    let event = args.get("event").or_else(|| args.get("change"));
    let variant = event.and_then(Value::as_object).and_then(|event| event.iter().next());
    match (variant, subject(args)) {
        (Some((kind, _)), Some(id)) => format!("input: {kind} {id}"),
        (Some((kind, value)), None) => {
            let name = value.get("name").and_then(Value::as_str).map(str::to_owned);
            let of = name.or_else(|| is_plain(value).then(|| value.to_string()));
            let input = format!("input: {kind} {}", of.unwrap_or_default());
            input.trim_end().to_owned()
        }
        (None, Some(id)) => format!("input: {id}"),
        (None, None) => format!("input: {}", function_of(call)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"n":0,"header":{"format":1,"guest":"G","version":"1","digest":"sha256:x","world":"w","host":"0","settings":{},"limits":{}}}"#;

    fn record(state_dir: &Path, guest: &str, lines: &[&str]) {
        let folder = state_dir.join("journals").join(guest).join("node-a");
        std::fs::create_dir_all(&folder).unwrap();
        let header = HEADER.replace('G', guest);
        std::fs::write(folder.join("0.jsonl"), format!("{header}\n{}\n", lines.join("\n"))).unwrap();
    }

    fn explained(state_dir: &Path, guest: Option<&str>, key: &str) -> Result<Explanation, String> {
        let wanted = Selection {
            last: 5,
            decision: None,
            since_ms: None,
        };
        super::super::explain(state_dir, guest, key, wanted).map_err(|error| error.to_string())
    }

    /// Why the last call was made.
    fn request(of: &Explanation) -> String {
        match &of.jobs.last().unwrap().job.causes[0].cause {
            Cause::Request { request } => request.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_renderers_call_is_explained_by_its_input_and_its_writes() {
        let dir = tempfile::tempdir().unwrap();
        record(
            dir.path(),
            "nat44",
            &[
                r#"{"n":1,"at_ms":1,"call":"renderer.add-service","args":{"service":{"id":{"namespace":"shop","name":"web"},"ports":[]}},"by":{"guest":"service","instance":"node-a","n":7}}"#,
                r#"{"n":2,"ask":"kv.put","args":{"key":"/a","value":"1"},"answer":{"Ok":4}}"#,
                r#"{"n":3,"ask":"kv.commit","args":{"compares":[],"operations":[{"Put":["/b","2"]},{"Delete":"/c"}]},"answer":{"Err":{"Unavailable":"x"}}}"#,
                r#"{"n":4,"ask":"kv.put-if-not-exists","args":{"key":"/d","value":"1"},"answer":{"Ok":false}}"#,
                r#"{"n":5,"result":{"Ok":null}}"#,
                r#"{"n":6,"at_ms":2,"call":"renderer.delete-service","args":{"service":{"id":{"namespace":"shop","name":"db"}}}}"#,
                r#"{"n":7,"ask":"nftables.apply","args":{"ruleset":"table ip t {}"},"answer":{"Ok":null}}"#,
                r#"{"n":8,"result":{"Ok":null}}"#,
            ],
        );
        // A name is enough if only one guest has it. The instance name from status works too.
        for key in ["node-a", "nat44/node-a"] {
            assert_eq!(explained(dir.path(), None, key).unwrap().jobs.len(), 2, "{key}");
        }
        // So does what a call was about, also among several guests: what caused a call comes first.
        let update = r#"{"n":3,"at_ms":1,"call":"processor.update","args":{"event":{"ServicePut":{"id":{"namespace":"shop","name":"web"}}}}}"#;
        record(
            dir.path(),
            "service",
            &[
                r#"{"n":1,"at_ms":0,"call":"processor.resync","args":{}}"#,
                r#"{"n":2,"result":{"Ok":null}}"#,
                update,
                r#"{"n":4,"result":{"Ok":null}}"#,
            ],
        );
        let web = explained(dir.path(), None, "shop/web").unwrap();
        let calls = web.jobs.iter().map(|of| of.job.decisions[0].id.as_str());
        assert_eq!(calls.collect::<Vec<_>>(), ["service/node-a#3", "nat44/node-a#1"]);
        assert_eq!(web.guest, "nat44, service");
        assert_eq!(web.instance(), Some("nat44/node-a"));
        assert_eq!(explained(dir.path(), None, "shop/db").unwrap().guest, "nat44");
        let web = explained(dir.path(), Some("nat44"), "shop/web").unwrap();
        assert_eq!(request(&web), "input: shop/web, from service/node-a#7");
        let report = web.jobs[0].calls[0].report.as_ref().unwrap();
        let writes = report
            .writes
            .iter()
            .map(|it| (it.n, it.kind.as_str(), it.name.as_str(), it.error.is_some()));
        let expected = [(2, "key", "/a", false), (3, "key", "/b", true), (3, "key", "/c", true)];
        assert_eq!(
            writes.collect::<Vec<_>>(),
            expected,
            "what was there already was not written"
        );
        let db = explained(dir.path(), Some("nat44"), "shop/db").unwrap();
        let report = db.jobs[0].calls[0].report.as_ref().unwrap();
        assert_eq!(
            (report.writes[0].kind.as_str(), report.writes[0].details.as_str()),
            ("ruleset", "table ip t {}")
        );
    }

    #[test]
    fn a_call_without_an_ending_did_not_fail_and_follows_a_keys_records() {
        let dir = tempfile::tempdir().unwrap();
        let call = r#"{"n":3,"at_ms":5,"call":"reconciliation.reconcile","args":{}}"#;
        let asked = r#"{"n":4,"ask":"clock.sleep","args":{},"answer":null}"#;
        let before = call.replace("\"n\":3", "\"n\":1");
        record(
            dir.path(),
            "lbaas",
            &[&before, r#"{"n":2,"result":{"Ok":{}}}"#, call, asked],
        );
        let of_node = explained(dir.path(), None, "node-a").unwrap();
        let came = of_node.jobs.iter().map(|of| &of.job.came);
        assert_eq!(came.collect::<Vec<_>>(), [&JobResult::True, &JobResult::Open]);
        assert_eq!(of_node.jobs[1].job.decisions[0].error, None);

        // As one of a guest with keys, which has no record yet.
        std::fs::create_dir_all(dir.path().join("keys/lbaas")).unwrap();
        let of_key = explained(dir.path(), None, "node-a").unwrap();
        assert_eq!((of_key.jobs.len(), of_key.kept), (1, 0));
        assert_eq!(of_key.jobs[0].job.decisions[0].id, "lbaas/node-a#3");
        assert_eq!(of_key.jobs[0].job.came, JobResult::Open);
    }

    #[test]
    fn where_several_guests_have_a_key_they_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for guest in ["nodesync", "service"] {
            let update = r#"{"n":1,"at_ms":1,"call":"processor.update","args":{"event":{"ServicePut":{"id":{"namespace":"shop","name":"web"}}}}}"#;
            record(dir.path(), guest, &[update, r#"{"n":2,"result":{"Ok":null}}"#]);
        }
        assert_eq!(
            explained(dir.path(), None, "node-a").unwrap_err(),
            "several guests have decided about `node-a`; name a guest with --guest, of nodesync, service"
        );
        assert_eq!(
            explained(dir.path(), None, "shop/cart").unwrap_err(),
            "nothing is known of `shop/cart`; 1 other key is known; name a guest with --guest, of nodesync, service"
        );
        assert_eq!(
            explained(dir.path(), None, "node-b").unwrap_err(),
            "nothing is known of `node-b` of guest `nodesync`; did you mean `node-a`?"
        );
        let of_service = explained(dir.path(), Some("service"), "node-a").unwrap();
        assert_eq!(request(&of_service), "input: ServicePut shop/web");
        assert_eq!(
            explained(dir.path(), Some("lbaas"), "node-a").unwrap_err(),
            "nothing is known of `node-a` of guest `lbaas`; no decision of this guest is kept at all"
        );
    }
}
