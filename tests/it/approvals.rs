//! What would destroy more than half of what a guest holds, and waits for an approval: removals, and changes after
//! which everything is replaced.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Engine, Ran, SETTLE, Site, Started, ran, trueup, wait_until};

use crate::quickstart::{converged, service, without};

/// A run that approves what waits.
fn ran_with_approval(site: &Site) -> Ran {
    ran(&mut site.command("run", &["--once", "--approve"])).exits(0)
}

#[test]
fn what_destroys_more_than_half_waits_until_it_is_approved() {
    let (engine, site, before) = converged();
    site.remove_manifest("web.yaml");
    site.remove_manifest("api.yaml");
    let plan = site.plan().exits(3);
    assert_eq!(
        plan.said("a run waits for an approval before it destroys these 22 of 29 objects")
            .len(),
        1,
        "{plan}"
    );
    // A host that is killed may leave the count of a Service that is gone.
    let file = site.state_dir().join("held/lbaas.json");
    let mut counts: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    counts["held"]["default/gone"] = json!(100);
    fs::write(&file, counts.to_string()).unwrap();
    let ran = site.run_once().exits(1);
    let why = "destroying 22 of 29 objects is more than 10 and more than 50 %";
    assert!(
        ran.stdout.contains(why) && ran.stdout.contains("--once --approve"),
        "{ran}"
    );
    assert_eq!(engine.objects(), before, "nothing goes before all of it may");

    let mut host = site.start("run", &[]);
    host.wait_for_warning(why);
    let status = trueup(["status".as_ref(), "--config".as_ref(), site.folder().as_os_str()]);
    let well = "guest `lbaas` waits for an approval to destroy 22 of 29 objects: trueup approve lbaas";
    assert!(status.stdout.contains(well), "{status}");
    let approved = trueup(["approve".as_ref(), "--config".as_ref(), site.folder().as_os_str()]);
    assert_eq!(
        approved.stdout, "lbaas: approved: 22 of 29 objects go: default/api, default/web\n",
        "{approved}"
    );
    host.wait_for("default/web              gone     14 destroyed");
    host.wait_for("default/api              gone     8 destroyed");
    host.terminate().0.exits(0);
    assert_eq!(engine.objects().len(), 7);

    site.remove_manifest("dns.yaml");
    site.run_once().exits(0);
    assert_eq!(engine.objects(), [], "10 objects and fewer never wait");
}

#[test]
fn what_waits_goes_with_approve_or_stays_when_less_is_to_go() {
    let (engine, site, before) = converged();
    let api = fs::read_to_string(site.path("manifests/api.yaml")).unwrap();
    site.remove_manifest("web.yaml");
    site.remove_manifest("api.yaml");
    let mut host = site.start("run", &[]);
    host.wait_for_warning("destroying 22 of 29 objects");
    site.put_manifest("api.yaml", &api);
    host.wait_for("default/web              gone     14 destroyed");
    host.terminate().0.exits(0);
    assert_eq!(engine.objects(), without(&before, "web.default"));

    site.remove_manifest("api.yaml");
    site.remove_manifest("dns.yaml");
    assert_eq!(
        ran_with_approval(&site).last_line(),
        "2 services: 2 true, 0 failed; 0 created, 15 destroyed"
    );
}

#[test]
fn a_plan_without_counts_of_less_than_half_waits_for_nothing() {
    let (_engine, site, _) = converged();
    fs::remove_dir_all(site.state_dir().join("held")).unwrap();
    site.remove_manifest("web.yaml");
    let plan = site.plan().exits(3);
    assert_eq!(plan.said("a run waits for an approval"), [""; 0], "14 of 29: {plan}");
}

#[test]
fn a_host_without_counts_waits_before_it_destroys_most() {
    let (engine, site, before) = converged();
    fs::remove_dir_all(site.state_dir().join("held")).unwrap();
    site.remove_manifest("web.yaml");
    site.remove_manifest("api.yaml");
    let plan = site.plan().exits(3);
    let waits = plan.said("a run waits for an approval before it destroys these 22 of 29 objects");
    assert_eq!(waits.len(), 1, "{plan}");
    let ran = site.run_once().exits(1);
    assert!(
        ran.stdout.contains("objects is more than 10 and more than 50 %"),
        "{ran}"
    );
    assert_eq!(engine.objects(), before, "as with counts");
}

#[test]
fn a_service_that_never_had_objects_lets_no_others_lose_more() {
    let (engine, site, before) = converged();
    site.put_manifest("never.yaml", &service("never", ""));
    let (mut output, stdout) = io::pipe().unwrap();
    let host = Started::printing_to(&mut site.command("run", &[]), |_| stdout.try_clone().unwrap().into());
    let status = || ran(&mut site.command_of(&["status", "--config"], &[])).stdout;
    wait_until("all Services to be looked at", || status().contains("3 true, 1 failed"));
    // With a full pipe, the host does not get beyond its next line: that `never` is gone.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let pipe = format!("/proc/self/fd/{}", stdout.as_raw_fd());
    let mut pipe = OpenOptions::new()
        .write(true)
        .custom_flags(nonblocking)
        .open(pipe)
        .unwrap();
    while pipe.write(b"\n").is_ok() {}
    // The host reads all removals at once.
    host.signal(Signal::STOP);
    for manifest in ["never.yaml", "api.yaml", "dns.yaml"] {
        site.remove_manifest(manifest);
    }
    host.signal(Signal::CONT);
    // In this time, the other two would go.
    thread::sleep(Duration::from_secs(4));
    thread::spawn(move || io::copy(&mut output, &mut io::sink()));
    wait_until("the other two to wait", || {
        assert_eq!(engine.objects(), before);
        status().contains("waits for an approval to destroy 15 of 29 objects")
    });
    host.kill();
}

