//! Pod addresses through the host, with the real guest and a store that fails when it is told to.
#![cfg(test)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails where it stands"
)]

mod crashes;
mod disk;
mod host;
mod interfaces;
mod requests;
mod socket;
mod spool;
