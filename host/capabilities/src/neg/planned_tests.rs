use std::sync::atomic::{AtomicUsize, Ordering};

use uuid::Uuid;

use super::*;
use crate::neg::order::tests;

const REQUEST: RequestId = RequestId(Uuid::from_u128(1));

fn neg(zone: &str) -> NegRef {
    tests::neg("web", zone)
}

fn endpoint(ip: &str) -> Endpoint {
    tests::endpoint(ip, "", "80", "n")
}

/// Real NEGs that count their requests.
#[derive(Default)]
struct Real {
    negs: Simulated,
    asked: AtomicUsize,
}

impl Real {
    /// `web` in zone `a`, with one endpoint.
    fn new() -> Arc<Self> {
        let real = Self::default();
        real.negs.put(Neg {
            name: "web".to_owned(),
            zone: "a".to_owned(),
            subnet: "s".to_owned(),
            endpoints: [endpoint("10.0.0.1")].into(),
        });
        Arc::new(real)
    }

    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Reads for Real {
    async fn is_there(&self, neg: &NegRef, subnet: &str) -> Result<bool, Error> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.negs.is_there(neg, subnet).await
    }

    async fn endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.negs.endpoints(neg).await
    }
}

fn planned(real: &Arc<Real>, under_way: &BTreeMap<u64, Operation>) -> Planned {
    Planned::new(Arc::<Real>::clone(real), under_way)
}

#[tokio::test]
async fn what_is_there_is_read_once_and_nothing_of_it_is_changed() {
    let real = Real::new();
    let plan = planned(&real, &BTreeMap::new());
    assert_eq!(plan.ensure(&neg("a"), "s", REQUEST).await, Ok(false));
    assert_eq!(plan.list_endpoints(&neg("a")).await, Ok(vec![endpoint("10.0.0.1")]));
    assert_eq!(real.asked(), 2);
    let attach = plan
        .change(true, &neg("a"), &[endpoint("10.0.0.2")], REQUEST)
        .await
        .unwrap();
    let detach = plan
        .change(false, &neg("a"), &[endpoint("10.0.0.1")], REQUEST)
        .await
        .unwrap();
    assert_eq!(plan.list_endpoints(&neg("a")).await, Ok(vec![endpoint("10.0.0.1")]));
    for operation in [attach, detach] {
        assert_eq!(plan.end(operation).await, Ok(true));
        assert_eq!(plan.end(operation).await, Ok(false), "it has ended");
    }
    assert_eq!(plan.list_endpoints(&neg("a")).await, Ok(vec![endpoint("10.0.0.2")]));
    assert_eq!(plan.ensure(&neg("a"), "s", REQUEST).await, Ok(false));
    assert_eq!(real.asked(), 0, "from then on it is simulated");
    assert_eq!(
        real.negs.list_endpoints(&neg("a")).await,
        Ok(vec![endpoint("10.0.0.1")])
    );
}

#[tokio::test]
async fn what_is_not_there_is_made_in_the_plan_alone() {
    let real = Real::new();
    let plan = planned(&real, &BTreeMap::new());
    assert_eq!(plan.list_endpoints(&neg("b")).await, Err(Error::NotFound));
    assert_eq!(
        plan.change(true, &neg("b"), &[endpoint("10.0.0.1")], REQUEST).await,
        Err(Error::NotFound)
    );
    assert_eq!(plan.ensure(&neg("b"), "s", REQUEST).await, Ok(true));
    assert_eq!(plan.ensure(&neg("b"), "s", REQUEST).await, Ok(false));
    assert_eq!(plan.list_endpoints(&neg("b")).await, Ok(vec![]));
    assert_eq!(real.negs.is_there(&neg("b"), "s").await, Ok(false));
}

#[tokio::test]
async fn a_neg_that_was_only_listed_is_still_looked_for_with_its_subnet() {
    let real = Real::new();
    let plan = planned(&real, &BTreeMap::new());
    plan.list_endpoints(&neg("a")).await.unwrap();
    let other = plan.ensure(&neg("a"), "other", REQUEST).await;
    assert!(matches!(other, Err(Error::Refused((409, _)))), "{other:?}");
    assert_eq!(plan.ensure(&neg("a"), "s", REQUEST).await, Ok(false));
    assert_eq!(plan.list_endpoints(&neg("a")).await, Ok(vec![endpoint("10.0.0.1")]));
}

#[tokio::test]
async fn real_operations_end_in_the_plan_and_new_numbers_follow_them() {
    let real = Real::new();
    let operation = Operation {
        attaches: true,
        neg: neg("a"),
        endpoints: [endpoint("10.0.0.9")].into(),
    };
    let plan = planned(&real, &BTreeMap::from([(1_000, operation)]));
    // Its NEG was not read before.
    assert_eq!(plan.end(1_000).await, Ok(true));
    let there = vec![endpoint("10.0.0.1"), endpoint("10.0.0.9")];
    assert_eq!(plan.list_endpoints(&neg("a")).await, Ok(there));
    let next = plan.change(false, &neg("a"), &[endpoint("10.0.0.9")], REQUEST).await;
    assert_eq!(next, Ok(1_001));
}
