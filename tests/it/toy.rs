//! The smallest world, with the real binary: what a world gets from the host without a line of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Ran, Site, files_under, program, ran, trueup, wait_until};
use trueup_config::EtcdBackend;

use crate::admin::{address, get, listening};
use crate::guests::renumbered::renumbered;

/// Everything that is stored, while no host runs.
fn stored(site: &Site) -> BTreeMap<String, String> {
    let file = site.state_dir().join("etcd.redb");
    let store = trueup_work::etcd::open(&EtcdBackend::Embedded(file)).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let all = runtime.block_on(store.list_prefix("")).unwrap().into_iter();
    all.map(|entry| (entry.key, entry.value)).collect()
}

fn of<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    entries.into_iter().map(owned).collect()
}

/// Runs to the end, which succeeds. Returns the last line.
#[track_caller]
fn once(site: &Site) -> String {
    site.run_once().exits(0).last_line().to_owned()
}

fn about(site: &Site, args: &[&str]) -> Ran {
    ran(program().args(args).arg("--config").arg(site.folder()))
}

#[test]
fn a_key_for_each_service_comes_changes_and_goes() {
    let site = Site::example("toy");
    let plan = site.plan().exits(3);
    assert!(plan.stdout.contains("/toy/shop/web"), "{plan}");
    assert_eq!(
        plan.last_line(),
        "2 toys: 0 to create, 0 to destroy, 2 to store, 0 failed"
    );
    assert!(!site.state_dir().join("etcd.redb").exists(), "a plan stores nothing");
    assert_eq!(once(&site), "2 toys: 2 true, 0 failed; 0 deleted, 2 written");
    site.plan().exits(0);
    let dns = ("/toy/kube-system/dns", "53/UDP");
    assert_eq!(stored(&site), of([dns, ("/toy/shop/web", "80/TCP,443/TCP")]));
    let again = site.converges("2 toys: 2 true, 0 failed; 0 deleted, 0 written");
    assert!(again.stdout.contains("nothing changed: "), "{again}");

    site.edit("manifests/web.yaml", "port: 443", "port: 8443");
    let changed = site.run_once().exits(0);
    let line = "shop/web                 true     1 written\n";
    assert!(changed.stdout.contains(line), "{changed}");
    assert_eq!(stored(&site), of([dns, ("/toy/shop/web", "80/TCP,8443/TCP")]));

    // What was written under another prefix goes with it.
    site.edit("trueup.toml", "prefix = \"/toy\"", "prefix = \"/toy/of\"");
    assert_eq!(once(&site), "2 toys: 2 true, 0 failed; 2 deleted, 2 written");
    let web = ("/toy/of/shop/web", "80/TCP,8443/TCP");
    assert_eq!(stored(&site), of([("/toy/of/kube-system/dns", "53/UDP"), web]));

    // Deleted while no host ran.
    site.remove_manifest("dns.yaml");
    let plan = site.plan().exits(3);
    assert_eq!(plan.last_line(), "2 toys: 0 to create, 1 to destroy, 0 failed");
    assert_eq!(once(&site), "2 toys: 2 true, 0 failed; 1 deleted, 0 written");
    assert_eq!(stored(&site), of([web]));

    let journals: Vec<PathBuf> = site.journals();
    let replayed = trueup([vec!["replay".into()], journals].concat()).exits(0);
    assert!(
        replayed.stdout.lines().all(|line| line.contains(": identical: ")),
        "{replayed}"
    );
}

#[test]
fn nothing_goes_where_the_source_may_not_show_it() {
    let site = Site::example("toy");
    once(&site);
    let before = stored(&site);
    site.put_manifest("dns.yaml", "kind: Servce");
    let ran = site.run_once().exits(1);
    assert!(ran.stdout.contains("kube-system/dns          held     "), "{ran}");
    site.remove_manifest("dns.yaml");
    site.remove_manifest("web.yaml");
    let ran = site.run_once().exits(1);
    assert_eq!(ran.said("the manifests hold no object at all").len(), 1, "{ran}");
    assert_eq!(stored(&site), before);

    // A source that holds something else shows that they are gone.
    site.put_manifest("node.yaml", "apiVersion: v1\nkind: Node\nmetadata: { name: node-a }\n");
    assert_eq!(once(&site), "2 toys: 2 true, 0 failed; 2 deleted, 0 written");
    assert_eq!(stored(&site), of([]));
}

