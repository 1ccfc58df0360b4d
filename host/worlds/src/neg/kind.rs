//! NEGs as a kind of work.

use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc;
use trueup_config::{self as config, Config, World};
use trueup_instance::Worlds;
use trueup_work::kind::{self, Begin, Fallible, Kind, Loop, On, Planning, Ready};
use trueup_work::needs::Needs;
use trueup_work::plan::Plan;
use trueup_work::setup::SetupError;

use super::Negs;
use super::setup::NegSetup;
use crate::neg::guest;

/// The maximum number of requested error states that wait. An operator sends them one by one.
const ERROR_STATES_MAX: usize = 16;

/// Network endpoint groups.
pub(crate) struct OfNegs;

impl Kind for OfNegs {
    fn name(&self) -> &'static str {
        "negs"
    }

    fn worlds(&self) -> Worlds {
        guest::WORLDS
    }

    fn sections(&self) -> &'static dyn World {
        config::NEG
    }

    fn keyed_guest(&self) -> Option<&'static str> {
        Some(guest::NAME)
    }

    fn needs<'a>(&self, config: &'a Config) -> Needs<'a> {
        config.world().map(super::needs::needs).unwrap_or_default()
    }

    fn check_state(&self, config: &Config) -> Result<(), SetupError> {
        super::open_state(&config.state_dir, true).map(drop)
    }

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        super::needs::EXAMPLE
    }

    fn set_up<'a>(&'a self, (config, host_context, _, fence): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let setup = NegSetup::new(config, host_context, fence).await?;
            Ok(setup.map(|setup| Box::new(setup) as _))
        })
    }
}

impl Ready for NegSetup<'_> {
    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let Some(ends) = self.ends.take() else {
            return Ok(kind::nothing());
        };
        let (set_error_state, error_states) = mpsc::channel(ERROR_STATES_MAX);
        with.error_states = Some(set_error_state);
        let (setup, once): (&Self, _) = (self, with.context.is_once());
        with.keyed(&setup.keyed, |quarantine, _| {
            Negs::new(setup, once, quarantine, (ends, error_states))
        })
    }

    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(super::plan::plan(self, of, plan))
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        let Self {
            operations, simulated, ..
        } = *self;
        Box::pin(async move {
            // Dropping the backend ends its polling of operations.
            drop(operations);
            if let Some(simulated) = simulated {
                simulated.stop().await;
            }
        })
    }
}
