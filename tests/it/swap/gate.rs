//! The swap gate in the operator's view: `trueup guest swap`, and its configuration.

use std::fs;

use super::{active, candidates, configure, error, only_web, recorded, revision, revisions, running_with};

/// The forgetful guest's difference in the first call that has a port.
const FORGETS: &str = ": a write that was not recorded: api.destroy ";

#[test]
fn a_worse_version_is_refused_with_the_first_differing_field() {
    let running = running_with(only_web);
    let (engine, site) = (&running.engine, &running.site);
    let (objects, before) = (engine.objects(), recorded::calls(site).len());
    let candidate = candidates::forgetful(site);
    let ran = site.guest(&["swap", "lbaas", &candidate]).exits(1);
    let line = error(&ran);
    assert!(
        line.starts_with(&format!(
            "guest `lbaas`: file:{candidate} is refused at gate: 1 of 1 call in 1 recording differs; the first in \
             `default/web` diverged at entry "
        )),
        "{line}"
    );
    assert!(line.contains(FORGETS), "{line}");
    assert!(line.ends_with("; revision 1 (`lbaas@1`) stays active"), "{line}");

    // A trial changes nothing, whether it would pass or not.
    let tries: [(&[&str], i32, &str); 5] = [
        (&[&candidate], 1, FORGETS),
        (&[&candidate, "--gate", "identical"], 1, FORGETS),
        (&[&candidate, "--gate", "report"], 0, FORGETS),
        (
            &[&candidate, "--gate", "off"],
            0,
            "gate: nothing replayed: the gate is off",
        ),
        (&["lbaas@2"], 0, "gate: identical: 2 calls in 1 recording"),
    ];
    for (args, code, says) in tries {
        let ran = site
            .guest(&[&["swap", "lbaas", "--dry-run"], args].concat())
            .exits(code);
        let said = if code == 0 { ran.stdout.trim_end() } else { error(&ran) };
        assert!(said.contains(says), "{args:?}: {ran}");
        assert_eq!(said.contains(" would become active: "), code == 0, "{args:?}: {ran}");
    }
    let tried = site
        .guest(&[
            "swap",
            "lbaas",
            &candidate,
            "--dry-run",
            "--gate",
            "report",
            "--output",
            "json",
        ])
        .exits(0)
        .json();
    assert!(tried["revision"].is_null(), "{tried}");
    assert_eq!(
        (
            tried["proof"]["gate"]["differ"].as_u64(),
            tried["proof"]["gate"]["mode"].as_str()
        ),
        (Some(1), Some("report")),
        "{tried}"
    );
    assert_eq!(revisions(site), [revision(1, "lbaas@1", "configuration")]);
    assert_eq!(active(site), (1, "lbaas@1".to_owned()));
    assert_eq!(engine.objects(), objects);
    assert_eq!(recorded::calls(site).len(), before, "no guest was called");
}

#[test]
fn a_worse_version_gets_past_a_lax_gate_and_a_rollback_undoes_its_work() {
    let running = running_with(only_web);
    let candidate = candidates::forgetful(&running.site);
    let whole = support::described(&running.engine.objects());
    let mut number = 1;
    for (mode, says) in [
        ("report", FORGETS),
        ("off", "gate: nothing replayed: the gate is off; started from "),
    ] {
        let ran = running
            .site
            .guest(&["swap", "lbaas", &candidate, "--gate", mode])
            .exits(0);
        let begins = format!("lbaas: `lbaas@forgetful` is active as revision {}: ", number + 1);
        assert!(ran.stdout.starts_with(&begins) && ran.stdout.contains(says), "{ran}");
        // Each version that becomes active reconciles every key.
        support::wait_until("the last port to go", || {
            let left = running.engine.objects_of("web.default");
            !left.is_empty() && left.iter().all(|object| object.name().contains("http.web."))
        });
        let ran = running.site.guest(&["rollback", "lbaas"]).exits(0);
        let back = format!("lbaas: `lbaas@1` is active as revision {}: ", number + 2);
        assert!(ran.stdout.starts_with(&back), "{ran}");
        support::wait_until("what was there", || {
            support::described(&running.engine.objects()) == whole
        });
        number += 2;
    }
    assert_eq!(
        revisions(&running.site)[1..],
        [
            revision(2, "lbaas@forgetful", "swap"),
            revision(3, "lbaas@1", "rollback"),
            revision(4, "lbaas@forgetful", "swap"),
            revision(5, "lbaas@1", "rollback"),
        ]
    );
    let notes = running.site.history("lbaas");
    assert_eq!(notes[4]["note"], "to revision 3");
}

