//! Which fields of a value changed.
//!
//! List elements that have names are compared by name: a port that moves to the front is still the same port. The
//! callers choose what to compare and why.
//!
//! ```text
//! old, new -> spec.ports[http].nodePort: 30080 -> 30081
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trueup_capabilities::reading::VALUE_CHARS_MAX;
use trueup_journal::path_below;

/// How many changed fields are kept, the first by path. The object itself has the rest.
pub const FIELDS_MAX: usize = 20;

/// Fields that identify list elements; the first that all elements have is used. These are the ones in Kubernetes
/// (`name`, `type` for conditions and addresses, the first of `addresses` for endpoints) and in the arguments of
/// guests.
const NAMES: [&str; 4] = ["name", "type", "identifier", "addresses"];

/// One changed field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its path: `spec.ports[http].nodePort`. Empty for the whole value.
    pub path: String,
    /// The old value. `None` if it did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// The new value. `None` if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
}

/// The changed fields, sorted by path, up to the limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fields {
    /// At most [`FIELDS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
    /// The number of further fields.
    #[serde(default, skip_serializing_if = "is_default")]
    pub more: usize,
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Fields {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.more == 0
    }

    /// The difference after a second change of the same value. A field that has its original value again is left out.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        let mut by_path: BTreeMap<String, Field> = self.fields.into_iter().map(|it| (it.path.clone(), it)).collect();
        for mut field in later.fields {
            if let Some(first) = by_path.remove(&field.path) {
                if first.old == field.new {
                    continue;
                }
                field.old = first.old;
            }
            by_path.insert(field.path.clone(), field);
        }
        let mut found = Self {
            more: self.more + later.more,
            ..Self::default()
        };
        by_path.into_values().for_each(|field| found.push(field));
        found
    }

    pub(super) fn push(&mut self, field: Field) {
        if self.fields.len() < FIELDS_MAX {
            self.fields.push(field);
        } else {
            self.more += 1;
        }
    }
}

/// Every changed field, except those whose name `passes_over` accepts.
pub fn differing(old: &Value, new: &Value, passes_over: &dyn Fn(&str) -> bool) -> Fields {
    let mut found = Fields::default();
    compare("", Some(old), Some(new), passes_over, &mut found);
    found
}

