//! The proposals for handwritten recordings.

use serde_json::{Value, json};
use tempfile::TempDir;
use trueup_capabilities::lbaas::Spec;

use super::*;

/// A folder with one recording: a header, followed by these lines with numbers.
fn recording(guest: &str, lines: &[Value]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let header = json!({"header": {"format": 1, "guest": guest, "version": "1", "digest": "sha256:1", "world": "w",
        "host": "h", "settings": {}, "limits": {}}});
    let mut text = String::new();
    for (n, line) in std::iter::once(&header).chain(lines).enumerate() {
        let mut line = line.clone();
        line["n"] = json!(n);
        text += &format!("{line}\n");
    }
    std::fs::write(folder.path().join("0.jsonl"), text).unwrap();
    folder
}

fn inferred(guest: &str, lines: &[Value]) -> Inferred {
    let folder = recording(guest, lines);
    let files = recordings(&[folder.path().to_owned()]).unwrap();
    let (mut inferred, torn) = infer(&files).unwrap();
    assert_eq!((inferred.len(), torn.len()), (1, 0));
    inferred.pop().unwrap()
}

fn call(load_balancers: &[&str]) -> Value {
    json!({"at_ms": 0, "call": "reconciliation.reconcile", "args": {"desired": {"load_balancers": load_balancers}}})
}

fn ask(name: &str, args: &Value, answer: &Value) -> Value {
    json!({"ask": name, "args": args, "answer": answer})
}

fn end() -> Value {
    json!({"result": {"Ok": {}}})
}

