//! Grants with the real binary: a refused call does not reach the Engine and gets an entry in the audit log, no change
//! of that log goes unnoticed, and the smallest grant follows from recordings.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use support::{Engine, Object, Ran, SETTLE, Site, ran, trueup};

/// The quickstart's grants for its guest `lbaas`.
const GRANTED: &str = "grants = { lbaas = { read = [\"lb-1\"], write = [\"lb-1\"] } }";

/// The quickstart's grants for its guest `ipam`.
const GRANTED_IPAM: &str = "grants = { checkpoint = { read = [\"own\"], write = [\"own\"] } }";

fn audit(site: &Site, words: &[&str], args: &[&str]) -> Ran {
    ran(&mut site.command_of(&[&["audit"], words].concat(), args))
}

fn lines(site: &Site, args: &[&str]) -> Vec<Value> {
    let shown = audit(site, &["show"], &[args, &["--output", "json"]].concat())
        .exits(0)
        .json();
    shown.as_array().unwrap().clone()
}

/// A site whose guest may read and not write, after a run.
fn refused() -> (Engine, Site, Ran) {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    site.edit("trueup.toml", GRANTED, "grants = { lbaas = { read = [\"lb-1\"] } }");
    let ran = site.run_once().exits(1);
    (engine, site, ran)
}

#[test]
fn what_is_refused_ends_in_the_audit_log_with_its_decision() {
    let (engine, site, ran) = refused();
    assert!(ran.stdout.contains("access denied: no grant to write"), "{ran}");
    assert_eq!(engine.writes(), BTreeMap::new());

    let all = lines(&site, &[]);
    assert!(!all.is_empty());
    let digest = trueup_guests_builtin::find("lbaas", "1").unwrap().digest;
    for (n, line) in all.iter().enumerate() {
        assert_eq!(line["n"], json!(n));
        assert_eq!((&line["kind"], &line["guest"]), (&json!("refused"), &json!("lbaas")));
        assert_eq!((&line["version"], &line["digest"]), (&json!("1"), &json!(digest)));
        assert_eq!((&line["call"], &line["scope"]), (&json!("api.create"), &json!("*")));
        assert_eq!(line["outcome"], "access denied: no grant to write any load balancer");
    }
    // A decision names the entry of a call in a journal of the site.
    let decision = all[0]["decision"].as_str().unwrap();
    let (instance, n) = decision.split_once('#').unwrap();
    let n: u64 = n.parse().unwrap();
    let key = instance.strip_prefix("lbaas/").unwrap().replace('/', "%2F");
    let journal = site
        .journals()
        .into_iter()
        .find(|file| file.parent().unwrap().ends_with(&key))
        .unwrap();
    let entries = fs::read_to_string(journal).unwrap();
    let entry: Value = entries
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|entry| entry["n"] == n)
        .unwrap();
    assert_eq!(entry["call"], "reconciliation.reconcile");

    // A refusal is an ordinary answer: it replays, and a replay writes no line.
    trueup(["replay".into()].into_iter().chain(site.journals())).exits(0);
    assert_eq!(lines(&site, &[]), all);

    assert_eq!(lines(&site, &["--guest", "ipam"]), Vec::<Value>::new());
    assert_eq!(lines(&site, &["--guest", "lbaas", "--since", "1h"]), all);
    assert_eq!(lines(&site, &["--since", "2100-01-01T00:00:00Z"]), Vec::<Value>::new());
    let wrong = audit(&site, &["show"], &["--since", "yesterday"]).exits(2);
    assert!(
        wrong.stderr.contains("error: --since: was `yesterday`, must be "),
        "{wrong}"
    );
    let table = audit(&site, &["show"], &[]).exits(0);
    assert_eq!(table.stdout.lines().count(), all.len() + 1, "{table}");
    assert!(
        table.stdout.contains(decision) && table.stdout.starts_with("TIME "),
        "{table}"
    );
}

