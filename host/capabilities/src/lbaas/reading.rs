//! How the questions about an Engine are read: the load balancers that they need, and the resources that they wrote.
//!
//! The load balancer of a resource, and its name, are found in the answers of any question of the same guest.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use trueup_journal::{Ask, Call};

use super::{Error, Kind, Object, ObjectRef, Parent, Spec, parent, referred};
use crate::grants::{Access, Grant};
use crate::reading::{
    Action, Capability, Function, Granted, NO_ANSWER, Need, Reading, Write, answer, args, parsed, text, unless_refused,
};

pub(crate) static CAPABILITY: Capability = Capability {
    package: "lbaas",
    grant: Some(Granted {
        name: "lbaas",
        scope: "a name",
        is_scope: |text| !text.is_empty(),
        example: r#""NAME""#,
    }),
    limits_destroying: true,
    functions: &[
        Function::write("api.create", specified).each("specs", specified),
        Function::write("api.destroy", existing).each("refs", existing),
        Function::read("api.get").each("refs", existing),
        Function::read("api.list-tagged"),
        Function::read("api.load-balancer"),
        Function::write("api.reset", existing).each("refs", existing),
    ],
    reader: || Box::new(Reader::default()),
};

/// An existing resource: its kind and identifier.
fn existing(object: &Value) -> String {
    format!("{} {}", text(object, "kind"), text(object, "identifier"))
}

/// A desired resource: its kind, its name, and its owner.
fn specified(spec: &Value) -> String {
    let Some((kind, spec)) = spec.as_object().and_then(|spec| spec.iter().next()) else {
        return spec.to_string();
    };
    let owner = ["load_balancer", "frontend", "backend"].map(|field| text(spec, field));
    format!("new {kind} {} of {}", text(spec, "name"), owner.concat())
}

#[derive(Default)]
struct Reader {
    /// The resources in answers, by kind and identifier.
    seen: BTreeMap<ObjectRef, Spec>,
    /// Those among them that the guest created.
    created: BTreeSet<ObjectRef>,
    /// The load balancers of each `reconcile`.
    named: BTreeSet<BTreeSet<String>>,
    refused: BTreeSet<String>,
}

/// The arguments of all functions.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    identifier: Option<String>,
    specs: Vec<Spec>,
    refs: Vec<ObjectRef>,
}

impl Reading for Reader {
    fn learn(&mut self, ask: &Ask) {
        let objects: Vec<Object> = match ask.name.as_str() {
            "api.list-tagged" => answer::<Result<Vec<Object>, Error>>(ask)
                .and_then(Result::ok)
                .unwrap_or_default(),
            "api.get" | "api.create" => answers(ask).flatten().collect(),
            _ => return,
        };
        for object in objects {
            if ask.name == "api.create" {
                self.created.insert(object.reference());
            }
            self.seen.insert(object.reference(), object.spec);
        }
    }

    fn called(&mut self, call: &Call) {
        if call.name == "reconciliation.reconcile" {
            let args = parsed::<Value>(&call.args);
            let named = args.and_then(|args| BTreeSet::deserialize(args.pointer("/desired/load_balancers")?).ok());
            self.named.extend(named);
        }
    }

    fn needs(&mut self, ask: &Ask) -> Vec<Need> {
        let needs = match ask.name.as_str() {
            "api.load-balancer" => unless_refused(ask, || {
                let named = args::<Args>(ask).and_then(|args| args.identifier);
                named.into_iter().map(|it| Need::Access(Access::Read, it)).collect()
            }),
            // A list shows what the guest may read and omits the rest, so it needs what it shows.
            "api.list-tagged" => match answer::<Result<Vec<Object>, Error>>(ask) {
                Some(Ok(objects)) => {
                    let owners = objects.iter().map(|object| parent(&object.spec));
                    owners.map(|owner| self.owner(Access::Read, owner)).collect()
                }
                Some(Err(Error::AccessDenied(what))) => vec![Need::Refused(what)],
                Some(Err(_)) | None => Vec::new(),
            },
            "api.get" => self.of_each(Access::Read, ask),
            _ => self.of_each(Access::Write, ask),
        };
        let refused = needs.iter().filter_map(|need| match need {
            Need::Refused(what) => Some(what.clone()),
            Need::Access(..) | Need::Unknown => None,
        });
        self.refused.extend(refused);
        needs
    }

    /// A reconcile needs read access to all load balancers that it names, and write access to all or none of them. A
    /// refused one is not granted just because it is named.
    fn complete(&self, grant: &mut Grant) {
        let refused = |access: Access, named: &str| {
            let text = format!("no grant to {access} load balancer `{named}`");
            self.refused.contains(&text)
        };
        let mut writable = Vec::new();
        for named in &self.named {
            if named.iter().any(|named| refused(Access::Read, named)) {
                continue;
            }
            grant.read.extend(named.iter().cloned());
            if !named.iter().any(|named| refused(Access::Write, named)) {
                writable.push(named);
            }
        }
        // One reconcile may add needs of another.
        loop {
            let before = grant.write.len();
            for named in &writable {
                if !named.is_disjoint(&grant.write) {
                    grant.write.extend(named.iter().cloned());
                }
            }
            if grant.write.len() == before {
                break;
            }
        }
    }

