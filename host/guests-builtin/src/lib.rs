//! The project's own guests, built from source by the build script and embedded.
//!
//! Only holds bytes and their metadata; loads and runs nothing.
#![forbid(unsafe_code)]

/// A guest that ships with trueup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// Its name in configurations and scenarios, such as `lbaas`.
    pub name: &'static str,
    /// Its version, such as `1`.
    pub version: &'static str,
    /// The world that it implements, such as `trueup:lbaas/lbaas-reconciler@0.1.0`.
    pub world: &'static str,
    /// `sha256:` and the digest of `bytes` in hexadecimal.
    pub digest: &'static str,
    /// The component.
    pub bytes: &'static [u8],
}

/// Every guest that ships, by name and version.
pub const GUESTS: &[Builtin] = include!(concat!(env!("OUT_DIR"), "/table.rs"));

/// The guest of that name and version; `None` if there is none.
pub fn find(name: &str, version: &str) -> Option<&'static Builtin> {
    let mut guests = GUESTS.iter();
    guests.find(|guest| guest.name == name && guest.version == version)
}
