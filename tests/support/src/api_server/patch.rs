//! The four kinds of patches: JSON patch, merge patch, strategic merge patch, and the effect of a server-side apply on
//! an object.
//! Pure. A server-side apply is a strategic merge of its manager's present wish, after removing what the same manager
//! no longer wants. The server does not track the owners of fields, so managers never conflict.

use serde_json::{Map, Value};

/// The kind of the list at a path.
enum List {
    /// A patch replaces all of it.
    Atomic,
    /// Values; a patch adds.
    Set,
    /// Objects with these fields as key; a patch changes those that it names.
    Keyed(&'static [&'static str]),
}

/// The rules for the keys of list items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// Those of strategic merge patches, which use one key for each list.
    Strategic,
    /// Those of server-side apply, which identifies ports by number and protocol.
    Apply,
}

/// How to merge a list, by the names of the fields that lead to it. The table follows Kubernetes' own types
/// (`patchMergeKey`, `listMapKey`) for the kinds of this server.
fn list_at(path: &[&str], rules: Rules) -> List {
    let ports: (&'static [_], &'static [_]) = match rules {
        Rules::Strategic => (&["port"], &["containerPort"]),
        Rules::Apply => (&["port", "protocol"], &["containerPort", "protocol"]),
    };
    match path {
        ["metadata", "finalizers"] | ["spec", "podCIDRs"] => List::Set,
        ["metadata", "ownerReferences"] => List::Keyed(&["uid"]),
        ["spec", "ports"] => List::Keyed(ports.0),
        [.., "containers" | "initContainers", "ports"] => List::Keyed(ports.1),
        ["secrets"]
        | [
            ..,
            "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env" | "imagePullSecrets",
        ] => List::Keyed(&["name"]),
        [.., "volumeMounts"] => List::Keyed(&["mountPath"]),
        [.., "volumeDevices"] => List::Keyed(&["devicePath"]),
        [.., "hostAliases"] | ["status", "podIPs" | "hostIPs"] => List::Keyed(&["ip"]),
        [.., "topologySpreadConstraints"] => List::Keyed(&["topologyKey"]),
        ["status", "conditions" | "addresses"] => List::Keyed(&["type"]),
        _ => List::Atomic,
    }
}

/// A JSON patch (RFC 6902).
pub(super) fn json(object: &mut Value, patch: &Value) -> Result<(), String> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(|error| error.to_string())?;
    json_patch::patch(object, &patch).map_err(|error| error.to_string())
}

/// A merge patch (RFC 7386).
pub(super) fn merge(object: &mut Value, patch: &Value) {
    json_patch::merge(object, patch);
}

/// A strategic merge patch.
pub(super) fn strategic(object: &mut Value, patch: &Value) -> Result<(), String> {
    let patch = patch.as_object().ok_or("a strategic merge patch must be an object")?;
    *object = Value::Object(merged(taken_map(object), patch, &mut Vec::new(), Rules::Strategic)?);
    Ok(())
}

/// A server-side apply: its manager's `last` configuration, and the new one.
pub(super) fn apply(object: &mut Value, last: Option<&Value>, now: &Value) -> Result<(), String> {
    let now = now.as_object().ok_or("an apply patch must be an object")?;
    let mut live = taken_map(object);
    if let Some(last) = last.and_then(Value::as_object) {
        let given_up = given_up(last, now, &mut Vec::new());
        live = merged(live, &given_up, &mut Vec::new(), Rules::Apply)?;
    }
    *object = Value::Object(merged(live, now, &mut Vec::new(), Rules::Apply)?);
    Ok(())
}

fn taken_map(value: &mut Value) -> Map<String, Value> {
    match value.take() {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const REMOVED: &str = "$deleteFromPrimitiveList/";

fn merged<'a>(
    mut live: Map<String, Value>,
    patch: &'a Map<String, Value>,
    path: &mut Vec<&'a str>,
    rules: Rules,
) -> Result<Map<String, Value>, String> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => live.clear(),
        Some("delete") => return Ok(Map::new()),
        Some("merge") | None => {}
        Some(other) => return Err(format!("Unknown patch type found: {other}")),
    }
    if let Some(retained) = patch.get(RETAIN).and_then(Value::as_array) {
        live.retain(|name, _| retained.iter().any(|kept| kept == name));
    }
    for (name, wanted) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        path.push(name);
        match wanted {
            Value::Null => _ = live.remove(name),
            Value::Object(wanted) => {
                let before = live.get_mut(name).map(taken_map).unwrap_or_default();
                live.insert(name.clone(), Value::Object(merged(before, wanted, path, rules)?));
            }
            Value::Array(wanted) => {
                let before = match live.remove(name) {
                    Some(Value::Array(items)) => items,
                    _ => Vec::new(),
                };
                live.insert(name.clone(), Value::Array(merged_list(before, wanted, path, rules)?));
            }
            scalar => _ = live.insert(name.clone(), scalar.clone()),
        }
        path.pop();
    }
    for (name, wanted) in patch {
        let Some(items) = wanted.as_array() else { continue };
        if let Some(list) = name.strip_prefix(REMOVED).and_then(|name| live.get_mut(name)) {
            list.as_array_mut()
                .into_iter()
                .for_each(|list| list.retain(|item| !items.contains(item)));
        }
        if let Some(of) = name.strip_prefix(ORDER)
            && let Some(Value::Array(list)) = live.get_mut(of)
        {
            path.push(of);
            in_order(list, items, &list_at(path, rules));
            path.pop();
        }
    }
    Ok(live)
}

