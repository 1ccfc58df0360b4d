//! The two forms of an Event: `v1`, the stored one, and `events.k8s.io/v1`.
//!
//! Pure. Only the names of fields differ.

use serde_json::Value;

use super::kinds::{EVENTS_GROUP, Kind};

/// The names of a field in `v1` and in `events.k8s.io/v1`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A stored object in the form of the requested kind.
pub(super) fn shown(kind: &Kind, object: &Value) -> Value {
    let mut object = object.clone();
    if kind.group == EVENTS_GROUP {
        rename(kind, &mut object, |(old, new)| (old, new));
    }
    object
}

/// A received object in its stored form.
pub(super) fn kept(kind: &Kind, mut object: Value) -> Value {
    if kind.group == EVENTS_GROUP {
        rename(kind.stored(), &mut object, |(old, new)| (new, old));
    }
    object
}

fn rename(kind: &Kind, object: &mut Value, way: fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    object["apiVersion"] = kind.api_version().into();
    let Some(fields) = object.as_object_mut() else { return };
    for (from, to) in NAMES.map(way) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
