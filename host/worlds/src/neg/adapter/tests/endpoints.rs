//! Which endpoints exist, and where.

use super::*;

const HTTP: &str = r#"{"exposed_ports": {"80": {"name": "web"}}}"#;

fn of_slices(slices: impl IntoIterator<Item = Object>) -> Desired {
    let others = [service("web", HTTP), node("n1", json!({})), node("n2", json!({}))];
    desired(&targets(others.into_iter().chain(slices)), &key("web", 80))
}

#[test]
fn both_families_of_a_pod_are_one_endpoint() {
    let both = |v4: Value, v6: Value| {
        let slices = [slice("web-4", "IPv4", json!([v4])), slice("web-6", "IPv6", json!([v6]))];
        target(&of_slices(slices))
    };
    let one = ["z1/default 10.0.0.1+fd00::1:8080@vm-n1"];
    let two = ["z1/default +fd00::1:8080@vm-n1", "z1/default 10.0.0.1+:8080@vm-n1"];
    assert_eq!(
        both(on("n1", "a", "10.0.0.1"), on("n1", "a", "FD00:0::1")),
        one,
        "in one spelling"
    );
    assert_eq!(both(on("n1", "a", "10.0.0.1"), on("n1", "b", "fd00::1")), two);
    let without = |address: &str, patch: Value| {
        let mut endpoint = on("n1", "a", address);
        merge(&mut endpoint, patch);
        endpoint
    };
    for (patch, expected) in [
        (json!({"targetRef": {"uid": null}}), one.as_slice()),
        (json!({"targetRef": null, "hostname": "h"}), &one),
        (json!({"targetRef": null}), &two),
    ] {
        let endpoints = both(without("10.0.0.1", patch.clone()), without("fd00::1", patch.clone()));
        assert_eq!(endpoints, expected, "{patch}");
    }
    let elsewhere = on("n2", "a", "fd00::1");
    let apart = ["z1/default +fd00::1:8080@vm-n2", "z1/default 10.0.0.1+:8080@vm-n1"];
    assert_eq!(
        both(on("n1", "a", "10.0.0.1"), elsewhere),
        apart,
        "on two Nodes it is no one pod"
    );
}

#[test]
fn all_slices_are_united_and_what_is_not_ready_is_no_endpoint() {
    let ready = |ready: Value, address: &str| {
        let mut endpoint = on("n1", address, address);
        merge(&mut endpoint, json!({"conditions": ready}));
        endpoint
    };
    let slices = [
        slice(
            "web-1",
            "IPv4",
            json!([
                ready(json!({"ready": false}), "10.0.0.1"),
                ready(json!({"ready": null}), "10.0.0.2"),
                ready(Value::Null, "10.0.0.3"),
                ready(json!({"ready": false}), "10.0.0.4"),
            ]),
        ),
        slice(
            "web-2",
            "IPv4",
            json!([on("n2", "e", "10.0.0.10"), on("n1", "10.0.0.4", "10.0.0.4")]),
        ),
        // One has no Service, the other belongs to another Service.
        patched_slice(
            "web-3",
            "IPv4",
            json!({
                "metadata": {"labels": null}, "endpoints": [on("n1", "f", "10.0.0.6")],
            }),
        ),
        patched_slice(
            "web-4",
            "IPv4",
            json!({
                "metadata": {"labels": {SERVICE_LABEL: "api"}}, "endpoints": [on("n1", "g", "10.0.0.7")],
            }),
        ),
    ];
    let expected = [
        "z1/default 10.0.0.2+:8080@vm-n1",
        "z1/default 10.0.0.3+:8080@vm-n1",
        "z1/default 10.0.0.4+:8080@vm-n1",
        "z1/default 10.0.0.10+:8080@vm-n2",
    ];
    let desired = of_slices(slices);
    assert_eq!(target(&desired), expected);
}

#[test]
fn a_port_is_found_in_slices_by_its_name() {
    let with_ports = |name: &str, ports: Value, address: &str| {
        patched_slice(
            name,
            "IPv4",
            json!({"ports": ports, "endpoints": [on("n1", address, address)]}),
        )
    };
    // A named targetPort may have a different number in each pod.
    let slices = [
        with_ports("web-1", json!([{"name": "http", "port": 8080}]), "10.0.0.1"),
        with_ports(
            "web-2",
            json!([{"name": "http", "port": 9090}, {"port": 1}]),
            "10.0.0.2",
        ),
        with_ports(
            "web-3",
            json!([{"name": "http", "port": 53, "protocol": "UDP"}]),
            "10.0.0.3",
        ),
        with_ports("web-4", json!([{"name": "other", "port": 80}]), "10.0.0.4"),
        with_ports("web-5", json!([{"name": "http", "port": null}]), "10.0.0.5"),
        with_ports("web-6", Value::Null, "10.0.0.6"),
    ];
    let expected = ["z1/default 10.0.0.1+:8080@vm-n1", "z1/default 10.0.0.2+:9090@vm-n1"];
    assert_eq!(target(&of_slices(slices)), expected);

    let nameless = json!({
        "metadata": {"annotations": {ANNOTATION: HTTP}}, "spec": {"ports": [{"port": 80}]},
    });
    let all = targets([
        patched_service("web", nameless),
        node("n1", json!({})),
        with_ports("web-1", json!([{"name": "", "port": 8080}]), "10.0.0.1"),
        with_ports("web-2", json!([{"port": 8080}]), "10.0.0.2"),
    ]);
    assert_eq!(desired(&all, &key("web", 80)).target[0].endpoints.len(), 2);
}

