//! Properties of any sequence of events, with commits that fail or whose answers are lost: after the retry the database
//! holds, byte for byte, the result of the plain model, and nothing else was touched.

use std::collections::BTreeMap;
use trueup_guest::Guest as _;
use trueup_guest::bindings::trueup::etcd::kv::Error;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::model::{Told, Wires, wanted};
use super::services::any_service;
use super::{id, instance, with_port};
use crate::bindings::trueup::kube::types::Protocol;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::renderer::Renderer;
use crate::simulated::{Asked, Fault, Simulation};

const NAMES: [&str; 4] = ["a", "b", "c", "web"];
/// A key of another agent, and another kind of key of this one.
const FOREIGN: [&str; 2] = [
    "/vnf-agent/a2/config/vpp/nat/v2/dnat44/default/a",
    "/vnf-agent/a/config/vpp/nat/v2/nat44-interface/tap0",
];

#[derive(Clone, Debug)]
enum Step {
    Put(ContivService),
    Rename(&'static str, ContivService),
    Delete(&'static str),
    NodeIps(Vec<String>),
    Frontends(Vec<String>),
    Backends(Vec<String>),
    Resync,
    /// another writer put or deleted a key of the agent: the next step is a resync
    Meddle(&'static str, bool),
    /// the next call of this name fails; true if the commit was stored all the same
    Fault(&'static str, bool),
    /// a new build takes the snapshot
    Carry,
    /// a new instance knows nothing: the next step is a resync
    Fresh,
}

fn some_of(texts: &[&'static str]) -> impl Strategy<Value = Vec<String>> {
    let all: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let most = all.len();
    subsequence(all, 0..=most)
}

fn a_service() -> impl Strategy<Value = ContivService> {
    let backends = subsequence(
        vec![
            "10.1.1.3#80*",
            "10.1.1.4#80*",
            "10.1.2.4#80",
            "172.30.1.1#80*",
            "192.168.16.10#0*",
            "192.168.16.11#80",
            "fd10::3#80*",
        ],
        0..=4,
    );
    let protocol = select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
    let number = |numbers: &[u16]| select(numbers.to_vec());
    let port = (protocol, number(&[0, 80, 81]), number(&[0, 30080]), backends);
    let service = any_service(
        &NAMES,
        10_800,
        some_of(&["10.96.0.1", "10.96.0.2", "fd96::1"]),
        some_of(&["20.0.0.1", "2001:db8::1"]),
    );
    (service, prop::collection::vec(port, 0..3)).prop_map(|(mut service, ports)| {
        for (index, (protocol, port, node_port, backends)) in ports.into_iter().enumerate() {
            service = with_port(service, &format!("p{index}"), port, node_port, &backends.join(" "));
            service.ports[index].protocol = protocol;
        }
        service
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    let name = || select(NAMES.to_vec());
    let interfaces = || some_of(&["GbE", "tap0", "tap1"]);
    prop_oneof![
        8 => a_service().prop_map(Step::Put),
        2 => (name(), a_service()).prop_map(|(old, new)| Step::Rename(old, new)),
        3 => name().prop_map(Step::Delete),
        2 => some_of(&["172.30.1.1", "192.168.16.10", "fd00::1"]).prop_map(Step::NodeIps),
        1 => interfaces().prop_map(Step::Frontends),
        1 => interfaces().prop_map(Step::Backends),
        1 => Just(Step::Resync),
        1 => (name(), any::<bool>()).prop_map(|(name, is_put)| Step::Meddle(name, is_put)),
        2 => any::<bool>().prop_map(|is_stored| Step::Fault("kv.commit", is_stored)),
        1 => Just(Step::Fault("kv.list-prefix", false)),
        1 => Just(Step::Carry),
        1 => Just(Step::Fresh),
    ]
}

fn some_wires() -> impl Strategy<Value = Wires> {
    let transport = select(vec!["vxlan", "vxlan", "nooverlay", "srv6"]);
    let snat_only = prop_oneof![9 => Just(false), 1 => Just(true)];
    (snat_only, transport, any::<bool>(), 1..3_u32, any::<bool>()).prop_map(
        |(snat_only, transport, has_gateway, weight, drops_fragments)| Wires {
            snat_only,
            transport,
            has_gateway,
            weight,
            drops_fragments,
        },
    )
}

/// The host and the service processor.
struct Run {
    wires: Wires,
    renderer: Renderer,
    world: Simulation,
    told: Told,
}

impl Run {
    fn new(wires: Wires) -> Self {
        let mut world = Simulation::default();
        let mut keys = FOREIGN.to_vec();
        keys.push("/vnf-agent/a/config/vpp/nat/v2/dnat44/left/over");
        world.etcd = keys.into_iter().map(|key| (key.to_owned(), "{}".to_owned())).collect();
        Self {
            wires,
            renderer: instance(&wires.config()),
            world,
            told: Told::default(),
        }
    }

    /// Calls, and repeats the call if it fails.
    fn call(
        &mut self,
        call: impl Fn(&mut Renderer, &mut Simulation, &Told) -> Result<(), String>,
    ) -> Result<(), TestCaseError> {
        self.world.take_asked();
        if call(&mut self.renderer, &mut self.world, &self.told).is_err() {
            self.world.faults.clear();
            prop_assert_eq!(call(&mut self.renderer, &mut self.world, &self.told), Ok(()));
        }
        Ok(())
    }

    fn resync(&mut self) -> Result<(), TestCaseError> {
        self.call(|renderer, world, told| {
            let event = ResyncEvent {
                node_ips: told.node_ips.clone(),
                services: told.services.values().cloned().collect(),
                frontend_ifs: told.frontends.clone(),
                backend_ifs: told.backends.clone(),
            };
            renderer.resync(world, event)
        })
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        let key = |name: &str| ("default".to_owned(), name.to_owned());
        match step {
            Step::Put(service) => {
                self.told.services.insert(key(&service.id.name), service.clone());
                self.call(|renderer, world, _| renderer.add_service(world, &service))
            }
            Step::Rename(old, new) => {
                self.told.services.remove(&key(old));
                self.told.services.insert(key(&new.id.name), new.clone());
                self.call(|renderer, world, _| renderer.update_service(world, &id(old), &new))
            }
            Step::Delete(name) => {
                self.told.services.remove(&key(name));
                self.call(|renderer, world, _| renderer.delete_service(world, &id(name)))
            }
            Step::NodeIps(node_ips) => {
                self.told.node_ips = node_ips;
                self.call(|renderer, world, told| {
                    let services: Vec<ContivService> = told.services.values().cloned().collect();
                    let has_node_port = |one: &&ContivService| one.ports.iter().any(|port| port.node_port != 0);
                    let services: Vec<ContivService> = services.iter().filter(has_node_port).cloned().collect();
                    renderer.update_node_port_services(world, &told.node_ips, &services)
                })
            }
            Step::Frontends(new) => {
                self.told.frontends.clone_from(&new);
                self.call(|renderer, world, _| renderer.update_local_frontend_ifs(world, new.clone()))
            }
            Step::Backends(new) => {
                self.told.backends.clone_from(&new);
                self.call(|renderer, world, _| renderer.update_local_backend_ifs(world, new.clone()))
            }
            Step::Resync => self.resync(),
            Step::Meddle(name, is_put) => {
                let key = format!("{}dnat44/default/{name}", super::PREFIX);
                if is_put {
                    self.world.etcd.insert(key, "{}".to_owned());
                } else {
                    self.world.etcd.remove(&key);
                }
                self.resync()
            }
            Step::Fault(call, is_stored) => {
                let answer = Err(Error::Unavailable("no leader".to_owned()));
                self.world.faults.push_back(Fault {
                    call,
                    answer,
                    is_stored,
                });
                Ok(())
            }
            Step::Carry => {
                let snapshot = self.renderer.snapshot();
                self.renderer = instance(&self.wires.config());
                self.renderer.restore(&snapshot).unwrap();
                prop_assert_eq!(self.renderer.snapshot(), snapshot);
                Ok(())
            }
            Step::Fresh => {
                self.renderer = instance(&self.wires.config());
                self.resync()
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let mut expected = wanted(self.wires, &self.told);
        for key in FOREIGN {
            expected.insert(key.to_owned(), "{}".to_owned());
        }
        prop_assert_eq!(&self.world.etcd, &expected);
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_database_holds_what_the_model_says(wires in some_wires(), steps in prop::collection::vec(a_step(), 1..25)) {
        let mut run = Run::new(wires);
        run.resync()?;
        run.check()?;
        for step in steps {
            run.take(step)?;
            run.check()?;
        }
        // Once more: nothing is left to write.
        run.world.faults.clear();
        run.resync()?;
        let asked = run.world.take_asked();
        prop_assert!(matches!(asked.as_slice(), [Asked::ListPrefix(_)]), "{:?}", asked);
    }

    #[test]
    fn what_was_not_stored_is_what_the_next_call_writes(service in a_service(), later in a_service()) {
        let wires = Wires { snat_only: false, transport: "vxlan", has_gateway: true, weight: 1, drops_fragments: false };
        let mut run = Run::new(wires);
        run.resync()?;
        run.world.fail("kv.commit", Error::Unavailable("no leader".to_owned()));
        prop_assert!(run.renderer.add_service(&mut run.world, &service).is_err());
        prop_assert!(run.renderer.add_service(&mut run.world, &later).is_ok());
        let told = Told { services: BTreeMap::from([(("default".to_owned(), later.id.name.clone()), later)]), ..Told::default() };
        let expected = wanted(wires, &told);
        for (key, value) in &expected {
            prop_assert_eq!(run.world.etcd.get(key), Some(value));
        }
    }
}
