//! `[guests.neg]`, `[adapter.neg]`, `[backend.neg]` and `[sim.compute]`.

use trueup_capabilities::neg::compute::Settings;

use super::*;

/// The smallest valid configuration for NEGs. The tests below change it.
const NEGS: &str = r#"
[source]
manifests = "manifests"
[guests.neg]
use = "builtin:neg@1"
[adapter.neg]
cluster = "c1"
subnet = "default"
[backend.neg]
kind = "compute"
project = "p"
"#;

fn neg(config: &Config) -> &Neg {
    config.world::<Neg>().expect("NEGs")
}

fn compute(config: &Config) -> &ComputeBackend {
    remote(&neg(config).backend)
}

/// Like [`refused_with`], for [`NEGS`].
#[track_caller]
fn negs_refused_with(from: &str, to: &str, said: &[&str]) {
    refused(&changed(NEGS, from, to), said);
}

#[test]
fn negs_alone_need_no_more_than_this() {
    let config = load(NEGS, &[]).unwrap();
    let folder = config.file.parent().unwrap();
    assert!(config.world::<Lbaas>().is_none() && config.world::<Ipam>().is_none());
    assert_eq!(config.source(), Some(&Source::Manifests(folder.join("manifests"))));
    assert_eq!(
        config.guests().iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["neg"]
    );
    let adapter = NegAdapter {
        cluster: "c1".to_owned(),
        subnet: Some("default".to_owned()),
        subnet_label: None,
        zones: Vec::new(),
    };
    assert_eq!(neg(&config).adapter, adapter);
    let backend = compute(&config);
    assert_eq!(backend.settings(None), Settings::new("p"));
    assert_eq!(backend.credentials, CredentialsAt::ApplicationDefault);
    assert!(neg(&config).sim.is_none());
}

#[test]
fn every_key_of_negs_is_read() {
    let text = r#"
[source]
manifests = "m"
[guests.neg]
use = "builtin:neg@1"
settings = { fraction_of_migrating_endpoints = 0.2 }
grants = { neg = { read = ["*"], write = ["web*@europe-west3-a"] } }
[adapter.neg]
cluster = "c1"
subnet_label = "example.com/subnet"
zones = ["z1", "z2"]
[backend.neg]
kind = "compute"
project = "example.com:p-1"
network = "n"
network_project = "host-1"
url = "http://127.0.0.1:9481/prefix/"
token_file = "token"
operation_timeout_ms = 1
poll_min_ms = 2
poll_max_ms = 3
requests_per_second = 4
concurrent = 5
request_timeout_ms = 6
connect_timeout_ms = 7
ensure_timeout_ms = 9
[sim.compute]
listen = "127.0.0.1:9481"
operation_ms = 1
wait_ms = 2
latency_ms = 3
rate_limit_per_second = 4
retry_after = false
endpoints_max = 5
ipv6_long = true
state_file = "compute.json"
[[sim.compute.faults]]
path = "*"
status = 503
"#;
    let config = load(text, &[]).unwrap();
    let folder = config.file.parent().unwrap();
    let guest = &neg(&config).guest;
    assert_eq!(guest.settings, json!({"fraction_of_migrating_endpoints": 0.2}));
    assert!(guest.grants.allow_neg(Access::Write, "web-1", "europe-west3-a"));
    assert!(!guest.grants.allow_neg(Access::Write, "web-1", "europe-west3-b"));
    let adapter = &neg(&config).adapter;
    assert_eq!(adapter.subnet, None);
    assert_eq!(adapter.subnet_label.as_deref(), Some("example.com/subnet"));
    assert_eq!(adapter.zones, ["z1", "z2"]);
    let backend = compute(&config);
    let settings = backend.settings(None);
    assert_eq!(settings.project, "example.com:p-1");
    assert_eq!(settings.network.as_deref(), Some("n"));
    assert_eq!(settings.network_project.as_deref(), Some("host-1"));
    let token = TokenAt::File(folder.join("token"));
    assert_eq!(backend.credentials, CredentialsAt::Token(token.clone()));
    assert_eq!(settings.operation_timeout_ms, 1);
    assert_eq!((settings.poll_min_ms, settings.poll_max_ms), (2, 3));
    assert_eq!((settings.requests_per_second, settings.max_concurrent_requests), (4, 5));
    assert_eq!((settings.request_timeout_ms, settings.connect_timeout_ms), (6, 7));
    assert_eq!(settings.ensure_timeout_ms, 9);
    let sim = neg(&config).sim.as_ref().unwrap();
    assert_eq!(sim.listen, "127.0.0.1:9481".parse().unwrap());
    assert_eq!(
        backend.settings(Some(sim.listen)).endpoint,
        "http://127.0.0.1:9481/prefix"
    );
    assert_eq!(sim.token, Some(token), "it lets in the backend's token");
    let server = sim.server(Some("secret".to_owned()));
    assert_eq!(server.token, Some("secret".into()));
    assert_eq!((server.operation_ms, server.wait_ms, server.latency_ms), (1, 2, 3));
    assert_eq!(server.rate_limit_per_second.map(|limit| limit.get()), Some(4));
    assert!(!server.retry_after);
    assert_eq!(server.endpoints_max, Some(5));
    assert!(server.ipv6_long);
    assert_eq!(server.state_file, Some(folder.join("compute.json")));
    assert_eq!(server.faults.len(), 1);
}

