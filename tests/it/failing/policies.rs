//! Another version heals a failure, by hand or by the failure policy; `hold` waits for neither.

use std::fs;

use serde_json::{Value, json};

use super::{
    ENOUGH, SET_ASIDE, TRUE, guest, lines, put_service, segments, set_aside, site, standing, tries, wait_for_lines,
};
use support::Started;

#[test]
fn another_version_releases_what_is_set_aside_and_going_back_fails_again() {
    let site = site("2", "", &["calm", "panic-2"]);
    let mut host = site.start("run", &[]);
    wait_for_lines(&mut host, "panic-2", SET_ASIDE, 1);

    // A trial or a refusal does not count as another version.
    guest(&site, &["swap", "lbaas", "misbehaving-1.wasm", "--dry-run"]).exits(0);
    guest(&site, &["swap", "lbaas", "ipam@1"]).exits(1);
    assert_eq!(set_aside(&site), ["default/panic-2"]);

    guest(&site, &["swap", "lbaas", "misbehaving-1.wasm"]).exits(0);
    wait_for_lines(&mut host, "panic-2", TRUE, 1);
    assert_eq!((set_aside(&site), tries(&site, "panic-2")), (vec![], ENOUGH + 1));
    assert_eq!(
        fs::read_dir(site.state_dir().join("quarantine/lbaas")).unwrap().count(),
        0
    );

    guest(&site, &["rollback", "lbaas"]).exits(0);
    put_service(&site, "panic-2", 30081);
    wait_for_lines(&mut host, "panic-2", SET_ASIDE, 2);
    assert_eq!(lines(&host.stdout(), "calm", SET_ASIDE), 0);
    host.terminate().0.exits(0);
}

#[test]
fn a_version_that_rejects_an_instance_s_state_fails_and_rollback_heals() {
    let site = site("1", "settings = { does = \"choosy\" }", &["calm"]);
    let mut host = site.start("run", &[]);
    wait_for_lines(&mut host, "calm", TRUE, 3);

    // It accepts the initial states of recordings, so that it becomes active; it rejects the state that this instance
    // now has.
    guest(&site, &["swap", "lbaas", "misbehaving-2.wasm"]).exits(0);
    put_service(&site, "fresh", 30081);
    wait_for_lines(&mut host, "calm", SET_ASIDE, 1);
    wait_for_lines(&mut host, "fresh", TRUE, 2);
    let standing = standing(&site);
    let [refused] = standing["quarantined"].as_array().unwrap().as_slice() else {
        panic!("{standing}")
    };
    let error = refused["error"].as_str().unwrap();
    assert!(
        error.starts_with("guest `misbehaving@2` refuses the snapshot: snapshot: was "),
        "{error}"
    );
    assert_eq!(refused["digest"], standing["active"]["digest"]);
    assert_eq!(
        (&refused["instance"], &refused["failures"]),
        (&json!("default/calm"), &json!(ENOUGH))
    );

    let done = lines(&host.stdout(), "calm", TRUE);
    guest(&site, &["rollback", "lbaas"]).exits(0);
    wait_for_lines(&mut host, "calm", TRUE, done + 1);
    wait_for_lines(&mut host, "fresh", TRUE, 4);
    assert_eq!(set_aside(&site), Vec::<String>::new());
    host.terminate().0.exits(0);
    let newest = segments(&site, "calm").pop().unwrap();
    let count: u64 = newest.header.snapshot.unwrap().parse().unwrap();
    assert!(
        count >= 3 && newest.header.version == "1",
        "it goes on with its state: {count}"
    );
}

fn history(site: &super::Site) -> Vec<Value> {
    let history = guest(site, &["history", "lbaas", "--output", "json"]).exits(0).json();
    history.as_array().unwrap().clone()
}

const FALL_BACK: &str = "on_failure = \"fall-back\"\nfall_back = \"file:misbehaving-1.wasm\"";

