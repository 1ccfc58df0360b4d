//! The whole state as text, for the next build of this guest. Of the settings it holds only the prefix of the keys.

use serde::{Deserialize, Serialize};
use trueup_guest::{Guest, snapshot};

use crate::cache::Cache;
use crate::renderer::{Renderer, State};
use crate::settings::Settings;

/// The version of the text. Increment it when the contents change.
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct Snapshot {
    version: u64,
    prefix: String,
    #[serde(flatten)]
    state: State,
}

impl Guest for Renderer {
    fn init(config: &str) -> Result<Self, String> {
        Settings::read(config).map(Self::new)
    }

    fn snapshot(&self) -> String {
        snapshot::write(&Snapshot {
            version: VERSION,
            prefix: self.keys.prefix.clone(),
            state: self.state.clone(),
        })
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        let snapshot: Snapshot = snapshot::read(snapshot, VERSION)?;
        self.state = snapshot.state;
        if snapshot.prefix != self.keys.prefix {
            // Another agent's keys do not apply to this one.
            self.state.cache = Cache::default();
        }
        Ok(())
    }
}