#[test]
fn a_backend_follows_the_simulated_compute_engine() {
    let config = load(&format!("{NEGS}[sim.compute]\n"), &[]).unwrap();
    let sim = neg(&config).sim.as_ref().unwrap();
    assert_eq!(sim.listen, "127.0.0.1:0".parse().unwrap());
    assert_eq!(sim.token, None);
    let backend = compute(&config);
    assert_eq!(backend.credentials, CredentialsAt::Simulated);
    let address = "127.0.0.1:1234".parse().unwrap();
    assert_eq!(
        backend.settings(Some(address)).endpoint,
        "http://127.0.0.1:1234/compute/v1"
    );

    let elsewhere = [("TRUEUP_BACKEND_NEG_URL", "http://127.0.0.1:9/x")];
    let config = load(&format!("{NEGS}[sim.compute]\n"), &elsewhere).unwrap();
    assert_eq!(
        compute(&config).settings(Some(address)).endpoint,
        "http://127.0.0.1:9/x"
    );
    assert!(
        neg(&config).sim.is_none(),
        "no server starts that the backend does not ask"
    );
    let in_process = [("TRUEUP_BACKEND_NEG_KIND", "simulated")];
    let config = load(&format!("{NEGS}[sim.compute]\n"), &in_process).unwrap();
    assert_eq!(neg(&config).backend, NegBackend::Simulated);
    assert!(neg(&config).sim.is_none(), "a variable leaves the file as it is");
}

#[test]
fn credentials_come_from_one_place() {
    let with = |keys: &str, environment: &[(&str, &str)]| {
        let config = load(&format!("{NEGS}{keys}\n"), environment).unwrap();
        (
            compute(&config).credentials.clone(),
            config.file.parent().unwrap().to_owned(),
        )
    };
    let (key, folder) = with("credentials_file = \"key.json\"", &[]);
    assert_eq!(key, CredentialsAt::KeyFile(folder.join("key.json")));
    let (token, _) = with("token_env = \"GCE_TOKEN\"", &[("GCE_TOKEN", "secret")]);
    assert_eq!(token, CredentialsAt::Token(TokenAt::Variable("GCE_TOKEN".to_owned())));
    let over = [("TRUEUP_BACKEND_NEG_TOKEN_FILE", "/run/token")];
    let (token, _) = with("credentials_file = \"key.json\"", &over);
    assert_eq!(
        token,
        CredentialsAt::Token(TokenAt::File("/run/token".into())),
        "a variable comes before the file"
    );
    negs_refused_with(
        "",
        "credentials_file = \"key.json\"\ntoken_file = \"token\"\n",
        &[
            "trueup.toml:12: backend.neg.credentials_file: goes without `token_file` and `token_env`: leave one of them out",
        ],
    );
    negs_refused_with(
        "",
        "token = \"secret\"\n",
        &[
            "trueup.toml:12: backend.neg.token: a token does not stand here: put it into a file, and the file's path into `token_file`",
        ],
    );
}

#[test]
fn the_adapter_alone_names_negs_and_zones() {
    negs_refused_with(
        "use = \"builtin:neg@1\"",
        "use = \"builtin:neg@1\"\n[guests.neg.settings]\nneg_names = { default = \"web\" }\nzones = [\"z1\"]",
        &[
            "trueup.toml:7: guests.neg.settings.neg_names: is what [adapter.neg] says of each Service and cluster: leave it out",
            "trueup.toml:8: guests.neg.settings.zones: is what [adapter.neg] says of each Service and cluster: leave it out",
        ],
    );
}

