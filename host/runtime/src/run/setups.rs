//! What the loops need before they begin, in the order in which problems are found.

use std::sync::Arc;

use trueup_config::Config;
use trueup_election::Election;
use trueup_sources::kubernetes::Kubernetes;
use trueup_work::cluster;
use trueup_work::host_context::HostContext;
use trueup_work::input::Input;
use trueup_work::kind::{Kind, Ready, RunMode};
use trueup_work::leading::{Leadership, Leading};
use trueup_work::setup::SetupError;
use trueup_worlds::KINDS;

use super::resign;

/// What the loops need.
pub(super) struct Setups<'c> {
    pub(super) kinds: Vec<(&'static dyn Kind, Box<dyn Ready + 'c>)>,
    pub(super) leadership: Leadership,
    /// One for each loop that reads the source.
    pub(super) inputs: Vec<Input>,
}

/// What a run looks at beside its loops.
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
        config: &'c Config,
        host_context: &'c HostContext,
        extent: RunMode,
        leading: &mut Option<Leading>,
    ) -> Result<(Self, Around), SetupError> {
        let source = config.source();
        let mut client = None;
        if let Some(source) = source {
            Input::check(source).await?;
            client = Input::client(source).await?;
            if client.is_none() {
                cluster::is_no_clusters(&config.state_dir, source).map_err(SetupError::Misused)?;
            }
        }
        let leading = lead(leading, config, client.clone()).await?;
        let leadership = leading.leadership();
        let mut around = Around {
            client,
            cluster: None,
            election: leading.election(),
        };
        let mut kinds = Vec::new();
        for &kind in KINDS {
            let on = (config, host_context, extent, leadership.fence().clone());
            kinds.extend(kind.set_up(on).await?.map(|ready| (kind, ready)));
        }
        let mut inputs = Vec::new();
        if let (RunMode::Once, Some(source), Some(client)) = (extent, source, &around.client) {
            // Reports problems with the source before the host takes the Lease.
            Input::once(source).await?;
            let belongs = cluster::belongs(&config.state_dir, client).await;
            belongs.map_err(SetupError::Misused)?;
        }
        leading.begin(extent == RunMode::Once).await?;
        if let Some(source) = source {
            // With `--once`, the host lists after it has taken the Lease.
            let input = match extent {
                RunMode::Once => Input::once(source).await,
                RunMode::UntilStopped => Input::watched(source).await,
            }?;
            for _ in kinds.iter().filter(|(kind, _)| kind.reads_source()).skip(1) {
                inputs.push(input.once_more(source)?);
            }
            around.cluster.clone_from(&input.cluster);
            inputs.push(input);
        }
        let setups = Self {
            kinds,
            leadership,
            inputs,
        };
        Ok((setups, around))
    }

    /// Ends what was started for the loops.
    pub(super) async fn stop(self) {
        for (_, ready) in self.kinds {
            ready.stop().await;
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
            let longest = KINDS.iter().find_map(|kind| kind.longest_request(config));
            Leading::new(config, client, longest)?
        }
    };
    Ok(leading.insert(kept))
}
