//! What the simulated API answers, and which call changes what.

use super::*;
use crate::neg::order::tests::{endpoint, neg};

fn endpoints(ips: &[&str]) -> Vec<Endpoint> {
    ips.iter().map(|ip| endpoint(ip, "", "80", "n1")).collect()
}

fn id() -> RequestId {
    RequestId(uuid::Uuid::from_u128(1))
}

fn now<T>(answer: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(answer)
}

/// An API with the NEG `web` in zone `z1`.
fn with_web(ips: &[&str]) -> Simulated {
    let api = Simulated::default();
    api.put(Neg {
        name: "web".to_owned(),
        zone: "z1".to_owned(),
        subnet: "s1".to_owned(),
        endpoints: endpoints(ips).into_iter().collect(),
    });
    api
}

fn listed(api: &Simulated) -> Vec<String> {
    let listed = now(api.list_endpoints(&neg("web", "z1"))).unwrap();
    listed.into_iter().map(|endpoint| endpoint.ip).collect()
}

#[test]
fn a_neg_is_made_once_and_only_with_its_subnet() {
    let api = Simulated::default();
    let web = neg("web", "z1");
    assert_eq!(now(api.list_endpoints(&web)), Err(Error::NotFound));
    assert_eq!(now(api.ensure(&web, "s1", id())), Ok(true));
    assert_eq!(now(api.ensure(&web, "s1", id())), Ok(false));
    let refused = Error::Refused((409, "subnet differs".to_owned()));
    assert_eq!(now(api.ensure(&web, "s2", id())), Err(refused));
    assert_eq!(
        now(api.ensure(&neg("web", "z2"), "s2", id())),
        Ok(true),
        "a zone has its own"
    );
    assert_eq!(now(api.list_endpoints(&web)), Ok(Vec::new()));
}

#[test]
fn an_operation_changes_nothing_until_it_ends() {
    let api = with_web(&["10.0.0.10", "10.0.0.9"]);
    let web = neg("web", "z1");
    assert_eq!(now(api.change(true, &web, &endpoints(&["10.0.0.1"]), id())), Ok(1));
    assert_eq!(
        now(api.change(false, &web, &endpoints(&["10.0.0.9", "10.0.0.8"]), id())),
        Ok(2)
    );
    assert_eq!(now(api.change(true, &web, &endpoints(&["10.0.0.2"]), id())), Ok(3));
    assert_eq!(listed(&api), ["10.0.0.9", "10.0.0.10"], "in order of number");
    assert!(
        api.end(2, true),
        "in whatever order they end; what is not there is passed over"
    );
    assert_eq!(listed(&api), ["10.0.0.10"]);
    assert!(api.end(3, false), "a failed one changes nothing");
    assert!(api.end(1, true));
    assert_eq!(listed(&api), ["10.0.0.1", "10.0.0.10"]);
    assert!(!api.end(1, true) && !api.end(4, true), "ended, and never started");
    assert_eq!(listed(&api), ["10.0.0.1", "10.0.0.10"]);
}

#[test]
fn what_does_not_exist_takes_nothing_and_uses_up_no_number() {
    let api = with_web(&[]);
    for attaches in [true, false] {
        let missing = neg("web", "z2");
        assert_eq!(
            now(api.change(attaches, &missing, &endpoints(&["10.0.0.1"]), id())),
            Err(Error::NotFound)
        );
    }
    let web = neg("web", "z1");
    assert_eq!(now(api.change(true, &web, &endpoints(&["10.0.0.1"]), id())), Ok(1));
}

#[test]
fn a_dump_goes_by_name_then_zone() {
    let api = with_web(&["10.0.0.9", "10.0.0.9"]);
    for (name, zone) in [("web", "z0"), ("a", "z9")] {
        now(api.ensure(&neg(name, zone), "s", id())).unwrap();
    }
    let dump = api.negs();
    let keys: Vec<String> = dump.iter().map(|neg| format!("{}@{}", neg.name, neg.zone)).collect();
    assert_eq!(keys, ["a@z9", "web@z0", "web@z1"]);
    assert_eq!(
        dump.last().unwrap().endpoints,
        endpoints(&["10.0.0.9"]).into_iter().collect()
    );
}
