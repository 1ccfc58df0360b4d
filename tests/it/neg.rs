//! NEGs from end to end: manifests, the real binary, and a simulated Compute Engine in another process, over HTTP.
//!
//! The test judges the server's ledger: each migration takes at most a tenth, one runs at a time, the next one keeps
//! the pause, and the host requests nothing twice. This holds without faults, while the test kills the host (`kill -9`)
//! repeatedly, while operations fail, and during swaps of the guest.

use crate::guests::renumbered;

pub(crate) mod cluster;
pub(crate) mod compute;
pub(crate) mod judge;
mod judged;
mod killed;
mod kubernetes;
mod refused;
pub(crate) mod stage;

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use cluster::{Cluster, Stack};
use compute::{Compute, Does};
use stage::{OPERATION_MS, Stage, WAIT_MS, sections};
use support::{Engine, Site};

/// In each of three zones: 600 endpoints in total.
const MANY: u8 = 200;

/// A small case: six endpoints, of which one moves at a time.
const FEW: u8 = 2;

/// The host's view of NEGs; null until it has opened its socket and read its source.
fn shown(stage: &Stage) -> Value {
    let status = ["status", "--output", "json", "--config"].map(std::ffi::OsStr::new);
    let ran = support::trueup(status.into_iter().chain([stage.site.folder().as_os_str()]));
    let is_early = ["no host runs", "does not answer yet", "it was not looked at yet"];
    if is_early
        .iter()
        .any(|text| ran.stdout.contains(text) || ran.stderr.contains(text))
    {
        return Value::Null;
    }
    ran.exits(0).json()["negs"].take()
}

#[test]
fn six_hundred_endpoints_gain_and_lose_a_second_address_in_tenths() {
    let mut stage = Stage::new(Cluster::of(MANY, Stack::Single), Compute::start(OPERATION_MS, &[]));
    stage.start();
    stage.comes_true();
    for stack in [Stack::Dual, Stack::Single] {
        stage.change(|cluster| cluster.set_stack(stack));
        stage.comes_true();
    }
    let judged = stage.judge();
    // Three zones of 200, 60 at a time: four steps each, there and back.
    assert_eq!((judged.starts, judged.failed, judged.repeats), (24, 0, 0), "{judged}");
    let (pods, moved) = (stage.cluster.pods(), 2 * stage.cluster.pods());
    stage.wait_until("the status to count all moves", |stage| {
        let shown = shown(stage);
        shown["attached"] == pods + moved && shown["detached"] == moved
    });
    stage.terminate();
    stage.replays(None);
}

#[test]
fn operations_that_fail_are_repeated_and_the_move_comes_to_its_end() {
    let compute = Compute::start(OPERATION_MS, &[]);
    let mut stage = Stage::new(Cluster::of(MANY, Stack::Single), compute);
    stage.start();
    stage.comes_true();
    for stack in [Stack::Dual, Stack::Single] {
        // Of each kind, one fails.
        for call in ["attach", "detach"] {
            let path = format!("*/{call}NetworkEndpoints");
            stage.compute.fault(&json!({"path": path, "fail_next": 1}));
        }
        stage.change(|cluster| cluster.set_stack(stack));
        // Of all, 5 % fail.
        let mut failed = stage.compute.operations().len() / 20;
        stage.wait_until("the NEGs to be as they should be", |stage| {
            let due = stage.compute.operations().len() / 20;
            if due > failed {
                stage.compute.fault(&json!({"fail_next": due - failed}));
                failed = due;
            }
            stage.is_true()
        });
    }
    let judged = stage.judge();
    assert!(judged.failed >= 4, "{judged}");
    stage.terminate();
    stage.replays(None);
}

