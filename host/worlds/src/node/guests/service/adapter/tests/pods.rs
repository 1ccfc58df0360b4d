//! Which pods are local, and their interfaces.

use super::*;
use crate::node::guests::service::LocalPod;

fn local(name: &str, ip: &str, interface: Option<&str>) -> LocalPod {
    LocalPod {
        id: id(name),
        ip: ip.to_owned(),
        interface_name: interface.map(str::to_owned),
    }
}

#[test]
fn pods_of_this_node_that_run_at_an_address_are_local() {
    let on_other = json!({"spec": {"nodeName": "node-b"}});
    let nowhere = json!({"spec": {"nodeName": null}});
    let ended = |phase: &str| json!({"status": {"phase": phase}});
    let cluster = with([
        pod("a", "10.1.1.1", json!({})),
        pod("b", "10.1.1.2", on_other),
        pod("c", "10.1.1.3", nowhere),
        pod("d", "", json!({})),
        pod("e", "10.1.1.5", json!({"status": null})),
        pod("f", "10.1.1.6", ended("Succeeded")),
        pod("g", "10.1.1.7", ended("Failed")),
        pod("h", "10.1.1.8", ended("Pending")),
        pod("i", "10.1.1.9", json!({"status": {"phase": null}})),
    ]);
    assert_eq!(
        cluster.local_pods(),
        [
            local("a", "10.1.1.1", None),
            local("h", "10.1.1.8", None),
            local("i", "10.1.1.9", None)
        ]
    );
}

#[test]
fn a_pod_is_told_when_it_gets_its_address_and_when_it_has_ended() {
    let mut cluster = with([node("n", "10.0.0.1")]);
    let at = |ip: &str, phase: &str| pod("a", ip, json!({"status": {"phase": phase}}));
    let mut told = |object: Object| short(&cluster.take_in(&look([is(object)])).events);
    assert_eq!(told(at("", "Pending")), [""; 0]);
    assert_eq!(told(at("10.1.1.1", "Running")), ["pod a"]);
    assert_eq!(told(at("10.1.1.1", "Running")), [""; 0]);
    assert_eq!(told(at("10.1.1.2", "Running")), ["pod a"], "another one of its name");
    assert_eq!(told(at("10.1.1.2", "Succeeded")), ["-pod a"]);
}

#[test]
fn pods_are_told_with_the_interfaces_of_a_pattern_or_a_file() {
    let on_host = json!({"spec": {"hostNetwork": true}});
    let pods = || {
        [
            pod("a", "10.1.1.1", json!({})),
            pod("b", "10.1.1.2", json!({})),
            pod("h", "192.168.16.1", on_host.clone()),
        ]
    };
    let a = local("a", "10.1.1.1", Some("tap-a"));
    let h = local("h", "192.168.16.1", None);
    let mut by_pattern = cluster_with(Interfaces::Pattern(Pattern::parse("tap-{name}").unwrap()));
    by_pattern.take_in(&look(pods().map(is)));
    let b = local("b", "10.1.1.2", Some("tap-b"));
    assert_eq!(by_pattern.local_pods(), [a.clone(), b, h.clone()]);

    let names = read_interfaces("shop/a: tap-a\nshop/h: tap-h\n", "f".as_ref()).unwrap();
    let mut by_file = cluster_with(Interfaces::File(names));
    by_file.take_in(&look([]));
    by_file.take_in(&look([is(node("n", "10.0.0.1"))]));
    let told = by_file.take_in(&look(pods().map(is)));
    let b = local("b", "10.1.1.2", None);
    assert_eq!(told.events, [a, b, h].map(Event::PodAdded), "`h` has none of its own");
}

#[test]
fn a_pod_that_the_pattern_gives_no_interface_has_none_and_a_note() {
    let long = "n".repeat(60);
    let mut cluster = cluster_with(Interfaces::Pattern(Pattern::parse("tap-{name}").unwrap()));
    let note = format!(
        "pod `shop/{long}`: no interface is known: by `tap-{{name}}` it would be `tap-{long}`, which has 64 bytes, and may have 63"
    );
    let told = cluster.take_in(&look([is(pod(&long, "10.1.1.1", json!({})))]));
    assert_eq!(told.notes, [note]);
    assert_eq!(cluster.local_pods(), [local(&long, "10.1.1.1", None)]);
    let mut shorter = cluster_with(Interfaces::Pattern(Pattern::parse("t-{name}").unwrap()));
    shorter.take_in(&look([is(pod(&long, "10.1.1.1", json!({})))]));
    assert_eq!(shorter.notes().count(), 0);

    let mut cluster = cluster_with(Interfaces::Pattern(Pattern::parse("{uid}").unwrap()));
    let told = cluster.take_in(&look([is(pod(&long, "10.1.1.1", json!({})))]));
    assert_eq!(told.notes, [""; 0]);
    let nameless = pod(&long, "10.1.1.1", json!({"metadata": {"uid": null}}));
    let told = cluster.take_in(&look([is(nameless)]));
    let note = format!("pod `shop/{long}`: no interface is known: by `{{uid}}` it takes its uid, and it has none");
    assert_eq!(told.notes, [note]);
}
