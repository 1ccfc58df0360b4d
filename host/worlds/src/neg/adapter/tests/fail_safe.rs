//! Unknown state changes nothing.

use trueup_sources::ObjectRef;

use super::*;

const HTTP: &str = r#"{"exposed_ports": {"80": {"name": "web"}}}"#;

fn objects() -> [Object; 3] {
    [
        service("web", HTTP),
        node("n1", json!({})),
        slice("web-1", "IPv4", json!([on("n1", "a", "10.0.0.1")])),
    ]
}

fn changes() -> Vec<Change> {
    objects().into_iter().map(is).collect()
}

#[test]
fn before_everything_was_read_once_nothing_is_desired() {
    let mut all = without_objects(&settings(json!({})));
    let web = key("web", 80);
    let first = all.take_in(&changes(), false, true);
    assert_eq!(
        (first.affected, first.notes, all.completeness.completed()),
        (BTreeSet::new(), vec![], false)
    );
    assert_eq!((all.desired(&web), all.keys()), (None, BTreeSet::new()));
    assert!(!all.completeness.is_complete() && !all.is_gone(&web));
    let second = all.take_in(&[], true, true);
    assert_eq!(
        (second.affected, all.completeness.completed()),
        ([web.clone()].into(), true)
    );
    assert!(all.desired(&web).unwrap().is_ok());
    assert!(all.is_gone(&key("web", 443)));
}

#[test]
fn what_goes_while_something_is_hidden_stands_until_it_is_known() {
    let mut all = targets(objects());
    let web = key("web", 80);
    let before = desired(&all, &web);
    let all_gone: Vec<Change> = objects().iter().map(gone).collect();
    let [of_service, of_node, of_slice] = all_gone.as_slice() else {
        panic!("three objects")
    };
    assert!(is_nothing(&all.take_in(&all_gone[1..], false, true)));
    assert_eq!(desired(&all, &web), before);
    // New objects are still accepted.
    let more = slice("web-2", "IPv4", json!([on("n1", "b", "10.0.0.2")]));
    assert_eq!(all.take_in(&[is(more)], false, true).affected, [web.clone()].into());
    assert_eq!(target(&desired(&all, &web)).len(), 2);
    all.take_in(std::slice::from_ref(of_service), false, true);
    assert!(!all.is_gone(&web) && all.desired(&web).is_some());
    // One of them returns.
    let changed = all.take_in(&[is(objects()[0].clone()), is(objects()[1].clone())], true, true);
    assert!(all.completeness.completed() && changed.affected.contains(&web));
    assert_eq!(target(&desired(&all, &web)), ["z1/default 10.0.0.2+:8080@vm-n1"]);
    _ = (of_node, of_slice);
}

#[test]
fn a_source_without_any_object_is_one_that_is_not_there() {
    let mut all = targets(objects());
    let all_gone: Vec<Change> = objects().iter().map(gone).collect();
    let changed = all.take_in(&all_gone, true, true);
    assert!(changed.is_empty && !all.completeness.is_complete());
    assert!(all.desired(&key("web", 80)).unwrap().is_ok());

    let mut new = without_objects(&settings(json!({})));
    assert!(new.take_in(&[], true, true).is_empty && !new.completeness.is_complete());
    assert!(!new.is_gone(&key("web", 80)), "it may be a folder that is not mounted");
    new.take_in(&[], true, false);
    assert!(new.completeness.completed(), "there is nothing to lose");
    let mut new = without_objects(&settings(json!({})));
    let [service, _, slice] = objects();
    assert!(new.take_in(&[is(service), is(slice)], true, true).no_nodes && !new.completeness.is_complete());
    new.take_in(&[], true, false);
    assert!(new.completeness.completed(), "there is nothing to lose");

    let cluster = Source::Kubernetes(trueup_sources::kubernetes::Settings::default());
    let mut watched = Targets::new(&settings(json!({})), &cluster, Locations::default(), []);
    watched.take_in(&changes(), true, true);
    assert!(
        !watched.take_in(&all_gone, true, true).is_empty,
        "somebody watched it go"
    );
    assert!(watched.is_gone(&key("web", 80)));
}

