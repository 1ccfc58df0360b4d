//! Tests of the whole system without special rights: the real binary, with simulated and real servers on loopback.
//!
//! One binary, so that it is linked once. A test names its needs beyond Rust: `#[needs(etcd)]`.

#![cfg(test)]

mod admin;
mod approvals;
mod audit;
mod bad_input;
mod beginning;
mod check;
mod commands;
mod compute;
mod docs;
mod edges;
mod etcd;
mod explain;
mod failing;
mod grammar;
mod guests;
mod ipam;
mod kubernetes;
mod languages;
mod limits;
mod neg;
mod neg_plan;
mod neg_recordings;
mod nodes;
mod numbering;
mod packages;
mod page;
mod programs;
mod quickstart;
mod reconcile;
mod recordings;
mod registry;
mod reload;
mod rendering;
mod scenarios;
mod schema;
mod swap;
mod testing;
mod toy;
mod typing;