#[test]
fn negs_that_another_host_changes_again_and_again_are_named() {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    stage.site.edit("trueup.toml", "[run]\n", "[run]\nresync_ms = 2000\n");
    stage.start();
    stage.comes_true();
    let status =
        |stage: &Stage| support::trueup(["status".as_ref(), "--config".as_ref(), stage.site.folder().as_os_str()]);
    let why = "others change the objects of neg/";
    assert!(!status(&stage).stdout.contains(why), "a start is none");
    let sections = sections(&stage.compute, WAIT_MS);
    let other = Site::of(&format!(
        "[source]\nmanifests = \"manifests\"\n\n[run]\nresync_ms = 500\n{sections}"
    ));
    fs::create_dir(other.path("manifests")).unwrap();
    fs::write(other.path("token"), support::TOKEN).unwrap();
    Cluster::of(1, Stack::Single).write(&other);
    let other = other.start("run", &[]);
    stage.wait_until("the status to say so", |stage| status(stage).stdout.contains(why));
    assert!(stage.said().contains("changed by others"), "{}", stage.said());
    other.terminate();
    stage.wait_until("it to be over", |stage| !status(stage).stdout.contains(why));
    stage.terminate();
}

/// The same guest under another number, in a file.
fn renumbered(site: &Site) -> PathBuf {
    let file = site.path("neg-1.1.wasm");
    fs::write(&file, renumbered::renumbered("neg", "1", "1.1")).unwrap();
    file
}

#[test]
fn a_guest_that_is_swapped_half_way_goes_on_where_the_other_one_was() {
    let mut stage = Stage::new(Cluster::of(MANY, Stack::Single), Compute::start(OPERATION_MS, &[]));
    let other = renumbered(&stage.site);
    stage.start();
    stage.comes_true();
    stage.hold();
    stage.change(|cluster| cluster.set_stack(Stack::Dual));
    for step in 1..=7 {
        // An operation in flight until the next version starts; mostly the following attachment is, too.
        stage.in_flight(Does::Detach);
        let version = match step {
            3 => other.to_str(),
            6 => Some("neg@1"),
            _ => None,
        };
        if let Some(version) = version {
            stage.site.guest(&["swap", "neg", version]).exits(0);
        }
        stage.compute.end_operations();
    }
    stage.let_go();
    stage.comes_true();

    let judged = stage.judge();
    assert_eq!((judged.starts, judged.failed, judged.repeats), (12, 0, 0), "{judged}");
    let mut history = stage.site.history("neg");
    let versions: Vec<Value> = history.iter_mut().map(|revision| revision["version"].take()).collect();
    assert_eq!(versions, ["1", "1.1", "1"]);
    stage.terminate();
    let segments = stage.replays(Some(&other));
    assert_eq!(segments.keys().collect::<Vec<_>>(), ["1", "1.1"]);
}

#[test]
fn a_waiting_move_shows_its_progress_and_survives_a_swap_and_a_kill() {
    // Longer than the whole test.
    let wait_ms = 600_000;
    let mut stage = Stage::waiting(
        wait_ms,
        Cluster::of(FEW, Stack::Single),
        Compute::start(OPERATION_MS, &[]),
    );
    let other = renumbered(&stage.site);
    stage.start();
    stage.comes_true();
    stage.change(|cluster| cluster.set_stack(Stack::Dual));
    let waits = |stage: &mut Stage| {
        let mut negs = Value::Null;
        stage.wait_until("a move that waits", |stage| {
            negs = shown(stage);
            let migration = &negs["migrations"][0];
            // The attachment has ended, too.
            migration["paused_until_ms"].is_u64() && migration["of"] == 6
        });
        negs
    };
    let shown = waits(&mut stage);
    let started = stage.compute.detachments();
    let ended_ms = started[0].done_ms.unwrap();
    let until_ms = shown["migrations"][0]["paused_until_ms"].as_u64().unwrap();
    assert!(until_ms + judge::CLOCKS_APART_MS >= ended_ms + wait_ms, "{shown}");
    let migration = json!({
        "key": "shop/web/80", "migrating": 5, "of": 6, "detaching_at": [], "paused": true, "paused_until_ms": until_ms,
    });
    assert_eq!(
        (&shown["migrations"], &shown["migration_count"]),
        (&json!([migration]), &json!(1))
    );

    stage.site.guest(&["swap", "neg", other.to_str().unwrap()]).exits(0);
    stage.kill();
    stage.start();
    assert_eq!(waits(&mut stage)["migrations"], json!([migration]));
    assert_eq!(stage.compute.detachments().len(), 1);
    stage.judge();
    stage.terminate();
    let segments = stage.replays(Some(&other));
    assert_eq!(segments.keys().collect::<Vec<_>>(), ["1", "1.1"]);
}

