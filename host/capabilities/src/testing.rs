//! What several tests of bindings need.

use trueup_journal::Tape;

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
