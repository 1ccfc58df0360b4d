//! Bad input gets one clear line for each mistake in it, and leaves nothing half done: golden files with the text,
//! rewritten with `BLESS=1`.
//!
//! Each input is a file in `bad_input/KIND/`, with `NAME.golden` beside it for everything that the program prints. Read
//! those like a newcomer to trueup: what is wrong, where, and what is allowed? The tables below name the command for
//! each input, and its number of mistakes. `quickstart.rs` covers the effects of valid input.
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

/// Configurations: each is the whole file.
const CONFIGURATIONS: &[(&str, usize, &str)] = &[
    ("accepted-differences-that-are-damaged", 1, RUN),
    ("accepted-differences-that-are-not-there", 1, RUN),
    ("addresses-that-are-none", 3, RUN),
    ("admin-for-everybody", 2, RUN),
    ("admin-with-wrong-keys", 3, RUN),
    ("bare-reference", 1, RUN),
    ("cluster-in-no-namespace", 2, PLAN),
    ("cluster-of-a-damaged-kubeconfig", 1, RUN),
    ("cluster-of-an-unknown-context", 1, PLAN),
    ("cluster-with-wrong-keys", 7, RUN),
    ("cluster-without-kubeconfig", 1, RUN),
    ("cut-off", 1, RUN),
    ("duplicate-key", 1, RUN),
    ("duplicate-section", 1, RUN),
    ("election-that-renews-too-late", 1, RUN),
    ("election-that-tries-too-seldom", 1, RUN),
    ("election-with-wrong-keys", 6, RUN),
    ("election-without-a-cluster", 1, RUN),
    ("empty", 1, RUN),
    ("fall-back-that-does-not-ship", 1, RUN),
    ("fall-back-that-is-not-used", 1, RUN),
    ("fall-back-to-nothing", 1, RUN),
    ("file-that-is-not-there", 1, RUN),
    ("grants-as-a-list", 1, PLAN),
    ("grants-of-wrong-kinds", 9, RUN),
    ("guest-that-does-not-ship", 1, RUN),
    ("interfaces-that-are-damaged", 1, RUN),
    ("interfaces-that-are-not-there", 1, RUN),
    ("interfaces-with-wrong-addresses", 3, RUN),
    ("interfaces-with-wrong-keys", 2, PLAN),
    ("manifests-folder-that-is-a-file", 1, RUN),
    ("manifests-folder-that-is-not-there", 1, RUN),
    ("merge-conflict", 1, RUN),
    ("missing-keys", 3, RUN),
    ("missing-sections", 2, PLAN),
    ("node-with-wrong-keys", 6, RUN),
    ("node-without-a-renderer", 1, RUN),
    ("not-text", 1, RUN),
    ("not-toml", 1, RUN),
    ("oci-with-a-short-digest", 1, RUN),
    ("oci-without-host", 1, RUN),
    ("oci-without-tag", 1, RUN),
    ("out-of-range", 7, RUN),
    ("path-without-kind", 1, RUN),
    ("pod-interfaces-that-are-damaged", 1, RUN),
    ("pod-interfaces-that-are-not-there", 1, RUN),
    ("self-test-that-is-not-there", 1, RUN),
    ("settings-the-guest-does-not-know", 1, RUN),
    ("settings-with-a-date", 1, RUN),
    ("simulation-for-everybody", 2, RUN),
    ("simulation-of-two-kinds", 1, RUN),
    ("source-of-no-kind", 1, RUN),
    ("source-of-two-kinds", 1, RUN),
    ("source-that-is-a-name", 1, RUN),
    ("state-folder-that-is-a-file", 1, RUN),
    ("telemetry-with-wrong-keys", 4, RUN),
    ("token-file-that-is-empty", 1, RUN),
    ("token-file-that-is-not-there", 1, PLAN),
    ("token-in-the-file", 1, RUN),
    ("unknown-failure-policy", 1, RUN),
    ("unknown-gate", 1, RUN),
    ("unknown-guest", 1, RUN),
    ("unknown-keys", 3, RUN),
    ("unknown-section", 1, RUN),
    ("url-as-reference", 1, RUN),
    ("url-that-is-none", 1, RUN),
    ("verify-with-a-missing-key", 1, RUN),
    ("verify-with-a-private-key", 1, RUN),
    ("verify-with-no-key", 1, "guest verify CASE"),
    ("verify-without-a-signature", 1, RUN),
    ("verify-without-keys", 1, RUN),
    ("version-that-does-not-ship", 1, "guest lock CASE"),
    ("version-that-is-no-number", 1, RUN),
    ("wrong-types", 5, RUN),
];

