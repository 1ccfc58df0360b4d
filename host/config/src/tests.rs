//! What an operator sees: values with their defaults, and the text of every error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use trueup_capabilities::grants::Access;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::questions::granted;
use trueup_journal::{Options, Sync};
use trueup_sources::Kind;

use super::*;
use trueup_registry::Reference;

mod election;
mod etcd;
mod every_key;
mod guest;
mod ipam;
mod kubernetes;
mod layers;
mod neg;
mod nftables;
mod node;
mod plain;
mod telemetry;
mod versions;

/// In the order of the host's own list.
const WORLDS: [&dyn World; 4] = [IPAM, LBAAS, NEG, NODE];

/// The smallest valid configuration. The tests below change it.
const LEAST: &str = r#"
[source]
manifests = "manifests"
[guests.lbaas]
use = "builtin:lbaas@1"
[adapter.lbaas]
cluster = "c1"
load_balancers = ["lb-1"]
[backend.lbaas]
kind = "anexia"
"#;

fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    load_worlds(text, environment, &WORLDS)
}

fn load_worlds(text: &str, environment: &[(&str, &str)], worlds: &[&'static dyn World]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE_NAME), text).unwrap();
    let environment = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let loaded = Config::load_with(folder.path(), &environment, worlds);
    // The folder's name differs from run to run.
    let prefix = format!("{}/", folder.path().display());
    loaded.map_err(|error| error.to_string().replace(&prefix, ""))
}

/// Asserts the errors for a file, line by line.
#[track_caller]
fn refused(text: &str, said: &[&str]) {
    let error = load(text, &[]).expect_err("the file must be refused");
    assert_eq!(error.lines().collect::<Vec<_>>(), said, "of:\n{text}");
}

/// Asserts the errors for [`LEAST`] with one line changed, or with lines appended if `from` is empty.
#[track_caller]
fn refused_with(from: &str, to: &str, said: &[&str]) {
    refused(&changed(LEAST, from, to), said);
}

/// A text with one line changed, or with lines appended if `from` is empty.
#[track_caller]
fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "`{from}` is not in the file to change");
    if from.is_empty() {
        format!("{text}{to}")
    } else {
        text.replacen(from, to, 1)
    }
}

fn lbaas(config: &Config) -> &Lbaas {
    config.world::<Lbaas>().expect("load balancers")
}

fn remote<S, C>(backend: &Served<S, C>) -> &Remote<S, C> {
    match backend {
        Served::Remote(remote) => remote,
        Served::Simulated => panic!("a simulated backend"),
    }
}

fn anexia(config: &Config) -> &AnexiaBackend {
    remote(&lbaas(config).backend)
}

/// A configuration of manifests, changed to one of a cluster with these settings.
fn in_a_cluster(configuration: &str, watch: &str) -> String {
    configuration.replace("manifests = \"manifests\"", &format!("kubernetes = {{ {watch} }}"))
}

/// The kinds of objects that a configuration with a cluster needs.
fn needed(configuration: &str) -> Vec<Kind> {
    let config = load(configuration, &[]).unwrap();
    let Source::Kubernetes(settings) = config.source().unwrap() else {
        panic!("a cluster")
    };
    settings.needed.clone()
}

