//! The list of the capabilities, and the classification of each question by it.
//!
//! A question is the guest's means, a read of the world, or a write. Scenarios ignore the guest's means in
//! `expect_calls`. The gate, the shadow and `trueup replay --guest` compare writes, in order for each object. The page
//! counts writes, `trueup explain` shows them, and `trueup grants infer` reads the needed grants from questions.

use std::collections::BTreeMap;

use trueup_journal::{Entry, Event, Kind, Question};

use crate::grants::{EVERYTHING, Grant, Grants};
use crate::reading::{self, Action, Capability, Function, Granted, Reading, Write, the_world};
use crate::{checkpoint, cri, etcd, lbaas, neg, nftables, renderer};

/// Every capability beyond the guest's means.
pub static CAPABILITIES: [&Capability; 7] = [
    &checkpoint::binding::CAPABILITY,
    &cri::binding::CAPABILITY,
    &etcd::binding::CAPABILITY,
    &lbaas::reading::CAPABILITY,
    &neg::reading::CAPABILITY,
    &nftables::binding::CAPABILITY,
    &renderer::binding::CAPABILITY,
];

/// The capabilities that need a grant, ascending. Log, clock, timers, randomness and metrics need none.
pub fn granted() -> impl Iterator<Item = (&'static Capability, &'static Granted)> {
    let all = CAPABILITIES.into_iter();
    all.filter_map(|capability| Some((capability, capability.grant.as_ref()?)))
}

/// The capability that grants the interface `trueup:PACKAGE/INTERFACE@VERSION`. `None` if it needs no grant.
pub fn granted_by(import: &str) -> Option<(&'static Capability, &'static Granted)> {
    let (package, interface) = import.strip_prefix("trueup:")?.split_once('/')?;
    let interface = interface.split('@').next()?;
    let is_of_it = |function: &Function| function.name.split('.').next() == Some(interface);
    let of = |of: &Capability| of.package == package && of.functions.iter().any(is_of_it);
    granted().find(|(capability, _)| of(capability))
}

impl Grants {
    /// Grants everything: for scenarios, and for replays, which access nothing real.
    pub fn everything() -> Self {
        let all = Grant {
            read: [EVERYTHING.to_owned()].into(),
            write: [EVERYTHING.to_owned()].into(),
            ..Grant::default()
        };
        let each = granted().map(|(_, granted)| (granted.name.to_owned(), all.clone()));
        Self::new(each.collect())
    }
}

/// The capability with the question of this name (`interface.function`), and the function. `None` for the guest's means
/// and for unknown names.
pub fn find(name: &str) -> Option<(&'static Capability, &'static Function)> {
    CAPABILITIES.into_iter().find_map(|capability| {
        let function = capability.functions.iter().find(|function| function.name == name)?;
        Some((capability, function))
    })
}

/// The kind of the request with this name. An unknown one counts as a write.
pub fn kind(name: &str) -> Kind {
    question(name).kind
}

/// How to compare the request with this name.
pub fn question(name: &str) -> Question {
    if let Some((_, function)) = find(name) {
        return function.question;
    }
    let kind = match name.split('.').next().unwrap_or_default() {
        // Log and metrics return nothing and are not recorded.
        "log" | "metrics" | "clock" | "random" | "timers" => Kind::Means,
        // Those of `wasi:*`, which a language's runtime calls by itself; `random` is the name of one of them, too.
        "wall-clock" | "monotonic-clock" | "poll" | "pollable" | "insecure" | "insecure-seed" => Kind::Means,
        _ => Kind::Write,
    };
    reading::question(kind, the_world)
}

