//! The LBaaS API: load balancers and objects; changes settle after a while.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use trueup_capabilities::lbaas::State;
use trueup_capabilities::lbaas::simulated::{Resource, Simulated};

use super::{Capability, Problem, Simulation, fits};
use crate::compare;

pub(super) const CAPABILITY: Capability = Capability {
    given: Some(fits::<Given>),
    expected: Some(fits::<Expected>),
    ..Capability::new("lbaas", |world, given| {
        let given: Option<Given> = serde_json::from_value(given)?;
        let given = given.unwrap_or_default();
        let lbaas = Simulated::new(world.clock.clone(), world.faults.clone(), given.settle_ms);
        for (identifier, state) in given.load_balancers {
            lbaas.put_load_balancer(identifier, state);
        }
        for resource in given.objects {
            lbaas.put(resource);
        }
        let lbaas = Arc::new(lbaas);
        world.backends.lbaas = Some(lbaas.clone());
        Ok(lbaas)
    })
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Given {
    /// By identifier.
    load_balancers: BTreeMap<String, State>,
    objects: Vec<Resource>,
    /// How long an applied change takes to settle.
    settle_ms: u64,
}

/// Read to check it, but kept as a value, since it may contain `${name}`.
#[derive(Deserialize)]
#[expect(dead_code, reason = "names its fields")]
struct Expected {
    objects: Vec<Resource>,
}

impl Simulation for Simulated {
    fn compare(&self, mut expected: Value) -> Option<Problem> {
        let expected = sorted(expected.get_mut("objects").map(Value::take).unwrap_or_default());
        compare::state("lbaas.objects", &expected, &sorted(json!(self.resources())))
    }
}

/// Resources by kind then identifier, tags sorted.
fn sorted(mut resources: Value) -> Value {
    /// The order of the contract.
    const KINDS: [&str; 4] = ["Backend", "Frontend", "Bind", "Server"];
    let list = resources.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    for resource in &mut *list {
        if let Some(Value::Array(tags)) = resource.get_mut("tags") {
            tags.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        }
    }
    list.sort_by_cached_key(|resource| {
        let kind = resource
            .get("spec")
            .and_then(|spec| KINDS.iter().position(|kind| spec.get(kind).is_some()));
        let identifier = resource.get("identifier").and_then(Value::as_str).unwrap_or_default();
        (kind, identifier.to_owned())
    });
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_come_by_kind_then_identifier() {
        let resource =
            |kind: &str, identifier: &str| json!({"identifier": identifier, "tags": ["b", "a"], "spec": {kind: {}}});
        let sorted = sorted(json!([
            resource("Server", "a"),
            resource("Bind", "b"),
            resource("Backend", "z"),
            resource("Frontend", "c"),
            resource("Backend", "b-10"),
        ]));
        let names: Vec<_> = sorted
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["identifier"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["b-10", "z", "c", "b", "a"]);
        assert_eq!(sorted[0]["tags"], json!(["a", "b"]));
    }
}
