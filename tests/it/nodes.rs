//! Nodes and the Services on them, with the real binary against a Debian etcd that the test starts: numbers of nodes, their
//! records, and what renderers are told, over restarts, kills and outages of etcd.
//!
//! What each guest decides is tested beside it; here is that nothing is lost and nothing is done twice between several hosts,
//! their store and their guests. What a kernel does with rules is tested elsewhere: the packet filter here is simulated.
//!
//! Needs `etcd` (`apt-get install etcd-server`).

use crate::guests::renumbered;
use support::etcd as server;

mod entries;
mod killed;
mod leaving_out;
mod manifests;
mod numbers;
mod once;
mod outages;
mod recordings;
mod records;
mod site;
mod slow;
mod store;
mod wiring;