    fn wrote(&self, n: u64, ask: &Ask) -> Vec<Write> {
        self.writes(n, ask, |kind, identifier| self.name(kind, identifier))
    }

    /// What the plan created has no identifier yet that an operator could look up.
    fn planned(&self, ask: &Ask) -> Vec<Write> {
        self.writes(0, ask, |kind, identifier| {
            let name = self.name(kind, identifier);
            if self.created.contains(&ObjectRef::new(kind, identifier)) {
                format!("(new {} {name})", kind.name())
            } else {
                name
            }
        })
    }
}

impl Reader {
    /// `named`: what the details call another resource.
    fn writes(&self, n: u64, ask: &Ask, named: impl Fn(Kind, &str) -> String) -> Vec<Write> {
        let action = match ask.name.as_str() {
            "api.create" => Action::Create,
            "api.destroy" => Action::Destroy,
            "api.reset" => Action::Reset,
            _ => return Vec::new(),
        };
        let Args { specs, refs, .. } = args(ask).unwrap_or_default();
        let created = specs
            .iter()
            .map(|spec| (spec.kind(), spec.name().to_owned(), details(spec, &named)));
        let existing = refs.iter().map(|reference| {
            let details = self.seen.get(reference).map(|spec| details(spec, &named));
            let name = self.name(reference.kind, &reference.identifier);
            (reference.kind, name, details.unwrap_or_default())
        });
        // A question has either the ones or the others.
        let each = created.chain(existing).zip(errors(ask));
        each.map(|((kind, name, details), error)| Write {
            n,
            action,
            kind: kind.name().to_owned(),
            name,
            details,
            error,
            operation: None,
        })
        .collect()
    }

    /// What each element of a list needs.
    fn of_each(&self, access: Access, ask: &Ask) -> Vec<Need> {
        let Args { specs, refs, .. } = args(ask).unwrap_or_default();
        let existing = refs.into_iter().map(|reference| vec![Parent::Resource(reference)]);
        let is_unseen = |owners: &[Parent]| matches!(owners, [Parent::Resource(it)] if !self.seen.contains_key(it));
        let mut answers = answers::<IgnoredAny>(ask);
        let mut needs = Vec::new();
        for owners in specs.iter().map(referred).chain(existing) {
            match answers.next() {
                Some(Err(Error::AccessDenied(what))) => needs.push(Need::Refused(what)),
                // A missing resource is never refused.
                Some(Err(Error::NotFound)) if ask.name != "api.create" && is_unseen(&owners) => {}
                _ => needs.extend(owners.into_iter().map(|owner| self.owner(access, owner))),
            }
        }
        needs
    }

    /// Access to the load balancer at the end of the chain of parents.
    fn owner(&self, access: Access, from: Parent) -> Need {
        let mut next = Some(from);
        // Bind, frontend, load balancer: a longer chain means an edited recording with a cycle.
        for _ in 0..3 {
            match next {
                Some(Parent::LoadBalancer(identifier)) => return Need::Access(access, identifier),
                Some(Parent::Resource(resource)) => next = self.seen.get(&resource).map(parent),
                None => break,
            }
        }
        Need::Unknown
    }

    /// The name of a resource, or its identifier if no answer shows the name.
    fn name(&self, kind: Kind, identifier: &str) -> String {
        let spec = self.seen.get(&ObjectRef::new(kind, identifier));
        spec.map_or_else(|| identifier.to_owned(), |spec| spec.name().to_owned())
    }
}

/// Where a resource is, and what it is for. `named`: what it calls another one.
fn details(spec: &Spec, named: impl Fn(Kind, &str) -> String) -> String {
    let at = |address: &str, port: u16| match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    };
    match spec {
        Spec::Backend(backend) => format!("on {}", backend.load_balancer),
        Spec::Frontend(frontend) => {
            let backend = named(Kind::Backend, &frontend.default_backend);
            format!("on {}, to {backend}", frontend.load_balancer)
        }
        Spec::Bind(bind) => {
            let frontend = named(Kind::Frontend, &bind.frontend);
            format!("{} of {frontend}", at(&bind.address, bind.port))
        }
        Spec::Server(server) => {
            let backend = named(Kind::Backend, &server.backend);
            format!("{} in {backend}", at(&server.ip, server.port))
        }
    }
}

/// The answers of a question with a list, one for each element.
fn answers<T: DeserializeOwned>(ask: &Ask) -> impl Iterator<Item = Result<T, Error>> + use<T> {
    answer::<Vec<Result<T, Error>>>(ask).unwrap_or_default().into_iter()
}

/// Why each element failed, without end. `None` if it succeeded.
fn errors(ask: &Ask) -> impl Iterator<Item = Option<String>> + use<> {
    let answers: Vec<Value> = answer(ask).unwrap_or_default();
    let errors = answers.into_iter().map(|answer| Some(answer.get("Err")?.to_string()));
    errors.chain(iter::repeat(ask.answer.is_none().then(|| NO_ANSWER.to_owned())))
}
