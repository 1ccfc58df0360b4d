//! Finds the objects that make the service processor fail in a full resync.
//!
//! Tries them on instances of the same version that record and render nothing. It finds objects that make the guest
//! fail whatever came before them.
//!
//! ```text
//! everything -> fails -> the shortest prefix that fails: its last object is one -> everything else -> ...
//! ```

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::to_raw_value;
use tokio::time::Instant;
use trueup_capabilities::log::NoLog;
use trueup_capabilities::renderer::{Call, Renderers};
use trueup_capabilities::{Answer, Backends};
use trueup_journal::By;
use trueup_work::instances::Instances;

use crate::node::guests::service::{Event, Resync, State};

/// The maximum number of objects to find. If there are more, the guest itself is wrong, or lacks some resource.
const CULPRITS_MAX: usize = 8;

/// The time limit of the search. The loop waits for it, and a guest that fails by timeout uses its full time in each
/// trial.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Renderers that accept every call.
struct TakeAll;

impl Renderers for TakeAll {
    fn render<'a>(&'a self, _: By, _: Call) -> Answer<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The objects without which the guest accepts the rest. Empty if it accepts everything. `None` if the failure is not
/// due to a few objects, or they were not found in time.
pub(super) async fn find(instances: &Instances, mut state: State) -> Option<Vec<Event>> {
    let until = Instant::now() + TIME_MAX;
    let mut culprits = Vec::new();
    while fails(instances, state.clone()).await {
        let (mut passes, mut failing) = (0, objects(&state));
        let has_room = culprits.len() < CULPRITS_MAX && failing > 0;
        if !has_room || fails(instances, first(&state, 0)).await {
            return None;
        }
        while failing - passes > 1 {
            if Instant::now() > until {
                return None;
            }
            let middle = passes + (failing - passes) / 2;
            if fails(instances, first(&state, middle)).await {
                failing = middle;
            } else {
                passes = middle;
            }
        }
        culprits.extend(take(&mut state, passes));
    }
    Some(culprits)
}

fn objects(state: &State) -> usize {
    state.services.len() + state.endpoints.len() + state.local_pods.len()
}

/// The state with only the first `count` objects: Services, then endpoints, then pods.
fn first(state: &State, mut count: usize) -> State {
    let mut up_to = |len: usize| {
        let taken = len.min(count);
        count -= taken;
        taken
    };
    State {
        services: state
            .services
            .iter()
            .take(up_to(state.services.len()))
            .cloned()
            .collect(),
        endpoints: state
            .endpoints
            .iter()
            .take(up_to(state.endpoints.len()))
            .cloned()
            .collect(),
        local_pods: state
            .local_pods
            .iter()
            .take(up_to(state.local_pods.len()))
            .cloned()
            .collect(),
        context: state.context.clone(),
        nodes: state.nodes.clone(),
        remote_pods: state.remote_pods.clone(),
        ip_allocations: state.ip_allocations.clone(),
    }
}

/// Removes the object at a position. Returns its event.
fn take(state: &mut State, at: usize) -> Option<Event> {
    let (services, endpoints) = (state.services.len(), state.endpoints.len());
    if at >= objects(state) {
        return None;
    }
    Some(if at < services {
        Event::ServicePut(state.services.remove(at))
    } else if at < services + endpoints {
        Event::EndpointsPut(state.endpoints.remove(at - services))
    } else {
        Event::PodAdded(state.local_pods.remove(at - services - endpoints))
    })
}

/// Whether a new instance fails in a resync with this state.
async fn fails(instances: &Instances, state: State) -> bool {
    let Ok(args) = to_raw_value(&Resync { state }) else {
        return false;
    };
    let backends = Backends {
        log: Arc::new(NoLog),
        renderers: Some(Arc::new(TakeAll)),
        ..Instances::trial()
    };
    match instances
        .start_unrecorded("trial", backends, Some(&instances.initial))
        .await
    {
        Ok(mut instance) => instance.call("processor.resync", &args).await.is_err(),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::guests::service::{Endpoints, LocalPod, NodeContext, ObjectId, Service};

    fn id(name: &str) -> ObjectId {
        ObjectId {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        }
    }

    fn service(name: &str) -> Service {
        Service {
            id: id(name),
            service_type: String::new(),
            cluster_ip: String::new(),
            external_ips: Vec::new(),
            lb_ingress_ips: Vec::new(),
            external_traffic_policy: String::new(),
            session_affinity: String::new(),
            session_affinity_timeout_s: 0,
            ports: Vec::new(),
        }
    }

    fn state() -> State {
        State {
            context: NodeContext {
                node_ip: String::new(),
                host_ips: Vec::new(),
                pod_subnet_this_node: String::new(),
                pod_subnet_all_nodes: String::new(),
                main_interface: String::new(),
                other_interfaces: Vec::new(),
                vxlan_bvi_interface: String::new(),
                host_interconnect_interface: String::new(),
            },
            nodes: Vec::new(),
            local_pods: vec![LocalPod {
                id: id("p"),
                ip: String::new(),
                interface_name: None,
            }],
            remote_pods: Vec::new(),
            endpoints: ["a", "b"]
                .map(|name| Endpoints {
                    id: id(name),
                    subsets: Vec::new(),
                })
                .into(),
            services: ["a", "b"].map(service).into(),
            ip_allocations: Vec::new(),
        }
    }

    #[test]
    fn each_object_ends_one_prefix_and_is_what_is_taken_out_there() {
        assert_eq!(objects(&first(&state(), 0)), 0);
        for at in 0..objects(&state()) {
            let (shorter, longer) = (first(&state(), at), first(&state(), at + 1));
            let mut without = longer.clone();
            assert!(take(&mut without, at).is_some());
            assert_eq!((objects(&longer), &without), (at + 1, &shorter), "{at}");
        }
        assert_eq!(first(&state(), 9), state());
        assert_eq!(take(&mut state(), 5), None);
        assert_eq!(take(&mut state(), 0), Some(Event::ServicePut(service("a"))));
    }
}