/// A host that knows `web` and `api`.
fn with_two_services(stack: Stack) -> Stage {
    let mut cluster = Cluster::of(FEW, stack);
    cluster.add("api", FEW, Stack::Single);
    let mut stage = Stage::new(cluster, Compute::start(OPERATION_MS, &[]));
    stage.start();
    stage.comes_true();
    stage.wait_until("both keys", |stage| stage.known_keys().len() == 2);
    stage
}

#[test]
fn the_negs_of_a_service_that_goes_are_emptied_and_it_is_forgotten() {
    let mut stage = with_two_services(Stack::Dual);
    stage.change(|cluster| cluster.remove("api"));
    stage.comes_true();
    stage.wait_until("`api` to be forgotten", |stage| stage.known_keys() == ["shop/web/80"]);

    // While the host is down.
    stage.kill();
    stage.change(|cluster| cluster.remove("web"));
    stage.start();
    stage.comes_true();
    stage.wait_until("`web` to be forgotten", |stage| stage.known_keys().is_empty());
    let ledger = stage.compute.changes();
    let of = |neg: &str, does: Does| {
        let fits = ledger.iter().filter(|change| change.neg == neg && change.does == does);
        fits.flat_map(|change| &change.endpoints).count()
    };
    for neg in ["web", "api"] {
        assert_eq!((of(neg, Does::Attach), of(neg, Does::Detach)), (6, 6), "{neg}");
    }

    // It comes back with its old name.
    stage.change(|cluster| cluster.add("web", FEW, Stack::Single));
    stage.comes_true();
    stage.terminate();
    stage.replays(None);
}

#[test]
fn a_service_with_another_name_keeps_its_negs_and_all_is_well() {
    let mut stage = with_two_services(Stack::Single);
    let before = stage.compute.changes().len();
    stage.change(|cluster| cluster.rename("web", "www"));
    stage.wait_until("the other key", |stage| {
        stage.known_keys() == ["shop/api/80", "shop/www/80"]
    });
    let status = |stage: &Stage| {
        let mut command = support::program();
        support::ran(command.args(["status", "--config"]).arg(stage.site.folder()))
    };
    stage.wait_until("all to be well", |stage| status(stage).stdout.contains("all is well"));
    assert_eq!(stage.compute.changes().len(), before, "its endpoints stay");
    stage.terminate();
    stage.replays(None);
}

/// In sync: the NEG of `web`, and one of half its size.
fn web_and_a_smaller_one() -> Stage {
    let mut cluster = Cluster::of(2 * FEW, Stack::Single);
    cluster.add("api", FEW, Stack::Single);
    let mut stage = Stage::new(cluster, Compute::start(OPERATION_MS, &[]));
    stage.start();
    stage.comes_true();
    stage
}

