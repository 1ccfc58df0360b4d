//! How the target of a decision about NEGs differs from the previous one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use trueup_capabilities::neg::{Endpoint, EndpointGroup, shown};

use super::fields::{Field, Fields};

/// The call whose argument is the whole desired state.
const SYNC: &str = "syncer.sync";

/// Interfaces whose other calls report events, or are requests of different pods.
const EVENTS: [&str; 4] = ["syncer.", "timer-events.", "migrator.", "datastore."];

/// Whether a call's argument is the desired state. For NEGs only one call qualifies, for pod addresses none.
pub(super) fn says_what_should_be(call: &str) -> bool {
    call == SYNC || !EVENTS.iter().any(|interface| call.starts_with(interface))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoint(n: u8, is_dual: bool) -> Value {
        let ipv6 = if is_dual { format!("fd00::{n}") } else { String::new() };
        json!({"ip": format!("10.0.0.{n}"), "ipv6": ipv6, "port": "80", "node": "vm"})
    }

    #[test]
    fn a_target_differs_endpoint_by_endpoint_and_one_that_moves_is_one_field() {
        let target = |endpoints: Vec<Value>| json!({"target": [{"location": {"zone": "a", "subnet": "s"}, "endpoints": endpoints}]});
        let was = target(vec![endpoint(1, false), endpoint(2, false), endpoint(3, true)]);
        let now = target(vec![endpoint(0, false), endpoint(1, true), endpoint(3, true)]);
        let fields = target_difference(SYNC, &was, &now).unwrap();
        let text = |value: &Option<Value>| value.as_ref().map(|it| it.as_str().unwrap().to_owned());
        let shown: Vec<_> = fields.fields.iter().map(|it| (text(&it.old), text(&it.new))).collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            shown,
            [
                (None, some("10.0.0.0:80 (vm)")),
                (some("10.0.0.1:80 (vm)"), some("10.0.0.1+[fd00::1]:80 (vm)")),
                (some("10.0.0.2:80 (vm)"), None),
            ]
        );
        assert!(target_difference(SYNC, &now, &now).unwrap().is_empty());
        assert_eq!(target_difference("reconciliation.reconcile", &was, &now), None);
        assert!(says_what_should_be(SYNC) && says_what_should_be("reconciliation.reconcile"));
        assert!(!says_what_should_be("syncer.on-operation") && !says_what_should_be("timer-events.on-timer"));
        assert!(!says_what_should_be("datastore.assign-pod-ipv4-address"));
    }
}
