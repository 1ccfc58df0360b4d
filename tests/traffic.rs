//! Real traffic: connections through the rules that the guests `service` and `nftables` make at three nodes, each a
//! namespace with a real host that programs its kernel.
//!
//! What the guests decide is in their own tests and in `scenarios/`; what nft takes, in the tests of the guest `nftables`.
#![cfg(test)]

#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod support;

#[path = "traffic/agent.rs"]
mod agent;
#[path = "traffic/agents.rs"]
mod agents;
#[path = "traffic/changing.rs"]
mod changing;
#[path = "traffic/cluster.rs"]
mod cluster;
#[path = "traffic/compiled.rs"]
mod compiled;
#[path = "traffic/dialing.rs"]
mod dialing;
#[path = "traffic/reaching.rs"]
mod reaching;
#[path = "traffic/ready.rs"]
mod ready;
#[path = "traffic/ruleset.rs"]
mod ruleset;
#[path = "traffic/services.rs"]
mod services;
#[path = "traffic/topology.rs"]
mod topology;
