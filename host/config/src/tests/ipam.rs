//! `[guests.ipam]`, `[adapter.ipam]`, `[backend.checkpoint]` and `[backend.cri]`.

use trueup_capabilities::checkpoint::file;

use super::*;

/// The smallest valid configuration for pod addresses. The tests below change it.
const PODS: &str = r#"
[guests.ipam]
use = "builtin:ipam@1"
[adapter.ipam]
enis_file = "enis.json"
"#;

fn ipam(config: &Config) -> &Ipam {
    config.world::<Ipam>().expect("pod addresses")
}

/// Like [`refused_with`], for [`PODS`].
#[track_caller]
fn pods_refused_with(from: &str, to: &str, said: &[&str]) {
    assert!(PODS.contains(from), "`{from}` is not in the file to change");
    refused(&PODS.replacen(from, to, 1), said);
}

#[test]
fn pod_addresses_need_no_more_than_a_guest_and_a_list_of_interfaces() {
    let config = load(PODS, &[]).unwrap();
    let folder = config.file.parent().unwrap();
    assert!(config.world::<Lbaas>().is_none());
    let ipam = ipam(&config);
    assert_eq!(ipam.guest.settings, json!({}));
    assert_eq!(ipam.enis, EnisFrom::File(folder.join("enis.json")));
    let adapter = IpamAdapter {
        instance: "ipam".to_owned(),
        socket: PathBuf::from("/run/trueup/cni.sock"),
        spool_dir: Some(PathBuf::from("/var/lib/trueup/cni-spool")),
        released_file: folder.join(".trueup/released.json"),
        warm: None,
    };
    assert_eq!(ipam.adapter, adapter);
    let checkpoint = CheckpointAt::File(file::Settings {
        path: folder.join(".trueup/checkpoints/ipam"),
        shared_sync: true,
        keep_generations: 3,
    });
    assert_eq!(ipam.checkpoint, checkpoint);
    assert_eq!(ipam.runtime_socket, None);
    assert!(!ipam.reads_from_runtime());
}

#[test]
fn every_key_of_pod_addresses_is_read() {
    let text = r#"
state_dir = "/var/lib/trueup"
[guests.ipam]
use = "builtin:ipam@1"
settings = { cooling_period_ms = 1000, checkpoint_migration_phase = 1 }
grants = { checkpoint = { read = ["own"], write = ["*"] }, cri = { read = ["sandboxes"] } }
[adapter.ipam]
instance = "node-1"
socket = "cni.sock"
spool_dir = "spool"
released_file = "/run/released.json"
minimum_ip_target = 5
[[adapter.ipam.enis]]
id = "eni-1"
device_number = 0
is_primary = true
addresses = ["10.0.0.2", "10.0.0.3"]
[[adapter.ipam.enis]]
id = ""
device_number = -1
is_trunk = true
addresses = []
[backend.checkpoint]
shared_sync = false
keep_generations = 0
[backend.cri]
socket = "/run/crio.sock"
"#;
    let config = load(text, &[]).unwrap();
    let folder = config.file.parent().unwrap();
    let ipam = ipam(&config);
    let grants = &ipam.guest.grants;
    assert!(grants.allow("checkpoint", Access::Read, "own") && grants.allow("checkpoint", Access::Write, "own"));
    assert!(grants.allow("cri", Access::Read, "sandboxes"));
    assert!(ipam.reads_from_runtime());
    let adapter = IpamAdapter {
        instance: "node-1".to_owned(),
        socket: folder.join("cni.sock"),
        spool_dir: Some(folder.join("spool")),
        released_file: PathBuf::from("/run/released.json"),
        warm: Some(WarmTargets {
            warm_ip_target: 0,
            minimum_ip_target: 5,
        }),
    };
    assert_eq!(ipam.adapter, adapter);
    let eni = |id: &str, device_number, is_primary, is_trunk, addresses: &[&str]| trueup_sources::enis::Eni {
        id: id.to_owned(),
        device_number,
        is_primary,
        is_trunk,
        addresses: addresses.iter().map(ToString::to_string).collect(),
    };
    let enis = vec![
        eni("eni-1", 0, true, false, &["10.0.0.2", "10.0.0.3"]),
        eni("", -1, false, true, &[]),
    ];
    assert_eq!(ipam.enis, EnisFrom::Given(trueup_sources::enis::Enis { enis }));
    let checkpoint = CheckpointAt::File(file::Settings {
        path: PathBuf::from("/var/lib/trueup/checkpoints/node-1"),
        shared_sync: false,
        keep_generations: 0,
    });
    assert_eq!(ipam.checkpoint, checkpoint, "named as the instance");
    assert_eq!(ipam.runtime_socket, Some(PathBuf::from("/run/crio.sock")));
}