#[test]
fn negs_of_more_than_half_wait_for_an_approval_also_after_a_kill() {
    let mut stage = web_and_a_smaller_one();
    stage.wait_until("both keys", |stage| stage.known_keys().len() == 2);
    let before = stage.compute.changes().len();
    stage.change(|cluster| cluster.remove("web"));
    let why = "destroying 12 of 18 objects is more than 10 and more than 50 %";
    stage.wait_until("the refusal", |stage| stage.said().contains(why));
    stage.kill();
    stage.start();
    stage.wait_until("the same refusal", |stage| stage.said().contains(why));
    let command = |name: &str| {
        let mut command = support::program();
        support::ran(command.args([name, "--config"]).arg(stage.site.folder()))
    };
    let planned = support::ran(support::program().arg("plan").arg(stage.site.folder())).exits(3);
    let waits = "a run waits for an approval before it destroys these 12 of 18 objects: `trueup approve neg`, or `trueup run --once";
    assert!(planned.stderr.contains(waits), "{planned}");
    let well = "guest `neg` waits for an approval to destroy 12 of 18 objects: trueup approve neg";
    let status = command("status").exits(1);
    assert!(status.stdout.contains(well), "{status}");
    assert_eq!(stage.compute.changes().len(), before, "nothing goes before it may");
    let approved = command("approve").exits(0);
    assert_eq!(approved.stdout, "neg: approved: 12 of 18 objects go: shop/web/80\n");
    stage.comes_true();
    stage.wait_until("`web` to be forgotten", |stage| stage.known_keys() == ["shop/api/80"]);
    stage.terminate();
}

#[test]
fn negs_of_more_than_half_go_once_with_approve() {
    let mut stage = web_and_a_smaller_one();
    stage.terminate();
    stage.change(|cluster| cluster.remove("web"));
    let refused = stage.site.run_once().exits(1);
    assert!(
        refused.stdout.contains("destroying 12 of 18 objects")
            && refused.stdout.contains("or run it with --once --approve"),
        "{refused}"
    );
    assert!(!stage.is_true());
    support::ran(&mut stage.site.command("run", &["--once", "--approve"])).exits(0);
    assert!(stage.is_true());
}

#[test]
fn a_service_that_was_never_valid_counts_for_no_approval() {
    let site = Site::example("neg");
    site.edit("trueup.toml", "listen = \"127.0.0.1:9481\"", "listen = \"127.0.0.1:0\"");
    let exposed = json!({"exposed_ports": {"99": {}}}).to_string();
    let never = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "never", "annotations": {"cloud.google.com/neg": exposed}},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    });
    site.put_manifest("never.yaml", &never.to_string());
    let host = site.start("run", &[]);
    let shows = |site: &Site, text: &str| {
        let status = support::ran(&mut site.command_of(&["status", "--config"], &[]));
        assert!(!status.stdout.contains("waits for an approval"), "{status}");
        status.stdout.contains(text)
    };
    for gone in [["web.yaml", "never.yaml"], ["api.yaml", "never.yaml"]] {
        site.put_manifest("never.yaml", &never.to_string());
        support::wait_until("the others", || shows(&site, " true, 1 failed"));
        // The host reads all removals at once.
        host.signal(Signal::STOP);
        gone.iter().for_each(|manifest| site.remove_manifest(manifest));
        host.signal(Signal::CONT);
        support::wait_until("all to be well", || shows(&site, "all is well"));
    }
    host.terminate().0.exits(0);
}

#[test]
fn a_start_without_any_node_takes_no_endpoint_away() {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    stage.start();
    stage.comes_true();
    stage.kill();
    let before = stage.compute.changes().len();
    let objects = stage.cluster.objects().into_iter();
    let documents: Vec<String> = objects
        .filter(|object| object["kind"] != "Node")
        .map(|object| object.to_string())
        .collect();
    stage.site.put_manifest("negs.yaml", &documents.join("\n---\n"));
    stage.start();
    stage.wait_until("the problem", |stage| {
        stage.said().contains("the manifests hold no Node at all")
    });
    stage.change(|cluster| cluster.resize("web", FEW + 1));
    stage.comes_true();
    let changes = stage.compute.changes().split_off(before);
    assert!(changes.iter().all(|change| change.does == Does::Attach), "{changes:?}");
    stage.terminate();
}

