//! The loops over the objects of a source: what each needs before it begins, in the order in which problems are found.

use std::sync::Arc;

use tokio::sync::mpsc;
use trueup_capabilities::neg::compute::Ended;
use trueup_election::Election;
use trueup_sources::Source;
use trueup_sources::kubernetes::Kubernetes;

use super::loops::Loops;
use super::management::Management;
use super::{Extent, resign};
use crate::config::Config;
use crate::event::Event;
use crate::lbaas::setup::Setup;
use crate::neg::{NegSetup, SetErrorState};
use crate::node::{NodeSetup, OnNode};
use crate::setup::SetupError;
use crate::work::cluster;
use crate::work::ground::Ground;
use crate::work::input::Input;
use crate::work::leading::{Acts, Leading};
use crate::{guests, lbaas, neg};

/// What the loops need.
pub(super) struct Setups<'c> {
    source: &'c Source,
    /// `None` once the loops have it.
    input: Option<Input>,
    acts: Acts,
    services: Option<Setup>,
    /// With the ends of operations, until the loop has them.
    negs: Option<(NegSetup, Option<mpsc::Receiver<Ended>>)>,
    /// `None` once the loop has it.
    node: Option<NodeSetup>,
}

/// What a run looks at beside its loops.
#[derive(Default)]
pub(super) struct Around {
    /// For the API server of the source.
    pub(super) client: Option<kube::Client>,
    pub(super) cluster: Option<Kubernetes>,
    pub(super) election: Option<Arc<Election>>,
}

impl<'c> Setups<'c> {
    /// Takes the leader state from `leading`, or begins it there. With `--once`, waits for the Lease.
    ///
    /// # Errors
    /// If a loop can't begin.
    pub(super) async fn new(
        config: &Config,
        source: &'c Source,
        ground: &Ground,
        extent: Extent,
        leading: &mut Option<Leading>,
    ) -> Result<(Self, Around), SetupError> {
        Input::check(source).await?;
        let client = Input::client(source).await?;
        if client.is_none() {
            cluster::is_no_clusters(&config.state_dir, source).map_err(SetupError::misused)?;
        }
        let leading = lead(leading, config, client.clone()).await?;
        let (acts, election) = (leading.acts(), leading.election());
        let (mut services, mut negs, mut node) = (None, None, None);
        if let Some(lbaas) = &config.lbaas {
            services = Some(Box::pin(Setup::new(config, lbaas, ground, acts.fence().clone())).await?);
        }
        if let Some(neg) = &config.neg {
            let (setup, ends) = Box::pin(NegSetup::new(config, neg, ground, acts.fence().clone())).await?;
            negs = Some((setup, Some(ends)));
        }
        if let Some(this) = &config.node {
            node = Some(Box::pin(NodeSetup::new(config, this, ground, None)).await?);
        }
        if let (Extent::Once, Some(client)) = (extent, &client) {
            // Reports problems with the source before the host takes the Lease.
            Input::once(source).await?;
            cluster::belongs(&config.state_dir, client)
                .await
                .map_err(SetupError::misused)?;
        }
        leading.begin(extent == Extent::Once).await?;
        // With `--once`, the host lists after it has taken the Lease.
        let input = match extent {
            Extent::Once => Input::once(source).await,
            Extent::UntilStopped => Input::watched(source).await,
        }?;
        let around = Around {
            client,
            cluster: input.cluster.clone(),
            election,
        };
        let setups = Self {
            source,
            input: Some(input),
            acts,
            services,
            negs,
            node,
        };
        Ok((setups, around))
    }

    /// The loops, ready to run. They take what a second call would lack.
    ///
    /// # Errors
    /// If the state folder can't be read, or the source does not exist any more.
    pub(super) fn loops<'a, T: FnMut(Event) + Copy>(
        &'a mut self,
        management: &mut Management<'_>,
        error_states: mpsc::Receiver<SetErrorState>,
        tell: T,
    ) -> Result<Loops<'a, T>, SetupError> {
        let config = management.config;
        let mut loops = Loops::default();
        let Some(input) = self.input.take() else {
            return Ok(loops);
        };
        if let (Some(neg), Some((setup, ends))) = (&config.neg, &mut self.negs)
            && let Some(ends) = ends.take()
        {
            let versions = (&setup.active, &mut setup.revisions, &mut setup.problem);
            let names = (guests::neg::NAME, guests::neg::WORLDS);
            let acting = (self.acts.clone(), config.lbaas.is_some());
            let managing = management.keyed(names, &neg.guest, versions, acting);
            let input = input.once_more(self.source)?;
            let negs = neg::negs(config, neg, setup, (ends, error_states), managing, tell)?;
            loops.negs = Some((negs, input));
        }
        if let (Some(node), Some(mut setup)) = (&config.node, self.node.take()) {
            let managing = management.node(&mut setup);
            let on_node = OnNode::new(config, node, setup, managing, &management.ground.board);
            loops.node = Some((on_node, input.once_more(self.source)?));
        }
        if let (Some(lbaas), Some(setup)) = (&config.lbaas, &mut self.services) {
            let versions = (&setup.active, &mut setup.revisions, &mut setup.problem);
            let names = (guests::lbaas::NAME, guests::lbaas::WORLDS);
            let managing = management.keyed(names, &lbaas.guest, versions, (self.acts.clone(), false));
            let status = config.state_dir.join("status");
            let publish = lbaas::publish::of(&input, status, self.acts.fence().clone());
            let services = lbaas::services(config, lbaas, setup, managing, publish, tell)?;
            loops.services = Some((services, input));
        }
        Ok(loops)
    }

    /// Ends what was started for the loops.
    pub(super) async fn stop(self) {
        if let Some(engine) = self.services.and_then(|setup| setup.simulated_engine) {
            engine.stop().await;
        }
        if let Some((setup, _)) = self.negs {
            setup.stop().await;
        }
    }
}

/// The leader state: that of the configuration before, if it fits this one.
async fn lead<'l>(
    leading: &'l mut Option<Leading>,
    config: &Config,
    client: Option<kube::Client>,
) -> Result<&'l mut Leading, SetupError> {
    let kept = match leading.take() {
        Some(kept) if kept.fits(config) => kept,
        other => {
            resign(other).await;
            let timeout = config.lbaas.as_ref().and_then(lbaas::setup::request_timeout);
            Leading::new(config, client, timeout)?
        }
    };
    Ok(leading.insert(kept))
}
