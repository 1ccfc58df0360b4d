//! The name of a guest instance.

/// The guest instance, as named in logs, audits and traps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its name in the configuration, as in `[guests.NAME]`. Empty if no configuration names it.
    pub name: String,
    /// The guest's name, such as `lbaas`.
    pub guest: String,
    /// The guest's version, such as `1`.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    /// The key of this instance, such as `default/web`.
    pub instance: String,
}

impl Identity {
    /// The id of a decision: `lbaas/default/web#57`. `entry` is the call's entry in the instance's journal. Without
    /// one, as in a plan, the id has no number.
    pub fn decision(&self, entry: Option<u64>) -> String {
        let guest = if self.name.is_empty() { &self.guest } else { &self.name };
        let number = entry.map(|entry| format!("#{entry}")).unwrap_or_default();
        format!("{guest}/{}{number}", self.instance)
    }
}
