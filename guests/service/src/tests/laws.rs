//! Properties of any sequence of events with renderers that refuse now and then: the guest makes exactly the model's
//! calls, and once the refusals end every renderer has the result of a resync of the same inputs.

use std::collections::VecDeque;
use trueup_guest::Guest as _;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use trueup_guest::testing::{Simulated, Transcript};

use super::model::{Model, Rendering};
use super::{allocation, context, id, instance, node, pod, service, subset};
use crate::bindings::exports::trueup::service::processor::{CustomIpAllocation, Event, LocalPod, NodeContext, State};
use crate::bindings::trueup::kube::types::{Endpoints, Service};
use crate::bindings::trueup::nodesync::types::Node;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::world::{Rendered, World};

/// How many sequences to try; `PROPTEST_CASES` sets more.
const CASES: u32 = 300;

/// Two renderers behind one import, with the host between. A call goes to both, and the first error is the guest's
/// answer. If one accepts what the other refuses, the guest gets no acknowledgement, so both are out of step. Both get
/// the acknowledged state as a resync before their next call, at the latest by a timer.
#[derive(Debug, Default)]
struct Renderers {
    each: [Rendering; 2],
    /// Those that have something other than the acknowledged state.
    out_of_step: [bool; 2],
    acknowledged: Rendering,
    /// For each coming call, which of them refuse it. After the last one, neither does.
    refusals: VecDeque<[bool; 2]>,
    calls: Vec<String>,
    record: Transcript,
}

impl Renderers {
    fn call(&mut self, call: String, apply: impl Fn(&mut Rendering)) -> Rendered {
        self.on_timer();
        self.calls.push(call);
        let refusals = self.refusals.pop_front().unwrap_or_default();
        for (renderer, refuses) in self.each.iter_mut().zip(refusals) {
            if !refuses {
                apply(renderer);
            }
        }
        match refusals.iter().position(|refuses| *refuses) {
            None => {
                apply(&mut self.acknowledged);
                Ok(())
            }
            Some(first) => {
                self.out_of_step = [true; 2];
                Err(format!("renderer {first} refuses call {}", self.calls.len()))
            }
        }
    }

    fn on_timer(&mut self) {
        for (renderer, is_out_of_step) in self.each.iter_mut().zip(&mut self.out_of_step) {
            if std::mem::take(is_out_of_step) {
                *renderer = self.acknowledged.clone();
            }
        }
    }
}

fn key(service: &ContivService) -> (String, String) {
    (service.id.namespace.clone(), service.id.name.clone())
}

impl World for Renderers {
    fn add_service(&mut self, service: &ContivService) -> Rendered {
        self.call(format!("add {service:?}"), |renderer| {
            renderer.services.insert(key(service), service.clone());
        })
    }

    fn update_service(&mut self, old: &ContivService, new: &ContivService) -> Rendered {
        assert_eq!(old.id, new.id);
        self.call(format!("update {old:?} to {new:?}"), |renderer| {
            renderer.services.insert(key(new), new.clone());
        })
    }

    fn delete_service(&mut self, service: &ContivService) -> Rendered {
        self.call(format!("delete {service:?}"), |renderer| {
            renderer.services.remove(&key(service));
        })
    }

    fn update_node_port_services(&mut self, node_ips: &[String], services: &[ContivService]) -> Rendered {
        self.call(format!("nodes {node_ips:?} {services:?}"), |renderer| {
            renderer.node_ips = node_ips.to_vec();
        })
    }

    fn update_local_frontend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered {
        self.call(format!("frontends {old:?} to {new:?}"), |renderer| {
            renderer.frontends = new.to_vec()
        })
    }

    fn update_local_backend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered {
        self.call(format!("backends {old:?} to {new:?}"), |renderer| {
            renderer.backends = new.to_vec()
        })
    }

    fn resync(&mut self, event: &ResyncEvent) -> Rendered {
        self.call(format!("resync {event:?}"), |renderer| {
            *renderer = Rendering::of(event.clone())
        })
    }
}

impl Simulated for Renderers {
    fn record(&mut self) -> &mut Transcript {
        &mut self.record
    }
}

const SERVICES: [&str; 4] = ["a", "b", "ns/a", "ns/c"];
const PODS: [&str; 4] = ["p", "q", "r", "ns/p"];
/// Addresses of this node's pods, of another's, of this node, of another node; one address in two spellings, one of the
/// other family, and an invalid one.
const ADDRESSES: [&str; 9] = [
    "10.1.1.3",
    "10.1.1.4",
    "10.1.2.3",
    "::ffff:10.1.2.3",
    "192.168.16.1",
    "172.30.1.2",
    "fd00::3",
    "x",
    "",
];
const INTERFACES: [&str; 5] = ["", "tap-p", "tap-q", "shared", "GbE"];

