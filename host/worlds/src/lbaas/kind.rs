//! Services as a kind of work.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use trueup_config::{self as config, Config, Lbaas, World};
use trueup_instance::Worlds;
use trueup_work::keyed;
use trueup_work::kind::{Begin, Fallible, Kind, Loop, On, Planning, Ready};
use trueup_work::lifecycle::quarantine::Quarantine;
use trueup_work::needs::Needs;
use trueup_work::plan::{Orphan, Plan};
use trueup_work::setup::SetupError;

use super::Services;
use super::publish::Publisher;
use super::setup::{Setup, request_timeout};
use super::turn::describe;
use crate::lbaas::guest;

/// Load balancers for Services.
pub(crate) struct OfServices;

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

    fn check_state(&self, config: &Config) -> Result<(), SetupError> {
        let Some(lbaas) = config.world() else { return Ok(()) };
        super::open_state(lbaas, &config.state_dir, true).map(drop)
    }

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        super::needs::EXAMPLE
    }

    fn set_up<'a>(&'a self, (config, host_context, _, fence): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let setup = Setup::new(config, host_context, fence).await?;
            Ok(setup.map(|setup| Box::new(setup) as _))
        })
    }
}

impl Ready for Setup<'_> {
    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(async move {
            let setup: &Self = self;
            let quarantine = Arc::new(Quarantine::load(&setup.keyed.config.state_dir, guest::NAME));
            let mut services = Services::new(setup, quarantine, Publisher::of_plan())?;
            keyed::plan::plan(&mut services, of.name, &setup.keyed, of.all, plan).await?;
            if let Some(anexia) = setup.anexia.as_ref().filter(|_| of.orphans) {
                let load_balancers = &setup.lbaas.adapter.load_balancers;
                let found = anexia.orphans(load_balancers, services.uids()).await;
                let words = |error| describe(&guest::Error::Api(error));
                let found = found.map_err(|error| SetupError::Failed(format!("listing orphans: {}", words(error))))?;
                plan.orphans
                    .extend(found.into_iter().map(|(object, service_uid)| Orphan {
                        service_uid,
                        ..Orphan::from(object)
                    }));
            }
            Ok(())
        })
    }

    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let setup: &Self = self;
        let fence = with.leadership.fence().clone();
        with.keyed(&setup.keyed, |quarantine, input| {
            let publisher = Publisher::new(input, setup.keyed.config.state_dir.join("status"), &fence);
            Services::new(setup, quarantine, publisher)
        })
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        let engine = self.simulated_engine;
        Box::pin(async move {
            if let Some(engine) = engine {
                engine.stop().await;
            }
        })
    }
}
