//! Which interface leads out of the cluster, and its address.
//!
//! Pure: decided once, from the settings.

use trueup_guest::address::Address;
use trueup_guest::network::Network;

/// The default interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    /// Its name.
    pub(crate) interface: String,
    /// The source address of traffic that leaves through it.
    pub(crate) address: Address,
}

/// The wiring of this node, from the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wiring {
    /// False if leaving traffic is not translated.
    pub(crate) nat_external_traffic: bool,
    /// `stn_mode` or `use_dhcp`: the main interface is the uplink, whatever the gateway.
    pub(crate) is_main_for_certain: bool,
    /// Empty if there is none.
    pub(crate) main_interface: String,
    /// `None` if unknown.
    pub(crate) node_ip: Option<Network>,
    /// Names with addresses, in the order given.
    pub(crate) other_interfaces: Vec<(String, Vec<Network>)>,
    /// `None` if there is none.
    pub(crate) default_gateway: Option<Address>,
    /// True if packets between nodes travel in VXLAN.
    pub(crate) has_overlay: bool,
}

impl Wiring {
    /// `None` if nothing must be translated, or no interface is known to lead out.
    pub(crate) fn uplink(&self) -> Option<Uplink> {
        if !self.nat_external_traffic {
            return None;
        }
        let main = self.node_ip.filter(|_| !self.main_interface.is_empty());
        let main = main.map(|network| (&self.main_interface, network));
        let uplink = if self.is_main_for_certain {
            main
        } else {
            let gateway = self.default_gateway?;
            let others = self.other_interfaces.iter();
            let others = others.flat_map(|(name, networks)| networks.iter().map(move |&network| (name, network)));
            let mut networks = main.into_iter().chain(others);
            networks.find(|(_, network)| network.contains(gateway))
        };
        // Without encapsulation, traffic between nodes leaves there too, and must stay untranslated.
        let (interface, network) = uplink.filter(|(name, _)| self.has_overlay || **name != self.main_interface)?;
        Some(Uplink {
            interface: interface.clone(),
            address: network.address(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::parse(text).unwrap()
    }

    /// Main interface, other interfaces, both towards the gateway.
    fn wiring() -> Wiring {
        Wiring {
            nat_external_traffic: true,
            is_main_for_certain: false,
            main_interface: "main".to_owned(),
            node_ip: Some(network("192.168.16.10/24")),
            other_interfaces: vec![
                ("none".to_owned(), vec![]),
                ("far".to_owned(), vec![network("10.8.0.2/24")]),
                (
                    "near".to_owned(),
                    vec![
                        network("10.9.0.2/24"),
                        network("192.168.0.3/16"),
                        network("192.168.16.3/24"),
                    ],
                ),
                ("nearer".to_owned(), vec![network("192.168.16.4/24")]),
            ],
            default_gateway: Address::parse("192.168.16.1"),
            has_overlay: true,
        }
    }

    fn found(wiring: &Wiring) -> Option<String> {
        wiring
            .uplink()
            .map(|uplink| format!("{} {}", uplink.interface, uplink.address))
    }

    #[test]
    fn the_main_interface_where_the_gateway_is_in_its_network() {
        assert_eq!(found(&wiring()).as_deref(), Some("main 192.168.16.10"));
    }

    #[test]
    fn else_the_first_other_one_with_its_first_address_that_fits() {
        let fits = Some("near 192.168.0.3".to_owned());
        assert_eq!(
            found(&Wiring {
                node_ip: None,
                ..wiring()
            }),
            fits
        );
        let elsewhere = Some(network("10.7.0.1/24"));
        assert_eq!(
            found(&Wiring {
                node_ip: elsewhere,
                ..wiring()
            }),
            fits
        );
        let main_interface = String::new();
        assert_eq!(
            found(&Wiring {
                main_interface,
                ..wiring()
            }),
            fits
        );
        let default_gateway = Address::parse("10.5.0.1");
        assert_eq!(
            found(&Wiring {
                default_gateway,
                ..wiring()
            }),
            None
        );
    }

    #[test]
    fn without_a_gateway_only_where_it_is_certain() {
        let default_gateway = None;
        assert_eq!(
            found(&Wiring {
                default_gateway,
                ..wiring()
            }),
            None
        );
        let certain = Wiring {
            default_gateway,
            is_main_for_certain: true,
            ..wiring()
        };
        assert_eq!(found(&certain).as_deref(), Some("main 192.168.16.10"));
        assert_eq!(
            found(&Wiring {
                node_ip: None,
                ..certain.clone()
            }),
            None
        );
        let main_interface = String::new();
        assert_eq!(
            found(&Wiring {
                main_interface,
                ..certain
            }),
            None
        );
    }

    #[test]
    fn none_where_it_is_switched_off() {
        let nat_external_traffic = false;
        assert_eq!(
            found(&Wiring {
                nat_external_traffic,
                ..wiring()
            }),
            None
        );
    }

    #[test]
    fn without_an_overlay_not_the_main_one() {
        let direct = Wiring {
            has_overlay: false,
            ..wiring()
        };
        assert_eq!(found(&direct), None);
        let is_main_for_certain = true;
        assert_eq!(
            found(&Wiring {
                is_main_for_certain,
                ..direct.clone()
            }),
            None
        );
        let other = Wiring {
            node_ip: None,
            ..direct
        };
        assert_eq!(found(&other).as_deref(), Some("near 192.168.0.3"));
    }
}
