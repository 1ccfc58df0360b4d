//! From objects to the desired state: one statement per test.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use trueup_capabilities::neg::EndpointGroup;
use trueup_config::{NEG_NAMES, NegAdapter as Settings, ZONES, is_resource_name};
use trueup_sources::{Change, Kind, Object, Source};
use trueup_work::keyed::SourceChanges;

use super::annotation::ANNOTATION;
use super::*;
use crate::slices::SERVICE_LABEL;
use crate::slices::testing::{gone, is, merge};

mod endpoints;
mod fail_safe;
mod property;

pub(super) fn settings(patch: Value) -> Settings {
    let mut settings = json!({"cluster": "c1", "subnet": "default"});
    merge(&mut settings, patch);
    serde_json::from_value(settings).unwrap()
}

pub(super) fn key(name: &str, port: u16) -> Key {
    format!("shop/{name}/{port}").parse().unwrap()
}

/// A Service in `shop` with two ports and this annotation.
pub(super) fn service(name: &str, annotation: &str) -> Object {
    patched_service(name, json!({"metadata": {"annotations": {ANNOTATION: annotation}}}))
}

pub(super) fn patched_service(name: &str, patch: Value) -> Object {
    let mut service = json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443, "protocol": "TCP"}]},
    });
    merge(&mut service, patch);
    Object::Service(Arc::new(serde_json::from_value(service).unwrap()))
}

pub(super) fn node(name: &str, patch: Value) -> Object {
    let mut node = json!({
        "metadata": {"name": name, "labels": {ZONE_LABEL: "z1"}}, "spec": {"providerID": format!("gce://p/z1/vm-{name}")},
    });
    merge(&mut node, patch);
    Object::Node(Arc::new(serde_json::from_value(node).unwrap()))
}

/// A slice of the Service `web`, whose ports 80 and 443 are 8080 and 8443 at the endpoints.
pub(super) fn slice(name: &str, family: &str, endpoints: Value) -> Object {
    patched_slice(name, family, json!({"endpoints": endpoints}))
}

pub(super) fn patched_slice(name: &str, family: &str, patch: Value) -> Object {
    let mut slice = json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {SERVICE_LABEL: "web"}},
        "addressType": family, "endpoints": [],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "https", "port": 8443, "protocol": "TCP"}],
    });
    merge(&mut slice, patch);
    Object::EndpointSlice(Arc::new(serde_json::from_value(slice).unwrap()))
}

/// An endpoint of the pod `pod` on a Node.
pub(super) fn on(node: &str, pod: &str, address: &str) -> Value {
    json!({
        "addresses": [address], "nodeName": node, "conditions": {"ready": true},
        "targetRef": {"kind": "Pod", "name": pod, "uid": format!("uid-{pod}")},
    })
}

/// A source of files.
pub(super) fn manifests() -> Source {
    Source::Manifests(std::path::PathBuf::new())
}

pub(super) fn without_objects(settings: &Settings) -> Targets {
    Targets::new(settings, &manifests(), Locations::default(), [])
}

pub(super) fn targets_with(
    settings: &Settings,
    objects: impl IntoIterator<Item = Object>,
) -> (Targets, SourceChanges<Key>) {
    let mut targets = without_objects(settings);
    let changes: Vec<Change> = objects.into_iter().map(is).collect();
    let changed = targets.take_in(&changes, true, false);
    (targets, changed)
}

pub(super) fn targets(objects: impl IntoIterator<Item = Object>) -> Targets {
    targets_with(&settings(json!({})), objects).0
}

pub(super) fn desired(targets: &Targets, key: &Key) -> Desired {
    targets.desired(key).unwrap().unwrap()
}

/// `zone/subnet ip+ipv6:port@node` for each endpoint.
pub(super) fn target(desired: &Desired) -> Vec<String> {
    let of = |group: &EndpointGroup| {
        let at = format!("{}/{}", group.location.zone, group.location.subnet);
        let text = |endpoint: &trueup_capabilities::neg::Endpoint| {
            let trueup_capabilities::neg::Endpoint { ip, ipv6, port, node } = endpoint;
            format!("{at} {ip}+{ipv6}:{port}@{node}")
        };
        group.endpoints.iter().map(text).collect::<Vec<_>>()
    };
    desired.target.iter().flat_map(of).collect()
}

