//! The exported functions: the state that the packet filter acknowledged, and each change to it as one transaction.
//!
//! A change costs only the services that it affects, not all of them: see `step`. The snapshot has the acknowledged
//! services, and the settings in effect when they were rendered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trueup_guest::{Guest, Imports, Level, Telemetry, snapshot};

use crate::bindings::trueup::kube::types::ObjectId;
use crate::bindings::trueup::service::nftables;
use crate::bindings::trueup::service::types::ContivService;
use crate::change::Change;
use crate::render::{Part, no_addresses};
use crate::ruleset::{Content, Family};
use crate::settings::Settings;
use crate::step::{Claims, Step};
use crate::transaction;

/// Services by id.
pub(crate) type Services = BTreeMap<ObjectId, ContivService>;

/// The desired services; `None` if a service must go.
type Desired = BTreeMap<ObjectId, Option<ContivService>>;

/// The contents of the packet filter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Acknowledged {
    pub(crate) services: Services,
    /// For each family of the settings, in their order.
    claims: Vec<(Family, Claims)>,
}

/// The answer to an event.
type Rendered = Result<(), String>;

/// The renderer of one instance.
#[derive(Clone, Debug)]
pub(crate) struct Renderer {
    pub(crate) settings: Settings,
    /// `None` before the first resync that the packet filter accepted.
    pub(crate) acknowledged: Option<Acknowledged>,
}

impl Renderer {
    /// `renderer.resync`: creates the tables anew, whatever exists.
    ///
    /// # Errors
    /// The packet filter's error; nothing changes.
    pub(crate) fn resync(&mut self, world: &mut impl World, services: Vec<ContivService>) -> Result<(), String> {
        // Of a duplicate id the last service counts.
        let services: Services = services.into_iter().map(|one| (one.id.clone(), one)).collect();
        for service in services.values() {
            warn(world, service);
        }
        let (claims, contents) = tables(&self.settings, &services);
        let nothing = Content::default();
        let tables = self.settings.families.iter().zip(&contents);
        let changes = tables.map(|(&family, content)| Change::between(family, true, &nothing, content));
        apply(world, &self.settings, &changes.collect::<Vec<_>>())?;
        self.acknowledged = Some(Acknowledged { services, claims });
        Ok(())
    }

    /// `renderer.add-service`: replaces an existing one.
    ///
    /// # Errors
    /// The packet filter's error, or that there was no resync; nothing changes.
    pub(crate) fn add_service(&mut self, world: &mut impl World, service: ContivService) -> Rendered {
        self.change(world, Desired::from([(service.id.clone(), Some(service))]))
    }

    /// `renderer.update-service`: only the id of the old service matters, since its contents are known.
    ///
    /// # Errors
    /// As [`Renderer::add_service`].
    pub(crate) fn update_service(&mut self, world: &mut impl World, old: ObjectId, new: ContivService) -> Rendered {
        let mut desired = Desired::from([(old, None)]);
        desired.insert(new.id.clone(), Some(new));
        self.change(world, desired)
    }

    /// `renderer.delete-service`: does nothing for an unknown one.
    ///
    /// # Errors
    /// As [`Renderer::add_service`].
    pub(crate) fn delete_service(&mut self, world: &mut impl World, service: ObjectId) -> Rendered {
        self.change(world, Desired::from([(service, None)]))
    }

    fn change(&mut self, world: &mut impl World, desired: Desired) -> Result<(), String> {
        let Some(acknowledged) = &mut self.acknowledged else {
            return Err("no resync yet".to_owned());
        };
        let Acknowledged { services, claims } = acknowledged;
        let before: Vec<&ContivService> = desired.keys().filter_map(|id| services.get(id)).collect();
        let after: Vec<&ContivService> = desired.values().flatten().collect();
        for service in &after {
            warn(world, service);
        }
        let of_family = |(family, claims): &(Family, Claims)| Step::new(*family, claims, &before, &after);
        let steps: Vec<Step<'_>> = claims.iter().map(of_family).collect();
        apply(
            world,
            &self.settings,
            &steps.iter().map(Step::change).collect::<Vec<_>>(),
        )?;
        for ((_, claims), step) in claims.iter_mut().zip(&steps) {
            step.take_effect(claims);
        }
        for (id, service) in desired {
            match service {
                Some(service) => services.insert(id, service),
                None => services.remove(&id),
            };
        }
        Ok(())
    }
}

