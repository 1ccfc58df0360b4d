//! This node, its number and the Services on it, as a kind of work.

use serde_json::value::to_raw_value;
use trueup_base::text::counted;
use trueup_config::{self as config, Config};
use trueup_work::kind::{self, Begin, Fallible, Kind, Loop, On, Planning, Ready, Summary};
use trueup_work::needs::Needs;
use trueup_work::plan::Plan;
use trueup_work::setup::SetupError;

use super::OnNode;
use super::setup::NodeSetup;
use crate::node::guests::{nodesync, renderer, service};

/// The number of this node, and its Services.
pub(crate) struct OfThisNode;

/// The number of the node, its Services, and their renderers.
const WORLDS: trueup_instance::Worlds = &[
    &nodesync::WORLD,
    &service::WORLD,
    &renderer::etcd::WORLD,
    &renderer::nftables::WORLD,
];

/// What a run on this node needs. `None` once the loop has it.
struct Node<'c>(Option<NodeSetup<'c>>);

impl Kind for OfThisNode {
    about!(name: "node", worlds: WORLDS, sections: config::NODE, keyed_guest: None);

    fn needs<'a>(&self, config: &'a Config) -> Needs<'a> {
        config.world().map(super::setup::needs).unwrap_or_default()
    }

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        example!("services": "trueup.toml", "manifests/cart.yaml", "manifests/nodes.yaml", "manifests/pods.yaml")
    }

    fn set_up<'a>(&'a self, (config, host_context, ..): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(node) = config.world() else { return Ok(None) };
            let setup = NodeSetup::new(config, node, host_context).await?;
            Ok(Some(Box::new(Node(Some(setup))) as _))
        })
    }
}

impl Ready for Node<'_> {
    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(async move {
            if let Some(setup) = self.0.take() {
                super::plan::plan(of, setup, plan).await;
            }
            Ok(())
        })
    }

    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let Some(setup) = self.0.take() else {
            return Ok(kind::nothing());
        };
        let connect = |version| with.management.connect(version);
        let on_node = OnNode::new(setup, connect, with.source_is_reported, with.context.is_once());
        let input = with.input()?;
        let (context, tell) = (with.context, with.report);
        Ok(Box::pin(async move {
            let summary = on_node.run(input, context.belongs(), context.stopped(), tell).await;
            let json = to_raw_value(&summary).map_err(SetupError::failed)?;
            let line = format!(
                "{}, {}: {} true, {} failed",
                counted(summary.nodes, "node", "nodes"),
                counted(summary.services, "service", "services"),
                counted(summary.rendered.len(), "renderer", "renderers"),
                summary.failed.len()
            );
            Ok(Some(Summary {
                is_true: summary.failed.is_empty() && summary.problems.is_empty() && summary.cut_short.is_none(),
                line,
                json,
                cut_short: summary.cut_short,
                problems: summary.problems,
                failed: summary.failed,
                ..Summary::default()
            }))
        }))
    }
}