/// Whether a look showed nothing new.
pub(super) fn is_nothing(changed: &SourceChanges<Key>) -> bool {
    changed.affected.is_empty() && changed.seen.is_empty() && changed.notes.is_empty()
}

const BOTH: &str = r#"{"exposed_ports": {"80": {"name": "web"}, "443": {}}}"#;

#[test]
fn each_exposed_port_of_a_service_is_a_key_of_its_own() {
    let all = targets([
        service("web", BOTH),
        node("n1", json!({})),
        slice("web-1", "IPv4", json!([on("n1", "a", "10.0.0.1")])),
    ]);
    assert_eq!(all.keys(), [key("web", 80), key("web", 443)].into());
    let http = desired(&all, &key("web", 80));
    assert_eq!(target(&http), ["z1/default 10.0.0.1+:8080@vm-n1"]);
    assert_eq!(
        Value::Object(http.settings),
        json!({"neg_names": {"default": "web"}, "zones": ["z1"]})
    );
    let https = desired(&all, &key("web", 443));
    assert_eq!(target(&https), ["z1/default 10.0.0.1+:8443@vm-n1"]);
    let made = made_name("c1", &key("web", 443));
    assert_eq!(https.settings["neg_names"], json!({"default": made}));
}

#[test]
fn a_made_name_and_that_of_another_subnet_are_the_same_for_ever() {
    let name = made_name("c1", &key("web", 443));
    // Computed independently: if an upgrade changed the name, every NEG would be orphaned.
    assert_eq!(name, "trueup-8e30baf4329c8bb7add5");
    assert!(is_resource_name(&name));
    let other = "sho/pweb/443".parse().unwrap();
    assert_ne!(name, made_name("c1", &other), "the parts are not run together");
    // printf %s other | sha256sum
    assert_eq!(name_in_subnet("web", "other"), "web-d9298a");
    let long = name_in_subnet(&"n".repeat(63), "other");
    assert_eq!(long, format!("{}-d9298a", "n".repeat(56)));
    assert!(is_resource_name(&long));
}

#[test]
fn a_name_is_rfc_1035_of_at_most_63() {
    let long = "n".repeat(63);
    for good in ["a", "web-1", long.as_str()] {
        assert!(is_resource_name(good), "{good}");
    }
    let longer = "n".repeat(64);
    for bad in ["", "1a", "-a", "a-", "Web", "a_b", "a.b", longer.as_str()] {
        assert!(!is_resource_name(bad), "{bad}");
    }
}

#[test]
fn keys_are_read_back_from_their_text() {
    let web = key("web", 80);
    assert_eq!(web.to_string(), "shop/web/80");
    assert_eq!("shop/web/80".parse(), Ok(web));
    for bad in [
        "shop/web",
        "shop/web/0",
        "shop/web/080",
        "shop/web/80/1",
        "/web/80",
        "shop//80",
        "",
    ] {
        let said = bad.parse::<Key>().unwrap_err();
        assert_eq!(
            said,
            format!("key `{bad}`: must be NAMESPACE/SERVICE/PORT, such as `shop/web/80`")
        );
    }
}

