//! Pod addresses, with the real binary on the example: pods ask over the socket, the test kills and restarts the host,
//! edits its list of interfaces, and replays the recordings.
//!
//! `scenarios/ipam/` covers which address the guest chooses; other tests use a real container network.

mod lost;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use support::{Ran, Site, Started, ran, trueup, wait_until};

/// A serving host.
pub(crate) struct Host<'s> {
    site: &'s Site,
    started: Started,
}

impl<'s> Host<'s> {
    pub(crate) fn start(site: &'s Site) -> Self {
        let mut started = site.start("run", &[]);
        started.wait_for("listening on ");
        Self { site, started }
    }

    /// Its answer: `ok` or `error`.
    fn asked(&self, request: &Value) -> Value {
        let mut socket = UnixStream::connect(self.site.path(".trueup/cni.sock")).unwrap();
        socket.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).unwrap();
        let mut answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["v"], 1, "{answer}");
        answer.as_object_mut().unwrap().remove("v");
        answer
    }

    fn pod(&self, command: &str, container: &str) -> Value {
        self.asked(&json!({
            "v": 1, "command": command, "instance": null, "network": "net", "containerId": container, "ifName": "eth0",
        }))
    }

    #[track_caller]
    pub(crate) fn gives(&self, container: &str, ip: &str, device_number: i32) {
        assert_eq!(self.pod("ADD", container), found(ip, device_number), "of {container}");
    }

    fn status(&self) -> Value {
        self.asked(&json!({"v": 1, "command": "STATUS", "instance": "ipam"}))
    }

    fn gc(&self, valid: &Value) -> Value {
        self.asked(&json!({"v": 1, "command": "GC", "network": "net", "valid": valid, "gcMigrated": false}))
    }

    fn show(&self) -> Value {
        ran(&mut self.site.command_of(&["ipam", "show"], &["--output", "json"]))
            .exits(0)
            .json()
    }

    /// Waits until `ipam show` shows the condition.
    #[track_caller]
    fn wait_until_shown(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        wait_until(what, || is_so(&self.show()));
    }

    pub(crate) fn ends(self) -> Ran {
        self.started.terminate().0.exits(0)
    }
}

/// Replaces the list of interfaces atomically: the host would report a half-written one.
fn put_list(site: &Site, text: &str) {
    let draft = site.path("enis.draft");
    fs::write(&draft, text).unwrap();
    fs::rename(draft, site.path("enis.json")).unwrap();
}

/// Edits the list of interfaces, which must contain `from` once.
#[track_caller]
fn edit_list(site: &Site, from: &str, to: &str) {
    let text = fs::read_to_string(site.path("enis.json")).unwrap();
    assert_eq!(text.matches(from).count(), 1, "`{from}` must stand once:\n{text}");
    put_list(site, &text.replacen(from, to, 1));
}

fn found(ip: &str, device_number: i32) -> Value {
    json!({"ok": {"ip": ip, "deviceNumber": device_number}})
}

/// The code of a refusal.
fn code(answer: &Value) -> u64 {
    answer["error"]["code"]
        .as_u64()
        .unwrap_or_else(|| panic!("{answer} is no refusal"))
}

/// Checks that every recording replays identically.
#[track_caller]
fn replays(site: &Site) {
    let journals = site.journals();
    assert!(!journals.is_empty(), "nothing was recorded");
    let mut replay = support::program();
    replay.arg("replay").args(&journals);
    let ran = ran(&mut replay).exits(0);
    assert_eq!(
        ran.stdout.lines().filter(|line| line.contains(": identical")).count(),
        journals.len(),
        "{ran}"
    );
}