#[test]
fn more_than_an_approval_covers_waits_for_it() {
    let site = Site::example("toy");
    site.edit(
        "trueup.toml",
        "use = \"builtin:toy@1\"",
        "use = \"builtin:toy@1\"\napprove_above = 1",
    );
    once(&site);
    let before = stored(&site);
    site.remove_manifest("dns.yaml");
    site.remove_manifest("web.yaml");
    site.put_manifest("node.yaml", "apiVersion: v1\nkind: Node\nmetadata: { name: node-a }\n");
    let ran = site.run_once().exits(1);
    assert!(ran.stdout.contains("it waits for an approval"), "{ran}");
    assert_eq!(stored(&site), before);
    support::ran(&mut site.command("run", &["--once", "--approve"])).exits(0);
    assert_eq!(stored(&site), of([]));
}

#[test]
fn its_guest_is_swapped_shadowed_and_shown_while_it_runs() {
    let site = listening(Site::example("toy"));
    let other = site.path("other.wasm");
    fs::write(&other, renumbered("toy", "1", "2")).unwrap();
    let other = other.to_str().unwrap();
    let mut host = site.start("run", &[]);
    let admin = address(&mut host, 0);
    host.wait_for("shop/web                 true     1 written");
    host.wait_for("kube-system/dns          true     1 written");

    // Another version in shadow, which decides the same.
    site.guest(&["shadow", "start", "toy", other]).exits(0);
    site.edit("manifests/web.yaml", "port: 443", "port: 8443");
    wait_until("a comparison", || {
        let status = site
            .guest(&["shadow", "status", "toy", "--output", "json"])
            .exits(0)
            .json();
        (status["same"].as_u64(), status["different"].as_u64()) == (Some(1), Some(0))
    });
    site.guest(&["shadow", "stop", "toy"]).exits(0);

    site.guest(&["swap", "toy", other]).exits(0);
    assert_eq!(site.history("toy").len(), 2);
    site.edit("manifests/web.yaml", "port: 8443", "port: 444");
    wait_until("the second change", || {
        host.stdout()
            .matches("shop/web                 true     1 written")
            .count()
            == 3
    });

    let status = about(&site, &["status", "--output", "json"]).exits(0).json();
    assert_eq!(status["guests"][0]["name"], "toy", "{status}");
    assert_eq!(status["keys"]["true"], 2, "{status}");
    let keys = about(&site, &["status", "--keys"]).exits(0);
    assert!(keys.stdout.contains("shop/web"), "{keys}");
    let explained = about(&site, &["explain", "shop/web", "--output", "json"])
        .exits(0)
        .json();
    let last: &Value = explained["jobs"].as_array().unwrap().last().unwrap();
    let text = last.to_string();
    assert!(text.contains("80/TCP,444/TCP") && text.contains("Service"), "{text}");
    let metrics = get(&admin, "/metrics").body;
    for series in ["toy_changes_total", "guest=\"toy\""] {
        assert!(metrics.contains(series), "{metrics}");
    }
    host.terminate().0.exits(0);
}

/// Whether a word of a text is this one: `OfToys` and `toy_changes` have `toy`, `destroy` has not.
fn names_toy(text: &str) -> bool {
    let mut words = vec![String::new()];
    for c in text.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() {
            words.push(String::new());
        }
        words.last_mut().unwrap().extend(c.to_lowercase());
    }
    let mut words = words
        .iter()
        .map(|word| word.trim_start_matches(|c: char| !c.is_alphanumeric()));
    words.any(|word| word == "toy" || word == "toys")
}

#[test]
fn no_file_but_its_own_and_two_lists_name_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap();
    // The figures count every crate by its name.
    let own = ["guests/toy", "wit/toy", "host/worlds/src/toy", "tools/shape/figures"];
    let own = own.map(|path| root.join(path));
    let folders = ["host", "guests", "sims", "wit", "tools", "benches", "deploy"];
    let mut named = BTreeMap::new();
    for file in folders.iter().flat_map(|folder| files_under(&root.join(folder))) {
        if own.iter().any(|path| file.starts_with(path)) {
            continue;
        }
        // A file that is no text names nothing.
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().filter(|line| names_toy(line)).count();
        if lines > 0 {
            named.insert(file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(), lines);
        }
    }
    let lists = [
        ("host/guests-builtin/build/guests.rs", 1),
        ("host/worlds/src/lib.rs", 2),
    ];
    let lists = lists.map(|(list, lines)| (list.to_owned(), lines));
    let only = "no other file may name the smallest world: a guest that ships belongs to another world";
    assert_eq!(named, BTreeMap::from(lists), "{only}");
}
