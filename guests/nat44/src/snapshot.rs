//! The whole state as text, for the next build of this guest. Of the settings it holds only the prefix of the keys.

use serde::{Deserialize, Serialize};
use trueup_guest::address::Address;
use trueup_guest::snapshot::{self, misfit};

use crate::cache::Cache;
use crate::renderer::Kept;

/// The version of the text. Increment it when the contents change.
const VERSION: u64 = 1;

/// The text, written or read.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    version: u64,
    prefix: String,
    node_ips: Vec<String>,
    frontends: Vec<String>,
    backends: Vec<String>,
    is_complete: bool,
    /// Key and value; null if unknown.
    keys: Vec<(String, Option<String>)>,
}

/// The text for `lifecycle.snapshot`.
pub(crate) fn write(prefix: &str, kept: &Kept) -> String {
    let keys = kept.cache.keys.iter();
    let snapshot = Snapshot {
        version: VERSION,
        prefix: prefix.to_owned(),
        node_ips: kept.node_ips.iter().map(Address::to_string).collect(),
        frontends: kept.frontends.clone(),
        backends: kept.backends.clone(),
        is_complete: kept.cache.is_complete,
        keys: keys.map(|(key, value)| (key.clone(), value.clone())).collect(),
    };
    snapshot::write(&snapshot)
}

/// Parses the text of [`write()`]: the prefix of the keys, and the kept state.
///
/// # Errors
/// The version that wrote the text, or what is wrong with it.
pub(crate) fn read(snapshot: &str) -> Result<(String, Kept), String> {
    let snapshot: Snapshot = snapshot::read(snapshot, VERSION)?;
    let node_ips = snapshot.node_ips.iter().map(|text| Address::parse(text));
    let kept = Kept {
        node_ips: node_ips
            .collect::<Option<_>>()
            .ok_or_else(|| misfit("`node_ips` has what is no address", VERSION))?,
        frontends: snapshot.frontends,
        backends: snapshot.backends,
        cache: Cache {
            keys: snapshot.keys.into_iter().collect(),
            is_complete: snapshot.is_complete,
        },
    };
    Ok((snapshot.prefix, kept))
}
