//! Toys as a kind of work.

use std::marker::PhantomData;
use std::sync::Arc;

use trueup_capabilities::etcd;
use trueup_config::{Config, Plain, PlainWorld};
use trueup_sources::{Completeness, Kind as ObjectKind, Objects};
use trueup_work::keyed::key_records::KeyRecords;
use trueup_work::keyed::{self, KeyedSetup};
use trueup_work::kind::{Begin, Fallible, Kind, Loop, On, Planning, Ready};
use trueup_work::lifecycle::quarantine::Quarantine;
use trueup_work::needs::Needs;
use trueup_work::plan::Plan;
use trueup_work::setup::SetupError;

use super::adapter::Adapter;
use super::guest::{NAME, WORLDS};
use super::{Toys, Written};

/// A key of etcd for each Service.
pub(crate) struct OfToys;

static SECTIONS: PlainWorld<Adapter> = PlainWorld {
    name: NAME,
    subject: "etcd keys of Services (an example)",
    adapter: "`[adapter.toy]` with `prefix = \"/toy\"`",
    guest: "`[guests.toy]` with `use = \"builtin:toy@1\"` and \
            `grants = { etcd = { read = [\"/toy/\"], write = [\"/toy/\"] } }`",
    needs: &[ObjectKind::Service],
    of: PhantomData,
};

/// What a run or a plan of toys needs.
pub(super) struct Setup<'c> {
    pub(super) keyed: KeyedSetup<'c>,
    pub(super) toy: &'c Plain<Adapter>,
    pub(super) etcd: Arc<dyn etcd::Api>,
}

impl Kind for OfToys {
    about!(name: "toys", worlds: WORLDS, sections: &SECTIONS, keyed_guest: Some(NAME));

    fn needs<'a>(&self, config: &'a Config) -> Needs<'a> {
        let toy = config.world::<Plain<Adapter>>();
        Needs {
            guests: toy.map(|toy| (NAME, WORLDS, toy.guest.clone())).into_iter().collect(),
            ..Needs::default()
        }
    }

    fn check_state(&self, config: &Config) -> Result<(), SetupError> {
        open_state(config, true).map(drop)
    }

    fn set_up<'a>(&'a self, (config, host_context, ..): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(toy) = config.world::<Plain<Adapter>>() else {
                return Ok(None);
            };
            let section = (&toy.guest, &toy.source);
            let keyed = KeyedSetup::new((config, host_context), (NAME, WORLDS), section).await?;
            keyed.warn_of_missing_grants();
            let etcd = host_context.etcd(config)?;
            Ok(Some(Box::new(Setup { keyed, toy, etcd }) as _))
        })
    }
}

impl Setup<'_> {
    fn toys(&self, quarantine: Arc<Quarantine>) -> Result<Toys<'_>, SetupError> {
        Ok(Toys {
            setup: self,
            objects: Objects::default(),
            completeness: Completeness::of(&self.toy.source),
            known: open_state(self.keyed.config, self.keyed.host_context.plans())?,
            quarantine,
        })
    }
}

/// The keys that may have something. In a plan, changes stay in memory.
///
/// # Errors
/// If they can't be read.
fn open_state(config: &Config, plans: bool) -> Result<KeyRecords<Written>, SetupError> {
    KeyRecords::open(&config.state_dir, NAME, plans)
}

impl Ready for Setup<'_> {
    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let setup: &Self = self;
        with.keyed(&setup.keyed, |quarantine, _| setup.toys(quarantine))
    }

    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(async move {
            let quarantine = Quarantine::load(&self.keyed.config.state_dir, NAME);
            let mut toys = self.toys(Arc::new(quarantine))?;
            keyed::plan::plan(&mut toys, of.name, &self.keyed, of.all, plan).await?;
            Ok(())
        })
    }
}
