//! The renderers' part of a node's recordings: the processor's questions, and each renderer's calls.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use trueup_journal::{Ending, Entry, Event, Segment, instance_dir, segment_files};

use super::inputs::Id;
use super::wired::NODE;

/// The subject of a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    NodeIps,
    FrontendIfs,
    BackendIfs,
    Service(Id),
}

/// A call of a renderer, as the processor makes it or as a renderer gets it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) args: Value,
}

fn id_of(service: &Value) -> Id {
    let text = |field: &str| service["id"][field].as_str().unwrap().to_owned();
    (text("namespace"), text("name"))
}

impl Call {
    /// `None` if it concerns everything.
    pub(crate) fn part(&self) -> Option<Part> {
        match self.name.as_str() {
            "renderer.add-service" | "renderer.delete-service" => Some(Part::Service(id_of(&self.args["service"]))),
            "renderer.update-service" => Some(Part::Service(id_of(&self.args["new"]))),
            "renderer.update-node-port-services" => Some(Part::NodeIps),
            "renderer.update-local-frontend-ifs" => Some(Part::FrontendIfs),
            "renderer.update-local-backend-ifs" => Some(Part::BackendIfs),
            "renderer.resync" => None,
            other => panic!("no call of a renderer: {other}"),
        }
    }

    /// Its effect on its part; `None` removes the part.
    pub(crate) fn leaves(&self) -> Option<Value> {
        let field = match self.name.as_str() {
            "renderer.add-service" => "service",
            "renderer.update-node-port-services" => "node_ips",
            "renderer.delete-service" => return None,
            _ => "new",
        };
        Some(self.args[field].clone())
    }
}

/// A question of the processor, and whether it counted as accepted.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) n: u64,
    pub(crate) call: Call,
    pub(crate) taken: bool,
}

/// A call that a renderer got: for a question, or from the host itself.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) call: Call,
    pub(crate) by: Option<u64>,
}

fn entries(folder: &Path, guest: &str) -> Vec<Entry> {
    let files = segment_files(&instance_dir(&folder.join("journals"), guest, NODE)).unwrap();
    let segments = files.iter().map(|file| Segment::read(&file.path).unwrap());
    segments.flat_map(|segment| segment.entries).collect()
}

fn value(json: &serde_json::value::RawValue) -> Value {
    serde_json::from_str(json.get()).unwrap()
}

/// The processor's questions, one list for each of its own calls.
pub(crate) fn questions(folder: &Path) -> Vec<Vec<Question>> {
    let mut calls = Vec::new();
    for entry in entries(folder, "service") {
        match entry.event {
            Event::Call(_) => calls.push(Vec::new()),
            Event::Ask(ask) if ask.name.starts_with("renderer.") => {
                let answer = value(ask.answer.as_ref().unwrap());
                calls.last_mut().unwrap().push(Question {
                    n: entry.n,
                    taken: answer.get("Ok").is_some(),
                    call: Call {
                        name: ask.name,
                        args: value(&ask.args),
                    },
                });
            }
            Event::Ending(ending) => assert!(matches!(ending, Ending::Result(_)), "{ending:?}"),
            Event::Ask(_) | Event::Header(_) | Event::RolledBack(_) => {}
        }
    }
    calls
}

/// A renderer's calls, in order.
pub(crate) fn told(folder: &Path, renderer: &str) -> Vec<Told> {
    let calls = entries(folder, renderer)
        .into_iter()
        .filter_map(|entry| match entry.event {
            Event::Call(call) => Some(Told {
                call: Call {
                    name: call.name,
                    args: value(&call.args),
                },
                by: call.by.map(|by| {
                    assert_eq!((by.guest.as_str(), by.instance.as_str()), ("service", NODE));
                    by.n.unwrap()
                }),
            }),
            _ => None,
        });
    calls.collect()
}

/// The state after the accepted calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Held(BTreeMap<Part, Value>);

impl Held {
    pub(crate) fn take(&mut self, call: &Call) {
        let Some(part) = call.part() else {
            let event = &call.args["event"];
            let services = event["services"].as_array().unwrap().iter();
            self.0 = services
                .map(|service| (Part::Service(id_of(service)), service.clone()))
                .collect();
            for (part, field) in [
                (Part::NodeIps, "node_ips"),
                (Part::FrontendIfs, "frontend_ifs"),
                (Part::BackendIfs, "backend_ifs"),
            ] {
                self.0.insert(part, event[field].clone());
            }
            return;
        };
        match call.leaves() {
            Some(value) => self.0.insert(part, value),
            None => self.0.remove(&part),
        };
    }

    /// `None` if there is nothing.
    pub(crate) fn of(&self, part: &Part) -> Option<&Value> {
        self.0.get(part)
    }

    /// The state after a resync.
    pub(crate) fn after(resync: &Call) -> Self {
        let mut held = Self::default();
        held.take(resync);
        held
    }
}
