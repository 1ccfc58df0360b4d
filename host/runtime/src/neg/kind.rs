//! NEGs as a kind of work.

use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc;

use super::operations::Ended;
use super::setup::NegSetup;
use crate::config::{Config, Neg};
use crate::guests::neg;
use crate::kind::{self, Begin, Kind, Loaded, Loop, On, Ready, Trying};
use crate::setup::SetupError;
use crate::work::ground::Ground;

/// The maximum number of requested error states that wait. An operator sends them one by one.
const ERROR_STATES_MAX: usize = 16;

/// Network endpoint groups.
pub(crate) struct OfNegs;

/// What a run of NEGs needs.
struct Negs<'c> {
    config: &'c Config,
    neg: &'c Neg,
    setup: NegSetup,
    /// `None` once the loop has it.
    ends: Option<mpsc::Receiver<Ended>>,
}

impl Kind for OfNegs {
    fn name(&self) -> &'static str {
        "negs"
    }

    fn reads_source(&self, config: &Config) -> bool {
        config.neg.is_some()
    }

    fn keyed_guest(&self) -> Option<&'static str> {
        Some(neg::NAME)
    }

    fn check<'a>(&'a self, config: &'a Config, ground: &'a Ground) -> Trying<'a, ()> {
        Box::pin(async move {
            match &config.neg {
                Some(neg) => NegSetup::check(config, neg, ground).await,
                None => Ok(()),
            }
        })
    }

    fn set_up<'a>(&'a self, on: On<'a>) -> Trying<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let config = on.config;
            let Some(neg) = &config.neg else { return Ok(None) };
            let (setup, ends) = NegSetup::new(config, neg, on.ground, on.fence).await?;
            let ends = Some(ends);
            Ok(Some(Box::new(Negs {
                config,
                neg,
                setup,
                ends,
            }) as _))
        })
    }
}

impl Ready for Negs<'_> {
    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let Some(ends) = self.ends.take() else {
            return Ok(kind::nothing());
        };
        let setup = &mut self.setup;
        let managing = with.keyed(Loaded {
            name: neg::NAME,
            worlds: neg::WORLDS,
            guest: &self.neg.guest,
            active: &setup.active,
            revisions: std::mem::take(&mut setup.revisions),
            problem: setup.problem.take(),
        });
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
