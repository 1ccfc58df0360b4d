//! Nodes and the Services on them, with the real binary against a Debian etcd that the test starts: the nodes' numbers
//! and records, and the renderers' calls, over restarts, kills and outages of etcd.
//!
//! Each guest's own tests cover its decisions; these show that nothing is lost and nothing happens twice between
//! several hosts, their store and their guests. Other tests cover the kernel: the packet filter here is simulated.
//!
//! Needs `etcd` (`apt-get install etcd-server`).

use crate::guests::renumbered;
use support::etcd as server;

mod entries;
mod killed;
mod manifests;
mod numbers;
mod once;
mod outages;
mod recordings;
mod records;
mod setting_aside;
mod site;
mod slow;
mod store;
mod wiring;
