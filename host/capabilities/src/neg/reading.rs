//! How the questions about NEGs are read: which NEGs they need, what they wrote, and how the operations ended that they
//! started.
//!
//! An operation ends after the call that started it: a later call of the same instance reports its end.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use trueup_base::text::counted;
use trueup_journal::{Ask, Call, Entry, Event};

use super::{Endpoint, Error, NegRef, shown};
use crate::grants::{NEG, is_neg_scope, neg_scope};
use crate::reading::{
    Action, Capability, Function, Granted, NO_ANSWER, Need, Operation, OperationEnd, Reading, Write, access, answer,
    args, parsed, text, unless_refused,
};

/// The call that notifies a guest of an end.
const ON_OPERATION: &str = "syncer.on-operation";

pub(crate) static CAPABILITY: Capability = Capability {
    package: "neg",
    grant: Some(Granted {
        name: NEG,
        scope: r#""NAME@ZONE" where `*` may end either"#,
        is_scope: is_neg_scope,
        example: r#""NAME@ZONE""#,
    }),
    limits_destroying: false,
    functions: &[
        Function::write("api.attach", group),
        Function::write("api.detach", group),
        Function::write("api.ensure", group),
        Function::read("api.list-endpoints"),
    ],
    reader: || Box::new(Reader::default()),
};

fn group(args: &Value) -> String {
    let neg = args.get("neg").unwrap_or(&Value::Null);
    format!("{} in {}", text(neg, "name"), text(neg, "zone"))
}

/// The arguments of all functions.
#[derive(Deserialize)]
struct Args {
    neg: NegRef,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
    #[serde(default)]
    subnet: String,
}

/// How operations ended, by number.
#[derive(Default)]
struct Reader(BTreeMap<u64, OperationEnd>);

impl Reading for Reader {
    /// The first report of each operation counts.
    fn after(&mut self, entry: &Entry) {
        #[derive(Deserialize)]
        struct Ended {
            operation: u64,
            failure: Option<String>,
        }
        if let Event::Call(Call { at_ms, name, args, .. }) = &entry.event
            && name == ON_OPERATION
            && let Some(Ended { operation, failure }) = parsed(args)
        {
            let (n, at_ms) = (entry.n, *at_ms);
            self.0.entry(operation).or_insert(OperationEnd { n, at_ms, failure });
        }
    }

    fn needs(&mut self, ask: &Ask) -> Vec<Need> {
        unless_refused(ask, || {
            let scope = args::<Args>(ask).map(|args| neg_scope(&args.neg.name, &args.neg.zone));
            // No configuration accepts any other, and no NEG has such a name.
            let granted = scope.into_iter().filter(|scope| is_neg_scope(scope));
            granted.map(|scope| Need::Access(access(ask), scope)).collect()
        })
    }

    fn wrote(&self, n: u64, ask: &Ask) -> Vec<Write> {
        let action = match ask.name.as_str() {
            "api.ensure" => Action::Create,
            "api.attach" => Action::Attach,
            "api.detach" => Action::Detach,
            _ => return Vec::new(),
        };
        let Some(Args { neg, endpoints, subnet }) = args(ask) else {
            return Vec::new();
        };
        let zone = &neg.zone;
        let (details, outcome) = if action == Action::Create {
            let outcome = answer::<Result<bool, Error>>(ask);
            if outcome == Some(Ok(false)) {
                // It existed already.
                return Vec::new();
            }
            let outcome = outcome.map(|created| created.map(|_| None));
            (format!("in {zone}, subnet {subnet}"), outcome)
        } else {
            let count = counted(endpoints.len(), "endpoint", "endpoints");
            let details = format!("in {zone}: {count}: {}", shown::endpoints(&endpoints));
            let started = |number| Operation {
                number,
                endpoints,
                ended: self.0.get(&number).cloned(),
            };
            let outcome = answer::<Result<u64, Error>>(ask);
            (details, outcome.map(|number| number.map(started).map(Some)))
        };
        let (operation, error) = match outcome {
            Some(Ok(operation)) => (operation, None),
            Some(Err(error)) => (None, Some(shown::in_words(&error, Some(&neg)))),
            None => (None, Some(NO_ANSWER.to_owned())),
        };
        vec![Write {
            n,
            action,
            kind: NEG.to_owned(),
            name: neg.name,
            details,
            error,
            operation,
        }]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trueup_journal::Segment;

    use super::*;

    const HEADER: &str = r#"{"n":0,"header":{"format":1,"guest":"neg","version":"1","digest":"sha256:x","world":"w","host":"0","settings":{},"limits":{}}}"#;

    #[test]
    fn writes_are_told_with_their_endpoints_and_how_their_operations_ended() {
        let neg = json!({"name": "web", "zone": "a"});
        let endpoint = json!({"ip": "10.0.0.1", "ipv6": "fd00::1", "port": "80", "node": "vm"});
        let change = |n: u64, call: &str, answer: Value| json!({"n": n, "ask": call, "args": {"neg": neg, "endpoints": [endpoint]}, "answer": answer});
        let told = |n: u64, operation: u64, failure: Value| json!({"n": n, "at_ms": 50 + n, "call": ON_OPERATION, "args": {"operation": operation, "failure": failure}});
        let lines = [
            json!({"n": 1, "at_ms": 1, "call": "syncer.sync", "args": {"target": []}}),
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
        ];
        let lines = lines.map(|line| line.to_string()).join("\n");
        let segment = Segment::from_bytes("test", format!("{HEADER}\n{lines}\n").as_bytes()).unwrap();
        let mut reader = Reader::default();
        segment.entries.iter().for_each(|entry| reader.after(entry));
        let wrote = |entry: &Entry| match &entry.event {
            Event::Ask(ask) => reader.wrote(entry.n, ask),
            _ => Vec::new(),
        };
        let writes: Vec<Write> = segment.entries.iter().flat_map(wrote).collect();
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
}