fn a_service() -> impl Strategy<Value = Service> {
    let ports = select(
        &[
            "",
            "http:80",
            "http:80:30080 dns:53",
            "dns:53 http:81 http:80",
            ":80:30001",
        ][..],
    );
    let of_type = select(&["ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"][..]);
    let cluster_ip = select(&["", "None", "10.96.0.1", "::ffff:10.96.0.1", "fd00:96::1", "bad"][..]);
    let external = || prop::collection::vec(select(&["1.1.1.1", "2.2.2.2", "::ffff:1.1.1.1", "bad"][..]), 0..3);
    let words = (
        select(&["Cluster", "Local"][..]),
        select(&["None", "ClientIP"][..]),
        0..3_u32,
    );
    (
        select(&SERVICES[..]),
        ports,
        of_type,
        cluster_ip,
        external(),
        external(),
        words,
    )
        .prop_map(
            |(name, ports, of_type, cluster_ip, external_ips, ingress_ips, (policy, affinity, timeout))| Service {
                service_type: of_type.to_owned(),
                external_ips: super::owned(&external_ips),
                lb_ingress_ips: super::owned(&ingress_ips),
                external_traffic_policy: policy.to_owned(),
                session_affinity: affinity.to_owned(),
                session_affinity_timeout_s: timeout,
                ..service(name, cluster_ip, ports)
            },
        )
}

fn some_endpoints() -> impl Strategy<Value = Endpoints> {
    let pod = prop_oneof![1 => Just(None), 4 => select(&PODS[..]).prop_map(Some)];
    let address = (select(&ADDRESSES[..8]), pod).prop_map(|(ip, pod)| match pod {
        Some(pod) => format!("{ip}@{pod}"),
        None => ip.to_owned(),
    });
    let ports = select(&["", "http:8080", "http:8080 dns:5353", "http:8080 http:8081", ":8080"][..]);
    let subset = (prop::collection::vec(address, 0..4), ports)
        .prop_map(|(addresses, ports)| subset(&addresses.join(" "), ports));
    (select(&SERVICES[..]), prop::collection::vec(subset, 0..3))
        .prop_map(|(name, subsets)| Endpoints { id: id(name), subsets })
}

fn a_pod() -> impl Strategy<Value = LocalPod> {
    (select(&PODS[..]), select(&ADDRESSES[..]), select(&INTERFACES[..]))
        .prop_map(|(name, ip, interface)| pod(name, ip, interface))
}

fn an_allocation() -> impl Strategy<Value = CustomIpAllocation> {
    let interface = select(
        &[
            "x - 10.2.0.1",
            "y default 10.2.0.2",
            "z other -",
            "*x other 10.1.1.9/24",
            "*shared default 10.2.0.3",
            "* - 10.1.1.3/32",
            "*w - bad",
            "*tap-q other 192.168.16.1",
        ][..],
    );
    (select(&PODS[..]), prop::collection::vec(interface, 0..4))
        .prop_map(|(pod, interfaces)| allocation(pod, &interfaces))
}

fn some_nodes() -> impl Strategy<Value = Vec<Node>> {
    let all = vec![
        node("m", &["192.168.16.1/24", "fd00::1/64"], &["172.30.1.1"]),
        node("w", &["192.168.16.2/24", "bad"], &["172.30.1.2", "192.168.16.1"]),
        node("v", &[], &["::ffff:172.30.1.1"]),
    ];
    subsequence(all, 0..=3).prop_shuffle()
}

fn a_context() -> impl Strategy<Value = NodeContext> {
    let changes: Vec<fn(&mut NodeContext)> = vec![
        |context| context.pod_subnet_all_nodes = "fd00::/8".to_owned(),
        |context| context.pod_subnet_this_node = "bad".to_owned(),
        |context| context.host_ips = Vec::new(),
        |context| context.vxlan_bvi_interface = String::new(),
        |context| context.main_interface = "shared".to_owned(),
        |context| context.other_interfaces = super::owned(&["x", "", "tap-p"]),
    ];
    subsequence(changes, 0..=2).prop_map(|changes| {
        let mut context = context();
        for change in changes {
            change(&mut context);
        }
        context
    })
}