#[test]
fn a_neg_whose_operations_fail_has_failed_until_it_is_as_it_should_be() {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    stage.start();
    stage.comes_true();
    let fault = json!({"path": "*/attachNetworkEndpoints", "fail_next": 1000, "message": "no such VM"});
    stage.compute.fault(&fault);
    stage.change(|cluster| cluster.resize("web", FEW + 1));
    let status =
        |stage: &Stage| support::trueup(["status".as_ref(), "--config".as_ref(), stage.site.folder().as_os_str()]);
    stage.wait_until("the failure", |stage| {
        status(stage).last_line().starts_with("not well: 1 key failed")
    });
    let seen = status(&stage).exits(1);
    assert!(
        seen.stdout.contains("failed: ") && seen.stdout.contains("no such VM"),
        "{seen}"
    );
    stage.compute.clear_faults();
    // The guest may have given up meanwhile.
    support::ran(&mut stage.site.command_of(&["reconcile", "shop/web/80", "--config"], &[]));
    stage.comes_true();
    // What was put right is what this host's own operations left.
    stage.wait_until("all to be well", |stage| status(stage).last_line() == "all is well");
    assert!(!stage.said().contains("changed by others"), "{}", stage.said());
    stage.terminate();
}

#[test]
fn an_operator_sets_the_error_state_of_a_key_and_it_outlives_a_kill() {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    stage.start();
    stage.comes_true();
    let set = |stage: &Stage, key: &str, state: &str| {
        let mut command = support::program();
        command.args(["neg", "error-state", key, state, "--config"]);
        support::ran(command.arg(stage.site.folder()))
    };
    let is_told = |stage: &Stage, on: bool| {
        let mut entries = stage.entries().into_iter();
        entries.any(|entry| entry["call"] == "syncer.set-error-state" && entry["args"]["in_error_state"] == on)
    };
    let ran = set(&stage, "shop/web/81", "on");
    assert!(ran.code != Some(0) && ran.stdout.is_empty(), "{ran}");
    assert!(ran.stderr.contains("no NEG is desired for it"), "{ran}");
    set(&stage, "shop/web/80", "on").exits(0);
    stage.wait_until("the guest to be told", |stage| is_told(stage, true));
    let status = |stage: &Stage| {
        let mut command = support::program();
        support::ran(command.args(["status", "--keys", "--config"]).arg(stage.site.folder()))
    };
    let says = "error     shop/web/80: in its error state, until `trueup neg error-state shop/web/80 off`";
    stage.wait_until("it in the status", |stage| status(stage).stdout.contains(says));
    let seen = status(&stage).exits(1);
    assert!(
        seen.last_line().contains("1 key is in its error state: shop/web/80"),
        "{seen}"
    );
    stage.kill();
    stage.start();
    stage.comes_true();
    // A segment that begins after the kill contains the state at that time.
    let was_kept = |stage: &Stage, on: bool| {
        let mut headers = stage.entries().into_iter().filter_map(|mut entry| {
            let snapshot: Value = serde_json::from_str(entry["header"]["snapshot"].take().as_str()?).ok()?;
            snapshot["in_error_state"].as_bool()
        });
        headers.next_back() == Some(on)
    };
    stage.wait_until("the state after the kill", |stage| was_kept(stage, true));
    set(&stage, "shop/web/80", "off").exits(0);
    stage.wait_until("the guest to be told otherwise", |stage| is_told(stage, false));
    stage.wait_until("all to be well", |stage| status(stage).code == Some(0));
    let audited = support::ran(&mut stage.site.command_of(&["audit", "show"], &[]));
    assert_eq!(audited.exits(0).stdout.matches("error-state").count(), 2);
    stage.terminate();
    stage.replays(None);
}

