//! Bad input gets one clear line for each mistake in it, and leaves nothing half done: golden files with the text,
//! rewritten with `BLESS=1`.
//!
//! Each input is a file in `bad_input/KIND/`, with `NAME.golden` beside it for everything that the program prints. Read
//! those like a newcomer to trueup: what is wrong, where, and what is allowed? An input has one mistake, and the usual
//! command of its kind reports it; the tables below have the others. `quickstart.rs` covers the effects of valid input.
//!
//! ```text
//! bad_input/KIND/NAME.EXT -> a folder in which all else is right -> trueup COMMAND -> NAME.golden
//! ```
mod case;
mod guests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use case::{Case, inputs};

/// The default command for a configuration.
const RUN: &str = "run CASE --once";

/// Like [`RUN`], if a run would repeat the same for each of its tries.
const PLAN: &str = "plan CASE";

/// Configurations with another number of mistakes than one, or another command: each is the whole file.
const CONFIGURATIONS: &[(&str, usize, &str)] = &[
    ("addresses-that-are-none", 3, RUN),
    ("admin-for-everybody", 2, RUN),
    ("admin-with-wrong-keys", 3, RUN),
    ("cluster-in-no-namespace", 2, PLAN),
    ("cluster-of-an-unknown-context", 1, PLAN),
    ("cluster-with-wrong-keys", 7, RUN),
    ("election-with-wrong-keys", 6, RUN),
    ("grants-as-a-list", 1, PLAN),
    ("grants-of-wrong-kinds", 9, RUN),
    ("interfaces-with-wrong-addresses", 3, RUN),
    ("interfaces-with-wrong-keys", 2, PLAN),
    ("missing-keys", 3, RUN),
    ("missing-sections", 2, PLAN),
    ("node-with-wrong-keys", 6, RUN),
    ("out-of-range", 7, RUN),
    ("simulation-for-everybody", 2, RUN),
    ("telemetry-with-wrong-keys", 4, RUN),
    ("token-file-that-is-not-there", 1, PLAN),
    ("unknown-keys", 3, RUN),
    ("verify-with-no-key", 1, "guest verify CASE"),
    ("version-that-does-not-ship", 1, "guest lock CASE"),
    ("wrong-types", 5, RUN),
];

/// Lock files of a configuration whose guest is a file, with another command.
const LOCKS: &[(&str, usize, &str)] = &[
    ("digest-that-does-not-match", 1, "guest verify CASE"),
    ("merge-conflict", 1, "guest lock CASE"),
    ("no-version", 1, PLAN),
    ("not-toml", 1, PLAN),
    ("short-digest", 1, "guest verify CASE"),
    ("unknown-key", 1, "guest lock CASE"),
];

/// The input of other commands.
const OTHERS: &[(&str, usize, &str)] = &[
    ("audit-log-that-is-text", 2, "audit verify CASE/audit"),
    (
        "checkpoint-that-is-text",
        1,
        "checkpoint verify CASE/checkpoint-that-is-text.checkpoint",
    ),
    (
        "engine-state-that-is-text",
        1,
        "sim lbaas --listen 127.0.0.1:0 --state-file CASE/engine-state-that-is-text.json",
    ),
    (
        "engine-with-unknown-keys",
        1,
        "sim lbaas --listen 127.0.0.1:0 --config CASE/engine-with-unknown-keys.toml",
    ),
    (
        "journal-of-a-later-format",
        1,
        "replay CASE/journal-of-a-later-format.jsonl",
    ),
    ("journal-that-is-empty", 1, "replay CASE/journal-that-is-empty.jsonl"),
    (
        "journal-that-is-text",
        1,
        "grants infer CASE/journal-that-is-text.jsonl",
    ),
    (
        "json-that-is-no-checkpoint",
        1,
        "checkpoint show CASE/json-that-is-no-checkpoint.json",
    ),
    (
        "journal-with-a-gap",
        1,
        "replay --guest lbaas@1 CASE/journal-with-a-gap.jsonl",
    ),
    ("journal-without-header", 1, "replay CASE/journal-without-header.jsonl"),
    (
        "scenario-of-an-unknown-guest",
        1,
        "test CASE/scenario-of-an-unknown-guest.yaml",
    ),
    ("scenario-that-is-no-list", 1, "test CASE/scenario-that-is-no-list.yaml"),
    (
        "scenario-with-an-unknown-call",
        1,
        "test CASE/scenario-with-an-unknown-call.yaml",
    ),
    (
        "scenario-with-an-unknown-key",
        1,
        "test CASE/scenario-with-an-unknown-key.yaml",
    ),
    (
        "scenario-with-wrong-arguments",
        1,
        "test CASE/scenario-with-wrong-arguments.yaml",
    ),
];