#[test]
fn a_service_of_less_than_half_that_gets_another_uid_is_replaced_at_once() {
    let (_engine, site, _) = converged();
    let uid = "7e57ab1e-0000-4000-8000-000000000001";
    site.edit(
        "manifests/web.yaml",
        "  name: web\n",
        &format!("  name: web\n  uid: {uid}\n"),
    );
    site.converges("3 services: 3 true, 0 failed; 14 created, 14 destroyed");
}

/// Gives the ports of all three Services other names: everything of them is replaced, and their counts stay.
fn rename_ports(site: &Site) {
    for (manifest, name, new) in [
        ("manifests/web.yaml", "name: https", "name: tls"),
        ("manifests/web.yaml", "name: http", "name: www"),
        ("manifests/api.yaml", "name: https", "name: tls"),
        ("manifests/dns.yaml", "name: dns-tcp", "name: domain"),
    ] {
        site.edit(manifest, &format!("{name}\n"), &format!("{new}\n"));
    }
}

const REPLACED: &str = "destroying 29 of 29 objects is more than 10 and more than 50 %";

#[test]
fn services_that_are_replaced_all_at_once_wait_whole() {
    let (engine, site, before) = converged();
    rename_ports(&site);
    let plan = site.plan().exits(3);
    let waits = plan.said("a run waits for an approval before it destroys these 29 of 29 objects");
    assert_eq!(waits.len(), 1, "{plan}");
    let ran = site.run_once().exits(1);
    assert!(ran.stdout.contains(REPLACED), "{ran}");
    assert_eq!(engine.objects(), before, "a start counts first");
    let approved = ran_with_approval(&site);
    assert_eq!(
        approved.last_line(),
        "3 services: 3 true, 0 failed; 29 created, 29 destroyed"
    );
}

#[test]
fn services_that_are_replaced_while_the_host_runs_wait_whole() {
    let (engine, site, before) = converged();
    let mut host = site.start("run", &[]);
    host.wait_for("default/web ");
    // The host reads all edits at once.
    host.signal(Signal::STOP);
    rename_ports(&site);
    host.signal(Signal::CONT);
    host.wait_for_warning(REPLACED);
    wait_until("all of them to wait", || {
        let status = trueup(["status".as_ref(), "--config".as_ref(), site.folder().as_os_str()]);
        status
            .stdout
            .contains("waits for an approval to destroy 29 of 29 objects")
    });
    assert_eq!(engine.objects(), before, "nothing goes before all of it may");
    trueup(["approve".as_ref(), "--config".as_ref(), site.folder().as_os_str()]).exits(0);
    host.wait_for("default/web              true     14 created, 14 destroyed");
    host.wait_for("default/api              true     8 created, 8 destroyed");
    host.terminate().0.exits(0);
}

#[test]
fn one_service_of_less_than_half_is_replaced_at_once() {
    let (engine, site, before) = converged();
    site.edit("manifests/web.yaml", "name: https\n", "name: tls\n");
    site.edit("manifests/web.yaml", "name: http\n", "name: www\n");
    let plan = site.plan().exits(3);
    assert_eq!(plan.said("a run waits for an approval"), [""; 0], "14 of 29: {plan}");
    site.converges("3 services: 3 true, 0 failed; 14 created, 14 destroyed");
    assert_eq!(engine.objects().len(), before.len());
}

/// Against an Engine with two load balancers, both granted.
fn on_two_load_balancers() -> (Engine, Site) {
    let mut args = SETTLE.to_vec();
    args.extend(["--load-balancer", "lb-1", "--load-balancer", "lb-2"]);
    let engine = Engine::start(&args);
    let site = Site::against(&engine);
    let (one, both) = ("[\"lb-1\"]", "[\"lb-1\", \"lb-2\"]");
    site.edit(
        "trueup.toml",
        &format!("read = {one}, write = {one}"),
        &format!("read = {both}, write = {both}"),
    );
    (engine, site)
}

#[test]
fn a_move_to_another_load_balancer_waits_for_nothing_in_a_plan_either() {
    let (_engine, site) = on_two_load_balancers();
    site.run_once().exits(0);
    site.edit(
        "trueup.toml",
        "load_balancers = [\"lb-1\"]",
        "load_balancers = [\"lb-2\"]",
    );
    let plan = site.plan().exits(3);
    assert_eq!(plan.said("a run waits for an approval"), [""; 0], "29 of 58: {plan}");
    site.converges("3 services: 3 true, 0 failed; 29 created, 29 destroyed");
}

#[test]
fn all_that_the_calls_of_a_turn_destroy_waits_together() {
    for (file, from, to) in [
        // Everything on the one that stays is replaced, or belongs to other UIDs.
        ("manifests/web.yaml", "name: https\n", "name: tls\n"),
        ("trueup.toml", "cluster = \"quickstart\"", "cluster = \"other\""),
    ] {
        let (engine, site) = on_two_load_balancers();
        let both = "load_balancers = [\"lb-1\", \"lb-2\"]";
        site.edit("trueup.toml", "load_balancers = [\"lb-1\"]", both);
        site.run_once().exits(0);
        let before = engine.objects();
        site.edit("trueup.toml", both, "load_balancers = [\"lb-1\"]");
        site.edit(file, from, to);
        let plan = site.plan().exits(3);
        assert_eq!(plan.said("a run waits for an approval").len(), 1, "{plan}");
        let ran = site.run_once().exits(1);
        assert!(ran.stdout.contains("3 failed; 0 created, 0 destroyed"), "{ran}");
        assert_eq!(engine.objects(), before, "{to}");
    }
}
