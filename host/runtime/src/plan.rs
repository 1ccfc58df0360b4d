//! What a run would do now, and what prevents it: runs each guest's real decision to its end in a simulation that is
//! filled from real reads.

use trueup_base::fence::Fence;
use trueup_config::Config;
use trueup_registry::Registry;
use trueup_sources::Batch;
use trueup_work::host_context::HostContext;
use trueup_work::input;
use trueup_work::kind::{Planning, RunMode};
use trueup_work::plan::Plan;
use trueup_work::setup::SetupError;
use trueup_worlds::{KINDS, worlds};

/// Plans a run. Writes only to the simulation and the caches of [`HostContext::of_trial`]. `orphans` requests the
/// objects that belong to no key.
///
/// # Errors
/// If planning cannot start.
pub async fn plan(config: &Config, registry: &Registry, orphans: bool) -> Result<Plan, SetupError> {
    let all = match config.source() {
        Some(source) => input::all(source).await?.0,
        None => Batch::default(),
    };
    let mut plan = Plan {
        problems: all.problems.iter().map(ToString::to_string).collect(),
        ..Plan::default()
    };
    let host_context = HostContext::of_trial(config, registry, worlds())?;
    for kind in KINDS {
        let on = (config, &host_context, RunMode::Once, Fence::open());
        let Some(mut ready) = kind.set_up(on).await? else {
            continue;
        };
        plan.notes.extend(host_context.other_versions());
        let of = Planning {
            name: kind.name(),
            all: &all,
            orphans,
        };
        ready.plan(of, &mut plan).await?;
        ready.stop().await;
    }
    Ok(plan)
}