fn merged_list<'a>(
    mut live: Vec<Value>,
    wanted: &'a [Value],
    path: &mut Vec<&'a str>,
    rules: Rules,
) -> Result<Vec<Value>, String> {
    let keys = match list_at(path, rules) {
        List::Atomic => return Ok(wanted.to_vec()),
        List::Set => {
            for item in wanted {
                if !live.contains(item) {
                    live.push(item.clone());
                }
            }
            return Ok(live);
        }
        List::Keyed(keys) => keys,
    };
    if wanted.iter().any(|item| item[DIRECTIVE] == "replace") {
        return Ok(wanted
            .iter()
            .filter(|item| item[DIRECTIVE] != "replace")
            .cloned()
            .collect());
    }
    for item in wanted {
        let Some(map) = item.as_object() else {
            return Err(format!("an item of {} must be an object", path.join(".")));
        };
        if keys.first().is_some_and(|key| item[*key].is_null()) {
            return Err(format!(
                "map: {item} does not contain declared merge key: {}",
                keys.join(", ")
            ));
        }
        let at = live.iter().position(|other| is_same(other, item, keys));
        match (at, item[DIRECTIVE] == "delete") {
            (Some(at), true) => _ = live.remove(at),
            (None, true) => {}
            (Some(at), false) => {
                let before = live.get_mut(at).map(taken_map).unwrap_or_default();
                live[at] = Value::Object(merged(before, map, path, rules)?);
            }
            (None, false) => live.push(Value::Object(merged(Map::new(), map, path, rules)?)),
        }
    }
    Ok(live)
}

fn is_same(one: &Value, other: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| {
        let of = |item: &Value| match (&item[*key], *key) {
            (Value::Null, "protocol") => Value::from("TCP"),
            (value, _) => value.clone(),
        };
        of(one) == of(other)
    })
}

/// Sorts the items that the order names within their positions; others stay in place.
fn in_order(list: &mut [Value], order: &[Value], kind: &List) {
    let rank = |item: &Value| match kind {
        List::Keyed(keys) => order.iter().position(|named| is_same(named, item, keys)),
        List::Set | List::Atomic => order.iter().position(|named| named == item),
    };
    let places: Vec<usize> = (0..list.len()).filter(|at| rank(&list[*at]).is_some()).collect();
    let mut items: Vec<Value> = places.iter().map(|at| list[*at].clone()).collect();
    items.sort_by_key(|item| rank(item));
    for (at, item) in places.into_iter().zip(items) {
        list[at] = item;
    }
}

/// A strategic merge patch that removes what the manager no longer wants.
fn given_up<'a>(last: &'a Map<String, Value>, now: &Map<String, Value>, path: &mut Vec<&'a str>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, before) in last {
        path.push(name);
        match (before, now.get(name)) {
            (Value::Object(before), after) if !matches!(after, Some(Value::Array(_))) => {
                let none = Map::new();
                let inner = given_up(before, after.and_then(Value::as_object).unwrap_or(&none), path);
                if !inner.is_empty() {
                    patch.insert(name.clone(), Value::Object(inner));
                }
            }
            (Value::Array(before), after) => {
                let after = after.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                match list_at(path, Rules::Apply) {
                    List::Set => {
                        let gone: Vec<Value> = before.iter().filter(|item| !after.contains(item)).cloned().collect();
                        patch.insert(format!("{REMOVED}{name}"), Value::Array(gone));
                    }
                    List::Keyed(keys) => {
                        patch.insert(name.clone(), Value::Array(items_given_up(before, after, keys, path)));
                    }
                    List::Atomic if after.is_empty() => _ = patch.insert(name.clone(), Value::Null),
                    List::Atomic => {}
                }
            }
            (_, None) => _ = patch.insert(name.clone(), Value::Null),
            _ => {}
        }
        path.pop();
    }
    patch
}