#[test]
fn one_edited_byte_is_named_and_the_log_goes_on_beside_it() {
    let (_engine, site, _) = refused();
    let folder = site.state_dir().join("audit");
    let count = lines(&site, &[]).len();
    let said = format!("{}: {count} lines in 1 file: whole", folder.display());
    for path in [
        site.folder().to_owned(),
        site.state_dir(),
        folder.clone(),
        site.path("trueup.toml"),
    ] {
        let verified = trueup(["audit".into(), "verify".into(), path.into_os_string()]).exits(0);
        assert_eq!(verified.last_line(), said);
    }

    let file = folder.join("0.jsonl");
    let mut bytes = fs::read(&file).unwrap();
    let second_line = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[second_line + 30] ^= 1;
    fs::write(&file, bytes).unwrap();
    let verified = audit(&site, &["verify"], &[]).exits(1);
    assert_eq!(
        verified.stdout,
        format!(
            "`0.jsonl` line 2 was edited: its hash is not that of its text\n{}: {count} lines in 1 file: 1 problem\n",
            folder.display()
        )
    );
    let document = audit(&site, &["verify"], &["--output", "json"]).exits(1).json();
    assert_eq!(
        (&document["problems"][0]["file"], &document["problems"][0]["line"]),
        (&json!("0.jsonl"), &json!(2))
    );
    let shown = audit(&site, &["show"], &[]).exits(0);
    assert!(
        shown.stderr.contains("warning: this log is not as it was written"),
        "{shown}"
    );

    let next = site.run_once().exits(1);
    assert_eq!(next.said("the audit log goes on in another file").len(), 1, "{next}");
    let verified = audit(&site, &["verify"], &[]).exits(1);
    let broken = format!("`{count}.jsonl` line 1 says that the log was found damaged here: line 2 was edited");
    assert!(verified.stdout.contains(&broken), "{verified}");
}

#[test]
fn where_there_is_no_audit_log_it_is_said() {
    let site = Site::quickstart();
    site.plan().exits(3);
    for words in ["show", "verify"] {
        let said = audit(&site, &[words], &[]).exits(2);
        assert!(
            said.stderr.starts_with("error: no audit log in "),
            "a plan is no run: {said}"
        );
    }
    site.run_once().exits(0);
    let verified = audit(&site, &["verify"], &[]).exits(0);
    assert!(
        verified.last_line().ends_with(": 0 lines in 0 files: whole"),
        "{verified}"
    );
}

/// A site with its Services on two load balancers, and the grants of the quickstart.
fn on_two_load_balancers() -> (Engine, Site) {
    let engine = Engine::start(&[
        "--settle-ms",
        "20",
        "--load-balancer",
        "lb-1",
        "--load-balancer",
        "lb-2",
    ]);
    let site = Site::against(&engine);
    site.edit(
        "trueup.toml",
        "load_balancers = [\"lb-1\"]",
        "load_balancers = [\"lb-1\", \"lb-2\"]",
    );
    (engine, site)
}

#[test]
fn a_grant_for_one_load_balancer_stops_calls_that_name_another() {
    for (grants, denied) in [
        (GRANTED, "no grant to write load balancer `lb-2`"),
        (
            "grants = { lbaas = { read = [\"lb-1\", \"lb-2\"], write = [\"lb-1\"] } }",
            "no grant to write load balancer `lb-2`",
        ),
        (
            "grants = { lbaas = { read = [\"lb-1\"], write = [\"lb-1\", \"lb-2\"] } }",
            "no grant to read load balancer `lb-2`",
        ),
    ] {
        let (engine, site) = on_two_load_balancers();
        site.edit("trueup.toml", GRANTED, grants);
        let planned = site.plan();
        assert_eq!(
            planned.stdout.matches(denied).count(),
            3,
            "a plan says so too: {planned}"
        );
        let ran = site.run_once().exits(1);
        let failed = ran
            .stdout
            .lines()
            .filter(|line| line.contains(&format!("access denied: {denied}")));
        assert_eq!(failed.count(), 3, "{ran}");
        assert_eq!(engine.requests(), BTreeMap::new(), "neither written nor read: {grants}");
        assert_eq!(lbaas_journals(&site), Vec::<PathBuf>::new(), "no guest was called");
        let all = lines(&site, &[]);
        assert!(all.len() >= 3, "{all:?}");
        for line in all {
            assert_eq!(
                (&line["call"], &line["scope"]),
                (&json!("reconciliation.reconcile"), &json!("lb-2"))
            );
            assert_eq!(line["outcome"], format!("access denied: {denied}"));
            assert_eq!(
                line["decision"].as_str().unwrap().matches('#').count(),
                0,
                "no call was made"
            );
        }
    }
    // With both grants it succeeds.
    let (_engine, site) = on_two_load_balancers();
    site.edit(
        "trueup.toml",
        GRANTED,
        &GRANTED.replace("\"lb-1\"", "\"lb-1\", \"lb-2\""),
    );
    site.run_once().exits(0);
    assert_eq!(lines(&site, &[]), Vec::<Value>::new());
}

