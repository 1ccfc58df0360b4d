//! `docs/schema.json` says what each command prints with `-o json`: the real output of each is held against it.
//!
//! `BLESS=1` adds to the file what an output has and the file does not. What is optional in it stays optional.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use needs::needs;
use serde_json::{Map, Value, json};
use support::{Engine, Site, trueup};

use crate::commands::COMMANDS;
use crate::registry::DockerRegistry;

/// Commands that write no JSON: servers, and texts for other programs.
const WITHOUT_JSON: [&str; 5] = ["completions", "journal serve", "man", "sim compute", "sim lbaas"];

/// Values of guests, whose form is that of their WIT, and maps whose names are data: anything fits.
const FREE: [&str; 9] = [
    "accepted", "answer", "args", "asked", "config", "limits", "recorded", "result", "settings",
];

/// Adds to a schema what this value has.
fn learn(schema: &mut Value, value: &Value) {
    // The file says that anything fits.
    if schema.as_object().is_some_and(Map::is_empty) {
        return;
    }
    let is_new = schema.get("type").is_none();
    let mut types: BTreeSet<String> = schema["type"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    types.insert(type_of(value).to_owned());
    schema["type"] = json!(types);
    match value {
        Value::Array(items) => items.iter().for_each(|item| learn(&mut schema["items"], item)),
        Value::Object(fields) => {
            let was_object = !is_new && schema["required"].is_array();
            for (name, value) in fields {
                let of = &mut schema["properties"][name];
                match FREE.contains(&&**name) {
                    true => *of = json!({}),
                    false => learn(of, value),
                }
            }
            let is_there = |name: &Value| fields.contains_key(name.as_str().unwrap());
            schema["required"] = match was_object {
                true => schema["required"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|name| is_there(name))
                    .cloned()
                    .collect(),
                false => fields.keys().cloned().collect(),
            };
        }
        _ => {}
    }
}

/// Whatever in a value does not fit a schema, each with its place.
fn misfits(schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let Some(types) = schema["type"].as_array() else {
        return Vec::new();
    };
    if !types.contains(&json!(type_of(value))) {
        return vec![format!("{place}: {value} is none of {types:?}")];
    }
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .flat_map(|(index, item)| misfits(&schema["items"], item, &format!("{place}[{index}]")))
                .collect()
        }
        Value::Object(fields) => {
            let required = schema["required"].as_array().into_iter().flatten();
            let missing = required.filter(|name| !fields.contains_key(name.as_str().unwrap()));
            let mut found: Vec<String> = missing.map(|name| format!("{place}: {name} is missing")).collect();
            for (name, value) in fields {
                let place = format!("{place}.{name}");
                // Without any, nothing is said of them.
                let Some(properties) = schema["properties"].as_object() else {
                    continue;
                };
                match properties.get(name) {
                    Some(schema) => found.extend(misfits(schema, value, &place)),
                    None => found.push(format!("{place} is not in the schema")),
                }
            }
            found
        }
        _ => Vec::new(),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What a command prints, by its name.
fn told(words: &[&str], more: &[&str], codes: &[i32]) -> (String, Value) {
    let ran = trueup(words.iter().chain(more).chain(&["-o", "json"]));
    assert!(ran.code.is_some_and(|code| codes.contains(&code)), "{words:?}: {ran}");
    (words.join(" "), ran.json())
}

/// The output of each command about pod addresses and what guests store.
fn outputs_of_pods() -> Vec<(String, Value)> {
    let site = Site::ipam();
    let config = site.folder().to_str().unwrap();
    let written = site.path("written");
    let store = site.state_dir().join("checkpoints/ipam");
    let (written, store) = (written.to_str().unwrap(), store.to_str().unwrap());
    let host = crate::ipam::Host::start(&site);
    host.gives("c1", "10.0.0.2", 0);
    let mut all = vec![
        told(&["ipam", "show"], &[config], &[0]),
        told(&["ipam", "release"], &[config, "--container", "c1"], &[0, 3]),
        told(&["checkpoint", "show"], &[store], &[0]),
        told(&["guest", "verify"], &[config], &[0]),
        told(&["guest", "lock"], &[config], &[0]),
        told(&["init"], &[written, "--world", "ipam"], &[0]),
    ];
    host.ends();
    let copy = site.path("copy");
    let copy = copy.to_str().unwrap();
    all.extend([
        told(&["checkpoint", "verify"], &[store], &[0]),
        told(&["checkpoint", "copy"], &[store, copy], &[0]),
        told(&["checkpoint", "copy"], &[store, copy, "--replace"], &[0]),
        told(&["checkpoint", "restore"], &[copy, "--generation", "1"], &[0]),
        told(&["checkpoint", "accept"], &[store], &[0]),
    ]);
    let (_, release) = &all[1];
    assert!(release.to_string().contains("c1"), "{release}");
    all
}

/// The output of each command about a registry.
fn outputs_of_a_registry() -> Vec<(String, Value)> {
    let registry = DockerRegistry::start();
    let site = Site::quickstart();
    let (config, file) = (site.folder(), site.path("lbaas.wasm"));
    fs::write(&file, trueup_guests_builtin::find("lbaas", "2").unwrap().bytes).unwrap();
    let pushed = told(&["guest", "push"], &[file.to_str().unwrap(), &registry.tag("2")], &[0]);
    let exact = pushed.1["reference"].as_str().unwrap().to_owned();
    let pulled = told(
        &["guest", "pull"],
        &[&exact, "--config", config.to_str().unwrap()],
        &[0],
    );
    vec![pushed, pulled]
}

/// The output of the command about network endpoint groups.
fn outputs_of_negs() -> Vec<(String, Value)> {
    let site = Site::example("neg");
    let mut host = site.start("run", &[]);
    host.wait_for("default/web/80 ");
    let config = site.folder().to_str().unwrap();
    let set = ["default/web/80", "on", "--config", config];
    let all = vec![told(&["neg", "error-state"], &set, &[0])];
    host.kill();
    all
}

/// The output of each other command.
fn outputs() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let engine = Engine::start(&["--settle-ms", "20"]);
    let site = Site::against(&engine);
    let config = site.folder().to_str().unwrap().to_owned();
    let state = site.state_dir().display().to_string();
    let mut tell = |words: &[&str], more: &[&str], codes: &[i32]| {
        all.push(told(words, more, codes));
    };
    tell(&["version"], &[], &[0]);
    tell(&["guest", "list"], &[], &[0]);
    tell(&["guest", "inspect"], &["ipam@1"], &[0]);
    tell(&["plan"], &[&config], &[3]);
    tell(&["check"], &[&config], &[0, 1]);
    tell(&["run"], &["--once", &config], &[0]);
    tell(&["plan"], &[&config, "--orphans"], &[0]);
    tell(&["replay"], &[&state], &[0]);
    tell(&["replay"], &[&state, "--guest", "lbaas@2"], &[0, 3]);
    tell(&["journal", "show"], &[&state], &[0]);
    tell(&["grants", "infer"], &[&state], &[0]);
    tell(&["explain"], &["default/web", "--config", &config], &[0]);
    tell(&["guest", "history"], &["lbaas", "--config", &config], &[0]);
    tell(&["audit", "verify"], &["--config", &config], &[0]);
    tell(&["audit", "show"], &["--config", &config], &[0]);
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/scenarios/lbaas/check.yaml");
    tell(&["test"], &[scenarios], &[0]);
    let recordings = format!("{state}/journals/lbaas");
    tell(&["journal", "to-scenario"], &[&recordings], &[0]);

    let mut host = site.start("run", &[]);
    for key in ["default/api ", "default/web ", "kube-system/dns "] {
        host.wait_for(key);
    }
    tell(&["status"], &["--keys", "--config", &config], &[0]);
    tell(&["guest", "status"], &["--config", &config], &[0]);
    tell(
        &["guest", "shadow", "start"],
        &["lbaas", "lbaas@2", "--config", &config],
        &[0],
    );
    tell(&["guest", "shadow", "status"], &["lbaas", "--config", &config], &[0]);
    let after = ["lbaas", "--after", "100-same", "--config", &config];
    tell(&["guest", "shadow", "promote"], &after, &[0]);
    tell(&["guest", "shadow", "stop"], &["lbaas", "--config", &config], &[0]);
    tell(
        &["guest", "swap"],
        &["lbaas", "lbaas@2", "--gate", "report", "--config", &config],
        &[0],
    );
    tell(&["guest", "rollback"], &["lbaas", "--config", &config], &[0]);
    tell(&["reconcile"], &["default/web", "--config", &config], &[0]);
    tell(&["approve"], &["--config", &config], &[0]);
    host.kill();
    all
}