/// All claims of these services, and the contents of their tables, for each family of the settings.
fn tables(settings: &Settings, services: &Services) -> (Vec<(Family, Claims)>, Vec<Content>) {
    let of_family = |&family: &Family| {
        let (mut claims, mut content) = (Claims::default(), Content::default());
        for (id, service) in services {
            let part = Part::of(service, family);
            claims.add(id, &part.claims);
            content.chains.extend(part.chains);
        }
        claims.put_into(&mut content);
        ((family, claims), content)
    };
    settings.families.iter().map(of_family).unzip()
}

/// Asks the packet filter, unless there is nothing to do.
fn apply(world: &mut impl World, settings: &Settings, changes: &[Change<'_>]) -> Result<(), String> {
    if let Some(text) = transaction::of_changes(settings, changes) {
        world.apply(&text)?;
        world.counter_add("nftables_transactions_total", &[], 1);
    }
    Ok(())
}

fn warn(world: &mut impl World, service: &ContivService) {
    let ObjectId { namespace, name } = &service.id;
    for text in no_addresses(service) {
        let fields = [("service", &*format!("{namespace}/{name}")), ("address", text)];
        world.warn("left out what is no address", &fields);
    }
}

/// The version of the text. Increment it when the contents change.
const VERSION: u64 = 1;

/// Services are borrowed for writing, owned after reading.
#[derive(Serialize, Deserialize)]
struct Snapshot<S> {
    version: u64,
    /// In the form of [`Settings::as_text`].
    settings: String,
    /// `None` before the first resync.
    services: Option<Vec<S>>,
}

impl Guest for Renderer {
    fn init(config: &str) -> Result<Self, String> {
        let settings = Settings::read(config)?;
        Ok(Self {
            settings,
            acknowledged: None,
        })
    }

    fn snapshot(&self) -> String {
        let acknowledged = self.acknowledged.as_ref();
        snapshot::write(&Snapshot {
            version: VERSION,
            settings: self.settings.as_text(),
            services: acknowledged.map(|acknowledged| acknowledged.services.values().collect()),
        })
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        self.restore(&mut Imports, snapshot)
    }
}

impl Renderer {
    /// `lifecycle.restore`
    ///
    /// # Errors
    /// Why the text can't be read; nothing changes.
    pub(crate) fn restore(&mut self, world: &mut impl World, text: &str) -> Result<(), String> {
        let Snapshot { settings, services, .. } = snapshot::read::<Snapshot<ContivService>>(text, VERSION)?;
        self.acknowledged = None;
        let Some(services) = services else {
            return Ok(());
        };
        if settings != self.settings.as_text() {
            // The tables follow other settings. Until a resync creates them anew, nothing in them can change.
            let message = "the snapshot was taken under other settings: a resync is needed";
            world.log(Level::Warn, message, &[("settings", &settings)]);
            return Ok(());
        }
        let services: Services = services.into_iter().map(|one| (one.id.clone(), one)).collect();
        let (claims, _) = tables(&self.settings, &services);
        self.acknowledged = Some(Acknowledged { services, claims });
        Ok(())
    }
}

trueup_guest::world! {
    /// Everything that a call may ask, as one argument: the packet filter, the log and metrics.
    pub(crate) trait World: Telemetry {
        fn apply(ruleset: &str) -> Result<(), String> = nftables::apply;
    }
}
