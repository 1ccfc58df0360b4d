//! The endpoints that slices result in.

use super::*;
use crate::node::guests::service::{EndpointPort, EndpointSubset, Endpoints, Protocol};

/// `address@node>namespace/pod ... : name/protocol/port ...` for each subset.
fn subsets(endpoints: &Endpoints) -> Vec<String> {
    let protocol = |protocol: Protocol| match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    let port = |port: &EndpointPort| format!("{}/{}/{}", port.name, protocol(port.protocol), port.port);
    let subset = |subset: &EndpointSubset| {
        let addresses = subset.addresses.iter().map(|address| {
            let pod = address.target_pod.as_ref();
            let pod = pod.map(|pod| format!(">{}/{}", pod.namespace, pod.name));
            format!("{}@{}{}", address.ip, address.node_name, pod.unwrap_or_default())
        });
        let addresses: Vec<String> = addresses.collect();
        let ports: Vec<String> = subset.ports.iter().map(port).collect();
        format!("{} : {}", addresses.join(" "), ports.join(" "))
    };
    endpoints.subsets.iter().map(subset).collect()
}

/// The endpoints of `web`, for any order of the slices.
fn of(slices: impl IntoIterator<Item = Object>) -> Vec<String> {
    let slices: Vec<Object> = slices.into_iter().collect();
    let all = with(slices.iter().cloned()).endpoints();
    let backwards = with(slices.into_iter().rev()).endpoints();
    assert_eq!(all, backwards);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].id, id("web"));
    subsets(&all[0])
}

fn ready(last: u8) -> Value {
    endpoint(&format!("10.1.1.{last}"), &format!("p{last}"), "ready")
}

fn terminating(last: u8) -> Value {
    endpoint(&format!("10.1.1.{last}"), &format!("p{last}"), "terminating")
}

#[test]
fn all_slices_of_a_service_are_united_by_their_ports() {
    let one = slice("web-1", http(8080), json!([ready(2), ready(1)]));
    let two = slice("web-2", http(8080), json!([ready(10)]));
    let three = slice("web-3", http(8081), json!([ready(3)]));
    assert_eq!(
        of([one, two, three]),
        [
            "10.1.1.1@node-a>shop/p1 10.1.1.2@node-a>shop/p2 10.1.1.10@node-a>shop/p10 : http/tcp/8080",
            "10.1.1.3@node-a>shop/p3 : http/tcp/8081",
        ]
    );
}

#[test]
fn slices_of_other_services_are_theirs() {
    let ours = slice("web-1", http(80), json!([ready(1)]));
    let foreign = slice_of("api", "web-2", json!({"ports": http(80), "endpoints": [ready(2)]}));
    let ownerless = slice_of("", "web-3", json!({"ports": http(80), "endpoints": [ready(3)]}));
    let cluster = with([ours, foreign, ownerless]);
    let all: Vec<Vec<String>> = cluster.endpoints().iter().map(subsets).collect();
    assert_eq!(
        all,
        [
            ["10.1.1.2@node-a>shop/p2 : http/tcp/80"],
            ["10.1.1.1@node-a>shop/p1 : http/tcp/80"]
        ]
    );
}

#[test]
fn an_address_in_several_slices_is_one_with_all_their_ports() {
    let admin = json!([{"name": "admin", "port": 9090}]);
    assert_eq!(
        of([
            slice("web-1", http(8080), json!([ready(1), ready(2)])),
            slice("web-2", admin, json!([ready(1)])),
            slice("web-3", http(8080), json!([ready(1)])),
        ]),
        [
            "10.1.1.1@node-a>shop/p1 : admin/tcp/9090 http/tcp/8080",
            "10.1.1.2@node-a>shop/p2 : http/tcp/8080",
        ]
    );
    let without_pod = json!([{"addresses": ["10.1.1.1"], "nodeName": "node-b"}]);
    assert_eq!(
        of([
            slice("web-0", http(8080), without_pod),
            slice("web-1", http(8080), json!([ready(1)])),
        ]),
        ["10.1.1.1@node-a>shop/p1 : http/tcp/8080"]
    );
    let terminating = json!([endpoint("10.1.1.1", "before", "terminating")]);
    assert_eq!(
        of([
            slice("web-0", http(8080), terminating),
            slice("web-1", http(8080), json!([ready(1)])),
        ]),
        ["10.1.1.1@node-a>shop/p1 : http/tcp/8080"]
    );
}