#[test]
fn the_least_configuration_has_every_default() {
    let config = load(LEAST, &[]).unwrap();
    let folder = config.file.parent().unwrap().to_owned();
    assert_eq!(config.state_dir, folder.join(".trueup"));
    assert_eq!(config.seed, 1);
    assert_eq!(lbaas(&config).source, Source::Manifests(folder.join("manifests")));
    let guest = &lbaas(&config).guest;
    assert_eq!(
        guest.reference,
        Reference::Builtin {
            name: "lbaas".to_owned(),
            version: "1".to_owned()
        }
    );
    assert_eq!(guest.settings, json!({}));
    assert!(
        !guest.grants.allow_some("lbaas", Access::Read),
        "nothing is granted unless it is named"
    );
    assert_eq!(guest.limits, Limits::default());
    assert_eq!(lbaas(&config).adapter.addresses, Vec::<String>::new());
    assert_eq!(lbaas(&config).adapter.backoff_steps, 30);
    let settings = anexia(&config).settings(None);
    assert_eq!(settings, trueup_capabilities::lbaas::anexia::Settings::default());
    assert_eq!(settings.token, TokenAt::Variable("TRUEUP_LBAAS_TOKEN".to_owned()));
    assert!(lbaas(&config).sim.is_none());
    assert_eq!(
        config.journal,
        Recording {
            record: true,
            options: Options::default(),
            keep_total_bytes: 2 << 30,
            keep_gone_days: 30,
        }
    );
    let kept = AuditKept {
        keep_bytes: 512 << 20,
        keep_days: 365,
    };
    assert_eq!(config.audit, kept);
    let run = Run {
        workers: 4,
        resync_ms: 300_000,
        backoff_initial_ms: 1000,
        backoff_max_ms: 300_000,
    };
    assert_eq!(config.run, run);
    assert!(config.world::<Ipam>().is_none());
}

#[test]
fn the_quickstart_fits_together() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart");
    let config = Config::load_with(&folder, &BTreeMap::new(), &WORLDS).unwrap();
    assert_eq!(anexia(&config).settings(None).url, "http://127.0.0.1:9480");
    let sim = lbaas(&config).sim.as_ref().unwrap();
    assert_eq!(
        sim.token,
        TokenAt::File(folder.join("token")),
        "it lets in the backend's token"
    );
    let server = sim.server("token");
    let balancers: Vec<_> = server.load_balancers.iter().collect();
    assert_eq!(
        balancers,
        lbaas(&config).adapter.load_balancers.iter().collect::<Vec<_>>()
    );
    for balancer in balancers {
        assert!(lbaas(&config).guest.grants.allow("lbaas", Access::Write, balancer));
    }
    let Source::Manifests(manifests) = &lbaas(&config).source else {
        panic!("a folder");
    };
    assert!(manifests.join("nodes.yaml").is_file());
}

#[test]
fn without_a_url_the_backend_follows_the_simulated_engine() {
    let config = load(&format!("{LEAST}[sim.lbaas]\n"), &[]).unwrap();
    let sim = lbaas(&config).sim.as_ref().unwrap();
    assert_eq!(sim.listen, "127.0.0.1:0".parse().unwrap());
    assert_eq!(sim.server("").seed, 1, "the host's");
    let bound = "127.0.0.1:12345".parse().unwrap();
    assert_eq!(anexia(&config).settings(Some(bound)).url, "http://127.0.0.1:12345");

    let own = load(&format!("{LEAST}url = \"http://192.0.2.1:80\"\n[sim.lbaas]\n"), &[]).unwrap();
    assert_eq!(anexia(&own).settings(Some(bound)).url, "http://192.0.2.1:80");
}

#[test]
fn unknown_keys_are_named_with_the_nearest_known_one() {
    refused_with(
        "load_balancers = [\"lb-1\"]",
        "load_balancers = [\"lb-1\"]\nadress = []",
        &[
            "trueup.toml:9: unknown key `adress` in [adapter.lbaas]; did you mean `addresses`? \
           (known: addresses, backoff_steps, cluster, load_balancers)",
        ],
    );
    refused_with(
        "",
        "[jurnal]\n",
        &["trueup.toml:11: unknown key `jurnal`; did you mean `journal`? \
           (known: adapter, admin, audit, backend, election, guests, journal, run, seed, sim, source, state_dir, telemetry)"],
    );
    refused_with(
        "",
        "[guests.lbass]\n",
        &[
            "trueup.toml:11: unknown guest `lbass` in [guests]; did you mean `lbaas`? \
           (known: ipam, lbaas, neg, nodesync, service; a guest is named as its adapter, a renderer as `renderers` of \
             [adapter.service] lists it)",
        ],
    );
    let granted: Vec<&str> = granted().map(|(_, granted)| granted.name).collect();
    refused_with(
        "use = \"builtin:lbaas@1\"",
        "use = \"builtin:lbaas@1\"\ngrants = { clock = { read = [\"*\"] } }",
        &[&format!(
            "trueup.toml:6: unknown capability `clock` in [guests.lbaas.grants] \
               (known: {}; log, clock, timers, random and metrics need no grant)",
            granted.join(", ")
        )],
    );
    refused_with(
        "",
        "orphans = true\n",
        &[
            "trueup.toml:11: unknown key `orphans` in [backend.lbaas]; did you mean `adopt_orphans`? (known: \
           adopt_orphans, allow_http, connect_timeout_ms, kind, max_concurrent_requests, page_size, request_timeout_ms, token_env, \
           token_file, url)",
        ],
    );
}

