//! The host is killed (`kill -9`) again and again while pods get addresses and hand them back, and after each restart
//! everybody who was told of an address has it, nobody has what was handed back, and no address is two pods'.
//!
//! Who asks and how is in `ipam_crash/rounds.rs`, what is right in `ipam_crash/ledger.rs`; that the ledger finds what is
//! wrong is shown with a host of the test's own, which does wrong. What a crash leaves of a file's last bytes, and damage,
//! are the store's own tests.
#![cfg(test)]

#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod support;

#[path = "ipam_crash/fake.rs"]
mod fake;
#[path = "ipam_crash/ledger.rs"]
mod ledger;
#[path = "ipam_crash/oracle.rs"]
mod oracle;
#[path = "ipam_crash/rounds.rs"]
mod rounds;

/// The seed, where the variable `CRASH_TEST_SEED` does not give another.
const SEED: u64 = 20_261_121;

fn seed() -> u64 {
    std::env::var("CRASH_TEST_SEED").map_or(SEED, |seed| seed.parse().expect("CRASH_TEST_SEED is a number"))
}
