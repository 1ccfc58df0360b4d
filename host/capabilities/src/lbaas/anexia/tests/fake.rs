//! A stateful Engine, complete enough to create, list, tag and destroy against, with faults that tests place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::server::{Reply, Seen, Server};

#[derive(Clone)]
struct Stored {
    path: String,
    fields: Value,
    tags: BTreeSet<String>,
}

/// A fault: the next `times` requests that begin with `line` get `reply`.
struct Fault {
    line: String,
    reply: Reply,
    /// Whether the request still has its effect.
    effect: bool,
    times: usize,
}

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, Stored>,
    created: usize,
    faults: Vec<Fault>,
}

/// The server's state.
#[derive(Clone, Default)]
pub(crate) struct Fake {
    contents: Arc<Mutex<Contents>>,
}

const REFERENCES: [&str; 4] = ["load_balancer", "default_backend", "frontend", "backend"];

impl Fake {
    pub(crate) async fn start() -> (Self, Server) {
        let fake = Self::default();
        let served = fake.clone();
        (fake, Server::start(move |seen| served.answer(seen)).await)
    }

    /// Stores an object; `collection` as in `backend`.
    pub(crate) fn put(&self, collection: &str, identifier: &str, fields: Value, tags: &[&str]) {
        let stored = Stored {
            path: format!("/api/LBaaS/v1/{collection}.json"),
            fields,
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
        };
        self.contents
            .lock()
            .unwrap()
            .objects
            .insert(identifier.to_owned(), stored);
    }

    /// The next `times` requests that begin with `line` get `reply` and have no effect.
    pub(crate) fn refuse(&self, line: &str, times: usize, reply: Reply) {
        self.fault(line, times, reply, false);
    }

    /// As `refuse`, with effect.
    pub(crate) fn lose(&self, line: &str, times: usize, reply: Reply) {
        self.fault(line, times, reply, true);
    }

    fn fault(&self, line: &str, times: usize, reply: Reply, effect: bool) {
        self.contents.lock().unwrap().faults.push(Fault {
            line: line.to_owned(),
            reply,
            effect,
            times,
        });
    }

    /// Identifiers and tags of all objects.
    pub(crate) fn tags(&self) -> BTreeMap<String, Vec<String>> {
        let contents = self.contents.lock().unwrap();
        contents
            .objects
            .iter()
            .map(|(id, stored)| (id.clone(), stored.tags.iter().cloned().collect()))
            .collect()
    }

    fn answer(&self, seen: &Seen) -> Reply {
        let mut contents = self.contents.lock().unwrap();
        let line = seen.line();
        let fault = contents
            .faults
            .iter_mut()
            .find(|fault| fault.times > 0 && line.starts_with(&fault.line));
        let Some(fault) = fault else {
            return contents.serve(seen);
        };
        fault.times -= 1;
        let (reply, effect) = (fault.reply.clone(), fault.effect);
        if effect {
            contents.serve(seen);
        }
        reply
    }
}

impl Contents {
    fn serve(&mut self, seen: &Seen) -> Reply {
        let segments: Vec<&str> = seen.path().split('/').skip(4).collect();
        let collection = seen.path().split('/').take(5).collect::<Vec<_>>().join("/");
        let is_resource = collection == "/api/core/v1/resource.json";
        match (seen.method.as_str(), segments.as_slice()) {
            ("POST", [_]) => {
                self.created += 1;
                let identifier = format!("new{}", self.created);
                let fields = serde_json::from_str(&seen.body).unwrap();
                let stored = Stored {
                    path: collection,
                    fields,
                    tags: BTreeSet::new(),
                };
                let reply = Reply::json(200, shown(&identifier, &stored, "4"));
                self.objects.insert(identifier, stored);
                reply
            }
            ("GET", [_]) => {
                let tag = seen.query("tag_name");
                let filter = seen.query("filters");
                let (field, parent) = filter.as_deref().and_then(|it| it.split_once('=')).unwrap_or_default();
                let matches = |stored: &Stored| match &tag {
                    Some(tag) => stored.tags.contains(tag),
                    None => stored.path == collection && stored.fields[field] == parent,
                };
                let found = self.objects.iter().filter(|(_, stored)| matches(stored));
                let found: Vec<_> = found
                    .map(|(id, it)| (id, &it.fields["name"], resource_type(&it.path)))
                    .map(|(id, name, of)| json!({"identifier": id, "name": name, "resource_type": of}))
                    .collect();
                Reply::json(200, json!({"page": 1, "total_pages": 1, "data": found}))
            }
            ("GET", [_, id]) => match self.objects.get(*id) {
                Some(stored) if is_resource => {
                    let tags: Vec<_> = stored
                        .tags
                        .iter()
                        .map(|tag| json!({"name": tag, "identifier": "t"}))
                        .collect();
                    let resource_type = resource_type(&stored.path);
                    Reply::json(
                        200,
                        json!({"identifier": id, "tags": tags, "resource_type": resource_type}),
                    )
                }
                Some(stored) if stored.path == collection => Reply::json(200, shown(id, stored, "3")),
                _ => Reply::status(404),
            },
            ("DELETE", [_, id]) => Reply::status(if self.objects.remove(*id).is_some() { 204 } else { 404 }),
            ("POST", [_, id, "tags", tag]) if seen.body == "\"\"" => match self.objects.get_mut(*id) {
                Some(stored) => {
                    let tag = percent_encoding::percent_decode_str(tag)
                        .decode_utf8()
                        .unwrap()
                        .into_owned();
                    Reply::status(if stored.tags.insert(tag) { 200 } else { 422 })
                }
                None => Reply::status(404),
            },
            _ => Reply::status(400),
        }
    }
}

fn shown(identifier: &str, stored: &Stored, state: &str) -> Value {
    let mut fields = stored.fields.clone();
    for reference in REFERENCES {
        if let Some(referred) = stored.fields.get(reference) {
            fields[reference] = json!({"identifier": referred, "name": "of no interest"});
        }
    }
    fields["identifier"] = json!(identifier);
    fields["state"] = json!({"id": state, "text": "of no interest", "type": 1});
    fields
}

fn resource_type(path: &str) -> Value {
    let identifier = match path {
        "/api/LBaaS/v1/backend.json" => "33164a3066a04a52be43c607f0c5dd8c",
        "/api/LBaaS/v1/frontend.json" => "da9d14b9d95840c08213de67f9cee6e2",
        "/api/LBaaS/v1/bind.json" => "bd24def982aa478fb3352cb5f49aab47",
        _ => "01f321a4875446409d7d8469503a905f",
    };
    json!({"identifier": identifier, "name": path})
}
