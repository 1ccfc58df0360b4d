//! `trueup test` for people who write guests: what was seen becomes what is expected, files are watched, and a guest
//! that runs into a limit is expected to.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use support::{Started, program, ran, wait_until};

use crate::failing::MISBEHAVING_1;

const SCENARIOS: &str = r"# What is served.
- name: two steps fail
  guest: lbaas
  given: {lbaas: {load_balancers: {lb-1: Ok}}}
  steps:
    - call: reconciliation.status
      args: &args
        desired: {
          load_balancers: [lb-1], name_suffix: web.ns.c1, service_uid: u1,
          external_addresses: [], ports: [], servers: [], backoff_steps: 1,
        }
      expect: {Ok: [7]} # nothing
    # Again.
    - call: reconciliation.status
      args: *args
      expect:
        Ok: [1]
      expect_calls: []
    - expect_state: {lbaas: {objects: []}}
";

#[test]
fn what_was_seen_is_written_in_place_of_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    fs::write(&file, SCENARIOS).unwrap();
    let test = |args: &[&str]| ran(program().arg("test").arg(folder.path()).args(args));
    test(&[]).exits(1);
    let accepted = test(&["--accept"]).exits(0);
    assert!(
        accepted.stderr.contains("all.yaml: 3 expectations written"),
        "{accepted}"
    );
    let calls = "{\"args\": {\"identifier\": \"lb-1\"}, \"call\": \"api.load-balancer\"}, \
                 {\"args\": {\"tag\": \"anxccm-svc-uid=u1\"}, \"call\": \"api.list-tagged\"}";
    let wanted = SCENARIOS
        .replace("{Ok: [7]}", "{\"Ok\": []}")
        .replace("  Ok: [1]", "  {\"Ok\": []}")
        .replace("expect_calls: []", &format!("expect_calls: [{calls}]"));
    assert_eq!(fs::read_to_string(&file).unwrap(), wanted);
    // Nothing differs any more, so nothing is written.
    let again = test(&["--accept"]).exits(0);
    assert_eq!(again.stderr, "", "{again}");

    // What can't be written stays, and fails.
    fs::write(&file, SCENARIOS.replace("Ok: [1]\n", "Ok: [1] # one\n")).unwrap();
    let refused = test(&["--accept"]).exits(1);
    assert!(
        refused
            .stderr
            .contains("all.yaml:14: the expectation holds a comment, which would be lost; change it by hand"),
        "{refused}"
    );
    assert_eq!(refused.last_line(), "0 passed, 1 failed");
}

#[test]
fn an_accepted_file_is_replaced_whole_and_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("all.yaml"), folder.path().join("link.yaml"));
    fs::write(&file, SCENARIOS).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let before = fs::metadata(&file).unwrap().ino();
    ran(program().arg("test").arg(&link).arg("--accept")).exits(0);
    let after = fs::metadata(&file).unwrap();
    assert_ne!(after.ino(), before, "it was written in place: a crash would cut it");
    assert_eq!(after.permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn files_of_scenarios_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    fs::write(&file, SCENARIOS).unwrap();
    let tested = Started::of(program().arg("test").arg(folder.path()).arg("--watch"));
    wait_until("the first run", || tested.stdout().contains("0 passed, 1 failed"));
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(tested.stdout().matches("passed").count(), 1, "{}", tested.stdout());
    let right = SCENARIOS.replace("[7]", "[]").replace("Ok: [1]", "Ok: []");
    fs::write(&file, right.replace("      expect_calls: []\n", "")).unwrap();
    wait_until("the second run", || tested.stdout().contains("1 passed, 0 failed"));
    tested.kill();
}

#[test]
fn limits_and_endings_are_part_of_a_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let (file, guest) = (folder.path().join("all.yaml"), folder.path().join("misbehaving.wasm"));
    fs::write(&guest, &*MISBEHAVING_1).unwrap();
    let scenario = |does: &str, limits: &str, ending: &str| {
        let text = format!(
            "name: a\nguest: misbehaving\nconfig: {{does: {does}}}\nlimits: {limits}\nsteps:\n- call: reconciliation.reconcile\n  \
             args: {{desired: {{load_balancers: [], name_suffix: a, service_uid: u, external_addresses: [], ports: [], servers: [], \
             backoff_steps: 1}}}}\n  expect_ending: {ending}\n- restart: {{}}\n"
        );
        fs::write(&file, text).unwrap();
        let guest = format!("misbehaving={}", guest.display());
        ran(program().arg("test").arg(&file).args(["--accept", "--guest", &guest]))
    };
    scenario("allocate", "{memory_bytes: 16777216}", "{memory: of 16777216}").exits(0);
    scenario("loop", "{cpu_ms: 100}", "{deadline: ''}").exits(0);
    scenario("panic", "{}", "{trap: panicked at}").exits(0);
    let other = scenario("panic", "{}", "{memory: ''}").exits(1);
    assert!(
        other.stdout.contains("the ending of reconciliation.reconcile differs:")
            && other.stdout.contains("expected memory with \"\" in it")
            && other
                .stdout
                .contains("was      trap \"guest `misbehaving@1` in `reconciliation.reconcile`: trapped: panicked at "),
        "{other}"
    );
    // A trap is no value that could be accepted.
    let said = "all.yaml:6: call reconciliation.reconcile: the ending of reconciliation.reconcile differs: no value to accept;";
    assert!(other.stderr.contains(said), "{other}");
    let unknown = scenario("panic", "{memory: 1}", "{trap: ''}").exits(2);
    assert!(
        unknown
            .stderr
            .contains("limits: unknown field `memory`, expected one of "),
        "{unknown}"
    );
    let two = scenario("panic", "{}", "{trap: '', memory: ''}").exits(2);
    assert!(
        two.stderr
            .contains("expect_ending: must be a name, or an object with one key"),
        "{two}"
    );
}