/// Command-line arguments, without a file.
const ARGUMENTS: &[(&str, usize, &str)] = &[
    ("configuration-that-is-not-there", 1, "run CASE/nowhere --once"),
    ("folder-without-configuration", 1, "plan CASE/manifests"),
    ("swap-without-a-host", 1, "guest swap lbaas lbaas@2 --config CASE"),
    ("audit-log-that-is-not-there", 1, "audit verify CASE/nowhere"),
    ("checkpoint-that-is-not-there", 1, "checkpoint verify CASE/nowhere"),
    ("recordings-that-are-not-there", 1, "grants infer CASE/manifests"),
    ("replay-of-a-folder", 1, "replay CASE/manifests"),
    ("scenarios-that-are-not-there", 1, "test CASE/nowhere"),
    ("guest-that-is-a-folder", 1, "guest inspect CASE/manifests"),
];

/// The cluster of a configuration that names one. The host finds the mistake before it asks the cluster.
const KUBECONFIG: &str = "apiVersion: v1
kind: Config
current-context: tests
clusters: [{ name: tests, cluster: { server: https://127.0.0.1:1 } }]
users: [{ name: tests, user: { token: a-token } }]
contexts: [{ name: tests, context: { cluster: tests, user: tests } }]
";

/// Every input of a kind, by its unique name. Each golden file belongs to one.
fn files(kind: &str) -> BTreeMap<String, PathBuf> {
    let (mut files, mut golden) = (BTreeMap::new(), BTreeSet::new());
    for entry in fs::read_dir(inputs(kind)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_some_and(|extension| extension == "golden") {
            golden.insert(name);
        } else {
            let twice = files.insert(name, path);
            assert!(twice.is_none(), "{twice:?} is there with another ending");
        }
    }
    let without_input: Vec<_> = golden.iter().filter(|name| !files.contains_key(*name)).collect();
    assert!(without_input.is_empty(), "{kind} has no input for {without_input:?}");
    files
}

/// Puts each input of a kind at its `place`, runs its command, and finally reports which inputs failed and why. An
/// input that is not in `table` has one mistake, which the `usual` command reports. The number of mistakes: see
/// [`Case::check`].
#[track_caller]
fn check(kind: &str, usual: &str, table: &[(&str, usize, &str)], place: impl Fn(&Case, &str, &PathBuf)) {
    let files = files(kind);
    let mut others: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (name, mistakes, command) in table {
        assert!(files.contains_key(*name), "{kind} has no input `{name}`");
        assert_eq!(others.insert(name, (*mistakes, command)), None, "`{name}` twice");
    }
    let wrong = files.iter().filter_map(|(name, file)| {
        let (mistakes, command) = others.get(name.as_str()).copied().unwrap_or((1, usual));
        let case = Case::new(kind, name);
        place(&case, name, file);
        case.check(command, mistakes).err()
    });
    let wrong: Vec<String> = wrong.collect();
    let (count, all) = (wrong.len(), files.len());
    assert!(wrong.is_empty(), "{count} of {all}:\n{}", wrong.join("\n"));
}

fn lbaas() -> &'static [u8] {
    trueup_guests_builtin::find("lbaas", "1").unwrap().bytes
}

#[test]
fn configurations() {
    check("configurations", RUN, CONFIGURATIONS, |case, _, file| {
        case.put("trueup.toml", fs::read(file).unwrap());
        case.put("guest.wasm", lbaas());
        case.put("key.pub", fs::read(inputs("keys").join("key.pub")).unwrap());
        case.put(
            "private.pem",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        );
        case.put("token", "a-token\n");
        case.put("empty", "");
        case.put(
            "accepted.toml",
            "[[accept]]\nentry = \"api.create\"\nfeild = \"args\"\nwhy = \"in turn\"\n",
        );
        case.put("enis.json", "{\"enis\": [\n");
        case.put("pod-interfaces.yaml", "shop/web-0: tap0\nweb-1: tap1\n");
        case.put("kubeconfig", KUBECONFIG);
    });
}

#[test]
fn manifests() {
    check("manifests", PLAN, &[], |case, name, file| {
        let extension = if name.ends_with("json") { "json" } else { "yaml" };
        case.put(&format!("manifests/{name}.{extension}"), fs::read(file).unwrap());
    });
}

#[test]
fn lock_files() {
    check("locks", RUN, LOCKS, |case, name, file| {
        case.put("guest.wasm", lbaas());
        case.put("trueup.lock", fs::read(file).unwrap());
        let guest = if name == "tag-that-is-not-pinned" {
            "oci:registry.example/lbaas:2"
        } else {
            "file:guest.wasm"
        };
        case.configure("builtin:lbaas@1", guest);
    });
}

#[test]
fn other_files() {
    check("others", RUN, OTHERS, |case, name, file| {
        let whole = file.file_name().unwrap().to_str().unwrap();
        // The files of an audit log are named by their contents.
        let place = if name.starts_with("audit") {
            "audit/0.jsonl"
        } else {
            whole
        };
        case.put(place, fs::read(file).unwrap());
    });
}

#[test]
fn arguments() {
    let wrong = ARGUMENTS
        .iter()
        .filter_map(|(name, mistakes, command)| Case::new("arguments", name).check(command, *mistakes).err());
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