#[needs(docker_registry)]
#[test]
fn the_output_of_every_command_fits_the_published_schema() {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema.json");
    let mut schema: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let outputs = [outputs(), outputs_of_pods(), outputs_of_negs(), outputs_of_a_registry()].concat();
    if std::env::var_os("BLESS").is_some() {
        for (command, output) in &outputs {
            learn(&mut schema["$defs"][command], output);
        }
        fs::write(&file, serde_json::to_string_pretty(&schema).unwrap() + "\n").unwrap();
    }
    let defs: &Map<String, Value> = schema["$defs"].as_object().unwrap();
    for (command, output) in &outputs {
        let misfits = misfits(&defs[command], output, command);
        assert_eq!(misfits, [""; 0], "docs/schema.json; BLESS=1 adds what is new");
    }
    for command in COMMANDS.map(|words| words.join(" ")) {
        let is_in = defs.contains_key(&command);
        assert_ne!(
            is_in,
            WITHOUT_JSON.contains(&&*command),
            "docs/schema.json: `{command}`"
        );
    }
    // A program asks for the schema's version before it relies on it.
    assert_eq!(trueup(["version", "-o", "json"]).json()["schema"], schema["version"]);
    // The check can fail.
    let mut wrong = outputs[0].1.clone();
    wrong["schema"] = json!("1");
    wrong["more"] = json!(1);
    wrong.as_object_mut().unwrap().remove("target");
    assert_eq!(misfits(&defs["version"], &wrong, "version").len(), 3);
}