#[test]
fn checkpoints_may_be_kept_elsewhere() {
    let checkpoint = |kind: &str, environment: &[(&str, &str)]| {
        let guest = "use = \"builtin:ipam@1\"";
        let text = PODS.replace(guest, &format!("{guest}\nsettings = {{ compact_after = 0 }}"));
        let config = load(&format!("{text}[backend.checkpoint]\n{kind}\n"), environment).unwrap();
        ipam(&config).checkpoint.clone()
    };
    assert_eq!(checkpoint("kind = \"simulated\"", &[]), CheckpointAt::Simulated);

    let original = |path: &str| CheckpointAt::JsonFile {
        path: PathBuf::from(path),
        keep_generations: 3,
    };
    let (own, of_original) = ("kind = \"json-file\"", "AWS_VPC_K8S_CNI_BACKING_STORE");
    assert_eq!(checkpoint(own, &[]), original("/var/run/aws-node/ipam.json"));
    assert_eq!(checkpoint(own, &[(of_original, "/a.json")]), original("/a.json"));
    let named = format!("{own}\npath = \"/b.json\"");
    assert_eq!(
        checkpoint(&named, &[(of_original, "/a.json")]),
        original("/b.json"),
        "the original's variable is a default, no override"
    );
}

#[test]
fn a_variable_may_choose_another_list_of_interfaces_and_another_storage() {
    let listed = PODS.replace(
        "enis_file = \"enis.json\"",
        "enis = [{ id = \"eni-1\", device_number = 0, addresses = [] }]\n[backend.checkpoint]\npath = \"ipam\"\n\
         shared_sync = true",
    );
    let environment = [
        ("TRUEUP_ADAPTER_IPAM_ENIS_FILE", "/run/enis.json"),
        ("TRUEUP_ADAPTER_IPAM_SPOOL_DIR", "false"),
        ("TRUEUP_BACKEND_CHECKPOINT_KIND", "simulated"),
    ];
    let config = load(&listed, &environment).unwrap();
    assert_eq!(ipam(&config).enis, EnisFrom::File(PathBuf::from("/run/enis.json")));
    assert_eq!(ipam(&config).adapter.spool_dir, None);
    assert_eq!(ipam(&config).checkpoint, CheckpointAt::Simulated);
}

#[test]
fn load_balancers_and_pod_addresses_go_together() {
    let config = load(&format!("{LEAST}{PODS}"), &[]).unwrap();
    assert!(config.world::<Lbaas>().is_some() && config.world::<Ipam>().is_some());
    refused(
        &format!("[source]\nmanifests = \"m\"{PODS}"),
        &[
            "trueup.toml:1: [source] needs an adapter that takes from it: add `[adapter.lbaas]` with `cluster = \"c1\"` and \
           `load_balancers = [\"lb-1\"]`, or `[adapter.neg]` with `cluster = \"c1\"` and `subnet = \"default\"`, or \
           `[adapter.node]` with `name = \"node-a\"`",
        ],
    );
}

#[test]
fn interfaces_are_checked_where_they_stand() {
    let listed = |enis: &str| format!("enis = [\n{enis}]\n");
    let canonical = "must be an IPv4 address: four numbers from 0 to 255 without leading zeros, and nothing else";
    pods_refused_with(
        "enis_file = \"enis.json\"\n",
        &listed(
            " { id = \"a\", device_number = 0, addresses = [\"10.0.0.1\", \"10.0.0.01\", \"10.0.0.2/32\"] },\n \
             { id = \"a\", device_number = 1, addresses = [\"10.0.0.1\"] },\n",
        ),
        &[
            &format!("trueup.toml:6: adapter.ipam.enis[0].addresses[1]: was \"10.0.0.01\", {canonical}"),
            &format!("trueup.toml:6: adapter.ipam.enis[0].addresses[2]: was \"10.0.0.2/32\", {canonical}"),
            "trueup.toml:7: adapter.ipam.enis[1].addresses[0]: was \"10.0.0.1\", must differ from enis[0].addresses[0]",
            "trueup.toml:7: adapter.ipam.enis[1].id: was \"a\", must differ from enis[0].id",
        ],
    );
    pods_refused_with(
        "enis_file = \"enis.json\"\n",
        &listed(" { id = \"a\", device_number = 0, adresses = [] },\n { id = \"b\", addresses = [] },\n"),
        &[
            "trueup.toml:6: adapter.ipam.enis[0]: unknown field `adresses`, expected one of `id`, `device_number`, \
             `is_primary`, `is_trunk`, `addresses`",
            "trueup.toml:7: adapter.ipam.enis[1]: missing field `device_number`",
        ],
    );
    pods_refused_with(
        "enis_file = \"enis.json\"",
        "enis = []",
        &["trueup.toml:5: adapter.ipam.enis: was [], must hold at least one network interface"],
    );
    pods_refused_with(
        "enis_file = \"enis.json\"",
        "enis_file = \"enis.json\"\nenis = [{ id = \"a\", device_number = 0, addresses = [] }]",
        &["trueup.toml:6: adapter.ipam.enis: goes without `enis_file`: leave one of them out"],
    );
    pods_refused_with(
        "enis_file = \"enis.json\"",
        "",
        &[
            "trueup.toml:4: adapter.ipam.enis_file: is missing, must be the path of a JSON file with this node's network \
           interfaces; or they stand in `enis`",
        ],
    );
}

