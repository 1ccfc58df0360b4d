//! Compares `nat44`'s keys in a real etcd with the model, after any calls of `service`.

use needs::needs;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};
use trueup_capabilities::Backends;
use trueup_capabilities::etcd::{Api, Operation};
use trueup_config::{EtcdBackend, EtcdCluster};
use trueup_worlds::node::guests::service::State;

use crate::programs::{self, instances};

use super::inputs::Inputs;
use super::nat::{self, Settings};
use super::server::Server;
use super::services::wanted;
use super::stores::{Fate, Fates, Store};
use super::universe::{self, Step};
use super::wired::{self, NAT44, RUNTIME, Wired};

/// The number of cases unless `PROPTEST_CASES` sets another: a few seconds on an idle machine.
const CASES: u32 = 64;
const STEPS_MAX: usize = 24;
const FATES_MAX: usize = 24;

#[derive(Debug, Clone)]
struct Case {
    settings: Settings,
    /// `None` uses the default.
    pod_network: Option<&'static str>,
    state: State,
    steps: Vec<Step>,
    fates: Vec<Fate>,
}

fn case() -> impl Strategy<Value = Case> {
    let pod_network = prop::sample::select(vec![None, Some("blue")]);
    (
        universe::nat44_settings(),
        pod_network,
        universe::state(),
        universe::steps(STEPS_MAX),
        universe::fates(FATES_MAX),
    )
        .prop_map(|(settings, pod_network, state, steps, fates)| Case {
            settings,
            pod_network,
            state,
            steps,
            fates,
        })
}

/// With and without refused commits and lost answers, and again after a resync.
#[needs(etcd)]
#[test]
fn what_etcdctl_reads_is_what_the_model_says_after_any_events() {
    let server = RUNTIME.block_on(Server::start());
    let etcd = Etcd {
        url: server.url(),
        api: trueup_work::etcd::open(&EtcdBackend::Etcd(EtcdCluster {
            endpoints: vec![server.url()],
            user: None,
            ca_file: None,
            own: None,
            server_name: None,
            request_timeout: std::time::Duration::from_secs(60),
        }))
        .unwrap(),
        cases: AtomicU64::new(0),
    };
    super::runner(CASES)
        .run(&case(), |case| RUNTIME.block_on(etcd.agrees(&case)))
        .unwrap_or_else(|failure| panic!("{failure}"));
}

struct Etcd {
    url: String,
    api: Arc<dyn Api>,
    /// Each case has its own label.
    cases: AtomicU64,
}

/// One case: its agent, and the foreign keys in the store beside `nat44`'s.
struct Agent<'a> {
    etcd: &'a Etcd,
    case: &'a Case,
    label: String,
    /// Another agent, whose label begins with this one's.
    all: String,
    foreign: BTreeMap<String, String>,
}

impl Etcd {
    async fn agrees(&self, case: &Case) -> Result<(), TestCaseError> {
        let number = self.cases.fetch_add(1, Ordering::SeqCst);
        let agent = Agent::new(self, case, &format!("case-{number}-"));
        agent.begin().await;
        agent.run().await
    }

    fn etcdctl(&self, prefix: &str) -> BTreeMap<String, String> {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.url, "get", "--prefix", prefix, "-w", "json"]);
        let output = command
            .output()
            .expect("etcdctl is needed: `apt-get install etcd-client`");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let text =
            |value: &Value| String::from_utf8(STANDARD.decode(value.as_str().unwrap_or_default()).unwrap()).unwrap();
        let found = answer["kvs"].as_array().into_iter().flatten();
        found
            .map(|found| (text(&found["key"]), text(&found["value"])))
            .collect()
    }
}

impl<'a> Agent<'a> {
    fn new(etcd: &'a Etcd, case: &'a Case, label: &str) -> Self {
        let prefix = nat::prefix(label);
        // Beside its keys, and in the way of a badly cut prefix.
        let foreign = [
            format!("{prefix}nat44-interface/tap0"),
            format!("{prefix}nat44-global/x"),
            format!("{prefix}dnat44"),
            format!("{prefix}dnat44-more/default/web"),
            format!("/vnf-agent/{label}/config/vpp/acls/v2/acl/a"),
            format!("/vnf-agent/{label}/config/vpp/nat/v3/dnat44/default/web"),
            nat::prefix(&format!("{label}b")) + "dnat44/default/web",
            nat::prefix(&format!("{label}b")) + "nat44-global",
        ];
        Self {
            etcd,
            case,
            label: label.to_owned(),
            all: format!("/vnf-agent/{label}"),
            foreign: foreign
                .into_iter()
                .map(|key| (key, "{\"of\": \"others\"}".to_owned()))
                .collect(),
        }
    }

