//! This node, its number and the Services on it, as a kind of work.

use serde_json::value::{RawValue, to_raw_value};

use super::{AllManaging, NodeSetup, OnNode, Seated, Summary};
use crate::config::{Config, ThisNode};
use crate::event::Event;
use crate::kind::{self, Begin, Kind, Loaded, Loop, On, Ready, Trying};
use crate::setup::SetupError;
use crate::work::ground::Ground;

/// The number of this node, and its Services.
pub(crate) struct OfThisNode;

/// What a run on this node needs.
struct Node<'c> {
    config: &'c Config,
    node: &'c ThisNode,
    /// `None` once the loop has it.
    setup: Option<NodeSetup>,
}

impl Kind for OfThisNode {
    fn name(&self) -> &'static str {
        "node"
    }

    fn reads_source(&self, config: &Config) -> bool {
        config.node.is_some()
    }

    fn check<'a>(&'a self, config: &'a Config, ground: &'a Ground) -> Trying<'a, ()> {
        Box::pin(async move {
            match &config.node {
                Some(node) => NodeSetup::check(config, node, ground).await,
                None => Ok(()),
            }
        })
    }

    fn set_up<'a>(&'a self, on: On<'a>) -> Trying<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let config = on.config;
            let Some(node) = &config.node else { return Ok(None) };
            let setup = Some(NodeSetup::new(config, node, on.ground, None).await?);
            Ok(Some(Box::new(Node { config, node, setup }) as _))
        })
    }
}

impl Ready for Node<'_> {
    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let Some(mut setup) = self.setup.take() else {
            return Ok(kind::nothing());
        };
        let mut managing = |seated: &mut Seated| {
            with.management.connect(Loaded {
                name: seated.name,
                worlds: seated.worlds,
                guest: &seated.guest,
                active: &seated.active,
                revisions: std::mem::take(&mut seated.revisions),
                problem: seated.problem.take(),
            })
        };
        let managing = AllManaging {
            nodesync: setup.nodesync.as_mut().map(&mut managing),
            service: setup.service.as_mut().map(&mut managing),
            renderers: setup.renderers.iter_mut().map(&mut managing).collect(),
            source_is_reported: with.source_is_reported,
            once: with.along.is_once(),
        };
        let board = &with.management.ground.board;
        let on_node = OnNode::new(self.config, self.node, setup, managing, board);
        let input = with.input()?;
        let (along, tell) = (with.along, with.tell);
        let tell = |event| tell(Event::Node(event));
        Ok(Box::pin(async move {
            let summary = on_node.run(input, along.belongs(), along.stopped(), tell).await;
            Ok(Some(Box::new(summary) as _))
        }))
    }
}

impl kind::Summary for Summary {
    fn is_true(&self) -> bool {
        self.is_true()
    }

    fn cut_short(&self) -> Option<&str> {
        self.cut_short.as_deref()
    }

    fn problems(&self) -> &[String] {
        &self.problems
    }

    fn failed(&self) -> &[(String, String)] {
        &self.failed
    }

    fn json(&self) -> serde_json::Result<Box<RawValue>> {
        to_raw_value(self)
    }
}
