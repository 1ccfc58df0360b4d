//! One network interface: its identity, its properties and its addresses.

use std::rc::Rc;

use serde::Deserialize;

use crate::addresses::Addresses;

/// The identity of an interface. Lists are in its order: by device number, then by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EniKey {
    /// as a signed number; several interfaces may have the same
    pub(crate) device_number: i32,
    /// unique
    pub(crate) id: Rc<str>,
}

/// The properties of an interface, without its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Traits {
    /// the node's first interface, which never goes back to the cloud
    pub(crate) is_primary: bool,
    /// an interface that carries others
    pub(crate) is_trunk: bool,
    /// when it was added here
    pub(crate) created_at_ms: u64,
}

/// A network interface.
#[derive(Clone, Debug)]
pub(crate) struct Eni {
    /// What it is.
    pub(crate) traits: Traits,
    /// Its addresses.
    pub(crate) addresses: Addresses,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_ordered_by_signed_device_number_then_id() {
        let key = |device_number, id: &str| EniKey {
            device_number,
            id: Rc::from(id),
        };
        let ordered = [
            key(-2, "z"),
            key(0, ""),
            key(0, "Z"),
            key(0, "a"),
            key(0, "é"),
            key(7, "a"),
        ];
        assert!(ordered.is_sorted_by(|left, right| left < right));
    }
}