#[test]
fn the_version_of_the_failure_policy_takes_over_and_heals() {
    let site = site("2", FALL_BACK, &["calm", "panic-2"]);
    let mut host = site.start("run", &[]);
    wait_for_lines(&mut host, "panic-2", TRUE, 1);
    assert_eq!((set_aside(&site), tries(&site, "panic-2")), (vec![], ENOUGH + 1));
    let [first, fallen] = <[Value; 2]>::try_from(history(&site)).unwrap();
    assert_eq!(
        (&first["by"], &first["version"]),
        (&json!("configuration"), &json!("2"))
    );
    assert_eq!((&fallen["by"], &fallen["version"]), (&json!("fall-back"), &json!("1")));
    let note = fallen["note"].as_str().unwrap();
    assert!(
        note.starts_with(
            "default/panic-2 failed 3 times: guest `misbehaving@2` in `reconciliation.reconcile`: trapped: "
        ),
        "{note}"
    );
    assert_eq!(
        lines(&host.stdout(), "panic-2", SET_ASIDE),
        1,
        "with its recording, until then"
    );
    host.wait_for("`misbehaving@1` is active as revision 2");
    host.terminate().0.exits(0);

    // It stays active. A failure of that version too is set aside as usual: there is no further version.
    let mut host = site.start("run", &[]);
    put_service(&site, "panic", 30080);
    wait_for_lines(&mut host, "panic", SET_ASIDE, 1);
    let rounds = lines(&host.stdout(), "calm", TRUE);
    wait_for_lines(&mut host, "calm", TRUE, rounds + 3);
    assert_eq!(
        (history(&site).len(), set_aside(&site)),
        (2, vec!["default/panic".to_owned()])
    );
    assert_eq!(warnings(&host, "revision"), Vec::<String>::new());
    host.terminate().0.exits(0);
}

fn warnings(host: &Started, of: &str) -> Vec<String> {
    let stderr = host.stderr();
    let lines = stderr
        .lines()
        .filter(|line| line.contains("warning: ") && line.contains(of));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_run_that_ends_falls_back_before_it_does() {
    let site = site("2", FALL_BACK, &["calm", "panic-2"]);
    let ran = site.run_once().exits(0);
    assert_eq!(
        ran.last_line(),
        "2 services: 2 true, 0 failed; 0 created, 0 destroyed",
        "{ran}"
    );
    assert_eq!(history(&site)[1]["by"], "fall-back");
}

#[test]
fn the_input_stays_set_aside_when_the_policy_s_version_is_refused() {
    let policy = "on_failure = \"fall-back\"\nfall_back = \"file:misbehaving-1.wasm\"";
    let site = site("2", policy, &["calm"]);
    let mut host = site.start("run", &[]);
    wait_for_lines(&mut host, "calm", TRUE, 1);
    // The file existed when the host started.
    fs::remove_file(site.path("misbehaving-1.wasm")).unwrap();
    put_service(&site, "panic-2", 30080);
    wait_for_lines(&mut host, "panic-2", SET_ASIDE, 1);
    host.wait_for_warning("stays active");
    let rounds = lines(&host.stdout(), "calm", TRUE);
    wait_for_lines(&mut host, "calm", TRUE, rounds + 3);
    let refused = warnings(&host, "stays active");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(
        refused[0].contains("misbehaving-1.wasm is refused at load"),
        "{refused:?}"
    );
    assert_eq!(
        (history(&site).len(), set_aside(&site)),
        (1, vec!["default/panic-2".to_owned()])
    );
    assert_eq!(tries(&site, "panic-2"), ENOUGH);
    host.terminate().0.exits(0);
    // The next run tries once more.
    let ran = site.run_once().exits(1);
    assert_eq!(
        (ran.said("stays active").len(), tries(&site, "panic-2")),
        (1, ENOUGH),
        "{ran}"
    );
}

#[test]
fn hold_sets_aside_at_the_first_failure() {
    let site = site("1", "on_failure = \"hold\"", &["calm", "panic"]);
    let mut host = site.start("run", &[]);
    wait_for_lines(&mut host, "panic", "; set aside after 1 time until", 1);
    wait_for_lines(&mut host, "calm", TRUE, 3);
    assert_eq!((tries(&site, "panic"), warnings(&host, "panic")), (1, vec![]));
    assert_eq!(standing(&site)["quarantined"][0]["failures"], 1);
    host.terminate().0.exits(0);
}
