//! Replaces registries in a host that is built without the cargo feature `oci`: every use is an error.

use super::manifest::{About, Manifest};
use super::reference::OciReference;
use super::signature::Signed;
use super::store::NotLoaded;

/// An image in a registry. It has no values.
pub(super) enum Remote {}

impl Remote {
    /// # Errors
    /// Always.
    pub(super) fn new(image: &OciReference) -> Result<Self, NotLoaded> {
        let without = "this trueup is built without registries (cargo feature `oci`)";
        Err(NotLoaded::Failed(format!("guest oci:{image}: {without}")))
    }

    pub(super) async fn manifest(&self) -> Result<Manifest, NotLoaded> {
        match *self {}
    }

    pub(super) async fn guest(&self, _layer: &str) -> Result<Vec<u8>, NotLoaded> {
        match *self {}
    }

    pub(super) async fn signatures(&self, _manifest: &str) -> Result<Vec<Signed>, NotLoaded> {
        match *self {}
    }

    pub(super) async fn push(&self, _guest: &About, _bytes: &[u8]) -> Result<String, NotLoaded> {
        match *self {}
    }
}
