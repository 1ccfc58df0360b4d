//! The NEG API: NEGs by name and zone. An operation changes nothing until a step ends it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use trueup_capabilities::neg::simulated::{Neg, Simulated};
use trueup_sources::yaml::{self, FieldError, Node};

use super::{Capability, Problem, Simulation, fits};
use crate::compare;

pub(super) const CAPABILITY: Capability = Capability {
    given: Some(given),
    expected: Some(fits::<Negs>),
    on_operation: Some("syncer.on-operation"),
    ..Capability::new("neg", |world, mut given| {
        let given = given.get_mut("negs").map(Value::take).unwrap_or_default();
        let negs: Option<Vec<Neg>> = serde_json::from_value(given)?;
        let api = Arc::new(Simulated::default());
        negs.into_iter().flatten().for_each(|neg| api.put(neg));
        world.backends.neg = Some(api.clone());
        Ok(api)
    })
};

#[derive(Deserialize)]
struct Negs {
    negs: Vec<Neg>,
}

fn given(node: &Node) -> Result<(), FieldError> {
    let Negs { negs } = yaml::read(node)?;
    let mut lines = BTreeMap::new();
    let nodes = node.entry("negs").map(Node::items).unwrap_or_default();
    for (neg, node) in negs.iter().zip(nodes) {
        if let Some(first) = lines.insert(neg.key(), node.line) {
            let message = format!(
                "NEG {:?} in zone {:?} is there already, on line {first}",
                neg.name, neg.zone
            );
            return Err(FieldError::of(node, message).within("negs".to_owned()));
        }
    }
    Ok(())
}

impl Simulation for Simulated {
    fn compare(&self, mut expected: Value) -> Option<Problem> {
        let expected = sorted(expected.get_mut("negs").map(Value::take).unwrap_or_default());
        compare::state("neg.negs", &expected, &json!(self.negs()))
    }

    fn end_operation(&self, operation: u64, succeeded: bool) {
        self.end(operation, succeeded);
    }
}

/// NEGs sorted by name and zone, with endpoints in their order. Anything else remains unchanged.
fn sorted(negs: Value) -> Value {
    let Ok(mut sorted) = serde_json::from_value::<Vec<Neg>>(negs.clone()) else {
        return negs;
    };
    sorted.sort_by_cached_key(Neg::key);
    serde_json::to_value(sorted).unwrap_or(negs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negs_come_by_name_then_zone_and_what_is_none_stays() {
        let endpoint = |ip: &str| json!({"ip": ip, "ipv6": "", "port": "80", "node": "n"});
        let neg = |name: &str, zone: &str, ips: &[&str]| {
            let endpoints: Vec<Value> = ips.iter().map(|ip| endpoint(ip)).collect();
            json!({"name": name, "zone": zone, "subnet": "s", "endpoints": endpoints})
        };
        let sorted = sorted(json!([
            neg("b", "z1", &["10.0.0.10", "10.0.0.9"]),
            neg("a", "z2", &[]),
            neg("a", "z1", &[]),
        ]));
        let expected = [
            neg("a", "z1", &[]),
            neg("a", "z2", &[]),
            neg("b", "z1", &["10.0.0.9", "10.0.0.10"]),
        ];
        assert_eq!(sorted, json!(expected));
        let none = json!([{"name": "b"}, 1]);
        assert_eq!(super::sorted(none.clone()), none);
    }
}