fn serialised(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

fn object(identifier: &str, spec: &Spec) -> Value {
    json!({"identifier": identifier, "state": "Ok", "spec": serialised(spec)})
}

mod specs {
    use trueup_capabilities::lbaas::{Backend, Bind, Frontend, Mode, Server, Spec};

    pub(super) fn backend(load_balancer: &str) -> Spec {
        Spec::Backend(Backend {
            name: String::new(),
            load_balancer: load_balancer.into(),
            mode: Mode::Tcp,
            health_check: String::new(),
        })
    }

    pub(super) fn frontend(load_balancer: &str, backend: &str) -> Spec {
        Spec::Frontend(Frontend {
            name: String::new(),
            load_balancer: load_balancer.into(),
            mode: Mode::Tcp,
            default_backend: backend.into(),
        })
    }

    pub(super) fn bind(frontend: &str) -> Spec {
        Spec::Bind(Bind {
            name: String::new(),
            frontend: frontend.into(),
            address: String::new(),
            port: 80,
        })
    }

    pub(super) fn server(backend: &str) -> Spec {
        Spec::Server(Server {
            name: String::new(),
            backend: backend.into(),
            ip: String::new(),
            port: 80,
            check: String::new(),
        })
    }
}

use specs::{backend, bind, frontend, server};

fn reference(kind: &str, identifier: &str) -> Value {
    json!({"kind": kind, "identifier": identifier})
}

#[test]
fn owners_are_found_through_parents_wherever_they_are_shown() {
    let found = inferred(
        "lbaas",
        &[
            call(&["lb-1"]),
            ask(
                "api.load-balancer",
                &json!({"identifier": "lb-1"}),
                &json!({"Ok": "Ok"}),
            ),
            ask(
                "api.list-tagged",
                &json!({"tag": "t"}),
                &json!({"Ok": [object("s1", &server("b3")), object("b3", &backend("lb-3"))]}),
            ),
            ask(
                "api.create",
                &json!({"specs": [serialised(&frontend("lb-2", "b1")), serialised(&bind("f4"))], "tags": []}),
                &json!([{"Ok": object("f2", &frontend("lb-2", "b1"))}, {"Err": {"Unavailable": "later"}}]),
            ),
            // The parents of `b1` and `f4` come later in the recording.
            ask(
                "api.get",
                &json!({"refs": [reference("Backend", "b1"), reference("Frontend", "f4"), reference("Bind", "gone")]}),
                &json!([{"Ok": object("b1", &backend("lb-1"))}, {"Ok": object("f4", &frontend("lb-4", ""))}, {"Err": "NotFound"}]),
            ),
            end(),
        ],
    );
    let text = found.to_toml();
    assert!(
        text.contains(
            "grants = { lbaas = { read = [\"lb-1\", \"lb-3\", \"lb-4\"], write = [\"lb-1\", \"lb-2\", \"lb-4\"] } }\n"
        ),
        "{text}"
    );
    assert_eq!(found.unattributed, 0, "{text}");
    assert!(
        text.starts_with("# [guests.lbaas]: from 1 recording, 1 call, 4 questions\n"),
        "{text}"
    );
}

#[test]
fn the_most_that_one_call_destroyed_is_proposed_as_a_limit() {
    let destroy = |identifiers: &[&str]| {
        let refs: Vec<Value> = identifiers.iter().map(|id| reference("Backend", id)).collect();
        let answers: Vec<Value> = identifiers
            .iter()
            .map(|id| {
                if *id == "stays" {
                    json!({"Err": "NotFound"})
                } else {
                    json!({"Ok": null})
                }
            })
            .collect();
        ask("api.destroy", &json!({ "refs": refs }), &json!(answers))
    };
    let found = inferred(
        "lbaas",
        &[
            call(&["lb-1"]),
            destroy(&["a", "stays"]),
            destroy(&["b"]),
            end(),
            call(&["lb-1"]),
            destroy(&["c"]),
            end(),
        ],
    );
    let text = found.to_toml();
    assert!(text.contains("destroy_max = 2\n"), "{text}");
    assert_eq!(found.unattributed, 3);
    assert!(
        text.contains("# not known: the load balancers of 3 resources that no recording shows, first api.destroy in ")
    );
}

#[test]
fn what_was_refused_is_said_and_not_granted() {
    let denied = |what: &str| json!({"Err": {"AccessDenied": what}});
    let no_write = denied("no grant to write load balancer `lb-2`");
    let found = inferred(
        "lbaas",
        &[
            call(&["lb-1", "lb-2"]),
            ask(
                "api.create",
                &json!({"specs": [serialised(&backend("lb-1")), serialised(&backend("lb-2"))], "tags": []}),
                &json!([{"Ok": object("b1", &backend("lb-1"))}, no_write]),
            ),
            end(),
            call(&["lb-1"]),
            ask(
                "api.destroy",
                &json!({"objects": [reference("backend", "b1")]}),
                &json!([denied(
                    "destroying 22 of 29 objects is more than 10: it waits for an approval"
                )]),
            ),
            end(),
            call(&["lb-3\n"]),
            ask(
                "api.load-balancer",
                &json!({"identifier": "lb-3\n"}),
                &denied("no grant to read load balancer `lb-3\n`"),
            ),
            end(),
        ],
    );
    let text = found.to_toml();
    assert!(
        text.contains("grants = { lbaas = { read = [\"lb-1\", \"lb-2\"], write = [\"lb-1\"] } }\n"),
        "{text}"
    );
    let refused =
        "# refused 1 time, and not granted here: api.create: no grant to write load balancer `lb-2`; first in ";
    assert!(text.contains(refused), "{text}");
    assert!(
        text.lines()
            .all(|line| line.starts_with("# ") || line.starts_with("grants = ")),
        "{text}"
    );
    assert_eq!(found.refused.len(), 2);
}

#[test]
fn a_reconcile_is_granted_to_write_all_that_it_names_where_it_writes_some() {
    let writes = ask(
        "api.create",
        &json!({"specs": [serialised(&backend("lb-1"))], "tags": []}),
        &json!([{"Ok": object("b1", &backend("lb-1"))}]),
    );
    let found = inferred(
        "lbaas",
        &[call(&["lb-2", "lb-3"]), end(), call(&["lb-1", "lb-2"]), writes, end()],
    );
    let text = found.to_toml();
    let all = "[\"lb-1\", \"lb-2\", \"lb-3\"]";
    assert!(text.contains(&format!("read = {all}, write = {all}")), "{text}");

    let looks = inferred("lbaas", &[call(&["lb-1", "lb-2"]), end()]).to_toml();
    assert!(
        looks.contains("grants = { lbaas = { read = [\"lb-1\", \"lb-2\"] } }\n"),
        "{looks}"
    );
    assert!(looks.contains("# nothing was written"), "{looks}");
}

#[test]
fn negs_are_granted_by_name_and_zone_as_they_were_asked() {
    let neg = |name: &str| json!({"neg": {"name": name, "zone": "z1"}});
    let refused = json!({"Err": {"AccessDenied": "no grant to write NEG `api` in zone `z1`"}});
    let inferred = inferred(
        "neg",
        &[
            json!({"at_ms": 0, "call": "syncer.sync", "args": {"target": []}}),
            ask("api.ensure", &neg("web"), &json!({"Ok": true})),
            ask("api.list-endpoints", &neg("web"), &json!({"Err": "NotFound"})),
            ask("api.list-endpoints", &neg("old"), &json!({"Ok": []})),
            ask("api.attach", &neg("api"), &refused),
            ask("api.detach", &neg("old"), &json!({"Ok": 1})),
            ask("api.detach", &neg("no*such"), &json!({"Err": "NotFound"})),
            end(),
        ],
    );
    let text = inferred.to_toml();
    let grants = "grants = { neg = { read = [\"old@z1\", \"web@z1\"], write = [\"old@z1\", \"web@z1\"] } }\n";
    assert!(text.contains(grants), "{text}");
    let refused =
        "# refused 1 time, and not granted here: api.attach: no grant to write NEG `api` in zone `z1`; first in ";
    assert!(text.contains(refused), "{text}");
}

#[test]
fn storage_and_sandboxes_have_their_one_scope() {
    let found = inferred(
        "ipam",
        &[
            ask("store.restore", &json!({}), &json!({"Ok": null})),
            ask("sandboxes.list-running", &json!({}), &json!({"Ok": []})),
            ask("clock.now-ms", &json!({}), &json!(7)),
            json!({"at_ms": 0, "call": "x.y", "args": {}}),
            ask(
                "store.append",
                &json!({"entry": "e"}),
                &json!({"Err": {"AccessDenied": "no grant to write its own checkpoint"}}),
            ),
            end(),
        ],
    );
    let text = found.to_toml();
    assert!(
        text.contains("grants = { checkpoint = { read = [\"own\"] }, cri = { read = [\"sandboxes\"] } }\n"),
        "{text}"
    );
    assert!(
        text.contains("store.append: no grant to write its own checkpoint"),
        "{text}"
    );
    assert!(!text.contains("destroy_max"), "{text}");
}

#[test]
fn a_folder_without_recordings_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let error = recordings(&[folder.path().to_owned()]).unwrap_err();
    let said = format!("no recordings in `{}`", folder.path().display());
    assert_eq!(error, said);
    // An audit log, whose files have the names of recordings.
    std::fs::write(folder.path().join("head"), "").unwrap();
    std::fs::write(folder.path().join("0.jsonl"), "").unwrap();
    assert_eq!(recordings(&[folder.path().to_owned()]), Err(said));
}

