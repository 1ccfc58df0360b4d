//! The host reads its configuration again at SIGHUP, while it runs: all of it takes effect, or none.

use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::{Value, json};

use support::{Engine, Object, Ran, Site, Started, program, ran, wait_until};

const CONFIG: &str = "trueup.toml";

/// The quickstart in sync, with its own Engine.
pub(crate) fn running() -> (Engine, Site, Started) {
    let engine = Engine::start(&["--settle-ms", "20"]);
    let site = Site::against(&engine);
    let mut host = site.start("run", &[]);
    for key in ["default/api", "default/web", "kube-system/dns"] {
        host.wait_for(&format!("{key:<24} true "));
    }
    (engine, site, host)
}

fn told(site: &Site, args: &[&str]) -> Ran {
    ran(program().args(args).arg("--config").arg(site.folder()))
}

/// A changed Service becomes true.
fn goes_on(engine: &Engine, site: &Site) {
    site.edit("manifests/web.yaml", "nodePort: 30080", "nodePort: 30090");
    wait_until("the changed Service", || {
        let objects = engine.objects_of("web.default");
        objects
            .iter()
            .any(|object| object.kind == "server" && object.field("port") == "30090")
    });
}

/// The addresses of the binds of the Service `web`.
fn addresses_of_web(engine: &Engine) -> Vec<String> {
    let objects = engine.objects_of("web.default");
    let binds = objects.iter().filter(|object| object.kind == "bind");
    let mut addresses: Vec<String> = binds.map(|bind: &Object| bind.field("address")).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

#[test]
fn what_is_edited_becomes_true_without_a_restart() {
    let (engine, site, mut host) = running();
    assert_eq!(addresses_of_web(&engine), ["203.0.113.10"]);
    site.edit(
        CONFIG,
        "addresses = [\"203.0.113.10\"]",
        "addresses = [\"203.0.113.99\"]",
    );
    host.signal(Signal::HUP);
    host.wait_for("trueup.toml is read again and taken");
    wait_until("the new address", || addresses_of_web(&engine) == ["203.0.113.99"]);
    wait_until("why", || {
        let why = told(&site, &["explain", "default/web"]).stdout;
        // Under `because`, or, if the job was tried again, under what an earlier one still had to do.
        why.contains("\n    * the configuration was reloaded\n")
    });

    // Once more, with another kind of setting: the guest.
    site.edit(CONFIG, "builtin:lbaas@1", "builtin:lbaas@2");
    host.signal(Signal::HUP);
    wait_until("the other version", || {
        site.history("lbaas").last().unwrap()["version"] == "2"
    });
    host.terminate().0.exits(0);
}

#[test]
fn a_key_that_fails_before_and_after_a_reload_fails_since_before() {
    let (engine, site, mut host) = running();
    engine.fault(&json!({"path": "*", "times": 100_000, "status": 403}));
    told(&site, &["reconcile", "default/web"]).exits(1);
    let since_ms = || {
        let status = told(&site, &["status", "--keys", "-o", "json"]);
        // While it reads its configuration again, the host answers nothing.
        let status: Value = serde_json::from_str(&status.stdout).ok()?;
        let keys = status["all_keys"].as_array().unwrap();
        let web = keys.iter().find(|key| key["key"] == "default/web")?;
        web["error"].is_string().then(|| web["since_ms"].as_u64())?
    };
    let before = since_ms().unwrap();
    host.signal(Signal::HUP);
    host.wait_for("trueup.toml is read again and taken");
    wait_until("it to fail again", || since_ms() == Some(before));
    host.terminate();
}

#[test]
fn what_can_not_be_used_changes_nothing_and_is_said() {
    let (engine, site, host) = running();
    let before = engine.requests();
    let good = std::fs::read_to_string(site.path(CONFIG)).unwrap();
    let mistakes = [
        // Two changes of which one alone is valid: neither takes effect.
        (
            "load_balancers = [\"lb-1\"]",
            "load_balancers = [\"lb-1\"]\nadress = 1",
            "unknown key",
        ),
        ("builtin:lbaas@1", "file:nowhere.wasm", "nowhere.wasm"),
        ("token_file = \"token\"", "token_file = \"no-token\"", "no-token"),
        ("manifests = \"manifests\"", "manifests = \"nowhere\"", "nowhere"),
        ("# What should be:", "state_dir = \"elsewhere\"\n#", "state_dir: was"),
    ];
    let is_refused = |says: &str| {
        host.signal(Signal::HUP);
        wait_until(says, || {
            let said = host.stderr();
            let line = said
                .lines()
                .rfind(|line| line.contains("the configuration stays as it was"));
            line.is_some_and(|line| line.contains(says))
        });
        std::fs::write(site.path(CONFIG), &good).unwrap();
    };
    for (from, to, says) in mistakes {
        site.edit(CONFIG, from, to);
        is_refused(says);
    }
    // A version comes with settings that the active one does not take either: the reason is the version's.
    site.edit(CONFIG, "builtin:lbaas@1", "builtin:lbaas@2");
    site.edit(CONFIG, "settings = {", "settings = { max_servers = 3,");
    is_refused("builtin:lbaas@2 is refused at ");
    // The host itself has its contents in memory, but another run could not begin.
    let servers = site.state_dir().join("servers.json");
    std::fs::write(&servers, "{").unwrap();
    is_refused("servers.json");
    std::fs::remove_file(servers).unwrap();
    assert_eq!(engine.requests(), before, "no request went to the Engine");
    assert!(!host.stdout().contains("read again and taken"), "{}", host.stdout());

    // It goes on as before.
    goes_on(&engine, &site);
    host.terminate().0.exits(0);
}

#[test]
fn status_and_audit_name_what_is_refused_and_what_is_not_applied() {
    let (_engine, site, mut host) = running();
    let status = || told(&site, &["status"]);
    let good = std::fs::read_to_string(site.path(CONFIG)).unwrap();
    status().exits(0);
    std::fs::write(site.path(CONFIG), format!("adress = 1\n{good}")).unwrap();
    let edited: Ran = status().exits(0);
    let changed = "trueup.toml; changed since it was read: `trueup check`, then `kill -HUP ";
    assert!(edited.stdout.contains(changed), "{edited}");

    host.signal(Signal::HUP);
    host.wait_for_warning("the configuration stays as it was");
    // It is named until a reload succeeds, even if the file is again what runs.
    std::fs::write(site.path(CONFIG), &good).unwrap();
    let refused = status().exits(1);
    assert!(
        refused.stdout.contains("trueup.toml; a reload was refused "),
        "{refused}"
    );
    let why = "not well: the last reload was refused: ";
    assert!(
        refused.last_line().starts_with(why)
            && refused.last_line().contains("adress")
            && refused.last_line().ends_with("; only a reload that succeeds ends this"),
        "{refused}"
    );
    let json = told(&site, &["status", "-o", "json"]).json();
    assert_eq!(json["host"]["config_changed"], false, "{json}");
    assert!(json["host"]["refused_reload"]["at_ms"].is_u64(), "{json}");
    let audit = ran(&mut site.command_of(&["audit", "show"], &["-o", "json"]))
        .exits(0)
        .json();
    let line = audit.as_array().unwrap().last().unwrap();
    assert_eq!(line["call"], "reload", "{line}");
    assert!(
        line["outcome"].as_str().unwrap().contains("unknown key `adress`"),
        "{line}"
    );

    host.signal(Signal::HUP);
    wait_until("a reload", || status().last_line() == "all is well");
    let after = told(&site, &["status", "-o", "json"]).json();
    let at = |document: &Value, name: &str| document["host"][name].as_u64().unwrap();
    assert!(
        at(&after, "started_ms") <= at(&json, "started_ms"),
        "the process lives on"
    );
    assert!(at(&after, "reloaded_ms") > at(&json, "now_ms"), "{after}");
    let text = status().exits(0);
    assert!(text.stdout.contains("trueup.toml, read again "), "{text}");
    host.terminate().0.exits(0);
}

#[test]
fn what_can_not_begin_after_all_leaves_the_old_configuration_running() {
    let (engine, site, mut host) = running();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = std::fs::read_to_string(site.path(CONFIG)).unwrap();
    let sim = format!("{config}\n[sim.lbaas]\nlisten = \"{}\"\n", taken.local_addr().unwrap());
    std::fs::write(site.path(CONFIG), sim).unwrap();
    host.signal(Signal::HUP);
    host.wait_for_warning("the configuration stays as it was");
    std::fs::write(site.path(CONFIG), config).unwrap();
    wait_until("the refusal in the status", || {
        let status = told(&site, &["status"]);
        status.last_line().contains("the last reload was refused: ")
    });

    goes_on(&engine, &site);
    host.terminate().0.exits(0);
}