/// A reader for each capability.
pub struct Readers(Vec<(&'static Capability, Box<dyn Reading>)>);

impl Default for Readers {
    fn default() -> Self {
        let each = CAPABILITIES.map(|capability| (capability, (capability.reader)()));
        Self(each.into())
    }
}

impl Readers {
    /// The capability with the question of this name, and its reader. `None` for the guest's means and for unknown
    /// names.
    pub fn of(&mut self, name: &str) -> Option<(&'static Capability, &mut dyn Reading)> {
        let has = |function: &Function| function.name == name;
        let of = |(capability, _): &&mut (&Capability, _)| capability.functions.iter().any(has);
        let (capability, reader) = self.0.iter_mut().find(of)?;
        Some((capability, reader.as_mut()))
    }

    /// All of them.
    pub fn all(&mut self) -> impl Iterator<Item = &mut (&'static Capability, Box<dyn Reading>)> {
        self.0.iter_mut()
    }
}

/// The successful writes of a plan, in order. Of several texts stored under one name, only the last one counts: how
/// many come before it depends on when a guest learns what.
pub fn planned(entries: &[Entry]) -> Vec<Write> {
    let mut readers = Readers::default();
    let mut writes = Vec::new();
    // Where the text of each kind and name is among them, unless the object was written otherwise since.
    let mut stored: BTreeMap<(String, String), usize> = BTreeMap::new();
    for entry in entries {
        let Event::Ask(ask) = &entry.event else { continue };
        let Some((_, reader)) = readers.of(&ask.name) else {
            continue;
        };
        reader.learn(ask);
        let planned = reader.planned(ask).into_iter();
        for write in planned.filter(|write| write.error.is_none()) {
            let object = (write.kind.clone(), write.name.clone());
            let before = stored.remove(&object);
            if write.action == Action::Store && !write.name.is_empty() {
                stored.insert(object, before.unwrap_or(writes.len()));
                if let Some(before) = before.and_then(|at| writes.get_mut(at)) {
                    *before = write;
                    continue;
                }
            }
            writes.push(write);
        }
    }
    writes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};
    use trueup_journal::Ask;

    use super::*;
    use crate::grants::Access;
    use crate::reading::Need;

    #[test]
    fn means_reads_and_writes_are_told_apart() {
        for (name, expected) in [
            ("clock.sleep-ms", Kind::Means),
            ("log.emit", Kind::Means),
            ("metrics.counter-add", Kind::Means),
            ("timers.cancel", Kind::Means),
            ("monotonic-clock.now", Kind::Means),
            ("poll.poll", Kind::Means),
            ("random.get-random-bytes", Kind::Means),
            ("api.get", Kind::Read),
            ("store.restore", Kind::Read),
            ("store.append", Kind::Write),
            ("logs.get", Kind::Write),
            ("renderer.add-service", Kind::Write),
            ("nftables.apply", Kind::Write),
            ("kv.put-if-not-exists", Kind::Write),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }

    #[test]
    fn an_import_is_granted_by_its_own_capability() {
        for (import, expected) in [
            ("trueup:etcd/kv@0.1.0", Some("etcd")),
            ("trueup:neg/api@0.1.0", Some("neg")),
            ("trueup:service/nftables@0.1.0", Some("nftables")),
            ("trueup:service/renderer@0.1.0", None),
            ("trueup:host/log@0.1.0", None),
            ("wasi:cli/exit@0.2.0", None),
        ] {
            assert_eq!(
                granted_by(import).map(|(_, granted)| granted.name),
                expected,
                "{import}"
            );
        }
        let names: Vec<&str> = granted().map(|(_, granted)| granted.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        assert!(
            names
                .iter()
                .all(|name| Grants::everything().allow(name, Access::Write, "any"))
        );
    }

    #[test]
    fn a_write_names_its_object() {
        let object = |name: &str, args: &Value| (question(name).object)(args);
        let backend = json!({"Backend": {"name": "http.web", "load_balancer": "lb-1", "mode": "Tcp"}});
        assert_eq!(object("api.create", &backend), "new Backend http.web of lb-1");
        let server = json!({"kind": "Server", "identifier": "s-1"});
        assert_eq!(object("api.destroy", &server), object("api.reset", &server));
        let commit = json!({"compares": [], "operations": [{"Put": ["/b", "1"]}, {"Delete": "/a"}]});
        assert_eq!(object("kv.commit", &commit), "/a /b");
        assert_eq!(object("kv.put", &json!({"key": "/a", "value": "1"})), "/a");
        let neg = json!({"neg": {"name": "n", "zone": "z"}, "endpoints": []});
        assert_eq!(object("api.attach", &neg), "n in z");
    }

    fn ask(name: &str, args: &Value, answer: &Value) -> Ask {
        let raw = |value: &Value| serde_json::value::to_raw_value(value).unwrap();
        Ask {
            name: name.to_owned(),
            args: raw(args),
            answer: Some(raw(answer)),
        }
    }

    #[test]
    fn every_function_that_a_guest_may_import_is_listed_under_its_package() {
        let wit = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit"));
        let packages = std::fs::read_dir(wit).unwrap().map(|folder| {
            let name = folder.unwrap().file_name().into_string().unwrap();
            let text = std::fs::read_to_string(wit.join(&name).join(format!("{name}.wit"))).unwrap();
            (name, text)
        });
        let packages: BTreeMap<String, String> = packages.collect();
        let mut declared = BTreeSet::new();
        let lines = packages
            .iter()
            .flat_map(|(name, text)| text.lines().map(move |line| (name.as_str(), line)));
        for (own, line) in lines {
            let Some(import) = line.strip_prefix("  import ") else {
                continue;
            };
            let import = import.split(['@', ';']).next().unwrap();
            let of_other = import.strip_prefix("trueup:").and_then(|import| import.split_once('/'));
            let (package, interface) = of_other.unwrap_or((own, import));
            let begin = format!("interface {interface} {{");
            let text = packages[package].split(&begin).nth(1).unwrap();
            let functions = text.split("\n}").next().unwrap().lines();
            for line in functions.filter(|line| line.contains(": func(") || line.contains(": async func(")) {
                let name = line.trim().split(':').next().unwrap();
                if package != "host" {
                    declared.insert((package.to_owned(), format!("{interface}.{name}")));
                }
            }
        }
        let functions = |capability: &Capability| {
            let package = capability.package.to_owned();
            let each = capability.functions.iter();
            each.map(move |function| (package.clone(), function.name.to_owned()))
        };
        let listed: Vec<_> = CAPABILITIES.into_iter().flat_map(functions).collect();
        let names: BTreeSet<&String> = listed.iter().map(|(_, name)| name).collect();
        assert_eq!(names.len(), listed.len(), "no two have the same name");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), declared);
    }

    #[test]
    fn writes_of_every_capability_are_read_with_name_details_and_error() {
        let put = json!({"key": "/a", "value": "1"});
        let commit = json!({"compares": [], "operations": [{"Put": ["/b", "2"]}, {"Delete": "/c"}]});
        let denied = json!({"Err": {"AccessDenied": "x"}});
        let mut readers = Readers::default();
        let mut wrote = |name: &str, args: &Value, answer: &Value| {
            let ask = ask(name, args, answer);
            let (_, reader) = readers.of(name).unwrap();
            let each = reader.wrote(7, &ask).into_iter();
            each.map(|it| format!("{:?} {} {} {} {:?}", it.action, it.kind, it.name, it.details, it.error))
                .collect::<Vec<_>>()
        };
        assert_eq!(wrote("kv.put", &put, &json!({"Ok": 4})), ["Store key /a 1 None"]);
        assert_eq!(
            wrote("kv.put", &put, &denied),
            [r#"Store key /a 1 Some("{\"AccessDenied\":\"x\"}")"#]
        );
        assert_eq!(
            wrote("kv.commit", &commit, &json!({"Ok": true})),
            ["Store key /b 2 None", "Destroy key /c  None"]
        );
        let nothing: [&str; 0] = [];
        assert_eq!(
            wrote("kv.commit", &commit, &json!({"Ok": false})),
            nothing,
            "a compare failed"
        );
        assert_eq!(wrote("kv.get", &json!({"key": "/a"}), &json!({"Ok": null})), nothing);
        assert_eq!(
            wrote("nftables.apply", &json!({"ruleset": "{}"}), &json!({"Ok": null})),
            ["Store ruleset  {} None"]
        );
        assert_eq!(
            wrote("store.append", &json!({"entry": "e"}), &json!({"Ok": null})),
            ["Store record  e None"]
        );
        assert_eq!(
            wrote("store.checkpoint", &json!({"data": "d"}), &json!({"Ok": null})),
            ["Store checkpoint  d None"]
        );
    }

    #[test]
    fn a_plan_has_the_last_text_of_each_name_in_its_first_place() {
        let put = |key: &str, value: &str| ("kv.put", json!({"key": key, "value": value}), json!({"Ok": 2}));
        let asked = [
            put("/a", "1"),
            put("/b", "2"),
            put("/a", "3"),
            (
                "kv.put",
                json!({"key": "/b", "value": "no"}),
                json!({"Err": {"AccessDenied": "x"}}),
            ),
            ("kv.delete", json!({"key": "/b"}), json!({"Ok": true})),
            put("/b", "4"),
            ("nftables.apply", json!({"ruleset": "{1}"}), json!({"Ok": null})),
            ("nftables.apply", json!({"ruleset": "{2}"}), json!({"Ok": null})),
        ];
        let entries = asked.map(|(name, args, answer)| Entry {
            n: 1,
            event: Event::Ask(ask(name, &args, &answer)),
        });
        let writes = planned(&entries);
        let writes = writes
            .iter()
            .map(|it| format!("{:?} {} {}", it.action, it.name, it.details));
        assert_eq!(
            writes.collect::<Vec<_>>(),
            [
                "Store /a 3",
                "Store /b 2",
                "Destroy /b ",
                "Store /b 4",
                "Store  {1}",
                "Store  {2}"
            ]
        );
    }

    #[test]
    fn a_question_needs_its_scope_or_was_refused() {
        let mut readers = Readers::default();
        let mut needs = |name: &str, args: &Value, answer: &Value| {
            let (_, reader) = readers.of(name).unwrap();
            reader.needs(&ask(name, args, answer))
        };
        let access = |access, scope: &str| Need::Access(access, scope.to_owned());
        assert_eq!(
            needs("kv.list-prefix", &json!({"prefix": ""}), &json!({"Ok": []})),
            [access(Access::Read, "*")]
        );
        assert_eq!(
            needs(
                "sandboxes.list-running",
                &json!({}),
                &json!({"Err": "access denied: no"})
            ),
            [Need::Refused("no".to_owned())]
        );
        assert_eq!(
            needs("store.restore", &json!({}), &json!({"Ok": null})),
            [access(Access::Read, "own")]
        );
        assert_eq!(needs("renderer.resync", &json!({}), &json!({"Ok": null})), []);
    }
}
