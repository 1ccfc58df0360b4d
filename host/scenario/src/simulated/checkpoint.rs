//! The stored checkpoint, which outlives instances: null, or `data` and `entries`.

use std::sync::Arc;

use serde_json::{Value, json};
use trueup_capabilities::checkpoint::{Saved, Simulated};

use super::{Capability, Problem, Simulation, fits};
use crate::compare;

pub(super) const CAPABILITY: Capability = Capability {
    given: Some(fits::<Option<Saved>>),
    expected: Some(fits::<Option<Saved>>),
    ..Capability::new("checkpoint", |world, given| {
        let saved: Option<Saved> = serde_json::from_value(given)?;
        let store = Arc::new(Simulated::new(saved));
        world.backends.checkpoint = Some(store.clone());
        Ok(store)
    })
};

impl Simulation for Simulated {
    fn compare(&self, expected: Value) -> Option<Problem> {
        compare(expected, json!(self.saved()))
    }
}

/// Compares `data` as JSON if both sides are JSON text.
fn compare(mut expected: Value, mut was: Value) -> Option<Problem> {
    let json = |checkpoint: &Value| -> Option<Value> {
        let data = checkpoint.get("data")?.as_str()?;
        serde_json::from_str(data).ok()
    };
    if let (Some(wanted), Some(is)) = (json(&expected), json(&was)) {
        for (checkpoint, data) in [(&mut expected, wanted), (&mut was, is)] {
            if let Some(place) = checkpoint.get_mut("data") {
                *place = data;
            }
        }
    }
    compare::values("checkpoint", &expected, &was)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_data_is_compared_as_json_where_both_sides_are() {
        let stored = |data: &str| json!({"data": data, "entries": ["{}"]});
        assert_eq!(
            compare(stored(r#"{"a":1,"b":[]}"#), stored(r#"{"b": [], "a": 1}"#)),
            None
        );
        assert_eq!(compare(stored("no JSON"), stored("no JSON")), None);
        assert_eq!(compare(Value::Null, Value::Null), None);
        let problem = compare(stored(r#"{"a":1}"#), stored(r#"{"a":2}"#)).unwrap();
        assert_eq!(problem.differences[0].path, "data.a");
        assert!(
            compare(stored("x"), stored(r#""x""#)).is_some(),
            "text is not a JSON string"
        );
        assert!(compare(Value::Null, stored("x")).is_some());
    }
}
