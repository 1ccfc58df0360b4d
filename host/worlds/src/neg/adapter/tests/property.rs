//! Applying changes one by one has the same result as one look at everything.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trueup_sources::ObjectRef;
use trueup_work::decisions::{ChangedObject, Input};

use super::*;

/// There are few names, so that changes collide.
fn object() -> impl Strategy<Value = Object> {
    prop_oneof![services(), slices(), nodes()]
}

fn services() -> impl Strategy<Value = Object> {
    let annotation = prop_oneof![
        Just(r#"{"exposed_ports": {"80": {"name": "x"}}}"#),
        Just(r#"{"exposed_ports": {"80": {"name": "y"}, "443": {"name": "x"}}}"#),
        // The name of `x` in the subnet `other`.
        Just(r#"{"exposed_ports": {"443": {"name": "x-d9298a"}}}"#),
        Just(r#"{"exposed_ports": {"80": {}, "443": {}}}"#),
        Just(r#"{"exposed_ports": {"81": {}}}"#),
        Just(r#"{"ingress": true}"#),
        Just("{"),
    ];
    let annotations = prop_oneof![annotation.prop_map(|text| json!({ANNOTATION: text})), Just(Value::Null)];
    ("[abc]", annotations, any::<bool>()).prop_map(|(name, annotations, is_deleted)| {
        let deleted = is_deleted.then_some("2026-01-02T03:04:05Z");
        let metadata = json!({"annotations": annotations, "deletionTimestamp": deleted});
        patched_service(&name, json!({"metadata": metadata}))
    })
}

fn slices() -> impl Strategy<Value = Object> {
    let endpoint = ("n[123]", "[pq]", 1..4_u8, any::<bool>(), 0..8_u8);
    let label = prop_oneof![9 => "[abc]".prop_map(Value::from), 1 => Just(Value::Null)];
    let endpoints = prop::collection::vec(endpoint, 0..4);
    ("s[123]", label, any::<bool>(), endpoints).prop_map(|(name, label, is_v6, endpoints)| {
        let endpoints: Vec<Value> = endpoints
            .into_iter()
            .map(|(node, pod, last, ready, whole)| {
                let address = if is_v6 {
                    format!("fd00::{last}")
                } else {
                    format!("10.0.0.{last}")
                };
                let mut endpoint = on(&node, &pod, &address);
                merge(&mut endpoint, json!({"conditions": {"ready": ready}}));
                if whole == 0 {
                    merge(&mut endpoint, json!({"nodeName": null}));
                }
                endpoint
            })
            .collect();
        let family = if is_v6 { "IPv6" } else { "IPv4" };
        let patch = json!({"metadata": {"labels": {SERVICE_LABEL: label}}, "endpoints": endpoints});
        patched_slice(&name, family, patch)
    })
}

fn nodes() -> impl Strategy<Value = Object> {
    let zone = prop_oneof![Just(json!("z1")), Just(json!("z2")), Just(Value::Null)];
    let subnet = prop_oneof![Just(json!("other")), Just(json!("default")), Just(Value::Null)];
    ("n[123]", zone, subnet, any::<bool>()).prop_map(|(name, zone, subnet, has_id)| {
        let mut patch = json!({"metadata": {"labels": {ZONE_LABEL: zone, "subnet": subnet}}});
        if !has_id {
            merge(&mut patch, json!({"spec": null}));
        }
        node(&name, patch)
    })
}

/// The additions and removals of each batch, and whether it is complete.
fn batches() -> impl Strategy<Value = Vec<(Vec<(Object, bool)>, bool)>> {
    let changes = prop::collection::vec((object(), prop::bool::weighted(0.7)), 0..4);
    prop::collection::vec((changes, prop::bool::weighted(0.7)), 1..12)
}

/// The desired state of each key, the set of keys, and the notes.
type Answers = (
    BTreeMap<Key, Option<Result<Desired, String>>>,
    BTreeSet<Key>,
    BTreeSet<String>,
);

/// Everything that a caller can query.
fn answers(targets: &Targets) -> Answers {
    let services = ["a", "b", "c"].into_iter();
    let keys = services.flat_map(|name| [80, 81, 443].map(|port| key(name, port)));
    let desired = keys.map(|key| (key.clone(), targets.desired(&key))).collect();
    (desired, targets.keys(), targets.notes().map(str::to_owned).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_incremental_targets_are_those_built_from_scratch(batches in batches(), default in any::<bool>()) {
        let subnet = default.then_some("default");
        let settings = settings(json!({"subnet": subnet, "subnet_label": "subnet"}));
        let mut incremental = without_objects(&settings);
        // The existing objects, and deleted ones that are kept because the look is incomplete.
        let mut there: BTreeMap<ObjectRef, Object> = BTreeMap::new();
        let mut held: BTreeSet<ObjectRef> = BTreeSet::new();
        for (changes, complete) in batches {
            let before = answers(&incremental);
            let changes: Vec<Change> = changes
                .into_iter()
                .map(|(object, stays)| if stays { is(object) } else { gone(&object) })
                .collect();
            for change in &changes {
                match &change.now {
                    Some(object) => {
                        held.remove(&change.reference);
                        there.insert(change.reference.clone(), object.clone());
                    }
                    None => _ = held.insert(change.reference.clone()),
                }
            }
            if complete {
                there.retain(|reference, _| !held.contains(reference));
                held.clear();
            }
            let was_complete = incremental.completeness.is_complete();
            let changed = incremental.take_in(&changes, complete, false);
            prop_assert_eq!(incremental.completeness.completed(), complete && !was_complete);

            let after = answers(&incremental);
            for (key, desired) in &after.0 {
                if before.0.get(key) != Some(desired) {
                    let is_named = before.1.contains(key) || after.1.contains(key);
                    let is_its_service = |seen: &ChangedObject<Key>| {
                        let Input { kind, namespace, name, .. } = &seen.input;
                        kind == "Service" && *namespace == key.service.namespace && *name == key.service.name
                    };
                    let is_affected = changed.affected.contains(key);
                    let is_its = changed.seen.iter().any(is_its_service);
                    let is_told = is_affected || (!is_named && (incremental.completeness.completed() || is_its));
                    prop_assert!(is_told, "{} has another desired state and is not affected", key);
                }
            }
            let new: Vec<&String> = after.2.difference(&before.2).collect();
            prop_assert_eq!(changed.notes.iter().collect::<BTreeSet<_>>(), new.into_iter().collect());

            if complete {
                let mut scratch = Targets::new(&settings, &manifests(), incremental.locations.clone(), incremental.held());
                let all: Vec<Change> = there.values().cloned().map(is).collect();
                scratch.take_in(&all, true, false);
                prop_assert_eq!(&after, &answers(&scratch));
                for key in after.0.keys() {
                    prop_assert_eq!(incremental.is_gone(key), scratch.is_gone(key));
                }
            }
        }
    }
}
