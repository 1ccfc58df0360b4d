//! NEGs as a kind of work.

use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc;
use trueup_config::{self as config, Config, Neg, World};
use trueup_work::guests::Worlds;
use trueup_work::kind::{self, Begin, Fallible, Kind, Loop, On, Planning, Ready};
use trueup_work::needs::Needs;
use trueup_work::plan::Plan;
use trueup_work::setup::SetupError;

use super::setup::NegSetup;
use crate::neg::guest;

/// The maximum number of requested error states that wait. An operator sends them one by one.
const ERROR_STATES_MAX: usize = 16;

/// Network endpoint groups.
pub(crate) struct OfNegs;

/// What a run of NEGs needs.
struct Negs<'c> {
    config: &'c Config,
    neg: &'c Neg,
    setup: NegSetup,
}

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

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        super::needs::EXAMPLE
    }

    fn plan<'a>(&'a self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(async move {
            let Some(neg) = of.config.world() else { return Ok(()) };
            super::plan::plan(self.name(), (of, neg), plan).await
        })
    }

    fn set_up<'a>(&'a self, (config, ground, _, fence): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(neg) = config.world() else { return Ok(None) };
            let setup = NegSetup::new(config, neg, ground, fence).await?;
            Ok(Some(Box::new(Negs { config, neg, setup }) as _))
        })
    }
}

impl Ready for Negs<'_> {
    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let setup = &mut self.setup;
        let Some((ends, version)) = setup.ends.take().zip(setup.version.take()) else {
            return Ok(kind::nothing());
        };
        let managing = with.keyed(version);
        let (set_error_state, error_states) = mpsc::channel(ERROR_STATES_MAX);
        with.error_states = Some(set_error_state);
        let input = with.input()?;
        let negs = super::negs(self.config, self.neg, setup, (ends, error_states), managing, with.tell)?;
        Ok(with.run_keyed(negs, input))
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        Box::pin(self.setup.stop())
    }
}
