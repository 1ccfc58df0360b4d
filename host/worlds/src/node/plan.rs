//! What a run once would do on this node: its loops themselves, with a store that keeps changes to itself and a packet
//! filter that accepts everything.

use std::convert::Infallible;
use std::sync::Arc;

use trueup_config::ThisNode;
use trueup_instance::Instances;
use trueup_journal::{Entry, Segment, segment_numbers, segment_path};
use trueup_work::host_context::Version;
use trueup_work::input::{From, Input};
use trueup_work::kind::Planning;
use trueup_work::plan::{KeyPlan, Plan};

use super::setup::NodeSetup;
use super::{Mode, OnNode, guest_of};

/// Nothing reads back what the packet filter has. A run applies all of it again when it begins, which changes nothing
/// if it is what the last run applied.
const APPLY: &str = "nftables.apply";

/// The newest entries of an instance's recording. Empty if they can't be read.
fn newest(instances: &Instances, key: &str) -> Vec<Entry> {
    let folder = instances.recording(key);
    let newest = segment_numbers(&folder).unwrap_or_default().pop();
    let segment = newest.and_then(|number| Segment::read(&segment_path(&folder, number)).ok());
    segment.map(|segment| segment.entries).unwrap_or_default()
}

/// Adds what each guest of this node would write. `kind`: the name of the summary.
pub(super) async fn plan(kind: &'static str, (of, node): (Planning<'_>, &ThisNode), setup: NodeSetup, plan: &mut Plan) {
    let loaded = setup.nodesync.iter().chain(&setup.service).chain(&setup.renderers);
    let guests: Vec<_> = loaded.map(|loaded| Arc::clone(&loaded.version.active)).collect();
    let mode = Mode {
        source_is_reported: false,
        once: true,
    };
    let connect = |version: Version| version.unmanaged();
    let on_node = OnNode::new(of.config, node, setup, connect, &of.host_context.host_status, mode);
    let input = Input {
        from: From::Once(of.all.clone()),
        cluster: None,
    };
    let belongs = std::future::ready(Ok::<(), Infallible>(()));
    let summary = on_node.run(input, belongs, std::future::pending(), |_| {}).await;
    for problem in summary.problems {
        plan.problem(problem);
    }
    let mut keys: Vec<KeyPlan> = Vec::new();
    for active in guests {
        let found = active.plan.as_ref().map(|plan| {
            plan.leave_out_recorded(APPLY, &node.name, &newest(&active.instances(), &node.name));
            plan.take(&node.name)
        });
        keys.push(KeyPlan {
            key: node.name.clone(),
            guest: active.instances().name,
            writes: found.unwrap_or_default().writes,
            ..KeyPlan::default()
        });
    }
    for (what, error) in summary.failed {
        match keys.iter_mut().find(|key| key.guest == guest_of(&what)) {
            Some(key) if key.error.is_none() => key.error = Some(error),
            _ => plan.problem(format!("{what}: {error}")),
        }
    }
    plan.add(kind, "guest", keys);
    if let (Some(id), Some(line)) = (summary.id, plan.summaries.get_mut(kind)) {
        line.push_str(&format!("; {} has the number {id}", node.name));
    }
}