fn compare(path: &str, old: Option<&Value>, new: Option<&Value>, skips: &dyn Fn(&str) -> bool, found: &mut Fields) {
    match (old, new) {
        (old, new) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names.into_iter().filter(|name| !skips(name)) {
                let old = old.get(name);
                let new = new.get(name);
                compare(&path_below(path, name), old, new, skips, found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if !old.iter().chain(new).all(is_plain) => {
            if let (Some(old), Some(new)) = (by_name(old), by_name(new)) {
                let names: BTreeSet<&&str> = old.keys().chain(new.keys()).collect();
                for name in names {
                    let (old, new) = (old.get(*name).copied(), new.get(*name).copied());
                    compare(&format!("{path}[{name}]"), old, new, skips, found);
                }
            } else {
                for at in 0..old.len().max(new.len()) {
                    compare(&format!("{path}[{at}]"), old.get(at), new.get(at), skips, found);
                }
            }
        }
        // A list of plain values, too, is easiest to read as a whole.
        (old, new) => found.push(Field {
            path: path.to_owned(),
            old: old.map(kept),
            new: new.map(kept),
        }),
    }
}

pub(super) fn is_plain(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

/// The elements of a list by name. `None` if an element has no name, or two have the same.
fn by_name(list: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    NAMES.iter().find_map(|field| {
        let named = list.iter().map(|value| {
            let name = value.get(field)?;
            Some((name.as_str().or_else(|| name.get(0)?.as_str())?, value))
        });
        let named: Option<BTreeMap<&str, &Value>> = named.collect();
        named.filter(|named| named.len() == list.len())
    })
}

/// The value, or the beginning of its text if it is too long.
fn kept(value: &Value) -> Value {
    let text = value.to_string();
    let chars = text.chars().count();
    if chars <= VALUE_CHARS_MAX {
        return value.clone();
    }
    let shown: String = text.chars().take(VALUE_CHARS_MAX).collect();
    Value::String(format!("{shown}... ({chars} characters)"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(fields: &Fields) -> Vec<String> {
        let text = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        let fields = fields.fields.iter();
        fields
            .map(|it| format!("{}: {} -> {}", it.path, text(&it.old), text(&it.new)))
            .collect()
    }

    #[track_caller]
    fn check(old: &Value, new: &Value, lines: &[&str]) {
        assert_eq!(said(&differing(old, new, &|name| name == "managedFields")), lines);
    }

    #[test]
    fn elements_of_a_list_are_compared_by_name_where_they_have_one() {
        check(
            &json!({"spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}}),
            &json!({"spec": {"ports": [{"name": "b", "port": 3}, {"name": "c", "port": 4}]}}),
            &[
                r#"spec.ports[a]: {"name":"a","port":1} -> nothing"#,
                "spec.ports[b].port: 2 -> 3",
                r#"spec.ports[c]: nothing -> {"name":"c","port":4}"#,
            ],
        );
        check(
            &json!({"conditions": [{"type": "Ready", "status": "True"}]}),
            &json!({"conditions": [{"type": "Ready", "status": "False"}]}),
            &[r#"conditions[Ready].status: "True" -> "False""#],
        );
        check(
            &json!([{"name": "a", "x": 1}, {"name": "a", "x": 2}]),
            &json!([{"name": "a", "x": 1}, {"name": "a", "x": 3}]),
            &["[1].x: 2 -> 3"],
        );
        check(&json!({"l": [1, 2]}), &json!({"l": [2]}), &["l: [1,2] -> [2]"]);
        check(
            &json!({"endpoints": [{"addresses": ["10.0.0.12"]}, {"addresses": ["10.0.0.13"]}, {"addresses": ["10.0.1.14"]}]}),
            &json!({"endpoints": [{"addresses": ["10.0.0.12"]}, {"addresses": ["10.0.1.14"], "zone": "b"}]}),
            &[
                r#"endpoints[10.0.0.13]: {"addresses":["10.0.0.13"]} -> nothing"#,
                r#"endpoints[10.0.1.14].zone: nothing -> "b""#,
            ],
        );
    }

    #[test]
    fn names_are_quoted_where_they_need_it_and_what_is_noise_is_passed_over() {
        check(
            &json!({"metadata": {"annotations": {"trueup.dev/addresses": "a"}, "managedFields": 1}}),
            &json!({"metadata": {"annotations": {"trueup.dev/addresses": "b"}, "managedFields": 2}}),
            &[r#"metadata.annotations["trueup.dev/addresses"]: "a" -> "b""#],
        );
    }

    #[test]
    fn many_fields_and_long_values_are_cut() {
        let object = |value: u32| -> Value {
            (0..FIELDS_MAX as u32 + 5)
                .map(|at| (format!("f{at:02}"), json!(value)))
                .collect()
        };
        let found = differing(&object(1), &object(2), &|_| false);
        assert_eq!((found.fields.len(), found.more), (FIELDS_MAX, 5));
        let found = differing(&json!("a"), &json!("b".repeat(5000)), &|_| false);
        let new = found.fields[0].new.as_ref().unwrap().as_str().unwrap();
        assert!(new.len() < 300 && new.ends_with("... (5002 characters)"), "{new}");
    }

    #[test]
    fn two_changes_are_one_and_what_went_back_is_none() {
        let of = |a: Value, b: Value| differing(&a, &b, &|_| false);
        let there = of(json!({"a": 1, "b": 1}), json!({"a": 2, "b": 2}));
        let on = of(json!({"a": 2, "b": 2}), json!({"a": 3, "b": 1, "c": 1}));
        assert_eq!(said(&there.then(on)), ["a: 1 -> 3", "c: nothing -> 1"]);
    }
}
