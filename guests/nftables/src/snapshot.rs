//! The whole state as text, for the next build of this guest: the acknowledged services, and the settings in effect
//! when they were rendered.

use serde::{Deserialize, Serialize};
use trueup_guest::{Guest, Imports, Level, snapshot};

use crate::bindings::trueup::service::types::ContivService;
use crate::renderer::{Acknowledged, Renderer, Services, tables};
use crate::settings::Settings;
use crate::world::World;

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
        Settings::read(config).map(Self::new)
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
        let tables = tables(&self.settings, &services);
        self.acknowledged = Some(Acknowledged::new(services, tables));
        Ok(())
    }
}