#[test]
fn wrong_values_are_named_with_what_they_must_be() {
    refused_with(
        "[source]",
        "seed = -1\n[source]",
        &["trueup.toml:2: seed: was -1, must be a whole number from 0 to 18446744073709551615"],
    );
    refused_with(
        "[source]",
        "state_dir = \"\"\nrun = 4\n[source]",
        &[
            "trueup.toml:2: state_dir: was \"\", must be a path",
            "trueup.toml:3: run: was 4, must be a table",
        ],
    );
    refused_with(
        "cluster = \"c1\"",
        "cluster = \"my cluster\"",
        &["trueup.toml:7: adapter.lbaas.cluster: was \"my cluster\", must be 1 to 63 letters, digits, `-`, `_` or `.`"],
    );
    refused_with(
        "load_balancers = [\"lb-1\"]",
        "load_balancers = []\naddresses = [\"203.0.113.10\", 7,\n \"::\",\n \"::ffff:203.0.113.10\"]\nbackoff_steps = 0",
        &[
            "trueup.toml:8: adapter.lbaas.load_balancers: was [], must hold at least one identifier",
            "trueup.toml:9: adapter.lbaas.addresses[1]: was 7, must be an IP address that is not the unspecified one",
            "trueup.toml:10: adapter.lbaas.addresses[2]: was \"::\", must be an IP address that is not the unspecified one",
            "trueup.toml:11: adapter.lbaas.addresses[3]: was \"::ffff:203.0.113.10\", must differ from addresses[0]",
            "trueup.toml:12: adapter.lbaas.backoff_steps: was 0, must be a whole number from 1 to 10000",
        ],
    );
    refused_with(
        "",
        "[guests.lbaas.limits]\nmemory_bytes = 64\ncpu_ms = \"10s\"\n",
        &[
            "trueup.toml:12: guests.lbaas.limits.memory_bytes: was 64, must be a whole number from 1048576 to 4294967296",
            "trueup.toml:13: guests.lbaas.limits.cpu_ms: was \"10s\", must be a whole number from 1 to 3600000",
        ],
    );
    refused_with(
        "",
        "[journal]\nsync = \"always\"\nrecord = \"yes\"\n[run]\nbackoff_initial_ms = 500\nbackoff_max_ms = 100\n",
        &[
            "trueup.toml:12: journal.sync: was \"always\", must be \"write\" or \"fsync\" or \"interval\"",
            "trueup.toml:13: journal.record: was \"yes\", must be true or false",
            "trueup.toml:16: run.backoff_max_ms: was 100, must be at least `backoff_initial_ms`, 500",
        ],
    );
    refused_with(
        "use = \"builtin:lbaas@1\"",
        "use = \"builtin:lbaas@1\"\nsettings = { at = 2026-01-01, far = inf }\n\
         grants = { lbaas = { read = \"lb-1\", write = [\"lb-1\", \"lb-1\", \"\"] } }",
        &[
            "trueup.toml:6: guests.lbaas.settings.at: was 2026-01-01, must be text in quotes: \
             settings are JSON, which has no dates",
            "trueup.toml:6: guests.lbaas.settings.far: was inf, must be a number that JSON can hold",
            "trueup.toml:7: guests.lbaas.grants.lbaas.read: was \"lb-1\", must be a list",
            "trueup.toml:7: guests.lbaas.grants.lbaas.write[1]: was \"lb-1\", must differ from write[0]",
            "trueup.toml:7: guests.lbaas.grants.lbaas.write[2]: was \"\", must be a name, or \"*\" for everything",
        ],
    );
}