#[test]
fn endpoints_that_terminate_count_where_none_is_ready() {
    let neither = endpoint("10.1.1.9", "p9", "neither");
    assert_eq!(
        of([slice(
            "web-1",
            http(80),
            json!([ready(1), terminating(2), neither.clone()])
        )]),
        ["10.1.1.1@node-a>shop/p1 : http/tcp/80"]
    );
    assert_eq!(
        of([
            slice("web-1", http(80), json!([terminating(2), neither.clone()])),
            slice("web-2", http(80), json!([terminating(3)])),
        ]),
        ["10.1.1.2@node-a>shop/p2 10.1.1.3@node-a>shop/p3 : http/tcp/80"]
    );
    assert_eq!(
        of([
            slice("web-1", http(80), json!([terminating(2)])),
            slice("web-2", http(81), json!([ready(1)])),
        ]),
        ["10.1.1.1@node-a>shop/p1 : http/tcp/81"],
        "of the whole Service"
    );
    assert_eq!(of([slice("web-1", http(80), json!([neither]))]), [""; 0]);
}

#[test]
fn whether_none_is_ready_is_asked_for_each_port_by_name() {
    let both = json!([{"name": "http", "port": 80}, {"name": "admin", "port": 90}]);
    assert_eq!(
        of([
            slice("web-1", http(80), json!([ready(1)])),
            slice("web-2", both, json!([terminating(2)])),
        ]),
        [
            "10.1.1.2@node-a>shop/p2 : admin/tcp/90",
            "10.1.1.1@node-a>shop/p1 : http/tcp/80",
        ]
    );
}

#[test]
fn what_an_endpoint_leaves_out_counts_for_it() {
    let bare = json!({"addresses": ["10.1.1.1", "10.1.1.2"]});
    let unknown = json!({"addresses": ["10.1.1.3"], "conditions": {"serving": true}});
    let terminating = json!({"addresses": ["10.1.1.4"], "conditions": {"ready": false, "terminating": true}});
    assert_eq!(
        of([slice("web-1", http(80), json!([bare, unknown, terminating.clone()]))]),
        ["10.1.1.1@ 10.1.1.3@ : http/tcp/80"]
    );
    assert_eq!(
        of([slice("web-1", http(80), json!([terminating]))]),
        ["10.1.1.4@ : http/tcp/80"]
    );
}

