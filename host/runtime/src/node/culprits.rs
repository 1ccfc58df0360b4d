//! Which objects the service processor fails in when it is told everything.
//!
//! Tried out on instances of the same version that nobody hears of: nothing is recorded, nothing rendered. It answers for
//! objects that make the guest fail whatever came before them.
//!
//! ```text
//! everything -> fails -> the shortest beginning that fails: its last object is one -> everything else -> ...
//! ```

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::to_raw_value;
use tokio::time::Instant;
use trueup_capabilities::log::NoLog;
use trueup_capabilities::renderer::{Call, Renderers};
use trueup_capabilities::{Answer, Backends, Host};
use trueup_journal::{By, Tape};

use crate::guests::service::{Event, Resync, State};
use crate::instance::{Instance, Start};
use crate::run::Instances;

/// So many objects are looked for. Where there are more, it is the guest that is wrong, or has too little of something.
const CULPRITS_MAX: usize = 8;

/// So long is looked. The loop waits, and whoever fails for want of time takes all of it in each trial.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Renderers that take whatever they are asked.
struct TakeAll;

impl Renderers for TakeAll {
    fn render<'a>(&'a self, _: By, _: Call) -> Answer<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The objects without which the guest takes the rest; empty: it takes everything. None: it is not a few objects that it
/// fails in, or they were not found in time.
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

/// With the first so many objects: Services, then endpoints, then pods.
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

/// Takes the object at a position out, as it is told.
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

/// Whether a new instance that is told this gives no answer.
async fn fails(instances: &Instances, state: State) -> bool {
    let Ok(args) = to_raw_value(&Resync { state }) else {
        return false;
    };
    let backends = Backends {
        log: Arc::new(NoLog),
        renderers: Some(Arc::new(TakeAll)),
        ..Instances::trial()
    };
    let host = Host::new(
        instances.identity("trial"),
        Tape::memory(),
        instances.grants.clone(),
        backends,
        instances.limits,
    );
    let start = Start {
        settings: &instances.settings,
        snapshot: Some(&instances.initial),
        cpu_max: Duration::from_millis(instances.limits.cpu_ms),
    };
    match Instance::start(&instances.engine, &instances.program, host, start).await {
        Ok(mut instance) => instance.call("processor.resync", &args).await.is_err(),
        Err(_) => true,
    }
}