#[test]
fn a_node_says_instance_zone_and_subnet() {
    let settings = settings(json!({"subnet_label": "example.com/subnet", "zones": ["z9"]}));
    let subnet = json!({"metadata": {"labels": {"example.com/subnet": "other", ZONE_LABEL: "z2"}}});
    let (all, changed) = targets_with(
        &settings,
        [
            service("web", HTTP),
            node("n1", json!({})),
            node("n2", subnet),
            node("n3", json!({"spec": {"providerID": "kind://docker/c/n3"}})),
            node(
                "n4",
                json!({"spec": null, "metadata": {"labels": {"example.com/subnet": ""}}}),
            ),
            slice(
                "web-1",
                "IPv4",
                json!([
                    on("n1", "a", "10.0.0.1"),
                    on("n2", "b", "10.0.0.2"),
                    on("n3", "c", "10.0.0.3"),
                    on("n4", "d", "10.0.0.4"),
                ]),
            ),
        ],
    );
    assert_eq!(changed.notes, Vec::<String>::new());
    let desired = desired(&all, &key("web", 80));
    let expected = [
        "z1/default 10.0.0.1+:8080@vm-n1",
        "z1/default 10.0.0.3+:8080@n3",
        "z1/default 10.0.0.4+:8080@n4",
        "z2/other 10.0.0.2+:8080@vm-n2",
    ];
    assert_eq!(target(&desired), expected);
    let names = json!({"neg_names": {"default": "web", "other": "web-d9298a"}, "zones": ["z1", "z2", "z9"]});
    assert_eq!(Value::Object(desired.settings), names);
}

#[test]
fn endpoints_that_no_neg_can_have_are_counted_and_told_once() {
    let settings = settings(json!({"subnet": null, "subnet_label": "subnet"}));
    let labelled = json!({"metadata": {"labels": {"subnet": "s1"}}});
    let mut nowhere = on("", "d", "10.0.0.4");
    merge(&mut nowhere, json!({"nodeName": null}));
    let web = slice(
        "web-1",
        "IPv4",
        json!([
            on("n1", "a", "10.0.0.1"),
            on("n2", "b", "10.0.0.2"),
            on("n3", "c", "10.0.0.3"),
            nowhere,
            on("n4", "e", "10.0.0.5"),
            on("n4", "f", "10.0.0.256"),
            on("n4", "g", ""),
        ]),
    );
    let objects = [
        service("web", HTTP),
        node(
            "n2",
            json!({"metadata": {"labels": {ZONE_LABEL: null, "subnet": "s1"}}}),
        ),
        node("n3", json!({})),
        node("n4", labelled.clone()),
        web.clone(),
        patched_slice(
            "web-2",
            "IPv6",
            json!({"endpoints": [on("n4", "e", "::ffff:10.0.0.5")]}),
        ),
        patched_slice("web-3", "FQDN", json!({"endpoints": [on("n4", "e", "a.example")]})),
    ];
    let (mut all, changed) = targets_with(&settings, objects);
    let one = desired(&all, &key("web", 80));
    assert_eq!(target(&one), ["z1/s1 10.0.0.5+:8080@vm-n4"]);
    let address = "no address that a NEG takes, IPv4 or IPv6: in no NEG until there is one";
    let expected = [
        "node `n1` is not known: endpoints on it are in no NEG until it is".to_owned(),
        "node `n2` has no label `topology.kubernetes.io/zone`: endpoints on it are in no NEG until it has".to_owned(),
        "node `n3` has no label `subnet`: endpoints on it are in no NEG until it has, or [adapter.neg] names a `subnet`"
            .to_owned(),
        "service `shop/web`: EndpointSlice `web-1`: endpoint `10.0.0.256` and 1 more have ".to_owned() + address,
        "service `shop/web`: EndpointSlice `web-1`: endpoint `10.0.0.4` has no `nodeName`, so that it is not known in which \
         zone: in no NEG until there is one"
            .to_owned(),
        "service `shop/web`: EndpointSlice `web-2`: endpoint `::ffff:10.0.0.5` has ".to_owned() + address,
        "service `shop/web`: EndpointSlice `web-3`: endpoint `a.example` has ".to_owned() + address,
    ];
    assert_eq!(changed.notes, expected);

    assert_eq!(
        all.take_in(&[is(web)], true, true).notes,
        Vec::<String>::new(),
        "told once"
    );
    let repaired = all.take_in(&[is(node("n1", labelled))], true, true);
    assert_eq!((repaired.affected, repaired.notes), ([key("web", 80)].into(), vec![]));
    assert_eq!(target(&desired(&all, &key("web", 80))).len(), 2);
    let again = all.take_in(&[gone(&node("n1", json!({})))], true, true);
    assert_eq!(again.notes, expected[..1], "it comes again, and is told again");
}

#[test]
fn a_node_that_only_reports_itself_affects_no_key() {
    let mut all = targets([
        service("web", HTTP),
        node("n1", json!({})),
        node("n2", json!({})),
        slice("web-1", "IPv4", json!([on("n1", "a", "10.0.0.1")])),
    ]);
    let alive = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert!(is_nothing(&all.take_in(&[is(node("n1", alive))], true, true)));
    let moved = json!({"spec": {"providerID": "gce://p/z1/other"}});
    let changed = all.take_in(&[is(node("n2", moved.clone()))], true, true);
    assert_eq!(changed.affected, BTreeSet::new(), "nothing of it is there");
    let changed = all.take_in(&[is(node("n1", moved))], true, true);
    assert_eq!(changed.affected, [key("web", 80)].into());
    assert_eq!(changed.seen.len(), 1);
    let input = &changed.seen[0].input;
    assert_eq!((input.kind.as_str(), input.name.as_str()), ("Node", "n1"));
}