#[test]
fn a_backend_never_shows_a_secret() {
    refused_with(
        "",
        "token = \"pa55word\"\n",
        &[
            "trueup.toml:11: backend.lbaas.token: a token does not stand here: put it into a file, and the file's path \
           into `token_file`",
        ],
    );
    refused_with(
        "",
        "url = \"https://me:pa55word@engine.example\"\n",
        &["trueup.toml:11: backend.lbaas.url: must hold no user name and no password: the token is in `token_file`"],
    );
    refused_with(
        "",
        "token_env = \"pa55-word\"\n",
        &["trueup.toml:11: backend.lbaas.token_env: must be the name of a variable"],
    );
    refused_with(
        "",
        "token_env = \"A\"\ntoken_file = \"token\"\n",
        &["trueup.toml:11: backend.lbaas.token_env: goes without `token_file`: leave one of them out"],
    );
    for url in [
        "engine.example",
        "ftp://engine.example",
        "http://",
        "https://engine.example?a=b",
    ] {
        let said = format!(
            "trueup.toml:11: backend.lbaas.url: was \"{url}\", must be `http://HOST` or `https://HOST`, \
             without query and fragment"
        );
        refused_with("", &format!("url = \"{url}\"\n"), &[&said]);
    }
}

#[test]
fn sections_that_do_not_fit_are_named_with_the_lines_to_add() {
    refused(
        "[source]\nmanifests = \"m\"\n",
        &[
            "trueup.toml: nothing to do: no section names any work; `trueup init FOLDER` lists the worlds, and writes a \
             configuration",
        ],
    );
    let error = load("", &[]).expect_err("nothing is configured");
    assert!(error.contains("`trueup init FOLDER` lists the worlds"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    refused(
        "[guests.lbaas]\nuse = \"builtin:lbaas\"\n",
        &[
            "trueup.toml: [source] is missing: add `[source]` with `manifests = \"manifests\"`, a folder of Kubernetes YAML, \
             or with `kubernetes = {}`, a cluster",
            "trueup.toml:1: [guests.lbaas] needs an adapter: add `[adapter.lbaas]` with `cluster = \"c1\"` and \
             `load_balancers = [\"lb-1\"]`",
        ],
    );
    refused(
        "[source]\n[adapter.lbaas]\n",
        &[
            "trueup.toml:1: source.manifests: is missing, must be a folder of Kubernetes YAML; or in its place \
             `kubernetes = {}`, a cluster",
            "trueup.toml:2: [adapter.lbaas] needs a backend that acts: add `[backend.lbaas]` with `kind = \"anexia\"` and \
             `token_file = \"token\"`, or with `kind = \"simulated\"`",
            "trueup.toml:2: [adapter.lbaas] needs a guest that decides: add `[guests.lbaas]` with \
             `use = \"builtin:lbaas@1\"` and `grants = { lbaas = { read = [\"lb-1\"], write = [\"lb-1\"] } }`",
            "trueup.toml:2: adapter.lbaas.cluster: is missing, must be 1 to 63 letters, digits, `-`, `_` or `.`",
            "trueup.toml:2: adapter.lbaas.load_balancers: is missing, must hold at least one identifier",
        ],
    );
    refused_with(
        "kind = \"anexia\"",
        "page_size = 3",
        &["trueup.toml:9: backend.lbaas.kind: is missing, must be \"anexia\" or \"simulated\""],
    );
    refused_with(
        "kind = \"anexia\"",
        "kind = \"simulated\"\nurl = \"http://engine.example\"\n[sim.lbaas]",
        &[
            "trueup.toml:11: backend.lbaas.url: goes with `kind = \"anexia\"` alone",
            "trueup.toml:12: [sim.lbaas] speaks HTTP, which goes with `backend.lbaas.kind = \"anexia\"` alone",
        ],
    );
}

#[test]
fn a_simulated_engine_is_checked_too() {
    refused_with(
        "",
        "url = \"http://127.0.0.1:9480\"\n[sim.lbaas]\nlisten = \"127.0.0.1:9481\"\n",
        &[
            "trueup.toml:13: sim.lbaas.listen: was 127.0.0.1:9481, must be where `backend.lbaas.url` is, \
           http://127.0.0.1:9480; or leave `url` out, and it follows",
        ],
    );
    refused_with(
        "",
        "[sim.lbaas]\nlisten = \"0.0.0.0:9480\"\nretry_after = \"soon\"\nrate_limit_per_second = 0\n\
         faults = [\n { path = \"*\" },\n { statsu = 500 },\n]\n",
        &[
            "trueup.toml:12: sim.lbaas.listen: was \"0.0.0.0:9480\", must be a loopback address with a port, \
             such as `127.0.0.1:9480`",
            "trueup.toml:13: sim.lbaas.retry_after: was \"soon\", must be true or false",
            "trueup.toml:14: sim.lbaas.rate_limit_per_second: was 0, must be a whole number from 1 to 1000000",
            "trueup.toml:16: sim.lbaas.faults[0]: fault: must hold exactly one of `status`, `delay_ms`, `close` and \
             `fail_next`",
            "trueup.toml:17: sim.lbaas.faults[1]: unknown field `statsu`, expected one of `method`, `path`, `times`, \
             `status`, `reason`, `message`, `retry_after_s`, `body`, `delay_ms`, `close`, `fail_next`, \
             `code`, `when`",
        ],
    );
}

#[test]
fn what_is_not_toml_is_one_line() {
    for (text, said) in [
        ("seed = \n", "trueup.toml:1: not TOML: "),
        ("seed = 1\n[source\n", "trueup.toml:2: not TOML: "),
        ("seed = 1\nseed = 2\n", "trueup.toml:2: not TOML: duplicate key"),
        ("a: b\n", "trueup.toml:1: not TOML: "),
    ] {
        let error = load(text, &[]).expect_err(text);
        assert!(
            error.starts_with(said) && error.lines().count() == 1,
            "of {text:?}: {error}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let hint = "give a TOML file, or a folder with `trueup.toml`";
    let load = |path: &Path| {
        Config::load_with(path, &BTreeMap::new(), &WORLDS)
            .expect_err("no file")
            .to_string()
    };

    let missing = folder.path().join(FILE_NAME);
    let said = "can't read the configuration: No such file or directory (os error 2)";
    let init = ", which `trueup init` writes";
    assert_eq!(
        load(folder.path()),
        format!("{}: {said}; {hint}{init}", missing.display())
    );

    let long = folder.path().join("long.toml");
    std::fs::write(&long, "#".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
    assert_eq!(
        load(&long),
        format!(
            "{}: longer than 1048576 bytes, so no configuration; {hint}",
            long.display()
        )
    );
}

#[test]
fn the_charts_volume_holds_what_the_defaults_keep() {
    let limit = include_str!("../../../deploy/trueup.yaml")
        .split("storage: ")
        .nth(1)
        .and_then(|rest| rest.split("Gi").next());
    let limit: u64 = limit.unwrap().parse().unwrap();
    let config = load(LEAST, &[]).unwrap();
    let kept = config.journal.keep_total_bytes + config.audit.keep_bytes;
    assert!(kept + (1 << 30) <= limit << 30, "and a gigabyte for the rest");
}
