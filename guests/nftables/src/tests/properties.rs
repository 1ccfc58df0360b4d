//! Properties of any sequence of events, refusals and restarts: the tables are those of a resync, every key is where a
//! plain search puts it, and no transaction does more than necessary (the simulation checks that).

use std::collections::BTreeMap;
use trueup_guest::Guest as _;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::services::any_service;
use super::{elements, id, instance, with_port};
use crate::bindings::trueup::kube::types::{ObjectId, Protocol};
use crate::bindings::trueup::service::types::ContivService;
use crate::renderer::Renderer;
use crate::simulated::Simulation;

const CONFIG: &str = r#"{"pod_subnets": ["10.1.0.0/16", "fd10::/16"]}"#;
const NAMES: [&str; 4] = ["a", "a-b", "b", "c"];

type Services = BTreeMap<ObjectId, ContivService>;

#[derive(Clone, Debug)]
enum Step {
    Add(ContivService),
    Update(&'static str, ContivService),
    Delete(&'static str),
    Resync,
    /// the next transaction is refused
    Fault,
    /// a new build takes the snapshot
    Carry,
}

fn a_service() -> impl Strategy<Value = ContivService> {
    let addresses = || {
        let list = subsequence(vec!["10.96.0.1", "10.96.0.2", "fd96::1"], 0..=2);
        list.prop_map(|texts| texts.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let backends = subsequence(
        vec![
            "10.1.1.3#80*",
            "10.1.1.4#80",
            "10.1.1.4#81*",
            "fd10::3#80",
            "fd10::4#80*",
            "10.1.1.5#0",
        ],
        0..=4,
    );
    let protocol = select(vec![Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
    let port = (
        select(vec!["x", "y"]),
        protocol,
        select(vec![0, 80, 80, 81]),
        select(vec![0, 0, 30080, 30081]),
        backends,
    );
    let service = any_service(&NAMES, 1, addresses(), addresses());
    (service, prop::collection::vec(port, 0..3)).prop_map(|(mut service, ports)| {
        for (name, protocol, port, node_port, backends) in ports {
            if service.ports.iter().all(|port| port.name != name) {
                service = with_port(service, name, port, node_port, &backends.join(" "));
                service.ports.last_mut().unwrap().protocol = protocol;
            }
        }
        service
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    let name = || select(NAMES.to_vec());
    prop_oneof![
        6 => a_service().prop_map(Step::Add),
        3 => (name(), a_service()).prop_map(|(old, new)| Step::Update(old, new)),
        3 => name().prop_map(Step::Delete),
        1 => Just(Step::Resync),
        2 => Just(Step::Fault),
        1 => Just(Step::Carry),
    ]
}

/// The contents of each family's maps, by a search through all services for every possible key.
fn searched(services: &Services, family: &str) -> Vec<String> {
    let is_of = |text: &str| text.contains(':') == (family == "ip6");
    let mut lines = Vec::new();
    for (map, is_found, is_address) in [
        ("no-endpoint-ips", false, true),
        ("no-endpoint-nodeports", false, false),
        ("service-ips", true, true),
        ("service-nodeports", true, false),
    ] {
        let addresses: Vec<&str> = ["10.96.0.1", "10.96.0.2", "fd96::1"]
            .into_iter()
            .filter(|text| is_of(text))
            .collect();
        let addresses = if is_address { addresses } else { vec![""] };
        for address in addresses {
            for (protocol, word) in [(Protocol::Sctp, "sctp"), (Protocol::Tcp, "tcp"), (Protocol::Udp, "udp")] {
                for number in [80, 81, 30080, 30081] {
                    let mut claims = Vec::new();
                    for (id, service) in services {
                        let has = |list: &[String]| list.iter().any(|text| text == address);
                        for (index, port) in service.ports.iter().enumerate() {
                            let backends = service.backends.iter().filter(|one| one.port_name == port.name);
                            let mut backends = backends.flat_map(|one| &one.backends);
                            let is_empty = !backends.any(|one| is_of(&one.ip) && one.port != 0);
                            let target = |kind| format!("{kind}/default/{}/{}", id.name, port.name);
                            if port.protocol != protocol {
                                continue;
                            }
                            if is_address && port.port == number && has(&service.cluster_ips) {
                                claims.push((id, is_empty, index, 0, target("svc")));
                            }
                            if is_address && port.port == number && has(&service.external_ips) {
                                claims.push((id, is_empty, index, 1, target("ext")));
                            }
                            if !is_address && port.node_port == number {
                                claims.push((id, is_empty, index, 1, target("ext")));
                            }
                        }
                    }
                    claims.sort();
                    if let Some((_, is_empty, _, _, target)) = claims.into_iter().next()
                        && is_empty != is_found
                    {
                        let target = if is_found { target } else { "reject-it".to_owned() };
                        let key = format!("{address} {word} {number}");
                        lines.push(format!("{map} {}: {target}", key.trim_start()));
                    }
                }
            }
        }
    }
    lines.sort();
    lines
}

/// Makes a call. If it is refused, repeats it and expects the same transaction.
fn ask(
    world: &mut Simulation,
    call: &mut dyn FnMut(&mut Simulation) -> Result<(), String>,
) -> Result<(), TestCaseError> {
    let is_faulty = !world.faults.is_empty();
    world.take_asked();
    let before = world.tables.clone();
    let answer = call(world);
    let asked = world.take_asked();
    if is_faulty && !asked.is_empty() {
        prop_assert_eq!(answer, Err("netlink: busy".to_owned()));
        prop_assert_eq!(&world.tables, &before);
        prop_assert_eq!(call(world), Ok(()));
        prop_assert_eq!(world.take_asked(), asked);
    } else {
        prop_assert_eq!(answer, Ok(()));
    }
    Ok(())
}

fn take(
    renderer: &mut Renderer,
    world: &mut Simulation,
    services: &mut Services,
    step: Step,
) -> Result<(), TestCaseError> {
    match step {
        Step::Add(service) => {
            services.insert(service.id.clone(), service.clone());
            ask(world, &mut |world| renderer.add_service(world, service.clone()))
        }
        Step::Update(old, new) => {
            services.remove(&id(old));
            services.insert(new.id.clone(), new.clone());
            ask(world, &mut |world| renderer.update_service(world, id(old), new.clone()))
        }
        Step::Delete(name) => {
            services.remove(&id(name));
            ask(world, &mut |world| renderer.delete_service(world, id(name)))
        }
        Step::Resync => {
            let all: Vec<ContivService> = services.values().cloned().collect();
            ask(world, &mut |world| renderer.resync(world, all.clone()))
        }
        Step::Fault => {
            if world.faults.is_empty() {
                world.faults.push_back("netlink: busy".to_owned());
            }
            Ok(())
        }
        Step::Carry => {
            let snapshot = renderer.snapshot();
            *renderer = instance(CONFIG);
            renderer.restore(world, &snapshot).unwrap();
            prop_assert_eq!(renderer.snapshot(), snapshot);
            Ok(())
        }
    }
}

proptest! {
    #[test]
    fn events_make_the_tables_that_a_resync_makes(steps in prop::collection::vec(a_step(), 1..25)) {
        let (mut renderer, mut world) = (instance(CONFIG), Simulation::default());
        renderer.resync(&mut world, Vec::new()).unwrap();
        let mut services = Services::new();
        for step in steps {
            take(&mut renderer, &mut world, &mut services, step)?;
        }
        let (mut fresh, mut other) = (instance(CONFIG), Simulation::default());
        fresh.resync(&mut other, services.values().cloned().collect()).unwrap();
        prop_assert_eq!(&world.tables, &other.tables);
        prop_assert_eq!(renderer.snapshot(), fresh.snapshot());
        for family in ["ip", "ip6"] {
            let mut found = elements(&world, family);
            found.sort();
            prop_assert_eq!(found, searched(&services, family));
        }
    }
}