#[test]
fn a_file_that_is_no_recording_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        recordings(&[file])
    };
    let error = written("trueup.toml", "[source]\n").unwrap_err();
    let says = "trueup.toml` is no recording: give one, such as `journals/GUEST/KEY/0.jsonl`, a folder of them, or a state folder";
    assert!(error.ends_with(says), "{error}");
    written("0.jsonl", "{\"n\":damaged").unwrap();
    written("empty", "").unwrap();
    written("head", "7").unwrap_err();
    written("0.jsonl", "{}").unwrap_err();
}

#[test]
fn keys_of_etcd_are_granted_as_they_were_asked() {
    let refused = json!({"Err": {"AccessDenied": "no grant to write etcd's key `/b/1`"}});
    let commit = json!({"compares": [{"Absent": "/c/1"}], "operations": [{"Put": ["/c/1", "x"]}, {"Delete": "/c/2"}]});
    let inferred = inferred(
        "nodesync",
        &[
            json!({"at_ms": 0, "call": "node-sync.resync", "args": {}}),
            ask("kv.list-keys", &json!({"prefix": "/ids/"}), &json!({"Ok": []})),
            ask(
                "kv.put-if-not-exists",
                &json!({"key": "/ids/1", "value": "x"}),
                &json!({"Ok": true}),
            ),
            ask("kv.put", &json!({"key": "/b/1", "value": "x"}), &refused),
            ask("kv.commit", &commit, &json!({"Ok": false})),
            ask(
                "kv.get",
                &json!({"key": ""}),
                &json!({"Err": {"Invalid": "the key is empty"}}),
            ),
            end(),
        ],
    );
    let text = inferred.to_toml();
    let grants = "grants = { etcd = { read = [\"/c/1\", \"/ids/\"], write = [\"/c/1\", \"/c/2\", \"/ids/1\"] } }\n";
    assert!(text.contains(grants), "{text}");
}

