//! The key of an allocation, cheap to copy and fast to compare.

use std::rc::Rc;

use crate::bindings::exports::trueup::ipam::datastore::IpamKey;

/// The network name of a pod that only the container runtime reported. Part of the stored format.
pub(crate) const MIGRATED_NETWORK: &str = "_migrated-from-cri";
/// The interface name of such a pod. Part of the stored format.
pub(crate) const MIGRATED_INTERFACE: &str = "unknown";

/// A key; [`Key::missing`] tells whether it is complete. Its order has no meaning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(Rc<IpamKey>);

impl Key {
    /// The key of these fields, whatever their contents.
    pub(crate) fn new(fields: IpamKey) -> Self {
        Self(Rc::new(fields))
    }

    /// The key of a container that only the runtime reported.
    pub(crate) fn migrated(container_id: &str) -> Self {
        Self::new(IpamKey {
            network_name: MIGRATED_NETWORK.to_owned(),
            container_id: container_id.to_owned(),
            if_name: MIGRATED_INTERFACE.to_owned(),
        })
    }

    /// The fields in the contract's form.
    pub(crate) fn fields(&self) -> &IpamKey {
        &self.0
    }

    /// The first empty field, by the contract's name. `None` if the key is complete.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let fields = [
            ("network-name", &self.0.network_name),
            ("container-id", &self.0.container_id),
            ("if-name", &self.0.if_name),
        ];
        fields.iter().find(|(_, text)| text.is_empty()).map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(network_name: &str, container_id: &str, if_name: &str) -> Key {
        Key::new(IpamKey {
            network_name: network_name.to_owned(),
            container_id: container_id.to_owned(),
            if_name: if_name.to_owned(),
        })
    }

    #[test]
    fn the_first_empty_field_is_named() {
        assert_eq!(key("n", "c", "i").missing(), None);
        assert_eq!(key("", "", "").missing(), Some("network-name"));
        assert_eq!(key("n", "", "").missing(), Some("container-id"));
        assert_eq!(key("n", "c", "").missing(), Some("if-name"));
        assert_eq!(key(" ", "\0", "\n").missing(), None);
    }

    #[test]
    fn every_field_counts() {
        let one = key("n", "c", "i");
        assert_eq!(one, key("n", "c", "i"));
        for other in [key("m", "c", "i"), key("n", "d", "i"), key("n", "c", "j")] {
            assert_ne!(one, other);
        }
        // The boundary between fields counts too.
        assert_ne!(key("a", "bc", "d"), key("ab", "c", "d"));
    }
}
