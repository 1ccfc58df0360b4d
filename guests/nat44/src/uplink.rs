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

/// How packets travel between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// In an overlay.
    Vxlan,
    /// Unchanged.
    NoOverlay,
    /// In IPv6 segments.
    Srv6,
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
    /// Between nodes.
    pub(crate) transport: Transport,
}

impl Wiring {
    /// `None` if nothing must be translated, or no interface is known to lead out.
    pub(crate) fn uplink(&self) -> Option<Uplink> {
        let uplink = if !self.nat_external_traffic {
            None
        } else if self.is_main_for_certain {
            self.main()
        } else {
            self.towards(self.default_gateway?)
        };
        // Without encapsulation, traffic between nodes leaves there too, and must stay untranslated.
        let is_shared = |uplink: &Uplink| self.transport != Transport::Vxlan && uplink.interface == self.main_interface;
        uplink.filter(|uplink| !is_shared(uplink))
    }

    fn main(&self) -> Option<Uplink> {
        let address = self.node_ip?.address();
        let interface = self.main_interface.clone();
        (!interface.is_empty()).then_some(Uplink { interface, address })
    }

    /// The first interface whose network contains the gateway.
    fn towards(&self, gateway: Address) -> Option<Uplink> {
        if self.node_ip.is_some_and(|network| network.contains(gateway))
            && let Some(main) = self.main()
        {
            return Some(main);
        }
        self.other_interfaces.iter().find_map(|(name, addresses)| {
            let network = addresses.iter().find(|network| network.contains(gateway))?;
            Some(Uplink {
                interface: name.clone(),
                address: network.address(),
            })
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
            transport: Transport::Vxlan,
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
        for transport in [Transport::NoOverlay, Transport::Srv6] {
            let direct = Wiring { transport, ..wiring() };
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
}
