//! Nodes and the Services on them, with the real binary against a Debian etcd that the test starts: numbers of nodes, their
//! records, and what renderers are told, over restarts, kills and outages of etcd.
//!
//! What each guest decides is tested beside it; here is that nothing is lost and nothing is done twice between several hosts,
//! their store and their guests. What a kernel does with rules is tested elsewhere: the packet filter here is simulated.
//!
//! Needs `etcd` (`apt-get install etcd-server`).
#![cfg(test)]

#[path = "nodes/entries.rs"]
mod entries;
#[path = "nodes/killed.rs"]
mod killed;
#[path = "nodes/leaving_out.rs"]
mod leaving_out;
#[path = "nodes/manifests.rs"]
mod manifests;
#[path = "nodes/numbers.rs"]
mod numbers;
#[path = "nodes/once.rs"]
mod once;
#[path = "nodes/outages.rs"]
mod outages;
#[path = "nodes/recordings.rs"]
mod recordings;
#[path = "nodes/records.rs"]
mod records;
#[path = "guests/renumbered.rs"]
mod renumbered;
#[path = "etcd/server.rs"]
#[expect(
    dead_code,
    reason = "certificates and an emptied store are for the tests of the store"
)]
mod server;
#[path = "nodes/site.rs"]
mod site;
#[path = "nodes/slow.rs"]
mod slow;
#[path = "nodes/store.rs"]
mod store;
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod support;
#[path = "nodes/wiring.rs"]
mod wiring;