fn lbaas_journals(site: &Site) -> Vec<PathBuf> {
    site.journals()
        .into_iter()
        .filter(|file| file.to_string_lossy().contains("/lbaas/"))
        .collect()
}

/// A site in sync that then gets this additional limit in its grants.
fn limited(limit: &str) -> (Engine, Site, Vec<Object>) {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    site.run_once().exits(0);
    let limited = GRANTED.replace("write = [\"lb-1\"]", &format!("write = [\"lb-1\"], {limit}"));
    site.edit("trueup.toml", GRANTED, &limited);
    let objects = engine.objects();
    (engine, site, objects)
}

/// Removes a port from the Service `default/web`.
fn without_https(site: &Site) {
    site.edit(
        "manifests/web.yaml",
        "    - name: https\n      port: 443\n      nodePort: 30443\n",
        "",
    );
}

#[test]
fn a_reconcile_that_would_destroy_too_much_destroys_nothing() {
    for limit in [
        "destroy_max = 1",
        "destroy_percent = 5",
        "destroy_max = 1000, destroy_percent = 5",
    ] {
        let (engine, site, before) = limited(limit);
        without_https(&site);
        let ran = site.run_once().exits(1);
        let key = if limit.starts_with("destroy_max = 1,") || limit == "destroy_max = 1" {
            "destroy_max"
        } else {
            "destroy_percent"
        };
        assert!(
            ran.stdout.contains("access denied: destroying ") && ran.stdout.contains(key),
            "{ran}"
        );
        assert_eq!(engine.objects(), before, "{limit}");
        let deletes = engine
            .requests()
            .into_keys()
            .filter(|request| request.starts_with("DELETE"));
        assert_eq!(deletes.count(), 0, "{limit}");
        let all = lines(&site, &[]);
        assert!(
            all.iter()
                .all(|line| line["call"] == "api.destroy" && line["scope"] == key),
            "{all:?}"
        );
        assert!(!all.is_empty());
    }
    let (engine, site, before) = limited("destroy_max = 100, destroy_percent = 80");
    without_https(&site);
    site.run_once().exits(0);
    assert!(engine.objects().len() < before.len());
}

#[test]
fn a_removed_service_ignores_the_percentage_but_not_the_number() {
    let (engine, site, before) = limited("destroy_percent = 1");
    site.remove_manifest("dns.yaml");
    site.run_once().exits(0);
    assert_eq!(engine.objects_of("dns.kube-system"), []);
    assert!(engine.objects().len() < before.len());

    // The first batch is smaller, and so would be what a retry finds.
    let (engine, site, before) = limited("destroy_max = 5");
    site.remove_manifest("dns.yaml");
    let why = "destroying 7 objects in one call is above `destroy_max` of 5";
    let plan = site.plan().exits(1);
    assert!(plan.stdout.contains(why), "{plan}");
    let ran = site.run_once().exits(1);
    assert!(ran.stdout.contains(why), "{ran}");
    assert_eq!(engine.objects(), before, "it fails until the limit is raised");
}

#[test]
fn calls_per_minute_hold_for_all_services_together() {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    let limited = GRANTED.replace("write = [\"lb-1\"]", "write = [\"lb-1\"], calls_per_minute = 3");
    site.edit("trueup.toml", GRANTED, &limited);
    let ran = site.run_once().exits(1);
    let denied = "`lbaas` was asked 3 times within a minute, the limit `calls_per_minute`";
    assert!(ran.stdout.contains(&format!("access denied: {denied}")), "{ran}");
    let all = lines(&site, &["--guest", "lbaas"]);
    assert!(all.iter().any(|line| line["scope"] == "calls_per_minute"), "{all:?}");
    trueup(["replay".into()].into_iter().chain(site.journals())).exits(0);
}

/// `grants = ...` with the inferred grants of one guest.
fn granted(inferred: &Value, guest: &str) -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let all = inferred.as_array().unwrap();
    let of_guest = all.iter().find(|inferred| inferred["guest"] == guest).unwrap();
    serde_json::from_value(of_guest["grants"].clone()).unwrap()
}

