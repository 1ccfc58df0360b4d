//! Real traffic: connections through the rules that the guests `service` and `nftables` make on three nodes. Each node
//! is a namespace with a real host that programs its kernel.
//!
//! The guests' own tests and `scenarios/` cover their decisions; the tests of the guest `nftables` cover what nft
//! accepts.

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