    /// Writes other clients' keys, and leftovers of an earlier life of this agent.
    async fn begin(&self) {
        let prefix = nat::prefix(&self.label);
        let left = ["dnat44/default/web", "dnat44/gone/away", "dnat44/odd", "nat44-global"];
        let left = left.map(|key| (prefix.clone() + key, "{}".to_owned()));
        let all = self.foreign.clone().into_iter().chain(left);
        let operations: Vec<Operation> = all.map(Operation::Put).collect();
        assert_eq!(self.etcd.api.commit(&[], &operations).await, Ok(true));
    }

    /// All steps, the retry, and a resync.
    async fn run(&self) -> Result<(), TestCaseError> {
        let case = self.case;
        let folder = tempfile::tempdir().unwrap();
        let fates = Fates::new(&case.fates);
        let store = Store {
            inner: Arc::clone(&self.etcd.api),
            fates: fates.clone(),
        };
        let own = format!("/vnf-agent/{}/", self.label);
        let settings = case.settings.json(&self.label);
        let nat44 = instances(&NAT44, "nat44", settings, wired::grants("etcd", &[&own]), folder.path()).await;
        let backends = Backends {
            etcd: Some(Arc::new(store)),
            ..programs::backends()
        };
        let service = case
            .pod_network
            .map_or(json!({}), |network| json!({ "default_pod_network": network }));
        let mut wired = Wired::new(service, folder.path(), vec![(Arc::new(nat44), backends)]).await;

        let mut inputs = Inputs::of(&case.state);
        let mut answer = wired.resync(&case.state).await;
        self.check_where_quiet(&answer, &wired, &inputs, "the first resync")
            .await?;
        for (at, step) in case.steps.iter().enumerate() {
            match step {
                Step::Event(event) => {
                    inputs.take(event);
                    answer = wired.update(event).await;
                }
                Step::Resync(state) => {
                    inputs = Inputs::of(state);
                    answer = wired.resync(state).await;
                }
                // It may leave the processor with pending questions.
                Step::Retry => _ = wired.retry().await,
            }
            self.check_where_quiet(&answer, &wired, &inputs, &format!("step {at}"))
                .await?;
        }
        // From here on nothing fails, and one retry is enough.
        fates.end();
        prop_assert_eq!(wired.settle().await, Ok(()));
        prop_assert!(wired.all_in_step().await);
        self.check_with_etcdctl(&inputs, "the retry")?;
        // And a resync changes nothing.
        prop_assert_eq!(wired.resync(&inputs.state()).await, Ok(()));
        self.check_with_etcdctl(&inputs, "a resync")
    }

    fn expected(&self, inputs: &Inputs) -> BTreeMap<String, String> {
        let wanted = wanted(inputs, self.case.pod_network.unwrap_or("default"));
        let mut expected = nat::written(&self.case.settings, &self.label, &wanted);
        expected.extend(self.foreign.clone());
        expected
    }

    fn check_with_etcdctl(&self, inputs: &Inputs, after: &str) -> Result<(), TestCaseError> {
        same(&self.etcd.etcdctl(&self.all), &self.expected(inputs), after)
    }

    /// If all accepted everything, the store is correct at once.
    async fn check_where_quiet(
        &self,
        answer: &Result<(), String>,
        wired: &Wired,
        inputs: &Inputs,
        after: &str,
    ) -> Result<(), TestCaseError> {
        if answer.is_err() || !wired.all_in_step().await {
            return Ok(());
        }
        let found = self.etcd.api.list_prefix(&self.all).await.unwrap();
        let found = found.into_iter().map(|found| (found.key, found.value)).collect();
        same(&found, &self.expected(inputs), after)
    }
}

/// Shows only the difference.
fn same(
    found: &BTreeMap<String, String>,
    expected: &BTreeMap<String, String>,
    after: &str,
) -> Result<(), TestCaseError> {
    let keys = found.keys().chain(expected.keys());
    for key in keys {
        prop_assert_eq!(found.get(key), expected.get(key), "`{}` after {}", key, after);
    }
    Ok(())
}
