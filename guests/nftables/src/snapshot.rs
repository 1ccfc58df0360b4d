//! The whole state as text, for the next build of this guest: the acknowledged services, and the settings in effect
//! when they were rendered.

use serde::{Deserialize, Serialize};
use trueup_guest::snapshot;

use crate::bindings::trueup::service::types::ContivService;
use crate::renderer::Services;
use crate::settings::Settings;

/// The version of the text. Increment it when the contents change.
const VERSION: u64 = 1;

/// The parsed text.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// In the form of [`Settings::as_text`].
    pub(crate) settings: String,
    /// `None` before the first resync.
    pub(crate) services: Option<Services>,
}

#[derive(Serialize)]
struct Written<'s> {
    version: u64,
    settings: String,
    services: Option<Vec<&'s ContivService>>,
}

#[derive(Deserialize)]
struct Read {
    settings: String,
    services: Option<Vec<ContivService>>,
}

/// The text for `lifecycle.snapshot`.
pub(crate) fn write(settings: &Settings, services: Option<&Services>) -> String {
    let snapshot = Written {
        version: VERSION,
        settings: settings.as_text(),
        services: services.map(|services| services.values().collect()),
    };
    snapshot::write(&snapshot)
}

/// Parses the text of [`write()`].
///
/// # Errors
/// The version that wrote the text, or what is wrong with it.
pub(crate) fn read(snapshot: &str) -> Result<Snapshot, String> {
    let Read { settings, services } = snapshot::read(snapshot, VERSION)?;
    let by_id = |services: Vec<ContivService>| services.into_iter().map(|one| (one.id.clone(), one)).collect();
    Ok(Snapshot {
        settings,
        services: services.map(by_id),
    })
}
