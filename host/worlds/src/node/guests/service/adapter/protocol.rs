//! Protocols with their Kubernetes names, ordered.

use crate::node::guests::service::Protocol as Input;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// If it is missing, it is TCP: a rule of Kubernetes. `None` if the protocol is unknown here.
    pub(super) fn read(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

impl From<Protocol> for Input {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
            Protocol::Sctp => Self::Sctp,
        }
    }
}
