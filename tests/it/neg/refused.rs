//! Compute Engine refuses: too many requests, or too many endpoints.

use serde_json::json;

use super::FEW;
use super::cluster::{Cluster, Stack};
use super::compute::{Compute, now_ms};
use super::judge::CLOCKS_APART_MS;
use super::stage::{OPERATION_MS, Stage};

/// The server's `Retry-After`.
const LATER_S: u64 = 2;

#[test]
fn who_is_told_to_come_later_comes_later() {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    let fault = json!({"path": "*/attachNetworkEndpoints", "times": 1, "status": 429, "retry_after_s": LATER_S});
    stage.compute.fault(&fault);
    stage.start();
    // The answer came after this, however late the test sees it.
    let mut before_ms = now_ms();
    stage.wait_until("the refusal", |stage| {
        let now_ms = now_ms();
        let is_told = stage.compute.is_faultless();
        if !is_told {
            before_ms = now_ms;
        }
        is_told
    });
    stage.comes_true();
    let first_ms = stage.compute.changes()[0].received_ms;
    assert!(
        first_ms + CLOCKS_APART_MS >= before_ms + 1000 * LATER_S,
        "{first_ms} {before_ms}"
    );
    stage.judge();

    // The server refuses requests above its rate; the host repeats them.
    stage.terminate();
    let compute = Compute::start(OPERATION_MS, &["--rate-limit-per-second", "8"]);
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), compute);
    stage.start();
    stage.comes_true();
    stage.change(|cluster| cluster.add("api", FEW, Stack::Dual));
    stage.comes_true();
    let is_refused = |entry: &serde_json::Value| entry["answer"]["Err"].get("RateLimited").is_some();
    assert!(stage.entries().iter().any(is_refused), "{}", stage.said());
    stage.terminate();
    stage.replays(None);
}

#[test]
fn what_a_quota_refuses_is_attached_once_there_is_room() {
    let compute = Compute::start(OPERATION_MS, &["--endpoints-max", "1"]);
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), compute);
    stage.start();
    let is_refused = |entry: &serde_json::Value| entry["answer"]["Err"]["Refused"][0] == 403;
    stage.wait_until("refusals", |stage| {
        stage.entries().iter().filter(|entry| is_refused(entry)).count() > 6
    });
    assert_eq!(stage.compute.changes().len(), 0, "{}", stage.said());
    assert!(stage.said().contains("exceeded"), "{}", stage.said());
    stage.compute.set(&json!({"endpoints_max": 1000}));
    stage.comes_true();
    stage.judge();
    stage.terminate();
    stage.replays(None);
}