/// Manifests: each is beside a valid one.
const MANIFESTS: &[(&str, usize, &str)] = &[
    ("aliases-that-multiply", 1, PLAN),
    ("bad-address", 1, PLAN),
    ("bad-address-annotation", 1, PLAN),
    ("bad-name", 1, PLAN),
    ("bad-port", 1, PLAN),
    ("bad-uid", 1, PLAN),
    ("binary", 1, PLAN),
    ("cut-off", 1, PLAN),
    ("cut-off-json", 1, PLAN),
    ("deep", 1, PLAN),
    ("items-that-are-none", 1, PLAN),
    ("key-twice", 1, PLAN),
    ("list-of-text", 1, PLAN),
    ("no-api-version", 1, PLAN),
    ("no-kind", 1, PLAN),
    ("no-name", 1, PLAN),
    ("no-node-port", 1, PLAN),
    ("not-yaml", 1, PLAN),
    ("nul", 1, PLAN),
    ("one-service-twice", 1, PLAN),
    ("port-out-of-range", 1, PLAN),
    ("port-too-large-for-kubernetes", 1, PLAN),
    ("ports-of-udp", 1, PLAN),
    ("tabs", 1, PLAN),
    ("two-ports-of-one-name", 1, PLAN),
    ("two-services-with-one-uid", 1, PLAN),
    ("type-that-is-none", 1, PLAN),
    ("unclosed-list", 1, PLAN),
    ("unknown-anchor", 1, PLAN),
    ("unknown-field", 1, PLAN),
    ("unknown-kind", 1, PLAN),
    ("wrong-api-version", 1, PLAN),
];

/// Lock files of a configuration whose guest is a file.
const LOCKS: &[(&str, usize, &str)] = &[
    ("builtin", 1, RUN),
    ("cut-off", 1, RUN),
    ("digest-that-does-not-match", 1, "guest verify CASE"),
    ("empty", 1, RUN),
    ("later-version", 1, RUN),
    ("manifest-of-a-file", 1, RUN),
    ("merge-conflict", 1, "guest lock CASE"),
    ("no-digest", 1, RUN),
    ("no-manifest-of-a-registry", 1, RUN),
    ("no-use", 1, RUN),
    ("no-version", 1, PLAN),
    ("not-text", 1, RUN),
    ("not-toml", 1, PLAN),
    ("one-guest-twice", 1, RUN),
    ("other-digest", 1, RUN),
    ("short-digest", 1, "guest verify CASE"),
    ("table-for-a-list", 1, RUN),
    ("tag-that-is-not-pinned", 1, RUN),
    ("unknown-key", 1, "guest lock CASE"),
    ("unknown-key-at-the-top", 1, RUN),
    ("upper-case-digest", 1, RUN),
    ("version-as-text", 1, RUN),
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

/// Every input of a kind, by its unique name.
fn files(kind: &str) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(inputs(kind)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension != "golden") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let twice = files.insert(name, path);
            assert!(twice.is_none(), "{twice:?} is there with another ending");
        }
    }
    files
}

/// Puts each input of a table at its `place`, runs its command, and finally reports which inputs failed and why.
/// `mistakes`: see [`Case::check`].
#[track_caller]
fn check(kind: &str, table: &[(&str, usize, &str)], place: impl Fn(&Case, &str, &PathBuf)) {
    let files = files(kind);
    let in_table: BTreeSet<&str> = table.iter().map(|(name, ..)| *name).collect();
    let there: BTreeSet<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        in_table, there,
        "each input of {kind} stands in its table once, and each of the table is there"
    );
    assert_eq!(in_table.len(), table.len());
    let wrong = table.iter().filter_map(|(name, mistakes, command)| {
        let case = Case::new(kind, name);
        place(&case, name, &files[*name]);
        case.check(command, *mistakes).err()
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        table.len(),
        wrong.join("\n")
    );
}

fn lbaas() -> &'static [u8] {
    trueup_guests_builtin::find("lbaas", "1").unwrap().bytes
}

#[test]
fn configurations() {
    check("configurations", CONFIGURATIONS, |case, _, file| {
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
    check("manifests", MANIFESTS, |case, name, file| {
        let extension = if name.ends_with("json") { "json" } else { "yaml" };
        case.put(&format!("manifests/{name}.{extension}"), fs::read(file).unwrap());
    });
}

#[test]
fn lock_files() {
    check("locks", LOCKS, |case, name, file| {
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
    check("others", OTHERS, |case, name, file| {
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
