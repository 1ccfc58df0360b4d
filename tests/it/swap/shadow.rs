//! A candidate in shadow, by the commands: it decides nothing; the host counts, stores and shows its differences; and
//! it becomes active by itself after enough equal calls.

use std::path::Path;

use serde_json::Value;

use super::recorded::{self, Called};
use super::{Running, active, candidates, error, revision, revisions};
use support::{Site, program, ran, trueup, wait_until};

fn status(site: &Site) -> Value {
    site.guest(&["shadow", "status", "lbaas", "--output", "json"])
        .exits(0)
        .json()
}

fn numbers<const N: usize>(status: &Value, fields: [&str; N]) -> [u64; N] {
    fields.map(|field| {
        status[field]
            .as_u64()
            .unwrap_or_else(|| panic!("`{field}` in {status}"))
    })
}

/// The comparison, once it covers all calls after the first `before`.
fn settled(site: &Site, before: usize) -> (Value, Vec<Called>) {
    let since: Vec<Called> = recorded::calls(site);
    let calls = (since.len() - before) as u64;
    wait_until("the comparison", || {
        let [compared, waiting] = numbers(&status(site), ["compared", "waiting"]);
        compared == calls && waiting == 0
    });
    (status(site), since)
}

#[test]
fn a_worse_version_in_shadow_has_exactly_its_differences_counted() {
    let mut running = Running::new();
    let candidate = candidates::forgetful(&running.site);
    let before = recorded::calls(&running.site).len();
    let begun = running.site.guest(&["shadow", "start", "lbaas", &candidate]).exits(0);
    assert!(
        begun.stdout.starts_with("candidate  lbaas@forgetful sha256:"),
        "{begun}"
    );
    running.change_web("30443", "30444");
    running.change_web("30080", "30081");
    // Without a port there is none to forget.
    running.site.remove_manifest("dns.yaml");
    running.host.wait_for("kube-system/dns          gone ");
    let site = &running.site;
    let objects = running.engine.objects_of("web.default");
    assert_eq!(objects.len(), 14, "what the candidate decides is not done");

    let (status, _) = settled(site, before);
    let since: Vec<Called> = by_time(site).split_off(before);
    let worse = since
        .iter()
        .filter(|call| call.name == "reconciliation.reconcile" && call.ports > 0)
        .count();
    let [same, different, unrecorded, skipped] = numbers(&status, ["same", "different", "unrecorded", "skipped"]);
    assert_eq!((different, unrecorded, skipped), (worse as u64, 0, 0), "{status}");
    assert_eq!(same, (since.len() - worse) as u64, "{status}");
    assert!(worse >= 2 && same >= 3, "{status}");
    assert_eq!(status["first"]["key"], "default/web");

    // Each difference is stored as a recording that shows it again, and that contains what the active version did.
    let kept = status["last"].as_array().unwrap();
    assert_eq!(kept.len(), worse);
    for difference in kept {
        let (file, what) = (
            difference["file"].as_str().unwrap(),
            difference["what"].as_str().unwrap(),
        );
        assert!(
            Path::new(file).starts_with(site.state_dir().join("shadow/lbaas")),
            "{file}"
        );
        let shown = trueup(["replay", file, "--guest", &candidate, "--output", "json"])
            .exits(3)
            .json();
        assert_eq!(shown[0]["n"], difference["n"], "{shown}");
        let shown = trueup(["replay", file, "--guest", &candidate]).exits(3);
        let (entry, _) = what.split_once(": ").unwrap();
        assert!(shown.stdout.contains(entry), "{what}: {shown}");
        trueup(["replay", file]).exits(0);
    }
    let table = site.guest(&["shadow", "status", "lbaas"]).exits(0);
    let row = [same + different, same, different, 0, 0, 0].map(|number| number.to_string());
    let shown = table.stdout.lines().nth(2).unwrap();
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>()[..6], row, "{table}");
    assert!(
        table.stdout.contains("a write that was not recorded: api.destroy"),
        "{table}"
    );
    let standing = site.guest(&["status"]).exits(0);
    assert!(
        standing
            .stdout
            .contains(&format!("{same} of {} same", same + different)),
        "{standing}"
    );

    // Nor does promotion bypass the gate.
    let ran = site.guest(&["shadow", "promote", "lbaas"]).exits(1);
    assert!(error(&ran).contains(" is refused at gate: "), "{ran}");
    for shown in [site.guest(&["shadow", "status", "lbaas"]), site.guest(&["status"])] {
        let (_, why) = shown.stdout.split_once("its promotion was refused at ").unwrap();
        assert!(why.contains(" is refused at gate: "), "{shown}");
    }
    let refused = self::status(site)["promotion_refused"].take();
    assert!(refused["at_ms"].as_u64() > status["since_ms"].as_u64(), "{refused}");
    let stopped = site
        .guest(&["shadow", "stop", "lbaas", "--output", "json"])
        .exits(0)
        .json();
    assert_eq!(numbers(&stopped, ["same", "different"]), [same, different]);
    site.guest(&["shadow", "status", "lbaas"]).exits(2);
    assert_eq!(revisions(site), [revision(1, "lbaas@1", "configuration")]);
}