#[test]
fn sections_of_pod_addresses_that_do_not_fit_are_named() {
    refused(
        "[backend.cri]\nsocket = \"/run/crio.sock\"\n",
        &["trueup.toml:1: [backend.cri] needs an adapter: add `[adapter.ipam]` with `enis_file = \"enis.json\"`"],
    );
    refused(
        "[adapter.ipam]\nenis_file = \"enis.json\"\n",
        &[
            "trueup.toml:1: [adapter.ipam] needs a guest that decides: add `[guests.ipam]` with \
           `use = \"builtin:ipam@1\"` and `grants = { checkpoint = { read = [\"own\"], write = [\"own\"] } }`",
        ],
    );
    pods_refused_with(
        "use = \"builtin:ipam@1\"",
        "use = \"builtin:ipam@1\"\n\
         grants = { checkpoint = { read = [\"mine\"], write = [\"*\"] }, cri = { read = [\"own\"] } }",
        &[
            "trueup.toml:4: guests.ipam.grants.checkpoint.read[0]: was \"mine\", must be \"own\", or \"*\" for everything",
            "trueup.toml:4: guests.ipam.grants.cri.read[0]: was \"own\", must be \"sandboxes\", or \"*\" for everything",
        ],
    );
    pods_refused_with(
        "enis_file = \"enis.json\"\n",
        "enis_file = \"enis.json\"\n[backend.checkpoint]\nkind = \"json-file\"\nshared_sync = true\n",
        &[
            "trueup.toml:7: backend.checkpoint.kind: was \"json-file\", which keeps no entries after a checkpoint: set \
             `compact_after = 0` in `guests.ipam.settings`",
            "trueup.toml:8: backend.checkpoint.shared_sync: goes with `kind = \"file\"` alone",
        ],
    );
    pods_refused_with(
        "enis_file = \"enis.json\"\n",
        "enis_file = \"enis.json\"\n[backend.checkpoint]\nkind = \"simulated\"\npath = \"here\"\n",
        &["trueup.toml:8: backend.checkpoint.path: goes with every kind but \"simulated\""],
    );
    pods_refused_with(
        "enis_file = \"enis.json\"\n",
        "enis_file = \"enis.json\"\ninstance = \"my node\"\nspool_dir = true\nsokcet = \"s\"\n\
         [backend.checkpoint]\nkind = \"files\"\n",
        &[
            "trueup.toml:6: adapter.ipam.instance: was \"my node\", must be 1 to 63 letters, digits, `-`, `_` or `.`",
            "trueup.toml:7: adapter.ipam.spool_dir: was true, must be a path, or false for none",
            "trueup.toml:8: unknown key `sokcet` in [adapter.ipam]; did you mean `socket`? (known: enis, enis_file, \
             instance, minimum_ip_target, released_file, socket, spool_dir, warm_ip_target)",
            "trueup.toml:10: backend.checkpoint.kind: was \"files\", must be \"file\" or \"json-file\" or \
             \"simulated\"",
        ],
    );
    let long = format!("/{}", "s".repeat(107));
    pods_refused_with(
        "enis_file = \"enis.json\"\n",
        &format!("enis_file = \"enis.json\"\nsocket = \"{long}\"\n"),
        &[&format!(
            "trueup.toml:6: adapter.ipam.socket: was \"/{}..., must be a path of at most 107 bytes, which is what the address \
             of a socket holds: {long} has 108",
            "s".repeat(78)
        )],
    );
}