#[test]
fn ports_have_a_number_and_a_known_protocol_and_may_have_no_name() {
    let ports = json!([
        {"port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "all"},
        {"name": "odd", "port": 7, "protocol": "DCCP"},
    ]);
    let all = with([slice("web-1", ports, json!([ready(1)]))]);
    assert_eq!(
        subsets(&all.endpoints()[0]),
        ["10.1.1.1@node-a>shop/p1 : /tcp/80 dns/udp/53"]
    );
    assert_eq!(
        all.notes().collect::<Vec<_>>(),
        ["endpointslice `shop/web-1`: port 7 speaks `DCCP`, which is not TCP, UDP or SCTP: left out"]
    );
    assert_eq!(
        of([slice("web-1", Value::Null, json!([ready(1)]))]),
        ["10.1.1.1@node-a>shop/p1 : "],
        "its pod is behind the Service all the same"
    );
}

#[test]
fn only_pods_are_target_pods() {
    let to = |target: Value| json!({"addresses": ["10.1.1.1"], "targetRef": target});
    for (target, told) in [
        (
            json!({"kind": "Pod", "name": "p", "namespace": "other"}),
            "10.1.1.1@>other/p",
        ),
        (json!({"kind": "Pod", "name": "p", "namespace": ""}), "10.1.1.1@>shop/p"),
        (json!({"kind": "Pod", "name": ""}), "10.1.1.1@"),
        (json!({"kind": "Node", "name": "n"}), "10.1.1.1@"),
        (json!({"name": "p"}), "10.1.1.1@"),
    ] {
        let told = format!("{told} : http/tcp/80");
        assert_eq!(of([slice("web-1", http(80), json!([to(target)]))]), [told]);
    }
}

#[test]
fn addresses_are_written_in_one_way_and_what_is_none_is_left_out() {
    let v6 = |text: &str| json!({"addresses": [text]});
    let endpoints = json!([v6("FD00:0:0::2"), v6("fd00::1"), v6("::ffff:10.1.1.7"), v6("fd00::1%eth0"), v6("x"), {"addresses": []}]);
    let patch = json!({"addressType": "IPv6", "ports": http(80), "endpoints": endpoints});
    let four = slice("web-1", http(80), json!([v6("10.1.1.1")]));
    let all = with([slice_of("web", "web-6", patch), four]);
    assert_eq!(
        subsets(&all.endpoints()[0]),
        ["10.1.1.1@ 10.1.1.7@ fd00::1@ fd00::2@ : http/tcp/80"]
    );
    assert_eq!(
        all.notes().collect::<Vec<_>>(),
        ["endpointslice `shop/web-6`: endpoint `fd00::1%eth0` and 2 more have no IPv4 or IPv6 address: left out"]
    );
}

#[test]
fn a_slice_of_names_is_as_if_it_were_not_there() {
    let names = json!({"addressType": "FQDN", "ports": http(80), "endpoints": [{"addresses": ["a.example"]}]});
    let all = with([slice_of("web", "web-1", names)]);
    assert_eq!(all.endpoints(), []);
    assert_eq!(
        all.notes().collect::<Vec<_>>(),
        ["endpointslice `shop/web-1`: its addresses are of type `FQDN`, not IPv4 or IPv6: it is not used"]
    );
}

#[test]
fn endpoints_go_with_the_last_slice_and_follow_a_slice_to_another_service() {
    let one = slice("web-1", http(80), json!([ready(1)]));
    let two = slice("web-2", http(80), json!([ready(2)]));
    let mut all = with([one.clone(), two.clone(), node("n", "10.0.0.1")]);
    assert_eq!(short(&all.take_in(&look([gone(&one)])).events), ["endpoints web"]);
    let moved = slice_of("api", "web-2", json!({"ports": http(80), "endpoints": [ready(2)]}));
    let told = all.take_in(&look([is(moved.clone())]));
    assert_eq!(short(&told.events), ["endpoints api", "-endpoints web"]);
    assert_eq!(short(&all.take_in(&look([gone(&moved)])).events), ["-endpoints api"]);
    let empty = slice("web-1", Value::Null, json!([]));
    assert_eq!(short(&all.take_in(&look([is(empty)])).events), ["endpoints web"]);
}

#[test]
fn an_endpoint_that_moves_from_one_slice_to_another_is_no_event() {
    let one = |endpoints: Value| slice("web-1", http(80), endpoints);
    let two = |endpoints: Value| slice("web-2", http(80), endpoints);
    let mut all = with([one(json!([ready(1), ready(2)])), two(json!([]))]);
    let told = all.take_in(&look([is(two(json!([ready(2)])))]));
    assert_eq!(told, Changes::default());
    assert_eq!(all.take_in(&look([is(one(json!([ready(1)])))])), Changes::default());
}

#[test]
fn a_slice_that_says_what_cannot_be_stands_as_it_was() {
    let mut all = with([slice("web-1", http(80), json!([ready(1)]))]);
    let before = all.endpoints();
    let broken = || slice("web-1", json!([{"name": "http", "port": 70000}]), json!([ready(2)]));
    let note = "endpointslice `shop/web-1`: ports[0].port: was 70000, must be a whole number from 1 to 65535; what was \
                known of it stays";
    let told = all.take_in(&look([is(broken())]));
    assert_eq!((told.notes, told.events), (vec![note.to_owned()], vec![]));
    assert_eq!(all.endpoints(), before);
    assert_eq!(with([broken()]).endpoints(), []);
}