#[test]
fn an_invalid_annotation_fails_every_port_of_the_service_with_one_line() {
    let name = "must be 1 to 63 lower case letters, digits and `-`, with a letter first and no `-` last";
    for (annotation, ports, said) in [
        (
            r#"{"exposed_ports": {"80": {}, "81": {}}}"#,
            vec![80, 81],
            "exposed_ports: port `81`: the Service has no such port: it has 80, 443, 53".to_owned(),
        ),
        (
            r#"{"exposed_ports": {"53": {}}}"#,
            vec![53],
            "exposed_ports: port `53`: has protocol `UDP`: only TCP goes through a NEG".to_owned(),
        ),
        (
            r#"{"exposed_ports": {"http": {}}}"#,
            vec![80, 443, 53],
            "exposed_ports: port `http`: must be a number from 1 to 65535".to_owned(),
        ),
        (
            r#"{"exposed_ports": {"80": {"name": "Web"}}}"#,
            vec![80],
            format!("exposed_ports: port `80`: name was `Web`, {name}"),
        ),
    ] {
        let ports_of =
            json!([{"port": 80}, {"name": "https", "port": 443}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let patch = json!({"metadata": {"annotations": {ANNOTATION: annotation}}, "spec": {"ports": ports_of}});
        let all = targets([patched_service("web", patch)]);
        let keys: BTreeSet<Key> = ports.into_iter().map(|port| key("web", port)).collect();
        assert_eq!(all.keys(), keys, "{annotation}");
        // This includes a port that it had before and no longer names: nothing changes.
        for key in keys.iter().chain([&key("web", 9999)]) {
            let text = all.desired(key).unwrap().unwrap_err();
            assert_eq!(
                text,
                format!("service `shop/web`: annotation `cloud.google.com/neg`: {said}")
            );
            assert!(!all.is_gone(key));
        }
    }
    for annotation in [
        "",
        "{",
        "[]",
        r#"{"exposed_ports": [80]}"#,
        r#"{"exposed_ports": {"80": ["web"]}}"#,
        r#"[true]"#,
        r#"{"exposed_ports": {"80": {"nmae": "web"}}}"#,
        r#"{"exposd_ports": {"80": {}}}"#,
    ] {
        let all = targets([service("web", annotation)]);
        assert_eq!(all.keys(), [key("web", 80), key("web", 443)].into(), "{annotation}");
        let text = all.desired(&key("web", 80)).unwrap().unwrap_err();
        assert!(
            text.starts_with("service `shop/web`: annotation `cloud.google.com/neg`: ") && text.lines().count() == 1,
            "{text}"
        );
        assert!(
            text.ends_with(r#"must be JSON such as `{"exposed_ports": {"80": {"name": "web"}}}`"#),
            "{text}"
        );
    }
}

#[test]
fn a_service_that_asks_for_nothing_is_no_key() {
    for annotation in [r#"{}"#, r#"{"exposed_ports": {}}"#, r#"{"exposed_ports": null}"#] {
        let (all, changed) = targets_with(&settings(json!({})), [service("web", annotation)]);
        assert_eq!((all.keys(), changed.notes), (BTreeSet::new(), vec![]), "{annotation}");
        assert!(all.is_gone(&key("web", 80)));
    }
    let deleted = json!({"metadata": {
        "annotations": {ANNOTATION: BOTH}, "deletionTimestamp": "2026-01-02T03:04:05Z",
    }});
    for service in [patched_service("web", deleted), patched_service("web", json!({}))] {
        let all = targets([service]);
        assert_eq!(all.desired(&key("web", 80)), None);
        assert!(all.is_gone(&key("web", 80)));
    }
    let (all, changed) = targets_with(&settings(json!({})), [service("web", r#"{"ingress": true}"#)]);
    assert_eq!(all.keys(), BTreeSet::new());
    assert_eq!(
        changed.notes,
        [
            "service `shop/web`: annotation `cloud.google.com/neg` asks for NEGs of an Ingress, which are not made here: \
          name ports in `exposed_ports`"
        ]
    );
    let null = targets([service("web", r#"{"ingress": true, "exposed_ports": {"80": null}}"#)]);
    assert_eq!(null.keys(), [key("web", 80)].into());
}

#[test]
fn of_two_that_come_to_one_name_the_one_that_has_it_keeps_it() {
    let named = |name: &str| format!(r#"{{"exposed_ports": {{"80": {{"name": "{name}"}}}}}}"#);
    let (a, b) = (service("a", &named("x")), service("b", &named("x")));
    let mut all = targets([b.clone(), a.clone(), service("c", &named("y")), node("n1", json!({}))]);
    assert!(all.desired(&key("a", 80)).unwrap().is_ok());
    assert_eq!(
        all.desired(&key("b", 80)).unwrap().unwrap_err(),
        "service `shop/b`: port 80: NEG `x` is that of port 80 of service `shop/a`: give it another name"
    );
    assert_eq!(all.owner("x"), Some(&key("a", 80)));

    let changed = all.take_in(&[gone(&a)], true, true);
    assert_eq!(
        changed.affected,
        [key("a", 80), key("b", 80)].into(),
        "and no other key"
    );
    assert!(all.desired(&key("b", 80)).unwrap().is_ok());
    assert!(all.is_gone(&key("a", 80)));
    assert_eq!(all.owner("x"), Some(&key("b", 80)), "emptying NEGs leaves this one");

    let changed = all.take_in(&[is(a.clone())], true, true);
    assert!(changed.affected.contains(&key("a", 80)));
    assert!(all.desired(&key("b", 80)).unwrap().is_ok(), "a newcomer takes nothing");
    assert!(all.desired(&key("a", 80)).unwrap().is_err());
    let held = ("x".to_owned(), key("b", 80));
    let mut again = Targets::new(&settings(json!({})), &manifests(), Locations::default(), [held]);
    again.take_in(&[is(a), is(b)], true, true);
    assert_eq!(again.owner("x"), Some(&key("b", 80)), "nor after a restart");
    let broken = service("b", r#"{"exposed_ports": {"80": {"nmae": "x"}}}"#);
    again.take_in(&[is(broken.clone())], true, true);
    assert_eq!(
        again.owner("x"),
        Some(&key("b", 80)),
        "nor while the annotation is broken"
    );
    let held = ("x".to_owned(), key("b", 80));
    let mut anew = Targets::new(&settings(json!({})), &manifests(), Locations::default(), [held]);
    anew.take_in(&[is(service("a", &named("x"))), is(broken)], true, true);
    assert_eq!(anew.owner("x"), Some(&key("b", 80)), "nor if it is at the start");
    let twice = r#"{"exposed_ports": {"80": {"name": "x"}, "443": {"name": "x"}}}"#;
    let one = targets([service("web", twice)]);
    assert!(one.desired(&key("web", 80)).unwrap().is_ok() && one.desired(&key("web", 443)).unwrap().is_err());
}

#[test]
fn a_name_that_another_one_comes_to_in_a_subnet_is_taken_too() {
    let settings = settings(json!({"subnet_label": "subnet"}));
    let name = name_in_subnet("x", "other");
    let taken = format!(r#"{{"exposed_ports": {{"80": {{"name": "{name}"}}}}}}"#);
    let x = r#"{"exposed_ports": {"80": {"name": "x"}}}"#;
    let (mut all, _) = targets_with(&settings, [service("a", x), service("b", &taken)]);
    assert!(all.desired(&key("b", 80)).unwrap().is_ok());
    let there = node("n1", json!({"metadata": {"labels": {"subnet": "other"}}}));
    let changed = all.take_in(&[is(there)], true, true);
    assert_eq!(changed.affected, [key("a", 80), key("b", 80)].into());
    assert!(all.locations.subnets.contains("other"));
    assert!(all.desired(&key("b", 80)).unwrap().is_ok(), "it has the NEG");
    assert!(all.desired(&key("a", 80)).unwrap().is_err());
}

#[test]
fn the_example_of_negs_may_write_the_negs_it_names() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/neg");
    let worlds = [trueup_config::NEG];
    let config = trueup_config::Config::load_with(&folder, &std::collections::BTreeMap::new(), &worlds).unwrap();
    let neg = config.world::<trueup_config::Neg>().unwrap();
    let snapshot = trueup_sources::manifests::load(&folder.join("manifests")).unwrap();
    assert_eq!(snapshot.problems, []);
    let mut targets = without_objects(&neg.adapter);
    let changes = trueup_sources::Objects::default().changes_to(&snapshot.objects);
    let changed = targets.take_in(&changes, snapshot.is_complete(), false);
    assert_eq!(changed.notes, Vec::<String>::new());
    assert_eq!(targets.keys().len(), 2, "two Services");
    for key in targets.keys() {
        let desired = targets.desired(&key).unwrap().unwrap();
        let zones: BTreeSet<_> = desired.target.iter().map(|group| &group.location.zone).collect();
        assert_eq!(zones.len(), 3, "in three zones");
        for name in desired.settings[NEG_NAMES].as_object().unwrap().values() {
            for zone in desired.settings[ZONES].as_array().unwrap() {
                let (name, zone) = (name.as_str().unwrap(), zone.as_str().unwrap());
                let write = trueup_capabilities::grants::Access::Write;
                assert!(neg.guest.grants.allow_neg(write, name, zone));
            }
        }
    }
}