#[test]
fn a_key_in_a_namespace_that_is_not_looked_at_is_not_gone() {
    let cluster = Source::Kubernetes(trueup_sources::kubernetes::Settings {
        namespaces: vec!["shop".to_owned()],
        ..Default::default()
    });
    let mut all = Targets::new(&settings(json!({})), &cluster, Locations::default(), []);
    all.take_in(&changes(), true, true);
    let other = "other/web/80".parse().unwrap();
    assert!(!all.is_gone(&other) && all.is_gone(&key("api", 80)));
}

#[test]
fn an_object_that_cannot_be_read_takes_no_endpoint_away() {
    let reference = |kind, namespace: &str, name: &str| ObjectRef {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let mut all = targets(objects());
    let web = key("web", 80);
    let unreadable = |all: &mut Targets, references: &[ObjectRef]| {
        let set = Arc::new(references.iter().cloned().collect());
        assert_eq!(
            all.take_in_unreadable(&Arc::clone(&set)).is_empty(),
            references.is_empty()
        );
        assert_eq!(all.take_in_unreadable(&set), BTreeSet::new(), "the same set is no news");
        all.desired(&web)
            .map(|desired| desired.map(|desired| desired.target.len()))
    };
    let new_slice = reference(Kind::EndpointSlice, "shop", "web-9");
    assert_eq!(
        unreadable(&mut all, &[new_slice]),
        Some(Err(
            "service `shop/web`: EndpointSlice shop/web-9 can't be read, so that it is not known which endpoints there \
             are: repair it"
                .to_owned()
        ))
    );
    let known = reference(Kind::EndpointSlice, "shop", "web-1");
    assert_eq!(
        unreadable(&mut all, &[known]),
        Some(Ok(1)),
        "what was known of it stays"
    );
    let service = reference(Kind::Service, "shop", "web");
    assert_eq!(unreadable(&mut all, &[service]), Some(Ok(1)));

    let other = is(node("n9", json!({})));
    all.take_in(&[gone(&node("n1", json!({}))), other], true, true);
    let new_node = reference(Kind::Node, "", "n1");
    let said = unreadable(&mut all, &[new_node]).unwrap().unwrap_err();
    assert!(said.contains("Node n1 can't be read"), "{said}");
    all.take_in_unreadable(&Arc::default());
    let left = desired(&all, &key("web", 80)).target;
    assert_eq!(left, [], "the Node is gone");

    let hidden = reference(Kind::Service, "shop", "api");
    all.take_in_unreadable(&Arc::new([hidden].into()));
    assert!(!all.is_gone(&key("api", 80)) && all.is_gone(&key("other", 80)));
}

#[test]
fn where_nodes_were_is_remembered() {
    let all = [
        node("n1", json!({})),
        node("n2", json!({"metadata": {"labels": {ZONE_LABEL: "z2"}}})),
    ];
    let (mut first, _) = targets_with(&settings(json!({})), all.into_iter().chain([service("web", HTTP)]));
    let z2 = node("n2", json!({}));
    let changed = first.take_in(&[gone(&z2)], true, true);
    assert!(changed.affected.is_empty());
    assert_eq!(desired(&first, &key("web", 80)).settings["zones"], json!(["z1", "z2"]));

    let locations: Locations = serde_json::from_value(serde_json::to_value(first.locations).unwrap()).unwrap();
    let mut second = Targets::new(&settings(json!({})), &manifests(), locations, []);
    second.take_in(&[is(node("n1", json!({}))), is(service("web", HTTP))], true, true);
    assert_eq!(desired(&second, &key("web", 80)).settings["zones"], json!(["z1", "z2"]));
}