fn in_toml(grants: &BTreeMap<String, BTreeMap<String, Vec<String>>>) -> String {
    let grant = |(capability, access): (&String, &BTreeMap<String, Vec<String>>)| {
        let lists: Vec<String> = access
            .iter()
            .map(|(access, scopes)| format!("{access} = {scopes:?}"))
            .collect();
        format!("{capability} = {{ {} }}", lists.join(", "))
    };
    format!(
        "grants = {{ {} }}",
        grants.iter().map(grant).collect::<Vec<_>>().join(", ")
    )
}

/// Makes the host retry soon.
fn hurried(site: &Site) {
    let config = fs::read_to_string(site.path("trueup.toml")).unwrap();
    fs::write(site.path("trueup.toml"), config + "\n[run]\nbackoff_initial_ms = 10\n").unwrap();
}

#[test]
fn the_inferred_grant_is_enough_and_nothing_of_it_is_too_much() {
    let recorded = Site::quickstart();
    // Grant everything, so that the inferred grants are not just the given ones.
    recorded.edit(
        "trueup.toml",
        GRANTED,
        "grants = { lbaas = { read = [\"*\"], write = [\"*\"] } }",
    );
    recorded.edit(
        "trueup.toml",
        GRANTED_IPAM,
        "grants = { checkpoint = { read = [\"*\"], write = [\"*\"] } }",
    );
    recorded.run_once().exits(0);
    let infer = |args: &[&str]| trueup([&["grants", "infer", recorded.state_dir().to_str().unwrap()], args].concat());
    let text = infer(&[]).exits(0).stdout;
    let inferred = infer(&["--output", "json"]).exits(0).json();
    assert_eq!(in_toml(&granted(&inferred, "lbaas")), GRANTED, "{text}");

    let of_site = ran(&mut recorded.command_of(&["grants", "infer"], &["--output", "json"]))
        .exits(0)
        .json();
    assert_eq!(
        granted(&of_site, "lbaas"),
        granted(&inferred, "lbaas"),
        "the folder of the site holds its state"
    );

    // The text, pasted as it is.
    let of = |guest: &str| {
        let part = text
            .split("\n\n")
            .find(|part| part.starts_with(&format!("# [guests.{guest}]: from ")));
        part.unwrap_or_else(|| panic!("{guest} is not in\n{text}"))
            .trim_end()
            .to_owned()
    };
    let site = Site::quickstart();
    site.edit("trueup.toml", GRANTED, &of("lbaas"));
    site.edit("trueup.toml", GRANTED_IPAM, &of("ipam"));
    site.run_once().exits(0);
    assert_eq!(lines(&site, &[]), Vec::<Value>::new(), "nothing was refused");

    for (guest, ships) in [("lbaas", GRANTED), ("ipam", GRANTED_IPAM)] {
        let grants = granted(&inferred, guest);
        for (capability, access) in &grants {
            for (access, scopes) in access {
                for scope in scopes {
                    let mut less = grants.clone();
                    let left = less.get_mut(capability).unwrap().get_mut(access).unwrap();
                    left.retain(|other| other != scope);
                    let site = Site::quickstart();
                    // It fails five times, so shorten the waits in between.
                    hurried(&site);
                    site.edit("trueup.toml", ships, &in_toml(&less));
                    let ran = site.run_once();
                    assert_eq!(ran.code, Some(1), "without {capability} {access} {scope}: {ran}");
                    assert!((ran.stdout.clone() + &ran.stderr).contains("access denied"), "{ran}");
                }
            }
        }
    }
}

#[test]
fn infer_says_what_was_refused_and_what_it_can_not_read() {
    let (_engine, site, _) = refused();
    let state = site.state_dir();
    let state = state.to_str().unwrap();
    let said = trueup(["grants", "infer", state]).exits(0);
    assert!(
        said.stdout.contains("grants = { lbaas = { read = [\"lb-1\"] } }\n"),
        "{said}"
    );
    let refused = said.stdout.lines().filter(|line| line.starts_with("# refused "));
    assert!(
        refused.clone().count() >= 1
            && refused
                .clone()
                .all(|line| line.contains("api.create: no grant to write")),
        "{said}"
    );

    let journal = lbaas_journals(&site).remove(0);
    fs::write(&journal, "no journal\nat all\n").unwrap();
    let said = trueup(["grants", "infer", state]).exits(2);
    assert!(said.stderr.contains("0.jsonl` line 1 is damaged"), "{said}");
}
