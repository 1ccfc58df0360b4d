//! A world that this crate does not know: its caller lists it.

use std::marker::PhantomData;

use serde::Deserialize;

use super::*;

/// `[adapter.names]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Names {
    prefix: String,
    #[serde(default = "five")]
    length: u32,
    #[serde(default)]
    more: Vec<More>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct More {
    name: String,
}

fn five() -> u32 {
    5
}

static NAMES: PlainWorld<Names> = PlainWorld {
    name: "names",
    subject: "names of Services",
    adapter: "`[adapter.names]` with `prefix = \"/names/\"`",
    guest: "`[guests.names]` with `use = \"builtin:names@1\"`",
    needs: &[Kind::Service, Kind::Pod],
    of: PhantomData,
};

/// The smallest valid sections of the world.
const NAMED: &str = r#"
[source]
manifests = "manifests"
[guests.names]
use = "builtin:names@1"
[adapter.names]
prefix = "/names/"
"#;

fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    load_worlds(text, environment, &[IPAM, LBAAS, NODE, &NAMES])
}

#[track_caller]
fn refused(text: &str, said: &[&str]) {
    let error = load(text, &[]).expect_err("the file must be refused");
    assert_eq!(error.lines().collect::<Vec<_>>(), said, "of:\n{text}");
}

#[test]
fn a_world_of_the_caller_has_a_guest_and_an_adapter() {
    let config = load(&format!("{NAMED}[backend.etcd]\nkind = \"simulated\"\n"), &[]).unwrap();
    let names = config.world::<Plain<Names>>().unwrap();
    let adapter = Names {
        prefix: "/names/".to_owned(),
        length: 5,
        more: Vec::new(),
    };
    assert_eq!(names.adapter, adapter);
    assert_eq!(names.guest.reference.to_string(), "builtin:names@1");
    let manifests = config.file.parent().unwrap().join("manifests");
    assert_eq!(names.source, Source::Manifests(manifests));
    assert_eq!(config.source(), Some(&names.source));
    assert_eq!(config.guests(), [("names", &names.guest)]);
    assert!(config.world::<Lbaas>().is_none() && !config.has_own_server());

    let mut approved = config.clone();
    approved.approve();
    let percent = |config: &Config| config.guests()[0].1.approve_above.percent;
    assert_eq!((percent(&config), percent(&approved)), (50, 100));
}

#[test]
fn mistakes_of_a_callers_adapter_are_one_line_each() {
    refused(
        &NAMED.replace("prefix = \"/names/\"", "length = 7"),
        &["trueup.toml:6: adapter.names: missing field `prefix`"],
    );
    refused(
        &format!("{NAMED}length = \"7\"\n"),
        &["trueup.toml:8: adapter.names.length: invalid type: string \"7\", expected u32"],
    );
    refused(
        &format!("{NAMED}lenght = 7\n"),
        &["trueup.toml:8: adapter.names: unknown field `lenght`, expected one of `prefix`, `length`, `more`"],
    );
    refused(
        &format!("{NAMED}more = [\n  {{ name = \"a\" }},\n  {{ name = 7 }},\n]\n"),
        &["trueup.toml:10: adapter.names.more: invalid type: integer `7`, expected a string"],
    );
    let outside = load(NAMED, &[("TRUEUP_ADAPTER_NAMES_LENGTH", "7")]).unwrap_err();
    assert_eq!(
        outside,
        "TRUEUP_ADAPTER_NAMES_LENGTH: `adapter.names` is a list or a table, which the file alone can set"
    );
}

#[test]
fn a_world_of_the_caller_fits_together_with_the_rest() {
    let adapter = "add `[adapter.names]` with `prefix = \"/names/\"`";
    refused(
        "[guests.names]\nuse = \"builtin:names@1\"\n",
        &[
            "trueup.toml: [source] is missing: add `[source]` with `manifests = \"manifests\"`, a folder of Kubernetes YAML, \
             or with `kubernetes = {}`, a cluster",
            &format!("trueup.toml:1: [guests.names] needs an adapter: {adapter}"),
        ],
    );
    refused(
        "[source]\nmanifests = \"m\"\n[adapter.names]\nprefix = \"/names/\"\n",
        &[
            "trueup.toml:3: [adapter.names] needs a guest that decides: add `[guests.names]` with \
           `use = \"builtin:names@1\"`",
        ],
    );
    let nothing = load("", &[]).unwrap_err();
    assert!(nothing.starts_with("trueup.toml: nothing to do: "), "{nothing}");
    let clustered = NAMED.replace("manifests = \"manifests\"", "kubernetes = { watch = [\"services\"] }");
    refused(
        &clustered,
        &["trueup.toml:3: source.kubernetes.watch: must hold \"pods\", which names of Services are made from"],
    );
    let elected = load(&NAMED.replace("manifests = \"manifests\"", "kubernetes = {}"), &[]).unwrap();
    assert!(elected.election.is_some(), "its hosts elect one");
    let renderers = NAMED.replace(
        "[adapter.names]",
        "[adapter.service]\nrenderers = [\"names\"]\n[adapter.names]",
    );
    let error = load(&renderers, &[]).unwrap_err();
    assert!(
        error.contains("must name a renderer's [guests.NAME]: none of ipam, lbaas, names, nodesync, service, and"),
        "{error}"
    );
}