fn items_given_up<'a>(before: &'a [Value], after: &[Value], keys: &[&str], path: &mut Vec<&'a str>) -> Vec<Value> {
    let mut patch = Vec::new();
    for item in before.iter().filter(|item| item.is_object()) {
        let named: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), item[*key].clone())).collect();
        let mut change = match after.iter().find(|other| is_same(other, item, keys)) {
            None => Map::from_iter([(DIRECTIVE.to_owned(), Value::from("delete"))]),
            Some(other) => match (item.as_object(), other.as_object()) {
                (Some(item), Some(other)) => given_up(item, other, path),
                _ => Map::new(),
            },
        };
        if !change.is_empty() {
            change.extend(named.into_iter().filter(|(_, value)| !value.is_null()));
            patch.push(Value::Object(change));
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(object: Value, patch: Value) -> Result<Value, String> {
        let mut object = object;
        strategic(&mut object, &patch).map(|()| object)
    }

    fn applied(live: Value, last: Value, now: Value) -> Value {
        let mut object = live;
        apply(&mut object, Some(&last), &now).unwrap();
        object
    }

    #[test]
    fn lists_are_merged_by_their_key_and_others_replaced() {
        let service =
            json!({ "spec": { "ports": [{ "port": 80, "name": "a" }, { "port": 81 }], "externalIPs": ["x", "y"] } });
        let patch = json!({ "spec": { "ports": [{ "port": 81, "name": "b" }, { "port": 82 }], "externalIPs": ["z"] } });
        assert_eq!(
            merged(service, patch).unwrap(),
            json!({ "spec": {
                "ports": [{ "port": 80, "name": "a" }, { "port": 81, "name": "b" }, { "port": 82 }], "externalIPs": ["z"],
            } })
        );
        let without_key = json!({ "spec": { "ports": [{ "name": "b" }] } });
        assert!(
            merged(json!({}), without_key)
                .unwrap_err()
                .contains("does not contain declared merge key: port")
        );
    }

    #[test]
    fn directives_delete_replace_retain_and_order() {
        let ports = || json!({ "spec": { "ports": [{ "port": 1 }, { "port": 2 }, { "port": 3 }] } });
        let check = |patch: Value, left: Value| assert_eq!(merged(ports(), patch).unwrap()["spec"]["ports"], left);
        check(
            json!({ "spec": { "ports": [{ "port": 2, "$patch": "delete" }] } }),
            json!([{ "port": 1 }, { "port": 3 }]),
        );
        check(
            json!({ "spec": { "ports": [{ "$patch": "replace" }, { "port": 9 }] } }),
            json!([{ "port": 9 }]),
        );
        check(
            json!({ "spec": { "$setElementOrder/ports": [{ "port": 3 }, { "port": 4 }, { "port": 1 }], "ports": [{ "port": 4 }] } }),
            json!([{ "port": 3 }, { "port": 2 }, { "port": 4 }, { "port": 1 }]),
        );
        let finalizers = json!({ "metadata": { "finalizers": ["a/b", "c/d"] } });
        let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a/b"], "finalizers": ["e/f"] } });
        assert_eq!(
            merged(finalizers, patch).unwrap(),
            json!({ "metadata": { "finalizers": ["c/d", "e/f"] } })
        );
        let strategy =
            json!({ "spec": { "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1 } } } });
        let patch = json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } });
        assert_eq!(
            merged(strategy, patch).unwrap(),
            json!({ "spec": { "strategy": { "type": "Recreate" } } })
        );
        assert!(
            merged(ports(), json!({ "$patch": "explode" }))
                .unwrap_err()
                .contains("Unknown patch type")
        );
    }

    #[test]
    fn an_apply_takes_back_only_what_the_same_manager_said_before() {
        let live = json!({
            "metadata": { "labels": { "mine": "1", "gone": "1", "theirs": "1" }, "finalizers": ["my/one", "their/one"] },
            "spec": { "ports": [
                { "port": 53, "protocol": "UDP", "nodePort": 30001 }, { "port": 53, "protocol": "TCP", "nodePort": 30002 },
            ] },
        });
        let last = json!({
            "metadata": { "labels": { "mine": "1", "gone": "1" }, "finalizers": ["my/one"] },
            "spec": { "ports": [{ "port": 53, "protocol": "UDP" }, { "port": 53, "protocol": "TCP" }] },
        });
        let now =
            json!({ "metadata": { "labels": { "mine": "2" } }, "spec": { "ports": [{ "port": 53, "name": "dns" }] } });
        assert_eq!(
            applied(live, last, now),
            json!({
                "metadata": { "labels": { "mine": "2", "theirs": "1" }, "finalizers": ["their/one"] },
                "spec": { "ports": [{ "port": 53, "protocol": "TCP", "nodePort": 30002, "name": "dns" }] },
            })
        );
    }
}
