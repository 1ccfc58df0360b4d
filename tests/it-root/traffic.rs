//! Real traffic: connections through the rules that the guests `service` and `nftables` make at three nodes, each a
//! namespace with a real host that programs its kernel.
//!
//! What the guests decide is in their own tests and in `scenarios/`; what nft takes, in the tests of the guest `nftables`.

mod agent;
mod agents;
mod changing;
mod cluster;
mod compiled;
mod dialing;
mod reaching;
mod ready;
mod ruleset;
mod services;
mod topology;