/// In chronological order.
fn by_time(site: &Site) -> Vec<Called> {
    let mut calls = recorded::calls(site);
    calls.sort_by_key(|call| call.at_ms);
    calls
}

#[test]
fn a_promotion_waits_for_its_count_and_then_comes_by_itself() {
    let mut running = Running::new();
    let before = recorded::calls(&running.site).len();
    running.site.guest(&["shadow", "start", "lbaas", "lbaas@2"]).exits(0);
    let promote = |site: &Site, after: &str| site.guest(&["shadow", "promote", "lbaas", "--after", after]);
    assert_eq!(
        promote(&running.site, "5-same").exits(0).stdout,
        "lbaas: becomes active when 5 calls in a row came out the same; 0 did so far\n"
    );
    promote(&running.site, "none").exits(2);
    let status = running.site.guest(&["status", "lbaas"]).exits(0);
    let of_shadow = running.site.guest(&["shadow", "status", "lbaas"]).exits(0);
    let of_host = ran(program().args(["status", "--config"]).arg(running.site.folder()));
    for shown in [status, of_shadow, of_host] {
        assert!(shown.stdout.contains("; promoted after 5 in a row"), "{shown}");
    }
    let again = running.site.guest(&["shadow", "start", "lbaas", "lbaas@2"]).exits(2);
    assert!(
        error(&again)
            .contains("guest `lbaas`: builtin:lbaas@2 runs in shadow already, and 0 of its calls are compared"),
        "{again}"
    );
    let mut node_port = 30_443;
    loop {
        let (from, to) = (node_port.to_string(), (node_port + 1).to_string());
        running.change_web(&from, &to);
        node_port += 1;
        // Two calls each: one that reconciles, and one that looks.
        let calls = recorded::calls(&running.site).len() - before;
        if calls >= 5 {
            break;
        }
        let (status, _) = settled(&running.site, before);
        assert_eq!(numbers(&status, ["same", "same_in_a_row"]), [calls as u64; 2]);
        assert_eq!(active(&running.site), (1, "lbaas@1".to_owned()), "after {calls} calls");
    }
    running.host.wait_for(
        "lbaas                    active   `lbaas@2` is active as revision 2: no self-test; gate: identical: ",
    );
    let history = running.site.history("lbaas");
    assert_eq!(history.len(), 2);
    assert_eq!(
        (&history[1]["by"], &history[1]["use"]),
        (&"promote".into(), &"builtin:lbaas@2".into())
    );
    let note = history[1]["note"].as_str().unwrap();
    assert!(
        note.starts_with("after ") && note.contains(" calls in shadow, "),
        "{note}"
    );
    // It is no longer a candidate.
    running.site.guest(&["shadow", "status", "lbaas"]).exits(2);
    running.change_web(&node_port.to_string(), "30999");
    let recorded = recorded::all(&running.site);
    let two = trueup_guests_builtin::find("lbaas", "2").unwrap().digest;
    assert!(
        recorded
            .iter()
            .any(|segment| segment.digest == two && !segment.calls.is_empty())
    );
}

#[test]
fn a_candidate_that_traps_costs_the_active_version_nothing() {
    let mut running = Running::new();
    let candidate = candidates::panics(&running.site);
    let before = recorded::calls(&running.site).len();
    running.site.guest(&["shadow", "start", "lbaas", &candidate]).exits(0);
    running.change_web("30443", "30444");
    let (status, _) = settled(&running.site, before);
    assert_eq!(numbers(&status, ["compared", "different"]), [2, 2], "{status}");
    assert!(
        status["first"]["what"].as_str().unwrap().contains("replayed: trap "),
        "{status}"
    );
    let standing = running.site.guest(&["status", "--output", "json"]).exits(0).json();
    let standing = standing
        .as_array()
        .unwrap()
        .iter()
        .find(|guest| guest["guest"] == "lbaas");
    assert_eq!(standing.unwrap()["quarantined"], serde_json::json!([]));
    assert_eq!(active(&running.site), (1, "lbaas@1".to_owned()));
}
