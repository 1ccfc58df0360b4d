//! The whole state as text, for the next build of this guest. Of the settings it holds only the prefix of the keys.

use serde::{Deserialize, Serialize};
use trueup_guest::address::Address;
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
    node_ips: Vec<Address>,
    frontends: Vec<String>,
    backends: Vec<String>,
    is_complete: bool,
    /// Key and value; null if unknown.
    keys: Vec<(String, Option<String>)>,
}

impl Guest for Renderer {
    fn init(config: &str) -> Result<Self, String> {
        Settings::read(config).map(Self::new)
    }

    fn snapshot(&self) -> String {
        let keys = self.state.cache.keys.iter();
        snapshot::write(&Snapshot {
            version: VERSION,
            prefix: self.keys.prefix.clone(),
            node_ips: self.state.node_ips.clone(),
            frontends: self.state.frontends.clone(),
            backends: self.state.backends.clone(),
            is_complete: self.state.cache.is_complete,
            keys: keys.map(|(key, value)| (key.clone(), value.clone())).collect(),
        })
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        let snapshot: Snapshot = snapshot::read(snapshot, VERSION)?;
        self.state = State {
            node_ips: snapshot.node_ips,
            frontends: snapshot.frontends,
            backends: snapshot.backends,
            cache: Cache::default(),
        };
        // Another agent's keys do not apply to this one.
        if snapshot.prefix == self.keys.prefix {
            self.state.cache = Cache {
                keys: snapshot.keys.into_iter().collect(),
                is_complete: snapshot.is_complete,
            };
        }
        Ok(())
    }
}