#[test]
fn tables_of_nftables_are_granted_to_write() {
    let apply = |ruleset: &str, answer: &Value| ask("nftables.apply", &json!({ "ruleset": ruleset }), answer);
    let add = |family: &str, name: &str| {
        let table = json!({"family": family, "name": name});
        json!({"nftables": [{"metainfo": {"json_schema_version": 1}}, {"add": {"table": table}}]}).to_string()
    };
    let refused = "access denied: no grant to write nftables' table `inet filter`";
    let inferred = inferred(
        "nftables",
        &[
            json!({"at_ms": 0, "call": "renderer.resync", "args": {}}),
            apply(&add("ip", "trueup"), &json!({"Ok": null})),
            apply(
                &add("ip6", "trueup"),
                &json!({"Err": "`nft` refused the transaction: File exists"}),
            ),
            apply(&add("inet", "filter"), &json!({ "Err": refused })),
            apply(&add("ip", "a b"), &json!({"Ok": null})),
            apply(
                "flush ruleset",
                &json!({"Err": "the transaction is no JSON of nft: expected value"}),
            ),
            end(),
        ],
    );
    let text = inferred.to_toml();
    assert!(
        text.contains("grants = { nftables = { write = [\"ip trueup\", \"ip6 trueup\"] } }\n"),
        "{text}"
    );
    let refused = "# refused 1 time, and not granted here: nftables.apply: no grant to write nftables' table `inet filter`; first in ";
    assert!(text.contains(refused), "{text}");
}

#[test]
fn a_guest_has_the_name_of_its_folder_and_unnamed_ones_are_not_merged() {
    let root = tempfile::tempdir().unwrap();
    let put = |folder: &str, digest: char| {
        let text = fs_text(recording("unknown", &[]).path());
        let text = text.replace("sha256:1", &format!("sha256:{}", digest.to_string().repeat(64)));
        let folder = root.path().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("0.jsonl"), text).unwrap();
        folder.join("0.jsonl")
    };
    let files = [
        put("journals/dns/default%2Fweb", '1'),
        put("instances/lbaas/default%2Fweb", '2'),
        put("kept/one", '3'),
        put("kept/other", '4'),
    ];
    let (inferred, _) = infer(&files).unwrap();
    let names: Vec<&str> = inferred.iter().map(|inferred| inferred.guest.as_str()).collect();
    assert_eq!(names, ["dns", "lbaas", "unknown-333333333333", "unknown-444444444444"]);
}

fn fs_text(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("0.jsonl")).unwrap()
}
