//! This node, its number and the Services on it, as a kind of work.

use std::sync::Arc;

use serde_json::value::to_raw_value;
use trueup_base::text::counted;
use trueup_config::{self as config, Config, ThisNode, World};
use trueup_instance::Worlds;
use trueup_work::kind::{self, Begin, Fallible, Kind, Loop, On, Planning, Ready, Summary};
use trueup_work::needs::Needs;
use trueup_work::plan::Plan;
use trueup_work::setup::SetupError;
use trueup_work::status::HostStatus;

use super::setup::NodeSetup;
use super::{Mode, OnNode};
use crate::node::guests::{nodesync, renderer, service};

/// The number of this node, and its Services.
pub(crate) struct OfThisNode;

/// The number of the node, its Services, and their renderers.
const WORLDS: Worlds = &[
    &nodesync::WORLD,
    &service::WORLD,
    &renderer::etcd::WORLD,
    &renderer::nftables::WORLD,
];

/// What a run on this node needs.
pub(super) struct Node<'c> {
    pub(super) config: &'c Config,
    pub(super) node: &'c ThisNode,
    pub(super) host_status: &'c Arc<HostStatus>,
    /// `None` once the loop has it.
    setup: Option<NodeSetup>,
}

impl Kind for OfThisNode {
    fn name(&self) -> &'static str {
        "node"
    }

    fn worlds(&self) -> Worlds {
        WORLDS
    }

    fn sections(&self) -> &'static dyn World {
        config::NODE
    }

    fn needs<'a>(&self, config: &'a Config) -> Needs<'a> {
        config.world().map(super::setup::needs).unwrap_or_default()
    }

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        example!("services": "trueup.toml", "manifests/cart.yaml", "manifests/nodes.yaml", "manifests/pods.yaml")
    }

    fn set_up<'a>(&'a self, (config, host_context, ..): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(node) = config.world() else { return Ok(None) };
            let setup = Some(NodeSetup::new(config, node, host_context).await?);
            let host_status = &host_context.host_status;
            Ok(Some(Box::new(Node {
                config,
                node,
                host_status,
                setup,
            }) as _))
        })
    }
}

impl Ready for Node<'_> {
    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(async move {
            if let Some(setup) = self.setup.take() {
                super::plan::plan(of, self, setup, plan).await;
            }
            Ok(())
        })
    }

    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let Some(setup) = self.setup.take() else {
            return Ok(kind::nothing());
        };
        let mode = Mode {
            source_is_reported: with.source_is_reported,
            once: with.context.is_once(),
        };
        let connect = |version| with.management.connect(version);
        let on_node = OnNode::new(self.config, self.node, setup, connect, self.host_status, mode);
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