#[test]
fn once_ends_when_a_move_has_come_to_its_end_and_nothing_is_in_flight() {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    for (stack, line) in [
        (Stack::Single, "1 neg: 1 true, 0 failed; 6 attached, 0 detached"),
        (Stack::Single, "1 neg: 1 true, 0 failed; 0 attached, 0 detached"),
        (Stack::Dual, "1 neg: 1 true, 0 failed; 6 attached, 6 detached"),
        (Stack::Single, "1 neg: 1 true, 0 failed; 6 attached, 6 detached"),
    ] {
        stage.change(|cluster| cluster.set_stack(stack));
        let ran = stage.site.run_once().exits(0);
        assert_eq!(ran.last_line(), line, "{ran}");
        assert!(stage.is_true(), "{ran}");
    }
    let judged = stage.judge();
    // One at a time, there and back.
    assert_eq!(judged.starts, 12, "{judged}");
    stage.change(|cluster| cluster.remove("web"));
    let ran = stage.site.run_once().exits(0);
    assert!(ran.last_line().ends_with("0 attached, 6 detached"), "{ran}");
    assert!(stage.is_true() && stage.known_keys().is_empty(), "{ran}");
    stage.replays(None);
}

#[test]
fn an_operation_that_ends_while_the_host_is_down_is_found_and_told() {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    stage.start();
    stage.comes_true();
    stage.hold();
    stage.change(|cluster| cluster.set_stack(Stack::Dual));
    // A clean end and a kill; during a detachment and an attachment.
    for (kills, call) in [(false, Does::Detach), (true, Does::Attach), (true, Does::Detach)] {
        let in_flight = stage.in_flight(call);
        if kills {
            stage.kill();
        } else {
            stage.terminate();
        }
        stage.compute.end_operations();
        stage.start();
        stage.wait_until("the guest to be told", |stage| {
            let mut entries = stage.entries().into_iter();
            entries.any(|entry| entry["call"] == "syncer.on-operation" && entry["args"]["operation"] == in_flight)
        });
    }
    stage.let_go();
    stage.comes_true();
    let judged = stage.judge();
    assert_eq!(judged.failed, 0, "{judged}");
    stage.terminate();
    stage.replays(None);
}

#[test]
fn services_and_negs_are_brought_about_by_one_process() {
    let engine = Engine::start(&[]);
    let site = Site::against(&engine);
    let compute = Compute::start(OPERATION_MS, &[]);
    let config = fs::read_to_string(site.path("trueup.toml")).unwrap();
    fs::write(site.path("trueup.toml"), config + &sections(&compute, WAIT_MS)).unwrap();
    // One Service is both.
    let mut cluster = Cluster::of(FEW, Stack::Single);
    cluster.set_spec("web", json!({"type": "LoadBalancer"}));
    cluster.write(&site);
    let ran = site.run_once().exits(0);
    assert!(
        ran.stdout.contains("1 neg: 1 true, 0 failed; 6 attached, 0 detached"),
        "{ran}"
    );
    assert!(ran.last_line().starts_with("4 services: 4 true, 0 failed; "), "{ran}");
    let is_true = |cluster: &Cluster| compute.at_rest() == Some(cluster.contents());
    assert!(is_true(&cluster), "{ran}");
    assert!(!engine.objects_of("web.shop").is_empty(), "{ran}");

    let mut host = site.start("run", &[]);
    cluster.set_stack(Stack::Dual);
    cluster.write(&site);
    site.remove_manifest("dns.yaml");
    support::wait_until("both to be as they should be", || {
        assert!(host.ended().is_none(), "{}{}", host.stdout(), host.stderr());
        is_true(&cluster) && engine.objects_of("dns.kube-system").is_empty()
    });
    judge::judge(&compute.operations(), judge::Rules::new(cluster.pods(), WAIT_MS));

    // It is no longer both.
    cluster.remove("web");
    cluster.write(&site);
    support::wait_until("what is gone to go", || {
        is_true(&cluster) && engine.objects_of("web.shop").is_empty()
    });
    host.terminate().0.exits(0);
}
