//! One service, rule by rule: its chains and elements, and the commands of a change.

use super::{CONFIG, chains, elements, id, rules, service, synced, with_port};
use crate::Exports;
use crate::bindings::exports::trueup::service::renderer::Guest as _;
use crate::bindings::trueup::kube::types::Protocol;
use crate::bindings::trueup::service::types::{ContivService, TrafficPolicy};
use trueup_guest::Guest as _;

const BOTH: &str = "{}";

fn web(backends: &str) -> ContivService {
    with_port(service("web", "10.96.0.1", ""), "http", 80, 0, backends)
}

#[test]
fn each_family_has_what_is_of_it() {
    let (mut renderer, mut world) = synced(BOTH);
    let dual = service("dual", "10.96.0.1 fd96::1", "::ffff:20.0.0.1");
    let dual = with_port(dual, "http", 80, 0, "10.1.1.3#8080 fd10::3#8080 ::ffff:10.1.1.4#8080");
    renderer.add_service(&mut world, dual).unwrap();
    assert_eq!(
        elements(&world, "ip"),
        [
            "service-ips 10.96.0.1 tcp 80: svc/default/dual/http",
            "service-ips 20.0.0.1 tcp 80: ext/default/dual/http"
        ]
    );
    assert_eq!(
        chains(&world, "ip"),
        [
            "ep/default/dual/http/10.1.1.3/8080: 2",
            "ep/default/dual/http/10.1.1.4/8080: 2",
            "ext/default/dual/http: 1",
            "svc/default/dual/http: 1"
        ]
    );
    assert_eq!(
        elements(&world, "ip6"),
        ["service-ips fd96::1 tcp 80: svc/default/dual/http"]
    );
    assert_eq!(
        chains(&world, "ip6"),
        ["ep/default/dual/http/fd10..3/8080: 2", "svc/default/dual/http: 1"]
    );
    assert_eq!(world.record.messages(), [] as [&str; 0]);
}

#[test]
fn a_node_port_without_endpoints_of_a_family_is_rejected_in_that_family() {
    let (mut renderer, mut world) = synced(BOTH);
    let four = with_port(service("four", "10.96.0.1", ""), "http", 80, 30080, "10.1.1.3#8080");
    renderer.add_service(&mut world, four).unwrap();
    assert_eq!(
        elements(&world, "ip"),
        [
            "service-ips 10.96.0.1 tcp 80: svc/default/four/http",
            "service-nodeports tcp 30080: ext/default/four/http"
        ]
    );
    assert_eq!(elements(&world, "ip6"), ["no-endpoint-nodeports tcp 30080: reject-it"]);
    assert_eq!(chains(&world, "ip6"), [] as [&str; 0]);
}

#[test]
fn ports_of_zero_do_not_count() {
    let (mut renderer, mut world) = synced(CONFIG);
    let odd = with_port(service("odd", "10.96.0.1", ""), "none", 0, 0, "10.1.1.3#8080");
    let odd = with_port(odd, "node", 0, 30081, "10.1.1.3#8081");
    let odd = with_port(odd, "zero", 82, 0, "10.1.1.3#0");
    renderer.add_service(&mut world, odd).unwrap();
    assert_eq!(
        elements(&world, "ip"),
        [
            "no-endpoint-ips 10.96.0.1 tcp 82: reject-it",
            "service-nodeports tcp 30081: ext/default/odd/node"
        ]
    );
    assert_eq!(
        chains(&world, "ip"),
        [
            "ep/default/odd/node/10.1.1.3/8081: 2",
            "ext/default/odd/node: 1",
            "svc/default/odd/node: 1"
        ]
    );
}

