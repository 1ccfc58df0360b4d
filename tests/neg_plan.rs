//! What an operator sees of NEGs: what a run would do (`plan`), what a candidate would (`shadow`), what was done and why
//! (`explain`), and where it stands (`status`). With the real binary, against a simulated Compute Engine over HTTP.
#![cfg(test)]

#[path = "neg/cluster.rs"]
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod cluster;
#[path = "neg/compute.rs"]
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod compute;
#[path = "neg_plan/explain.rs"]
mod explain;
#[path = "guests/forgetful.rs"]
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod forgetful;
#[path = "neg/judge.rs"]
mod judge;
#[path = "guests/misbehaving.rs"]
#[expect(
    dead_code,
    reason = "here guests are built by `forgetful`, with features of their own"
)]
mod misbehaving;
#[path = "neg_plan/plan.rs"]
mod plan;
#[path = "guests/renumbered.rs"]
mod renumbered;
#[path = "neg_plan/shadow.rs"]
mod shadow;
#[path = "neg/stage.rs"]
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod stage;
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod support;

/// In each of three zones: six endpoints, of which one moves at a time.
const FEW: u8 = 2;
