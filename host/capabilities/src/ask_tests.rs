//! Faults of a scenario answer requests before any backend gets them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use trueup_base::clock::VirtualClock;

use super::*;
use crate::bindings::etcd::kv::{Host as _, Operation};
use crate::bindings::lbaas::api::Host as _;
use crate::bindings::neg::api::Host as _;
use crate::faults::{Fault, Faults};
use crate::grants::Grants;
use crate::neg::{Endpoint, NegRef};
use crate::{Backends, etcd, lbaas, neg, testing};

/// A host whose Engine has nothing, whose NEGs have `web` in zone `z1`, and whose etcd has `/a`.
fn host() -> (Host, Arc<Faults>, etcd::embedded::Embedded) {
    let faults = Arc::<Faults>::default();
    let negs = neg::simulated::Simulated::default();
    negs.put(neg::simulated::Neg {
        name: "web".to_owned(),
        zone: "z1".to_owned(),
        subnet: "s1".to_owned(),
        endpoints: [].into(),
    });
    let store = etcd::embedded::Embedded::in_memory_with(&[("/a".to_owned(), "1".to_owned())].into()).unwrap();
    let clock = Arc::new(VirtualClock::new(0));
    let backends = Backends {
        lbaas: Some(Arc::new(lbaas::simulated::Simulated::new(
            clock,
            Arc::clone(&faults),
            0,
        ))),
        neg: Some(Arc::new(negs)),
        etcd: Some(Arc::new(store.clone())),
        faults: Some(Arc::clone(&faults)),
        ..Backends::default()
    };
    (testing::host("", Grants::everything(), backends), faults, store)
}

fn fault(call: &str, matching: Option<Value>, answer: Value) -> Fault {
    Fault {
        call: call.to_owned(),
        answer,
        times: Some(1),
        matching,
    }
}

#[tokio::test]
async fn a_fault_answers_a_whole_request_of_an_engine() {
    let (mut host, faults, _) = host();
    faults.add(fault("api.load-balancer", None, json!({"Ok": "Updating"})));
    faults.add(fault("api.list-tagged", None, json!({"Err": "Unauthorized"})));
    faults.add(fault("api.get", None, json!([])));
    let state = host.load_balancer("lb-9".to_owned()).await.unwrap();
    assert_eq!(state, Ok(lbaas::State::Updating));
    let listed = host.list_tagged("t".to_owned()).await.unwrap();
    assert_eq!(listed, Err(lbaas::Error::Unauthorized));
    let reference = lbaas::ObjectRef::new(lbaas::Kind::Backend, "b");
    let got = crate::bindings::lbaas::api::Host::get(&mut host, vec![reference.clone()])
        .await
        .unwrap();
    assert_eq!(
        got,
        [Err(lbaas::Error::Unavailable(
            "the backend gave fewer answers than `api.get` has entries".to_owned()
        ))]
    );
    let got = crate::bindings::lbaas::api::Host::get(&mut host, vec![reference])
        .await
        .unwrap();
    assert_eq!(got, [Err(lbaas::Error::NotFound)]);
    assert_eq!(faults.take_misfits(), [""; 0]);
}

#[tokio::test]
async fn a_fault_answers_a_request_about_negs_that_it_matches() {
    let (mut host, faults, _) = host();
    let matching = || Some(json!({"neg": {"zone": "z1"}}));
    faults.add(fault("api.attach", matching(), json!({"Err": "Unauthorized"})));
    faults.add(fault("api.ensure", matching(), json!({"Ok": true})));
    faults.add(fault(
        "api.list-endpoints",
        matching(),
        json!({"Err": {"RateLimited": 5}}),
    ));
    let neg = |zone: &str| NegRef {
        name: "web".to_owned(),
        zone: zone.to_owned(),
    };
    let endpoint = Endpoint {
        ip: "10.0.0.1".to_owned(),
        ipv6: String::new(),
        port: "80".to_owned(),
        node: "n1".to_owned(),
    };
    let mut attach = async |zone: &str| host.attach(neg(zone), vec![endpoint.clone()]).await.unwrap();
    assert_eq!(attach("z2").await, Err(neg::Error::NotFound));
    assert_eq!(attach("z1").await, Err(neg::Error::Unauthorized));
    assert_eq!(attach("z1").await, Ok(1), "a fault uses up no number");
    let ensured = host.ensure(neg("z1"), "s2".to_owned()).await.unwrap();
    assert_eq!(ensured, Ok(true), "as the fault says");
    let listed = host.list_endpoints(neg("z1")).await.unwrap();
    assert_eq!(listed, Err(neg::Error::RateLimited(Some(5))));
    assert_eq!(faults.take_misfits(), [""; 0]);
}

#[tokio::test]
async fn a_fault_of_etcd_answers_and_nothing_is_stored() {
    let (mut host, faults, store) = host();
    faults.add(fault(
        "kv.commit",
        Some(json!({"operations": [{"Delete": "/a"}]})),
        json!({"Err": {"TooManyOperations": 64}}),
    ));
    faults.add(fault("kv.put", None, json!({"Err": {"Unavailable": "no leader"}})));
    let delete = || vec![Operation::Delete("/a".to_owned())];
    let committed = host.commit(Vec::new(), delete()).await.unwrap();
    assert_eq!(committed, Err(etcd::Error::TooManyOperations(64)));
    let put = host.put("/a".to_owned(), "2".to_owned()).await.unwrap();
    assert_eq!(put, Err(etcd::Error::Unavailable("no leader".to_owned())));
    assert_eq!(store.entries(), Ok([("/a".to_owned(), "1".to_owned())].into()));
    assert_eq!(etcd::Api::listing(&store, "/").await.unwrap().revision, 2);
    assert_eq!(host.commit(Vec::new(), delete()).await.unwrap(), Ok(true));
    assert_eq!(store.entries(), Ok(BTreeMap::new()));
    assert_eq!(faults.take_misfits(), [""; 0]);
}