#[test]
fn mistakes_about_negs_are_named() {
    let resource = "must be 1 to 63 lower case letters, digits and `-`, with a letter first and no `-` last";
    negs_refused_with(
        "subnet = \"default\"",
        "subent = \"default\"",
        &[
            "trueup.toml:8: unknown key `subent` in [adapter.neg]; did you mean `subnet`? (known: cluster, subnet, \
           subnet_label, zones)",
        ],
    );
    negs_refused_with(
        "subnet = \"default\"",
        "",
        &[&format!(
            "trueup.toml:6: adapter.neg.subnet: is missing, {resource}; or `subnet_label` says which Node is in which"
        )],
    );
    negs_refused_with(
        "subnet = \"default\"",
        "subnet = \"Default\"\nsubnet_label = \"a//b\"\nzones = [\"z1\", \"z1\", \"\"]",
        &[
            &format!("trueup.toml:8: adapter.neg.subnet: was \"Default\", {resource}"),
            "trueup.toml:9: adapter.neg.subnet_label: was \"a//b\", must be the name of a label of Nodes, such as \
             `example.com/subnet`",
            "trueup.toml:10: adapter.neg.zones[1]: was \"z1\", must differ from zones[0]",
            &format!("trueup.toml:10: adapter.neg.zones[2]: was \"\", {resource}"),
        ],
    );
    negs_refused_with(
        "project = \"p\"",
        "project = \"P\"\nconcurent = 3\npoll_min_ms = 5\npoll_max_ms = 4",
        &[
            "trueup.toml:11: backend.neg.project: was \"P\", must be the id of a project, such as `my-project`",
            "trueup.toml:12: unknown key `concurent` in [backend.neg]; did you mean `concurrent`? (known: allow_http, concurrent, \
             connect_timeout_ms, credentials_file, ensure_timeout_ms, kind, network, network_project, \
             operation_timeout_ms, poll_max_ms, poll_min_ms, project, request_timeout_ms, requests_per_second, \
             token_env, token_file, url)",
            "trueup.toml:14: backend.neg.poll_max_ms: was 4, must be at least `poll_min_ms`, 5",
        ],
    );
    negs_refused_with(
        "kind = \"compute\"\nproject = \"p\"",
        "kind = \"simulated\"\nproject = \"p\"\n[sim.compute]",
        &[
            "trueup.toml:11: backend.neg.project: goes with `kind = \"compute\"` alone",
            "trueup.toml:12: [sim.compute] speaks HTTP, which goes with `backend.neg.kind = \"compute\"` alone",
        ],
    );
    negs_refused_with(
        "project = \"p\"\n",
        "",
        &["trueup.toml:9: backend.neg.project: is missing, must be the id of a project, such as `my-project`"],
    );
    negs_refused_with(
        "kind = \"compute\"",
        "kind = \"anexia\"",
        &["trueup.toml:10: backend.neg.kind: was \"anexia\", must be \"compute\" or \"simulated\""],
    );
    negs_refused_with(
        "",
        "url = \"http://127.0.0.1:9481/compute/v1\"\n[sim.compute]\nlisten = \"127.0.0.1:9482\"\nlatency_ms = -1\n\
         operatoin_ms = 3\n",
        &[
            "trueup.toml:14: sim.compute.listen: was 127.0.0.1:9482, must be where `backend.neg.url` is, \
             http://127.0.0.1:9481/compute/v1; or leave `url` out, and it follows",
            "trueup.toml:15: sim.compute.latency_ms: was -1, must be a whole number from 0 to 600000",
            "trueup.toml:16: unknown key `operatoin_ms` in [sim.compute]; did you mean `operation_ms`? (known: \
             endpoints_max, faults, ipv6_long, latency_ms, listen, operation_ms, rate_limit_per_second, retry_after, \
             state_file, token_env, token_file, wait_ms)",
        ],
    );
}

#[test]
fn sections_of_negs_that_do_not_fit_are_named_with_the_lines_to_add() {
    refused(
        "[sim.compute]\n",
        &[
            "trueup.toml: [source] is missing: add `[source]` with `manifests = \"manifests\"`, a folder of Kubernetes YAML, \
             or with `kubernetes = {}`, a cluster",
            "trueup.toml:1: [sim.compute] needs an adapter: add `[adapter.neg]` with `cluster = \"c1\"` and \
             `subnet = \"default\"`",
        ],
    );
    refused(
        "[source]\nmanifests = \"m\"\n[adapter.neg]\ncluster = \"c1\"\nsubnet = \"default\"\n",
        &[
            "trueup.toml:3: [adapter.neg] needs a backend that acts: add `[backend.neg]` with `kind = \"compute\"` and \
             `project = \"my-project\"`, or with `kind = \"simulated\"`",
            "trueup.toml:3: [adapter.neg] needs a guest that decides: add `[guests.neg]` with `use = \"builtin:neg@1\"` and \
             `grants = { neg = { read = [\"*\"], write = [\"*\"] } }`",
        ],
    );
}

#[test]
fn in_a_cluster_slices_are_needed_too() {
    let kinds = needed(&in_a_cluster(NEGS, ""));
    assert_eq!(kinds, [Kind::Service, Kind::Node, Kind::EndpointSlice]);
    refused(
        &in_a_cluster(NEGS, "watch = [\"pods\"]"),
        &[
            "trueup.toml:3: source.kubernetes.watch: must hold \"endpointslices\", which network endpoint groups are made from",
            "trueup.toml:3: source.kubernetes.watch: must hold \"nodes\", which network endpoint groups are made from",
            "trueup.toml:3: source.kubernetes.watch: must hold \"services\", which network endpoint groups are made from",
        ],
    );
}

#[test]
fn load_balancers_and_negs_have_one_source() {
    let of_negs = NEGS.replace("[source]\nmanifests = \"manifests\"\n", "");
    let config = load(&format!("{LEAST}{of_negs}"), &[]).unwrap();
    assert_eq!(neg(&config).source, lbaas(&config).source);
    assert_eq!(
        config.guests().iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["lbaas", "neg"]
    );
}

#[test]
fn the_example_of_negs_fits_together() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/neg");
    let config = Config::load_with(&folder, &BTreeMap::new(), &WORLDS).unwrap();
    let sim = neg(&config).sim.as_ref().unwrap();
    assert!(
        compute(&config)
            .settings(Some(sim.listen))
            .endpoint
            .starts_with("http://127.0.0.1:")
    );
}