#[test]
fn addresses_outlive_the_host_and_rest_before_others_get_them() {
    let site = Site::ipam();
    // Longer than any test, even on a slow machine.
    site.edit(
        "trueup.toml",
        "cooling_period_ms = 30000",
        "cooling_period_ms = 86400000",
    );
    let host = Host::start(&site);
    assert_eq!(host.status(), json!({"ok": {}}));
    host.gives("c1", "10.0.0.2", 0);
    host.gives("c2", "10.0.0.3", 0);
    host.gives("c1", "10.0.0.2", 0);
    assert_eq!(host.pod("CHECK", "c1"), found("10.0.0.2", 0));
    assert_eq!(code(&host.pod("CHECK", "c9")), 3);
    assert!(host.pod("DEL", "c1")["ok"].is_object());
    assert!(host.pod("DEL", "c1")["ok"].is_object(), "a DEL can be repeated");
    assert_eq!(code(&host.pod("CHECK", "c1")), 3);
    host.started.kill();

    let host = Host::start(&site);
    assert_eq!(host.pod("CHECK", "c2"), found("10.0.0.3", 0), "no answered ADD is lost");
    host.gives("c3", "10.0.0.4", 0);
    host.gives("c4", "10.0.1.2", 1);
    let shown = host.show();
    assert_eq!(
        shown["stats"],
        json!({"enis": 2, "addresses": 5, "assigned": 3, "held": 0, "free": 1, "resting": 1})
    );
    assert_eq!(shown["read"], true);
    let rested = &shown["enis"][0]["addresses"][0];
    assert_eq!((&rested["address"], &rested["key"]), (&json!("10.0.0.2"), &Value::Null));
    assert!(rested["unassigned_at_ms"].is_u64(), "it still rests: {rested}");

    let text = ran(&mut site.command_of(&["ipam", "show"], &[])).exits(0).stdout;
    for line in [
        "store     read",
        "total     2 interfaces, 5 addresses: 3 assigned, 0 held",
        "eni-1      0       primary  3          2         1        0",
        "10.0.0.3  eni-1      assigned                 -    net      c2         eth0",
        "10.0.1.3  eni-2      free",
    ] {
        assert!(
            text.lines().any(|shown| shown == line),
            "`{line}` is not shown:\n{text}"
        );
    }
    assert!(text.contains("10.0.0.2  eni-1      resting, "), "{text}");

    assert_eq!(host.gc(&json!([["c2", "eth0"]])), json!({"ok": {}}));
    assert_eq!(host.show()["stats"]["assigned"], 1);
    assert_eq!(host.pod("CHECK", "c2"), found("10.0.0.3", 0));
    let ran = host.ends();
    assert!(ran.stderr.lines().all(|line| !line.contains("ERROR")), "{ran}");
    replays(&site);
}

#[test]
fn a_state_folder_that_is_moved_away_is_not_made_again() {
    let site = Site::ipam();
    let (state, away) = (site.state_dir(), site.path("away"));
    let host = Host::start(&site);
    let named = json!({
        "v": 1, "command": "ADD", "network": "net", "containerId": "c1", "ifName": "eth0", "pod": "default/web-0",
    });
    assert_eq!(host.asked(&named), found("10.0.0.2", 0));
    fs::rename(&state, &away).unwrap();
    // A host that ends writes the names of the pods.
    host.ends();
    assert!(!state.exists());

    // Another one starts before it is put back, so that `mv` puts it into the new one.
    Host::start(&site).ends();
    fs::rename(&away, state.join("away")).unwrap();
    let refused = ran(&mut site.command("run", &[])).exits(2);
    let typed = refused.stderr.split('`').nth(1).unwrap();
    assert!(typed.starts_with("mv "), "{refused}");
    let done = std::process::Command::new("sh").args(["-c", typed]).status().unwrap();
    assert!(done.success());
    let host = Host::start(&site);
    host.gives("c2", "10.0.0.3", 0);
    assert_eq!(host.pod("CHECK", "c1"), found("10.0.0.2", 0));
    host.ends();
    replays(&site);
}

#[test]
fn a_full_pool_is_no_failure_of_the_node_and_what_is_freed_is_given_again() {
    let site = Site::ipam();
    site.edit("trueup.toml", "cooling_period_ms = 30000", "cooling_period_ms = 0");
    let host = Host::start(&site);
    for pod in 1..=5 {
        assert!(host.pod("ADD", &format!("c{pod}"))["ok"].is_object());
    }
    let refused = host.pod("ADD", "c6");
    let full = json!({"error": {"code": 11, "msg": "no address is free", "details": "net/c6/eth0"}});
    assert_eq!(refused, full);
    assert_eq!(host.status(), json!({"ok": {}}));
    host.pod("DEL", "c3");
    host.gives("c6", "10.0.0.4", 0);
    host.ends();
    replays(&site);
}