#[test]
fn differences_that_are_accepted_let_a_version_pass_and_are_counted() {
    let rule = "[[accept]]\nentry = \"result of reconciliation.reconcile\"\nfield = \"result.Ok.rounds\"\n\
                from = 77\nwhy = \"the test edits the recording\"\n";
    let running = running_with(|site| {
        configure(site, "accepted_differences = \"accepted.toml\"\n");
        fs::write(site.path("accepted.toml"), rule).unwrap();
    });
    let site = &running.site;
    // An unreadable file does not count as a passed gate.
    fs::write(site.path("accepted.toml"), "[[accept]]\n").unwrap();
    let ran = site.guest(&["swap", "lbaas", "lbaas@2"]).exits(1);
    assert!(
        error(&ran).contains(" is refused at gate: ") && error(&ran).contains("accepted.toml:"),
        "{ran}"
    );

    // As if another guest had reported more rounds.
    let web = site.state_dir().join("journals/lbaas/default%2Fweb/0.jsonl");
    let text = fs::read_to_string(&web).unwrap();
    let (head, rest) = text.split_once("\"rounds\":").unwrap();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
    fs::write(&web, format!("{head}\"rounds\":77{}", &rest[end..])).unwrap();
    fs::write(site.path("accepted.toml"), rule.replace("77", "78")).unwrap();
    let ran = site.guest(&["swap", "lbaas", "lbaas@2"]).exits(1);
    let line = error(&ran);
    assert!(
        line.contains(" in 3 recordings differs; the first in `default/web` diverged at entry "),
        "{line}"
    );
    assert!(
        line.contains("`reconciliation.reconcile`: result.Ok.rounds: recorded 77, replayed "),
        "{line}"
    );
    fs::write(site.path("accepted.toml"), rule).unwrap();
    let ran = site.guest(&["swap", "lbaas", "lbaas@2"]).exits(0);
    assert_eq!(
        ran.stdout,
        "lbaas: `lbaas@2` is active as revision 2: no self-test; gate: identical: 6 calls in 3 recordings; 1 accepted difference\n"
    );
}

#[test]
fn where_no_key_can_be_decided_the_refusal_names_what_helps() {
    let mut running = running_with(only_web);
    running.site.remove_manifest("web.yaml");
    running.host.wait_for("default/web              gone ");
    running.site.guest(&["swap", "lbaas", "lbaas@2"]).exits(0);
    let ran = running.site.guest(&["swap", "lbaas", "lbaas@1"]).exits(1);
    let helps = "; there is no key that it could decide about: swap with `--gate report`; revision 2 ";
    assert!(error(&ran).contains(helps), "{ran}");
    running
        .site
        .guest(&["swap", "lbaas", "lbaas@1", "--gate", "report"])
        .exits(0);
}

#[test]
fn a_version_that_fails_a_self_test_scenario_is_refused_by_its_name() {
    let running = running_with(|site| {
        configure(site, "self_test = \"self-test\"\ngate = \"off\"\n");
        fs::create_dir(site.path("self-test")).unwrap();
        fs::write(site.path("self-test/one.yaml"), SELF_TEST).unwrap();
    });
    let site = &running.site;
    let ran = site.guest(&["swap", "lbaas", &candidates::forgetful(site)]).exits(1);
    let line = error(&ran);
    assert!(line.contains(" is refused at self-test: "), "{line}");
    assert!(
        line.contains("one.yaml") && line.contains("a port that is wished for is served"),
        "{line}"
    );
    let ran = site.guest(&["swap", "lbaas", "lbaas@2"]).exits(0);
    assert!(
        ran.stdout
            .starts_with("lbaas: `lbaas@2` is active as revision 2: 1 scenario passed; gate: "),
        "{ran}"
    );
    // Without a scenario the self-test proves nothing.
    fs::remove_file(site.path("self-test/one.yaml")).unwrap();
    let ran = site.guest(&["swap", "lbaas", "lbaas@1"]).exits(1);
    assert!(
        error(&ran).contains(" is refused at self-test: ") && error(&ran).contains("no scenario under"),
        "{ran}"
    );
}

const SELF_TEST: &str = "\
- name: a port that is wished for is served
  guest: lbaas
  given: {lbaas: {load_balancers: {lb-1: Ok}}}
  steps:
    - call: reconciliation.reconcile
      args: &wish
        desired:
          load_balancers: [lb-1]
          name_suffix: web.ns.c1
          service_uid: u1
          external_addresses: [192.0.2.10]
          ports: [{name: http, external: 80, internal: 30080}]
          servers: [{name: node-a, address: 10.1.0.1}]
          backoff_steps: 5
    - call: reconciliation.status
      args: *wish
      expect:
        Ok: [{address: 192.0.2.10, ports: [80]}]
";