fn a_state() -> impl Strategy<Value = State> {
    (
        a_context(),
        some_nodes(),
        prop::collection::vec(a_pod(), 0..4),
        prop::collection::vec(a_pod(), 0..3),
        prop::collection::vec(some_endpoints(), 0..5),
        prop::collection::vec(a_service(), 0..5),
        prop::collection::vec(an_allocation(), 0..3),
    )
        .prop_map(
            |(context, nodes, local_pods, remote_pods, endpoints, services, ip_allocations)| State {
                context,
                nodes,
                local_pods,
                remote_pods,
                endpoints,
                services,
                ip_allocations,
            },
        )
}

fn an_event() -> impl Strategy<Value = Event> {
    let service_id = || select(&SERVICES[..]).prop_map(id);
    let pod_id = || select(&PODS[..]).prop_map(id);
    prop_oneof![
        4 => a_service().prop_map(Event::ServicePut),
        1 => service_id().prop_map(Event::ServiceDeleted),
        6 => some_endpoints().prop_map(Event::EndpointsPut),
        1 => service_id().prop_map(Event::EndpointsDeleted),
        4 => an_allocation().prop_map(Event::IpAllocationPut),
        4 => a_pod().prop_map(Event::PodAdded),
        3 => pod_id().prop_map(Event::PodDeleted),
        2 => a_pod().prop_map(Event::RemotePodPut),
        2 => pod_id().prop_map(Event::RemotePodDeleted),
        2 => some_nodes().prop_map(Event::Nodes),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Update(Box<Event>),
    Revert(&'static str),
    Resync(Box<State>),
    /// A new instance takes over the snapshot.
    Carry,
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => an_event().prop_map(|event| Step::Update(Box::new(event))),
        2 => select(&PODS[..]).prop_map(Step::Revert),
        1 => a_state().prop_map(|state| Step::Resync(Box::new(state))),
        3 => Just(Step::Carry),
    ]
}

fn some_refusals() -> impl Strategy<Value = VecDeque<[bool; 2]>> {
    let refusal = || prop::bool::weighted(0.15);
    prop::collection::vec_deque([refusal(), refusal()], 0..80)
}

/// An event that changes no input.
fn nothing_happens() -> Event {
    Event::ServiceDeleted(id("unknown"))
}

proptest! {
    #![proptest_config(super::cases::at_least(CASES, 20_000))]

    #[test]
    fn every_renderer_ends_with_what_a_resync_gives(
        first in a_state(), steps in prop::collection::vec(a_step(), 0..30), refusals in some_refusals(),
    ) {
        let start = || Renderers { refusals: refusals.clone(), ..Renderers::default() };
        let (mut world, mut models_world, mut processor) = (start(), start(), instance());
        let result = processor.resync(&mut world, first.clone());
        let (mut model, expected) = Model::resync(&mut models_world, first);
        prop_assert_eq!(result, expected);
        prop_assert_eq!(&world.calls, &models_world.calls);
        for step in steps {
            world.calls.clear();
            models_world.calls.clear();
            match step {
                Step::Update(event) => {
                    let expected = model.update(&mut models_world, (*event).clone());
                    prop_assert_eq!(processor.update(&mut world, *event), expected);
                }
                Step::Revert(pod) => {
                    // Only the log has its errors.
                    let _ = model.update(&mut models_world, Event::PodDeleted(id(pod)));
                    processor.revert(&mut world, id(pod));
                }
                Step::Resync(state) => {
                    let (new, expected) = Model::resync(&mut models_world, (*state).clone());
                    model = new;
                    prop_assert_eq!(processor.resync(&mut world, *state), expected);
                }
                Step::Carry => {
                    let snapshot = processor.snapshot();
                    processor = instance();
                    processor.restore(&mut world, &snapshot).unwrap();
                    prop_assert_eq!(processor.snapshot(), snapshot);
                }
            }
            prop_assert_eq!(&world.calls, &models_world.calls);
            prop_assert_eq!(world.record.metric("service_services"), Some(model.inputs.rendering().services.len() as f64));
        }

        // The refusals end: the next event, of any kind, completes what is pending.
        world.refusals.clear();
        world.calls.clear();
        prop_assert_eq!(processor.update(&mut world, nothing_happens()), Ok(()));
        let wanted = model.inputs.rendering();
        world.on_timer();
        prop_assert_eq!(&world.each[0], &wanted);
        prop_assert_eq!(&world.each[1], &wanted);
        // Now nothing is left to do.
        world.calls.clear();
        prop_assert_eq!(processor.update(&mut world, nothing_happens()), Ok(()));
        prop_assert_eq!(&world.calls, &Vec::<String>::new());
    }
}
