//! What several tests of bindings need.

use crate::grants::{Grant, Grants};

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
