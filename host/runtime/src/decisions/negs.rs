//! What a decision about NEGs wrote, how the operations that it started ended, and how its target differs from the
//! previous one.
//!
//! An operation ends after the call that started it: a later call of the same instance reports its end.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use trueup_capabilities::neg::{Endpoint, EndpointGroup, Error, NegRef};
use trueup_journal::{Ask, Call, Event, Segment};

use super::calls::{Action, Write};
use super::fields::{Field, Fields};
use crate::guests::neg::shown;

/// The call that notifies a guest of an end.
const ON_OPERATION: &str = "syncer.on-operation";

/// The call whose argument is the whole desired state.
const SYNC: &str = "syncer.sync";

/// An operation that a decision started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// Its number.
    pub number: u64,
    /// What it attaches or detaches.
    pub endpoints: Vec<Endpoint>,
    /// How it ended. `None` if the guest does not know yet, or if the record is no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<OperationEnd>,
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OperationEnd {
    /// The entry number of the guest's notification.
    pub n: u64,
    /// The time of the notification, in milliseconds since 1970.
    pub at_ms: u64,
    /// Why it failed. `None` if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Ends of operations, by number.
pub(super) type Ends = BTreeMap<u64, OperationEnd>;

/// Collects the ends in a segment, starting at entry `from`. The first report of each operation counts.
pub(super) fn take_in_ends(ends: &mut Ends, segment: &Segment, from: u64) {
    #[derive(Deserialize)]
    struct Args {
        operation: u64,
        #[serde(default)]
        failure: Option<String>,
    }
    for entry in segment.entries.iter().filter(|entry| entry.n >= from) {
        let Event::Call(Call { at_ms, name, args, .. }) = &entry.event else {
            continue;
        };
        if name != ON_OPERATION {
            continue;
        }
        if let Some(Args { operation, failure }) = parsed(args) {
            let end = OperationEnd {
                n: entry.n,
                at_ms: *at_ms,
                failure,
            };
            ends.entry(operation).or_insert(end);
        }
    }
}

/// What a question about NEGs wrote. `None` if it wrote nothing or is about something else.
pub(super) fn write(n: u64, ask: &Ask, ends: &Ends) -> Option<Write> {
    match ask.name.as_str() {
        "api.ensure" => ensured(n, ask),
        "api.attach" => started(n, ask, Action::Attach, ends),
        "api.detach" => started(n, ask, Action::Detach, ends),
        _ => None,
    }
}

fn ensured(n: u64, ask: &Ask) -> Option<Write> {
    #[derive(Deserialize)]
    struct Args {
        neg: NegRef,
        subnet: String,
    }
    let Args { neg, subnet } = parsed(&ask.args)?;
    let error = match answer::<bool>(ask) {
        Some(Ok(false)) => return None,
        Some(Ok(true)) => None,
        other => Some(why_not(other)),
    };
    Some(Write {
        n,
        action: Action::Create,
        kind: "neg".to_owned(),
        name: neg.name,
        details: format!("in {}, subnet {subnet}", neg.zone),
        error,
        operation: None,
    })
}

fn started(n: u64, ask: &Ask, action: Action, ends: &Ends) -> Option<Write> {
    #[derive(Deserialize)]
    struct Args {
        neg: NegRef,
        endpoints: Vec<Endpoint>,
    }
    let Args { neg, endpoints } = parsed(&ask.args)?;
    let details = format!(
        "in {}: {} {}: {}",
        neg.zone,
        endpoints.len(),
        if endpoints.len() == 1 { "endpoint" } else { "endpoints" },
        shown::endpoints(&endpoints)
    );
    let (operation, error) = match answer::<u64>(ask) {
        Some(Ok(number)) => (
            Some(Operation {
                number,
                endpoints,
                ended: ends.get(&number).cloned(),
            }),
            None,
        ),
        other => (None, Some(why_not(other))),
    };
    Some(Write {
        n,
        action,
        kind: "neg".to_owned(),
        name: neg.name,
        details,
        error,
        operation,
    })
}

fn why_not<T>(answer: Option<Result<T, Error>>) -> String {
    match answer {
        Some(Err(error)) => shown::in_words(&error),
        _ => "no answer".to_owned(),
    }
}

/// Whether a call's argument is the desired state. For NEGs only one call qualifies; the others report events.
pub(super) fn says_what_should_be(call: &str) -> bool {
    call == SYNC || !(call.starts_with("syncer.") || call.starts_with("timer-events.") || call.starts_with("migrator."))
}

/// How a target differs from the previous one, by endpoint. An endpoint that changes its address families is one field.
/// `None` if the call has no target.
pub(super) fn target_difference(call: &str, was: &Value, now: &Value) -> Option<Fields> {
    if call != SYNC {
        return None;
    }
    let (was, now) = (by_location(was)?, by_location(now)?);
    let locations: BTreeSet<&String> = was.keys().chain(now.keys()).collect();
    let none = BTreeSet::new();
    let mut fields = Fields::default();
    for location in locations {
        let (was, now) = (was.get(location).unwrap_or(&none), now.get(location).unwrap_or(&none));
        let mut gone: Vec<&Endpoint> = was.difference(now).collect();
        for new in now.difference(was) {
            let twin = gone.iter().position(|old| shown::are_twins(old, new));
            let old = twin.map(|at| gone.remove(at));
            fields.push(field(location, old, Some(new)));
        }
        for old in gone {
            fields.push(field(location, Some(old), None));
        }
    }
    Some(fields)
}

fn field(location: &str, old: Option<&Endpoint>, new: Option<&Endpoint>) -> Field {
    let text = |endpoint: &Endpoint| Value::from(shown::endpoint(endpoint));
    Field {
        path: location.to_owned(),
        old: old.map(text),
        new: new.map(text),
    }
}

fn by_location(args: &Value) -> Option<BTreeMap<String, BTreeSet<Endpoint>>> {
    let target: Vec<EndpointGroup> = serde_json::from_value(args.get("target")?.clone()).ok()?;
    let group = |group: EndpointGroup| {
        let location = format!("{}/{}", group.location.zone, group.location.subnet);
        (location, group.endpoints.into_iter().collect())
    };
    Some(target.into_iter().map(group).collect())
}

fn parsed<T: serde::de::DeserializeOwned>(text: &RawValue) -> Option<T> {
    serde_json::from_str(text.get()).ok()
}

fn answer<T: serde::de::DeserializeOwned>(ask: &Ask) -> Option<Result<T, Error>> {
    parsed(ask.answer.as_ref()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HEADER: &str = r#"{"n":0,"header":{"format":1,"guest":"neg","version":"1","digest":"sha256:x","world":"w","host":"0","settings":{},"limits":{}}}"#;

    fn endpoint(n: u8, is_dual: bool) -> Value {
        let ipv6 = if is_dual { format!("fd00::{n}") } else { String::new() };
        json!({"ip": format!("10.0.0.{n}"), "ipv6": ipv6, "port": "80", "node": "vm"})
    }

    fn segment(lines: &[Value]) -> Segment {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        Segment::from_bytes("test", format!("{HEADER}\n{}\n", lines.join("\n")).as_bytes()).unwrap()
    }

    fn asks(of: &Segment) -> impl Iterator<Item = (u64, &Ask)> {
        of.entries.iter().filter_map(|entry| match &entry.event {
            Event::Ask(ask) => Some((entry.n, ask)),
            _ => None,
        })
    }

    #[test]
    fn writes_are_told_with_their_endpoints_and_how_their_operations_ended() {
        let neg = json!({"name": "web", "zone": "a"});
        let change = |n: u64, call: &str, answer: Value| json!({"n": n, "ask": call, "args": {"neg": neg, "endpoints": [endpoint(1, true)]}, "answer": answer});
        let told = |n: u64, operation: u64, failure: Value| json!({"n": n, "at_ms": 50 + n, "call": ON_OPERATION, "args": {"operation": operation, "failure": failure}});
        let segment = segment(&[
            json!({"n": 1, "at_ms": 1, "call": SYNC, "args": {"target": []}}),
            json!({"n": 2, "ask": "api.ensure", "args": {"neg": neg, "subnet": "s"}, "answer": {"Ok": true}}),
            json!({"n": 3, "ask": "api.ensure", "args": {"neg": neg, "subnet": "s"}, "answer": {"Ok": false}}),
            change(4, "api.attach", json!({"Ok": 7})),
            change(5, "api.detach", json!({"Ok": 8})),
            change(6, "api.detach", json!({"Ok": 9})),
            change(7, "api.attach", json!({"Err": {"Refused": [403, "too many"]}})),
            json!({"n": 8, "result": {"Ok": {}}}),
            told(9, 7, Value::Null),
            json!({"n": 10, "result": true}),
            told(11, 8, json!("no")),
            json!({"n": 12, "result": false}),
        ]);
        let mut ends = Ends::default();
        take_in_ends(&mut ends, &segment, 1);
        let writes: Vec<Write> = asks(&segment).filter_map(|(n, ask)| write(n, ask, &ends)).collect();
        let lines: Vec<String> = writes
            .iter()
            .map(|it| format!("{:?} {} {} {} {:?}", it.action, it.kind, it.name, it.details, it.error))
            .collect();
        let of = "in a: 1 endpoint: 10.0.0.1+[fd00::1]:80 (vm)";
        assert_eq!(
            lines,
            [
                "Create neg web in a, subnet s None".to_owned(),
                format!("Attach neg web {of} None"),
                format!("Detach neg web {of} None"),
                format!("Detach neg web {of} None"),
                format!("Attach neg web {of} Some(\"Compute Engine refuses it: 403 too many\")"),
            ]
        );
        let ended: Vec<Option<(u64, Option<OperationEnd>)>> = writes
            .iter()
            .map(|write| write.operation.as_ref().map(|it| (it.number, it.ended.clone())))
            .collect();
        let end = |n, failure: Option<&str>| {
            Some(OperationEnd {
                n,
                at_ms: 50 + n,
                failure: failure.map(str::to_owned),
            })
        };
        assert_eq!(
            ended,
            [
                None,
                Some((7, end(9, None))),
                Some((8, end(11, Some("no")))),
                Some((9, None)),
                None
            ]
        );
    }

    #[test]
    fn a_target_differs_endpoint_by_endpoint_and_one_that_moves_is_one_field() {
        let target = |endpoints: Vec<Value>| json!({"target": [{"location": {"zone": "a", "subnet": "s"}, "endpoints": endpoints}]});
        let was = target(vec![endpoint(1, false), endpoint(2, false), endpoint(3, true)]);
        let now = target(vec![endpoint(0, false), endpoint(1, true), endpoint(3, true)]);
        let fields = target_difference(SYNC, &was, &now).unwrap();
        let text = |value: &Option<Value>| value.as_ref().map(|it| it.as_str().unwrap().to_owned());
        let told: Vec<_> = fields.fields.iter().map(|it| (text(&it.old), text(&it.new))).collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            told,
            [
                (None, some("10.0.0.0:80 (vm)")),
                (some("10.0.0.1:80 (vm)"), some("10.0.0.1+[fd00::1]:80 (vm)")),
                (some("10.0.0.2:80 (vm)"), None),
            ]
        );
        assert!(target_difference(SYNC, &now, &now).unwrap().is_empty());
        assert_eq!(target_difference("reconciliation.reconcile", &was, &now), None);
        assert!(says_what_should_be(SYNC) && says_what_should_be("reconciliation.reconcile"));
        assert!(!says_what_should_be(ON_OPERATION) && !says_what_should_be("timer-events.on-timer"));
    }
}
