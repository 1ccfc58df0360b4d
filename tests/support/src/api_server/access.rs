//! A user's permissions, from the roles and bindings in the store, like RBAC; and the reviews that `kubectl auth can-i`
//! asks for.
//!
//! A user called `system:serviceaccount:NAMESPACE:NAME` is that service account. The only groups are `system:masters`,
//! whose one member is the user `admin`, `system:serviceaccounts` and `system:authenticated`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Shared;
use super::controls::Asked;
use super::failure::Failure;
use super::kinds::{self, Kind};
use super::store::{Key, Store};

/// The user with all permissions.
pub const ADMIN: &str = "admin";

/// Refuses what the roles in the store do not allow.
pub(super) fn check(store: &Store, asked: &Asked, kind: &Kind) -> Result<(), Failure> {
    if may(store, asked) {
        return Ok(());
    }
    let resource = with_subresource(asked);
    let group = &asked.group;
    let at = if asked.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", asked.namespace)
    };
    let (user, verb) = (&asked.user, &asked.verb);
    let why = format!("User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {at}");
    Err(Failure::forbidden(kind, &asked.name, &why))
}

fn with_subresource(asked: &Asked) -> String {
    let (resource, subresource) = (&asked.resource, &asked.subresource);
    if subresource.is_empty() {
        resource.clone()
    } else {
        format!("{resource}/{subresource}")
    }
}

fn may(store: &Store, asked: &Asked) -> bool {
    if asked.user == ADMIN {
        return true;
    }
    let everywhere = bindings(store, "clusterrolebindings", None, &asked.user);
    let here = match asked.namespace.as_str() {
        "" => Vec::new(),
        namespace => bindings(store, "rolebindings", Some(namespace), &asked.user),
    };
    let roles = everywhere
        .iter()
        .chain(&here)
        .filter_map(|binding| role(store, binding, &asked.namespace));
    roles
        .into_iter()
        .any(|role| items(&role["rules"]).iter().any(|rule| allows(rule, asked)))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn bindings(store: &Store, plural: &str, namespace: Option<&str>, user: &str) -> Vec<Arc<Value>> {
    let all = store.list(kinds::named(plural), namespace);
    let mine = |binding: &Value| {
        let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
        items(&binding["subjects"])
            .iter()
            .any(|subject| is(subject, user, namespace))
    };
    all.filter(|(_, binding)| mine(binding))
        .map(|(_, binding)| Arc::clone(binding))
        .collect()
}

fn is(subject: &Value, user: &str, namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => name == user,
        Some("Group") => match name {
            "system:authenticated" => user != "system:anonymous",
            "system:serviceaccounts" => user.starts_with("system:serviceaccount:"),
            _ => false,
        },
        Some("ServiceAccount") => {
            let namespace = subject["namespace"].as_str().unwrap_or(namespace);
            user == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn role(store: &Store, binding: &Value, namespace: &str) -> Option<Arc<Value>> {
    let name = binding["roleRef"]["name"].as_str()?;
    let key = match binding["roleRef"]["kind"].as_str()? {
        "ClusterRole" => Key::new(kinds::named("clusterroles"), "", name),
        _ => Key::new(kinds::named("roles"), namespace, name),
    };
    store.get(&key).cloned()
}

fn allows(rule: &Value, asked: &Asked) -> bool {
    let has = |field: &str, wanted: &str| items(&rule[field]).iter().any(|one| one == wanted || one == "*");
    let names = items(&rule["resourceNames"]);
    has("verbs", &asked.verb)
        && has("apiGroups", &asked.group)
        && has("resources", &with_subresource(asked))
        && (names.is_empty() || names.iter().any(|name| *name == asked.name))
}

/// Answers a `SelfSubjectAccessReview`.
pub(super) fn review(shared: &Shared, asked: &Asked, path: &[&str], body: &Value) -> Result<Value, Failure> {
    if path != ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] {
        return Err(Failure::no_such_path());
    }
    let about = &body["spec"]["resourceAttributes"];
    let text = |name: &str| about[name].as_str().unwrap_or_default().to_owned();
    let wanted = Asked {
        user: asked.user.clone(),
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        ..Asked::default()
    };
    // Not in one expression: a writer locks first the store, then the controls.
    let enforced = shared.controls().rbac;
    let allowed = !enforced || may(&shared.store(), &wanted);
    let mut review = body.clone();
    review["status"] = json!({ "allowed": allowed });
    Ok(review)
}
