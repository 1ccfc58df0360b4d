//! A command that can't succeed prints one line, with the exit code that scripts rely on: 1 if it failed, 2 if it was
//! misused or has nothing to work on.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use super::{Running, active, candidates, configure, error, only_web, revision, revisions, running, running_with};
use support::{Site, ran, wait_until};

/// The gate waits this long for a candidate that never answers, as it would for the recorded guest. Long enough for an
/// honest guest, and for another command to meet the change, on a busy machine.
const LIMITS: &str = "limits = { cpu_ms = 15000 }\n";

#[test]
fn what_can_not_be_done_says_why_in_one_line_and_changes_nothing() {
    let running = running();
    let site = &running.site;
    let folder = site.folder().display();
    let missing = site.path("missing.wasm");
    let renumbered = candidates::renumbered_in(site, "one.wasm", "1.1");
    std::fs::write(site.path("text.wasm"), "no guest").unwrap();
    let (missing, no_guest) = (missing.to_str().unwrap(), site.path("text.wasm"));
    let asked: Vec<(Vec<&str>, i32, String)> = vec![
        (
            vec!["swap", "lbass", "lbaas@2"],
            2,
            "no guest `lbass` runs here; there are: lbaas".to_owned(),
        ),
        (vec!["status", "lbass"], 2, "no guest `lbass` runs there; there are: lbaas".to_owned()),
        (
            vec!["rollback", "lbaas"],
            2,
            "guest `lbaas`: there is no earlier version to go back to".to_owned(),
        ),
        (
            vec!["rollback", "lbaas", "--to", "7"],
            2,
            "guest `lbaas`: there is no revision 7; see `trueup guest history lbaas`".to_owned(),
        ),
        (
            vec!["shadow", "status", "lbaas"],
            2,
            "guest `lbaas`: nothing runs in shadow; begin with `trueup guest shadow start lbaas CANDIDATE`".to_owned(),
        ),
        (
            vec!["shadow", "promote", "lbaas"],
            2,
            "guest `lbaas`: nothing runs in shadow; begin with `trueup guest shadow start lbaas CANDIDATE`".to_owned(),
        ),
        (
            vec!["swap", "lbaas", "lbaas@3"],
            1,
            "guest `lbaas`: builtin:lbaas@3 is refused at load: ".to_owned(),
        ),
        (
            vec!["swap", "lbaas", missing],
            1,
            format!("guest `lbaas`: file:{missing} is refused at load: "),
        ),
        (
            vec!["swap", "lbaas", no_guest.to_str().unwrap()],
            1,
            format!("guest `lbaas`: file:{} is refused at load: ", no_guest.display()),
        ),
        (
            vec!["swap", "lbaas", "ipam@1"],
            1,
            "guest `lbaas`: builtin:ipam@1 is refused at world: guest `ipam@1` is of the world \
             trueup:ipam/ipam-datastore@0.1.0, must be of trueup:lbaas/lbaas-reconciler@0.1.0; revision 1 (`lbaas@1`) stays \
             active"
                .to_owned(),
        ),
        (
            vec!["shadow", "start", "lbaas", "ipam@1"],
            1,
            "guest `lbaas`: builtin:ipam@1 is refused at world: ".to_owned(),
        ),
        (vec!["history", "lbass"], 2, "guest `lbass` was never active".to_owned()),
        (vec!["swap", "lb/aas", "lbaas@2"], 2, "`lb/aas` is no guest's name".to_owned()),
        (vec!["swap", "lbaas", "lbaas@two"], 2, "use: was \"builtin:lbaas@two\", ".to_owned()),
    ];
    for (args, code, says) in asked {
        let ran = site.guest(&args).exits(code);
        assert!(error(&ran).starts_with(&says), "{args:?}: {ran}");
    }
    assert_eq!(revisions(site), [revision(1, "lbaas@1", "configuration")]);
    // A guest as a file, relative to the command's folder.
    let mut command = site.guest_command(&["swap", "lbaas", "./one.wasm", "--gate", "identical"]);
    let ran = ran(command.current_dir(site.folder())).exits(0);
    assert!(
        ran.stdout.starts_with("lbaas: `lbaas@1.1` is active as revision 2: "),
        "{ran}"
    );
    assert_eq!(
        site.history("lbaas")[1]["use"],
        format!("file:{}", renumbered.display())
    );

    let socket = site.state_dir().join("control.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the control socket of {folder}");
}

#[test]
fn a_version_that_refuses_the_settings_names_the_way_to_it() {
    let running = running_with(only_web);
    let candidate = candidates::of_other_settings(&running.site);
    let ran = running.site.guest(&["swap", "lbaas", &candidate]).exits(1);
    let says = error(&ran);
    assert!(
        says.contains("is refused at settings: guest `lbaas@1.2` refuses its settings: backoff_initial_ms: was "),
        "{ran}"
    );
    let location = format!(
        "{}:16, with `gate = \"report\"` if ",
        running.site.path("trueup.toml").display()
    );
    let way = says
        .split_once("; set the `use` and `settings` of this version together at ")
        .unwrap()
        .1;
    assert!(way.starts_with(&location) && way.contains("then `kill -HUP "), "{ran}");
}

#[test]
fn without_a_host_a_swap_fails_and_history_is_read_all_the_same() {
    let site = Site::quickstart();
    for args in [
        &["swap", "lbaas", "lbaas@2"][..],
        &["status"],
        &["rollback", "lbaas"],
        &["shadow", "start", "lbaas", "lbaas@2"],
    ] {
        let ran = site.guest(args).exits(1);
        let line = error(&ran);
        assert!(
            line.starts_with("no host runs with the state folder of `")
                && line.ends_with("the folder was moved; else start one with `trueup run`"),
            "{args:?}: {ran}"
        );
    }
    assert!(error(&site.guest(&["history", "lbaas"]).exits(2)).starts_with("guest `lbaas` was never active"));

    let Running { site, host, .. } = running();
    host.kill();
    // The socket still exists.
    let ran = site.guest(&["swap", "lbaas", "lbaas@2"]).exits(1);
    assert!(
        error(&ran).starts_with("no host runs with the state folder of `"),
        "{ran}"
    );
    assert_eq!(revisions(&site), [revision(1, "lbaas@1", "configuration")]);
}

#[test]
fn one_change_at_a_time_and_a_candidate_that_never_answers_is_given_up() {
    let running = running_with(|site| configure(site, LIMITS));
    let candidate = candidates::silent(&running.site);
    let mut swap = running.site.guest_command(&["swap", "lbaas", &candidate]);
    let swap = swap
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Repeats an impossible request until the host refuses it for another reason.
    wait_until("the other change", || {
        let ran = running.site.guest(&["rollback", "lbaas"]);
        let busy = "guest `lbaas` is being changed by another command; try again when it is done";
        match ran.code {
            Some(1) => error(&ran) == busy,
            _ => false,
        }
    });
    // The active guest goes on meanwhile.
    running.change_web("30443", "30444");
    let output = swap.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(" is refused at gate: ") && said.contains("; given up: a call gave no answer in its time"),
        "{said}"
    );
    assert_eq!(active(&running.site), (1, "lbaas@1".to_owned()));
}
