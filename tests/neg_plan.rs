//! What an operator sees of NEGs: what a run would do (`plan`), what a candidate would (`shadow`), what was done and why
//! (`explain`), and where it stands (`status`). With the real binary, against a simulated Compute Engine over HTTP.
#![cfg(test)]

#[path = "neg/cluster.rs"]
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod cluster;
#[path = "neg/compute.rs"]
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod compute;
#[path = "neg/judge.rs"]
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod judge;
#[path = "neg_plan/plan.rs"]
mod plan;
#[path = "neg/stage.rs"]
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod stage;
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod support;

/// In each of three zones: six endpoints, of which one moves at a time.
const FEW: u8 = 2;