const ONE_MORE: &str = r#""addresses": ["10.0.1.2", "10.0.1.3", "10.0.1.4"]"#;

#[test]
fn the_list_of_interfaces_is_followed_and_a_bad_edit_changes_nothing() {
    let site = Site::ipam();
    let mut host = Host::start(&site);
    host.gives("c1", "10.0.0.2", 0);
    edit_list(&site, r#""addresses": ["10.0.1.2", "10.0.1.3"]"#, ONE_MORE);
    host.wait_until_shown("the sixth address", |shown| shown["stats"]["addresses"] == 6);

    edit_list(&site, "\"10.0.1.4\"", "\"10.0.1.04\"");
    host.started
        .wait_for_warning("enis[1].addresses[2]: was \"10.0.1.04\", must be an IPv4 address");
    assert_eq!(host.show()["stats"]["addresses"], 6, "the last good list stays");

    // An interface with a pod remains until the pod is gone.
    put_list(&site, r#"{"enis":[]}"#);
    host.wait_until_shown("the other interface's end", |shown| shown["stats"]["enis"] == 1);
    assert_eq!(host.pod("CHECK", "c1"), found("10.0.0.2", 0));
    assert!(host.pod("DEL", "c1")["ok"].is_object());
    host.wait_until_shown("the interface's end", |shown| shown["stats"]["enis"] == 0);
    let ran = host.ends();
    let warnings = ran.said("going on with the last list that was right");
    assert_eq!(warnings.len(), 1, "{ran}");
    assert!(warnings[0].starts_with("warning: network interfaces "), "{ran}");
    replays(&site);
}

/// Edits the first interface's addresses in the list.
fn list_first(site: &Site, from: &[&str], to: &[&str]) {
    let list = |ips: &[&str]| format!("\"addresses\": [\"{}\"]", ips.join("\", \""));
    edit_list(site, &list(from), &list(to));
}

#[test]
fn a_pod_keeps_an_address_that_left_the_list_even_over_restarts() {
    let site = Site::ipam();
    let (full, left) = (
        ["10.0.0.2", "10.0.0.3", "10.0.0.4"],
        ["10.0.0.3", "10.0.0.4", "10.0.0.5"],
    );
    let host = Host::start(&site);
    host.gives("c1", "10.0.0.2", 0);
    host.gives("c2", "10.0.0.3", 0);
    list_first(&site, &full, &left);
    // With the new address, and still the one that left the list.
    host.wait_until_shown("the new address", |shown| shown["stats"]["addresses"] == 6);
    host.started.kill();

    let host = Host::start(&site);
    assert_eq!(host.pod("CHECK", "c1"), found("10.0.0.2", 0));
    let listed_again = ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"];
    list_first(&site, &left, &listed_again);
    host.wait_until_shown("the address after it", |shown| shown["stats"]["addresses"] == 7);
    host.gives("c3", "10.0.0.4", 0);
    assert_eq!(host.pod("CHECK", "c1"), found("10.0.0.2", 0));
    host.started.kill();

    // An edit while the host is down. Addresses without a pod go at once.
    list_first(&site, &listed_again, &["10.0.0.5"]);
    let host = Host::start(&site);
    let shown = host.show();
    assert_eq!(
        shown["stats"],
        json!({"enis": 2, "addresses": 6, "assigned": 3, "held": 0, "free": 3, "resting": 0}),
        "{shown}"
    );
    for (container, ip) in [("c1", "10.0.0.2"), ("c2", "10.0.0.3"), ("c3", "10.0.0.4")] {
        assert_eq!(host.pod("CHECK", container), found(ip, 0));
    }
    assert!(host.pod("DEL", "c1")["ok"].is_object());
    host.wait_until_shown("the address's end", |shown| shown["stats"]["addresses"] == 5);
    let remembered = || fs::read_to_string(site.path(".trueup/ipam/ipam.json")).unwrap();
    wait_until("it is forgotten", || !remembered().contains("\"10.0.0.2\""));
    assert!(remembered().contains("\"10.0.0.3\""), "{}", remembered());
    host.started.kill();

    let host = Host::start(&site);
    assert_eq!(code(&host.pod("CHECK", "c1")), 3);
    assert_eq!(host.pod("CHECK", "c2"), found("10.0.0.3", 0));
    host.gives("c4", "10.0.0.5", 0);
    assert_eq!(host.show()["stats"]["addresses"], 5);
    let ran = host.ends();
    assert!(ran.stderr.lines().all(|line| !line.contains("ERROR")), "{ran}");
    replays(&site);

    // Without it the host does not know which addresses pods may use.
    fs::write(site.path(".trueup/ipam/ipam.json"), "{").unwrap();
    let ran = site.run_once().exits(2);
    let error = ran.said("error: ").join("\n");
    assert!(
        error.contains("the interfaces that pods may still use can't be read from `") && error.contains("ipam.json`"),
        "{ran}"
    );
}

#[test]
fn a_run_that_ends_reads_the_store_and_works_off_what_was_left() {
    let site = Site::ipam();
    let host = Host::start(&site);
    host.gives("c1", "10.0.0.2", 0);
    host.ends();

    // As trueup-cni leaves it; the name is the digest of the three fields.
    let spool = site.path(".trueup/cni-spool");
    fs::create_dir_all(&spool).unwrap();
    let left = json!({"v": 1, "instance": null, "networkName": "net", "containerID": "c1", "ifName": "eth0"});
    let name = "26026bd18b7cde682ae8b772c36d68c0d0a8a3725660b2ab706459f2e3a4d588.json";
    fs::write(spool.join(name), left.to_string()).unwrap();
    let before = site.state();
    let plan = site.plan().exits(3);
    assert!(plan.stdout.contains("c1"), "it frees the address: {plan}");
    assert!(site.state() == before, "a plan writes nothing");
    assert!(spool.join(name).exists());
    let ran = site.run_once().exits(0);
    assert_eq!(
        ran.last_line(),
        "1 address pool: 1 true, 0 failed; 0 created, 1 destroyed",
        "{ran}"
    );
    assert!(!spool.join(name).exists());
    let plan = site.plan().exits(0);
    assert!(plan.stdout.starts_with("ipam  nothing to do\n"), "{plan}");

    let ran = support::ran(&mut site.command("run", &["--once", "--output", "json"])).exits(0);
    let document = ran.json();
    assert!(document.get("summary").is_none(), "that is of Services: {document}");
    assert_eq!(document["addresses"]["error"], Value::Null);
    assert_eq!(document["addresses"]["stats"]["assigned"], 0);
    replays(&site);
}

#[test]
fn what_can_not_begin_says_why_on_one_line() {
    let one_line = |ran: &Ran, text: &str| {
        let errors = ran.said("error: ");
        assert!(
            errors.len() == 1 && errors[0].contains(text),
            "`{text}` is not said alone:\n{ran}"
        );
    };
    let site = Site::ipam();
    fs::remove_file(site.path("enis.json")).unwrap();
    for args in [["--once"].as_slice(), &[]] {
        let ran = ran(&mut site.command("run", args)).exits(2);
        one_line(&ran, "enis.json: can't read the file: No such file or directory");
    }

    let site = Site::ipam();
    let ran = ran(&mut site.command_of(&["ipam", "show"], &[])).exits(1);
    one_line(&ran, "cni.sock");
    site.edit("trueup.toml", "use = \"builtin:ipam@1\"", "use = \"builtin:lbaas@1\"");
    site.edit(
        "trueup.toml",
        "settings = { cooling_period_ms = 30000 }",
        "settings = {}",
    );
    one_line(
        &site.run_once().exits(2),
        "[guests.ipam]: guest `lbaas@1` is of the world trueup:lbaas/",
    );

    let services = Site::quickstart();
    let text = fs::read_to_string(services.path("trueup.toml")).unwrap();
    let (without, _) = text.split_once("[guests.ipam]").unwrap();
    fs::write(services.path("trueup.toml"), without).unwrap();
    let show = trueup(["ipam", "show", services.folder().to_str().unwrap()]).exits(2);
    one_line(&show, "nothing to show: it has no `[adapter.ipam]`");

    let site = Site::ipam();
    site.edit("trueup.toml", "cooling_period_ms = 30000", "cooling_period = 1");
    one_line(
        &site.run_once().exits(2),
        "cooling_period: unknown setting; known: checkpoint_migration_phase, compact_after, cooling_period_ms",
    );
}

#[test]
fn an_unreadable_store_is_never_written_and_no_pod_gets_an_address() {
    let site = Site::ipam();
    let checkpoint = site.path(".trueup/checkpoints/ipam");
    fs::create_dir_all(checkpoint.parent().unwrap()).unwrap();
    fs::write(&checkpoint, "no checkpoint").unwrap();
    let mut started = site.start("run", &[]);
    started.wait_for_warning("the store can't be read: ");
    started.wait_for("listening on ");
    let host = Host { site: &site, started };
    assert_eq!(code(&host.status()), 50);
    assert_eq!(code(&host.pod("ADD", "c1")), 11);
    let shown = host.show();
    assert_eq!(shown["read"], false);
    assert!(shown["error"].as_str().unwrap().contains("corrupt"), "{shown}");
    host.ends();
    assert_eq!(fs::read(&checkpoint).unwrap(), b"no checkpoint");
}

/// The output of `trueup status`, with this exit code.
fn host_status(site: &Site, code: i32) -> Value {
    let mut status = support::program();
    status
        .args(["status", "--output", "json", "--config"])
        .arg(site.folder());
    ran(&mut status).exits(code).json()
}

#[test]
fn status_counts_addresses_as_they_are_and_an_exhausted_pool_is_not_well() {
    let site = Site::ipam();
    site.edit("trueup.toml", "cooling_period_ms = 30000", "cooling_period_ms = 15000");
    let host = Host::start(&site);
    let of = |assigned: u64, free: u64, resting: u64| json!({"enis": 2, "addresses": 5, "assigned": assigned, "held": 0, "free": free, "resting": resting});
    let stats = |assigned: u64| of(assigned, 5 - assigned, 0);
    let counts = |code, expected: &Value| {
        wait_until("the status to follow", || {
            let mut status = support::program();
            status
                .args(["status", "--output", "json", "--config"])
                .arg(site.folder());
            let ran = ran(&mut status);
            ran.code == Some(code) && ran.json()["pods"]["stats"] == *expected
        });
    };
    counts(0, &stats(0));
    for container in ["c1", "c2", "c3", "c4", "c5"] {
        assert!(host.pod("ADD", container)["ok"].is_object());
    }
    counts(1, &stats(5));
    let problems = &host_status(&site, 1)["problems"];
    assert_eq!(
        problems,
        &json!(["pod-addresses: no address is free: 5 of 5 are assigned"])
    );
    assert_eq!(code(&host.pod("ADD", "c6")), 11);
    assert!(host.pod("DEL", "c5")["ok"].is_object());
    counts(1, &of(4, 0, 1));
    let problem = host_status(&site, 1)["problems"][0].to_string();
    assert!(problem.contains("4 of 5 are assigned, the others rest"), "{problem}");
    // Its rest is over: a pod that asks now gets it.
    counts(0, &of(4, 1, 0));
    host.ends();
}

#[test]
fn a_store_that_takes_no_changes_is_not_well_until_it_does() {
    let site = Site::ipam();
    let host = Host::start(&site);
    host.gives("c1", "10.0.0.2", 0);
    let (folder, away) = (site.state_dir().join("checkpoints"), site.state_dir().join("away"));
    fs::rename(&folder, &away).unwrap();
    assert_eq!(code(&host.pod("ADD", "c2")), 11);
    let status = || {
        let mut status = support::program();
        ran(status.args(["status", "--config"]).arg(site.folder()))
    };
    wait_until("the status to name the store", || {
        let why = "not well: pod-addresses: the store did not take the last change: ";
        status().last_line().starts_with(why)
    });
    let shown = trueup(["ipam", "show", site.folder().to_str().unwrap()])
        .exits(0)
        .stdout;
    assert!(shown.contains("\nstore     unavailable: "), "{shown}");
    fs::rename(&away, &folder).unwrap();
    wait_until("the pod to get its address", || host.pod("ADD", "c2")["ok"].is_object());
    wait_until("the status to be well", || status().code == Some(0));
    host.ends();
}

#[test]
fn a_list_of_interfaces_that_can_not_be_read_is_not_well_until_it_can() {
    let site = Site::ipam();
    let host = Host::start(&site);
    let good = fs::read_to_string(site.path("enis.json")).unwrap();
    assert_eq!(host_status(&site, 0)["problems"], json!([]));
    put_list(&site, "{");
    let said = || host_status_text(&site).contains("going on with the last list that was right");
    wait_until("the status to say it", said);
    put_list(&site, &good);
    wait_until("the status to be well again", || !said());
    host.ends();
}

fn host_status_text(site: &Site) -> String {
    let mut status = support::program();
    status.args(["status", "--config"]).arg(site.folder());
    ran(&mut status).stdout
}

#[test]
fn pods_are_named_where_the_plugin_names_them_also_after_a_restart() {
    let site = Site::ipam();
    let host = Host::start(&site);
    host.asked(&json!({
        "v": 1, "command": "ADD", "network": "net", "containerId": "c1", "ifName": "eth0", "pod": "default/web-0",
    }));
    assert_eq!(host.show()["pods"], json!({"10.0.0.2": "default/web-0"}));
    host.ends();
    let host = Host::start(&site);
    assert_eq!(host.show()["pods"], json!({"10.0.0.2": "default/web-0"}));
    let release = |args: &[&str]| ran(&mut site.command_of(&["ipam", "release"], args));
    assert!(release(&[]).exits(2).stderr.contains("set `socket` in `[backend.cri]`"));
    let dry = release(&["--container", "c1"]).exits(0).stdout;
    assert!(
        dry.contains("default/web-0") && dry.contains("nothing was changed"),
        "{dry}"
    );
    assert_eq!(host.show()["stats"]["assigned"], 1);
    let done = release(&["--container", "c1", "--apply"]).exits(0).stdout;
    assert!(done.ends_with("1 address freed\n"), "{done}");
    assert_eq!(host.show()["stats"]["assigned"], 0);
    assert!(
        release(&["--container", "c1"])
            .exits(2)
            .stderr
            .contains("has no address")
    );
    // Its name is known for every request, also after it is gone, and is no part of what the guest got.
    let explained = |key: &str| {
        let mut explain = support::program();
        let args = ["explain", key, "--guest", "ipam", "--last", "9", "--config"];
        explain.args(args).arg(site.folder());
        ran(&mut explain).exits(0).stdout
    };
    let of_pod = explained("default/web-0");
    let (add, del) = (
        "ADD of pod default/web-0, container c1,",
        "DEL of pod default/web-0, container c1,",
    );
    assert!(of_pod.find(add) < of_pod.find(del) && of_pod.contains(add), "{of_pod}");
    assert_eq!(explained("c1"), of_pod);
    host.ends();
    // The last that is known of an address is the pod that had it, not that the next host knows its interface.
    let host = Host::start(&site);
    let mut explain = support::program();
    let args = ["explain", "10.0.0.2", "--guest", "ipam", "--config"];
    let said = ran(explain.args(args).arg(site.folder())).exits(0).stdout;
    assert!(said.contains(del), "{said}");
    host.ends();
    replays(&site);
}

#[test]
fn services_and_pod_addresses_run_side_by_side_and_stop_together() {
    let site = Site::quickstart();
    let ran = site.run_once().exits(0);
    let last: Vec<&str> = ran.stdout.lines().rev().take(2).collect();
    assert_eq!(
        last,
        [
            "3 services: 3 true, 0 failed; 29 created, 0 destroyed",
            "1 address pool: 1 true, 0 failed; 0 created, 0 destroyed",
        ],
        "{ran}"
    );
    let host = Host::start(&site);
    host.gives("c1", "10.0.0.2", 0);
    let mut host = host;
    host.started.wait_for("default/web");
    host.ends();
    replays(&site);
}

#[test]
fn one_host_at_a_time_has_a_state_folder() {
    let site = Site::ipam();
    let host = Host::start(&site);
    let second = site.run_once().exits(1);
    assert!(second.stderr.contains("another trueup runs with it"), "{second}");
    host.gives("c1", "10.0.0.2", 0);
    host.ends();
}