#[test]
fn a_service_without_keys_needs_nothing() {
    let (mut renderer, mut world) = synced(CONFIG);
    let headless = with_port(service("db", "", ""), "sql", 5432, 0, "10.1.1.3#5432");
    renderer.add_service(&mut world, headless).unwrap();
    assert_eq!(world.take_asked(), [] as [&str; 0]);
    assert!(renderer.snapshot().contains(r#""name":"db""#));
}

#[test]
fn what_is_no_address_is_left_out_with_a_warning() {
    let (mut renderer, mut world) = synced(CONFIG);
    let odd = service("odd", "10.96.0.1 10.96.0.01", "None");
    let odd = with_port(odd, "http", 80, 0, "10.1.1.3#8080 node-a#8080");
    renderer.add_service(&mut world, odd.clone()).unwrap();
    assert_eq!(
        chains(&world, "ip"),
        ["ep/default/odd/http/10.1.1.3/8080: 2", "svc/default/odd/http: 1"]
    );
    let warning = |address: &str| format!("left out what is no address service=default/odd address={address}");
    let expected = [warning("node-a"), warning("10.96.0.01"), warning("None")];
    assert_eq!(world.record.messages(), expected);
    world.record.lines.clear();
    renderer.resync(&mut world, vec![odd]).unwrap();
    assert_eq!(world.record.messages(), expected);
}

#[test]
fn a_backend_told_twice_is_one_endpoint() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer
        .add_service(&mut world, web("10.1.1.3#8080 ::ffff:10.1.1.3#8080"))
        .unwrap();
    assert_eq!(
        rules(&world, "ip", "svc/default/web/http"),
        [r#"[{"goto":{"target":"ep/default/web/http/10.1.1.3/8080"}}] # default/web/http"#]
    );
}

#[test]
fn of_two_ports_with_one_name_the_last_counts() {
    let (mut renderer, mut world) = synced(CONFIG);
    let mut twice = with_port(web("10.1.1.3#8080"), "http", 81, 0, "");
    twice.ports[1].protocol = Protocol::Udp;
    renderer.add_service(&mut world, twice).unwrap();
    assert_eq!(
        elements(&world, "ip"),
        ["service-ips 10.96.0.1 udp 81: svc/default/web/http"]
    );
}

#[test]
fn one_endpoint_needs_no_choice_whatever_the_affinity() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer.add_service(&mut world, web("10.1.1.3#8080")).unwrap();
    let mut sticky = web("10.1.1.3#8080");
    sticky.session_affinity_timeout_s = 10;
    world.take_asked();
    renderer.update_service(&mut world, id("web"), sticky).unwrap();
    assert_eq!(world.take_asked(), [] as [&str; 0]);
}

#[test]
fn only_whether_there_is_affinity_matters_not_how_long() {
    let (mut renderer, mut world) = synced(CONFIG);
    let sticky = |seconds| ContivService {
        session_affinity_timeout_s: seconds,
        ..web("10.1.1.3#8080 10.1.1.4#8080")
    };
    renderer.add_service(&mut world, sticky(10)).unwrap();
    assert!(rules(&world, "ip", "svc/default/web/http")[0].contains("jhash"));
    world.take_asked();
    renderer.add_service(&mut world, sticky(20)).unwrap();
    assert_eq!(world.take_asked(), [] as [&str; 0]);
    // The guest keeps what was not worth a transaction.
    assert!(renderer.snapshot().contains(r#""session_affinity_timeout_s":20"#));
    renderer.add_service(&mut world, sticky(0)).unwrap();
    assert!(rules(&world, "ip", "svc/default/web/http")[0].contains("numgen"));
}

#[test]
fn affinity_and_the_local_policy_choose_among_the_local_ones() {
    let (mut renderer, mut world) = synced(CONFIG);
    let mut local = service("web", "10.96.0.1", "20.0.0.1");
    local.traffic_policy = TrafficPolicy::NodeLocal;
    local.session_affinity_timeout_s = 1;
    let local = with_port(local, "http", 80, 0, "10.1.1.3#80* 10.1.1.4#80* 10.1.2.3#80");
    renderer.add_service(&mut world, local).unwrap();
    let to = |last: u8| format!(r#"{{"goto":{{"target":"ep/default/web/http/10.1.1.{last}/80"}}}}"#);
    assert_eq!(
        rules(&world, "ip", "ext/default/web/http")[2],
        format!(
            r#"[{{"vmap":{{"data":{{"set":[[0,{}],[1,{}]]}},"key":{{"jhash":{{"expr":{{"payload":{{"field":"saddr","protocol":"ip"}}}},"mod":2,"offset":0,"seed":1953658213}}}}}}}}]"#,
            to(3),
            to(4)
        )
    );
    assert!(rules(&world, "ip", "svc/default/web/http")[0].contains(r#""mod":3"#));
}

#[test]
fn a_new_name_moves_everything_in_one_transaction() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer.add_service(&mut world, web("10.1.1.3#8080")).unwrap();
    world.take_asked();
    let shop = ContivService {
        id: id("shop"),
        ..web("10.1.1.3#8080")
    };
    renderer.update_service(&mut world, id("web"), shop).unwrap();
    assert_eq!(world.take_asked().len(), 1);
    assert_eq!(
        elements(&world, "ip"),
        ["service-ips 10.96.0.1 tcp 80: svc/default/shop/http"]
    );
    assert_eq!(
        chains(&world, "ip"),
        ["ep/default/shop/http/10.1.1.3/8080: 2", "svc/default/shop/http: 1"]
    );
}

#[test]
fn a_port_that_changes_its_protocol_keeps_its_chains() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer.add_service(&mut world, web("10.1.1.3#8080")).unwrap();
    world.take_asked();
    let mut udp = web("10.1.1.3#8080");
    udp.ports[0].protocol = Protocol::Udp;
    renderer.add_service(&mut world, udp).unwrap();
    let place = r#""family":"ip","table":"trueup""#;
    let endpoint = "ep/default/web/http/10.1.1.3/8080";
    let goto = r#"{"goto":{"target":"svc/default/web/http"}}"#;
    let expected = [
        r#"{"nftables":[{"metainfo":{"json_schema_version":1}}"#.to_owned(),
        format!(
            r#"{{"delete":{{"element":{{{place},"name":"service-ips","elem":[[{{"concat":["10.96.0.1","tcp",80]}},{goto}]]}}}}}}"#
        ),
        format!(r#"{{"flush":{{"chain":{{{place},"name":"{endpoint}"}}}}}}"#),
        format!(
            r#"{{"add":{{"rule":{{{place},"chain":"{endpoint}","expr":[{{"match":{{"op":"==","left":{{"payload":{{"protocol":"ip","field":"saddr"}}}},"right":"10.1.1.3"}}}},{{"mangle":{{"key":{{"meta":{{"key":"mark"}}}},"value":{{"|":[{{"meta":{{"key":"mark"}}}},16384]}}}}}}]}}}}}}"#
        ),
        format!(
            r#"{{"add":{{"rule":{{{place},"chain":"{endpoint}","expr":[{{"match":{{"op":"==","left":{{"meta":{{"key":"l4proto"}}}},"right":"udp"}}}},{{"dnat":{{"addr":"10.1.1.3","port":8080}}}}]}}}}}}"#
        ),
        format!(
            r#"{{"add":{{"element":{{{place},"name":"service-ips","elem":[[{{"concat":["10.96.0.1","udp",80]}},{goto}]]}}}}}}]}}"#
        ),
    ];
    assert_eq!(world.take_asked(), [expected.join(",")]);
}

#[test]
fn odd_names_are_escaped_in_chains_and_plain_in_comments() {
    let (mut renderer, mut world) = synced(CONFIG);
    let mut odd = with_port(service("a_b", "10.96.0.1", ""), "p\"q", 80, 0, "10.1.1.3#8080");
    odd.id.namespace = "n/m".to_owned();
    renderer.add_service(&mut world, odd).unwrap();
    assert_eq!(
        rules(&world, "ip", "svc/n_2fm/a_5fb/p_22q"),
        [r#"[{"goto":{"target":"ep/n_2fm/a_5fb/p_22q/10.1.1.3/8080"}}] # n/m/a_b/p"q"#]
    );
}

#[test]
fn a_change_mentions_nothing_of_other_services_however_many_there_are() {
    let mut lengths = Vec::new();
    for services in [0_u8, 200] {
        let (mut renderer, mut world) = synced(CONFIG);
        let other = |number: u8| {
            let other = service(&format!("other-{number}"), &format!("10.97.0.{number}"), "");
            with_port(other, "http", 80, 0, "10.1.1.3#8080 10.1.1.4#8080")
        };
        renderer.resync(&mut world, (0..services).map(other).collect()).unwrap();
        renderer.add_service(&mut world, web("10.1.1.3#8080")).unwrap();
        world.take_asked();
        renderer
            .update_service(&mut world, id("web"), web("10.1.1.3#8080 10.1.1.4#8080"))
            .unwrap();
        let asked = world.take_asked();
        assert!(!asked[0].contains("other"), "{}", asked[0]);
        lengths.push(asked[0].len());
    }
    assert_eq!(lengths[0], lengths[1]);
}

#[test]
fn of_an_id_that_a_resync_gives_twice_the_last_counts() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer
        .resync(&mut world, vec![web("10.1.1.3#8080"), web("10.1.1.4#8080")])
        .unwrap();
    assert_eq!(
        chains(&world, "ip"),
        ["ep/default/web/http/10.1.1.4/8080: 2", "svc/default/web/http: 1"]
    );
}

#[test]
fn every_change_needs_an_accepted_resync_and_other_calls_need_none() {
    let (mut renderer, mut world) = (super::instance(CONFIG), crate::simulated::Simulation::default());
    world.faults.push_back("netlink: busy".to_owned());
    assert_eq!(
        renderer.resync(&mut world, vec![web("")]),
        Err("netlink: busy".to_owned())
    );
    let none = Err("no resync yet".to_owned());
    assert_eq!(renderer.add_service(&mut world, web("")), none);
    assert_eq!(renderer.update_service(&mut world, id("web"), web("")), none);
    assert_eq!(renderer.delete_service(&mut world, id("web")), none);
    assert_eq!(world.record.metrics.len(), 0);
    crate::STATE.set(Some(renderer));
    assert_eq!(Exports::update_node_port_services(Vec::new(), vec![web("")]), Ok(()));
    assert_eq!(
        Exports::update_local_frontend_ifs(Vec::new(), vec!["a".to_owned()]),
        Ok(())
    );
    assert_eq!(
        Exports::update_local_backend_ifs(Vec::new(), vec!["a".to_owned()]),
        Ok(())
    );
}

#[test]
fn a_refused_resync_leaves_what_was_acknowledged() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer.add_service(&mut world, web("10.1.1.3#8080")).unwrap();
    world.faults.push_back("netlink: busy".to_owned());
    renderer.resync(&mut world, Vec::new()).unwrap_err();
    world.take_asked();
    renderer.add_service(&mut world, web("10.1.1.3#8080")).unwrap();
    assert_eq!(world.take_asked(), [] as [&str; 0]);
    renderer.delete_service(&mut world, id("web")).unwrap();
    assert_eq!(chains(&world, "ip"), [] as [&str; 0]);
    world.record.expect_metric("nftables_transactions_total", 3.0);
}
