//! What a run once would do on this node: its loops themselves, with a store that keeps changes to itself and a packet
//! filter that accepts everything.

use std::sync::Arc;

use trueup_instance::Instances;
use trueup_journal::{Ask, Ending, Entry, Event, Segment, segment_numbers, segment_path};
use trueup_work::host_context::Version;
use trueup_work::input::{From, Input};
use trueup_work::kind::Planning;
use trueup_work::plan::{KeyPlan, Plan};

use super::renderer_states::Expected;
use super::setup::NodeSetup;
use super::{OnNode, guest_of};
use crate::node::guests::renderer;

/// Nothing reads back what the packet filter has. A run applies all of it again when it begins, which changes nothing
/// if it is what the last run applied.
const APPLY: &str = "nftables.apply";

/// The end of an instance's recording, from the last full resync on. Empty if it can't be read.
struct Recorded {
    entries: Vec<Entry>,
    /// Whether all of it is of the guest and the settings that the plan uses.
    is_same_guest: bool,
}

impl Recorded {
    fn read(instances: &Instances, key: &str) -> Self {
        let folder = instances.recording(key);
        let (mut entries, mut is_same_guest) = (Vec::new(), true);
        let digest = instances.program.guest.digest.to_string();
        let is_resync = |entry: &Entry| matches!(&entry.event, Event::Call(call) if call.name == renderer::RESYNC);
        for number in segment_numbers(&folder).unwrap_or_default().into_iter().rev() {
            let Ok(mut segment) = Segment::read(&segment_path(&folder, number)) else {
                break;
            };
            let has_resync = segment.entries.iter().any(is_resync);
            let settings = serde_json::from_str(segment.header.settings.get());
            is_same_guest &= segment.header.digest == digest && settings.ok().as_ref() == Some(&instances.settings);
            segment.entries.append(&mut entries);
            entries = segment.entries;
            if has_resync {
                break;
            }
        }
        Self { entries, is_same_guest }
    }

    /// Whether the packet filter has what the planned calls would give it: they apply the same texts as the last calls,
    /// or the same guest has taken the same Services, whether at once or one change after another.
    fn has(&self, planned: &[Entry]) -> bool {
        let is_rendered = || {
            let rendered = rendered(&self.entries);
            self.is_same_guest && rendered.is_some() && rendered == self::rendered(planned)
        };
        applied(&self.entries).ends_with(&applied(planned)) || is_rendered()
    }
}

/// The texts that the packet filter got, with its answers.
fn applied(entries: &[Entry]) -> Vec<(&str, Option<&str>)> {
    let asks = entries.iter().filter_map(|entry| match &entry.event {
        Event::Ask(Ask { name, args, answer }) if name == APPLY => {
            Some((args.get(), answer.as_ref().map(|it| it.get())))
        }
        _ => None,
    });
    asks.collect()
}

/// What a renderer has after these calls. `None` if that is not known: it got no full resync, or refused a call after
/// it.
fn rendered(entries: &[Entry]) -> Option<Expected> {
    let (mut expected, mut called) = (None, None);
    for entry in entries {
        match &entry.event {
            Event::Call(call) => called = Some(call),
            Event::Ending(ending) => {
                let call = called.take()?;
                let is_taken = matches!(ending, Ending::Result(result) if result.get() == r#"{"Ok":null}"#);
                let taken = renderer::call(&call.name, &call.args).filter(|_| is_taken);
                expected = taken.and_then(|call| Expected::after(expected, &call));
            }
            _ => {}
        }
    }
    expected
}

/// Adds what each guest of this node would write.
pub(super) async fn plan(of: Planning<'_>, setup: NodeSetup<'_>, plan: &mut Plan) {
    let node = setup.node;
    let loaded = setup.nodesync.iter().chain(&setup.service).chain(&setup.renderers);
    let guests: Vec<_> = loaded.map(|(version, _)| Arc::clone(&version.active)).collect();
    let (source_is_reported, once) = (false, true);
    let connect = |version: Version| version.unmanaged();
    let on_node = OnNode::new(setup, connect, source_is_reported, once);
    let input = Input {
        from: From::Once(of.all.clone()),
        cluster: None,
    };
    let belongs = std::future::ready(Ok(()));
    let summary = on_node.run(input, belongs, std::future::pending(), |_| {}).await;
    summary.problems.into_iter().for_each(|problem| plan.problem(problem));
    let mut keys: Vec<KeyPlan> = Vec::new();
    for active in guests {
        let found = active.plan.as_ref().map(|plan| {
            let recorded = Recorded::read(&active.instances(), &node.name);
            plan.leave_out(APPLY, &node.name, |planned| recorded.has(planned));
            plan.take(&node.name)
        });
        let (writes, _) = found.unwrap_or_default();
        keys.push(KeyPlan {
            key: node.name.clone(),
            guest: active.instances().name,
            writes,
            ..KeyPlan::default()
        });
    }
    for (what, error) in summary.failed {
        match keys.iter_mut().find(|key| key.guest == guest_of(&what)) {
            Some(key) if key.error.is_none() => key.error = Some(error),
            _ => plan.problem(format!("{what}: {error}")),
        }
    }
    plan.add(of.name, "guest", keys);
    if let (Some(id), Some(line)) = (summary.id, plan.summaries.get_mut(of.name)) {
        line.push_str(&format!("; {} has the number {id}", node.name));
    }
}
