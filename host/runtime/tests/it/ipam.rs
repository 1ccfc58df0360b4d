//! Pod addresses through the host, with the real guest and a store that fails on demand.
mod crashes;
mod disk;
mod failing;
mod host;
mod interfaces;
mod requests;
mod socket;
mod spool;
