//! Services as a kind of work.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use trueup_base::fence::Fence;
use trueup_config::{self as config, Config, Lbaas, World};
use trueup_work::guests::Worlds;
use trueup_work::kind::{self, Begin, Fallible, Kind, Loop, On, Planning, Ready};
use trueup_work::needs::Needs;
use trueup_work::plan::{Orphan, Plan};
use trueup_work::setup::SetupError;

use super::job::describe;
use super::setup::{Setup, request_timeout};
use crate::lbaas::guest;

/// Load balancers for Services.
pub(crate) struct OfServices;

/// What a run of Services needs.
struct Services<'c> {
    config: &'c Config,
    lbaas: &'c Lbaas,
    setup: Setup,
}

impl Kind for OfServices {
    fn name(&self) -> &'static str {
        "summary"
    }

    fn worlds(&self) -> Worlds {
        guest::WORLDS
    }

    fn sections(&self) -> &'static dyn World {
        config::LBAAS
    }

    fn keyed_guest(&self) -> Option<&'static str> {
        Some(guest::NAME)
    }

    fn longest_request(&self, config: &Config) -> Option<(&'static str, Duration)> {
        config.world::<Lbaas>().and_then(request_timeout)
    }

    fn needs<'a>(&self, config: &'a Config) -> Needs<'a> {
        config.world().map(super::needs::needs).unwrap_or_default()
    }

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        super::needs::EXAMPLE
    }

    fn plan<'a>(&'a self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(async move {
            let Some(lbaas) = of.config.world() else {
                return Ok(());
            };
            let setup = Setup::new(of.config, lbaas, of.ground, Fence::open()).await?;
            super::plan(self.name(), (of, lbaas), &setup, plan).await?;
            if let Some(anexia) = setup.anexia.as_ref().filter(|_| of.orphans) {
                let found = anexia.orphans(&lbaas.adapter.load_balancers).await;
                let words = |error| describe(&guest::Error::Api(error));
                let found = found.map_err(|error| SetupError::Failed(format!("listing orphans: {}", words(error))))?;
                plan.orphans.extend(found.into_iter().map(Orphan::from));
            }
            if let Some(engine) = setup.simulated_engine {
                engine.stop().await;
            }
            Ok(())
        })
    }

    fn set_up<'a>(&'a self, (config, ground, _, fence): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(lbaas) = config.world() else { return Ok(None) };
            let setup = Setup::new(config, lbaas, ground, fence).await?;
            Ok(Some(Box::new(Services { config, lbaas, setup }) as _))
        })
    }
}

impl Ready for Services<'_> {
    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let setup = &mut self.setup;
        let Some(version) = setup.version.take() else {
            return Ok(kind::nothing());
        };
        let managing = with.keyed(version);
        let input = with.input()?;
        let publish = super::publish::of(&input, self.config.state_dir.join("status"), with.acts.fence().clone());
        let services = super::services(self.config, self.lbaas, setup, managing, publish, with.tell)?;
        Ok(with.run_keyed(services, input))
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        let engine = self.setup.simulated_engine;
        Box::pin(async move {
            if let Some(engine) = engine {
                engine.stop().await;
            }
        })
    }
}
