//! A service processor and its renderers as real guests, wired as on a node, against models of them: properties that
//! hold after any sequence of events.
//!
//! ```text
//! any events -> service (guest) -> renderers (guests) -> etcd, or a packet filter of the test's own
//!     \-> model of service -> model of nat44 ------------^ the same
//! ```
//!
//! `PROPTEST_CASES` sets the number of cases of each property. Needs `etcd` and `etcdctl`
//! (`apt-get install etcd-server etcd-client`).
use proptest::test_runner::{Config, TestRunner};
use support::etcd as server;

mod addresses;
mod agreement;
mod inputs;
mod kernel;
mod nat;
mod recorded;
mod refusals;
mod services;
mod stores;
mod universe;
mod wired;

/// How many cases to try while shrinking a failing one: each is a node of its own.
const SHRINKS_MAX: u32 = 2_000;

/// Runs this many cases, or `PROPTEST_CASES`.
fn runner(cases: u32) -> TestRunner {
    let config = Config {
        // The failing case is printed completely.
        failure_persistence: None,
        max_shrink_iters: SHRINKS_MAX,
        ..Config::default()
    };
    TestRunner::new(match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => Config { cases, ..config },
    })
}
