//! What several tests of bindings need.

use std::path::Path;

use serde_json::value::RawValue;
use trueup_journal::{FORMAT, Files, Header, Journal, Options, Tape};

use crate::grants::{Grant, Grants};
use crate::meter::Limits;
use crate::{Backends, Host, Identity};

/// A host of this guest that records in memory.
pub(crate) fn host(guest: &str, grants: Grants, backends: Backends) -> Host {
    let identity = Identity {
        guest: guest.to_owned(),
        ..Identity::default()
    };
    Host::new(identity, Tape::memory(), grants, backends, Limits::default())
}

/// Grants of one capability alone.
pub(crate) fn grants(capability: &str, read: &[&str], write: &[&str]) -> Grants {
    let scopes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let grant = Grant {
        read: scopes(read),
        write: scopes(write),
        ..Grant::default()
    };
    Grants::new([(capability.to_owned(), grant)].into())
}

/// Begins a call at that time.
pub(crate) fn begin(host: &mut Host, at_ms: u64, call: &str) {
    host.begin_call(at_ms, call, &nothing()).unwrap();
}

/// How many entries of this request were refused.
pub(crate) fn refusals(host: &Host, call: &str) -> Option<f64> {
    let guest = &host.identity.guest;
    let series = format!(r#"trueup_access_denied_total{{call="{call}",guest="{guest}"}}"#);
    host.backends.metrics.number(&series)
}

/// A new journal of this guest.
pub(crate) fn journal(folder: &Path, files: &Files, guest: &str) -> Journal {
    let mut journal = Journal::open(folder, Options::default(), files).unwrap().journal;
    journal.start_segment(&header(guest)).unwrap();
    journal
}

/// As from the start of an instance.
pub(crate) fn header(guest: &str) -> Header {
    Header {
        format: FORMAT,
        guest: guest.to_owned(),
        version: "1".to_owned(),
        digest: "sha256:1".to_owned(),
        world: String::new(),
        host: String::new(),
        settings: nothing(),
        limits: nothing(),
        snapshot: None,
    }
}

fn nothing() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap()
}
