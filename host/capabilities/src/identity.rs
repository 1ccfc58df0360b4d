//! The name of a guest instance.

/// The guest instance, as named in logs, audits and traps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The guest's name, such as `lbaas`.
    pub guest: String,
    /// The guest's version, such as `1`.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    /// The key of this instance, such as `default/web`.
    pub instance: String,
}
