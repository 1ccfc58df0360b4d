//! Infers the smallest grants that would allow the questions in recordings.
//!
//! It only reads recordings: it runs no guest and contacts no backend. The load balancer of a resource is found in the
//! answers, in any recording of the same guest.
//!
//! ```text
//! recordings -> what belongs to what -> each question: granted (capability, access, scope), or refused, or not known
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use trueup_capabilities::checkpoint;
use trueup_capabilities::etcd;
use trueup_capabilities::grants::{
    Access, ETCD, EVERYTHING, Grant, NEG, NFTABLES, OWN, SANDBOXES, is_etcd_scope, is_neg_scope, is_nftables_scope,
    neg_scope,
};
use trueup_capabilities::lbaas::{Error, Object, ObjectRef, Parent, Spec, parent, referred};
use trueup_capabilities::neg::{self, NegRef};
use trueup_capabilities::nftables::scope::{Table, tables};
use trueup_journal::{Ask, Entry, Event, Header, ReadError, Segment, Torn};

use crate::guests::lbaas;

/// The maximum number of refusals listed for a guest: a guest that guesses has a different one for each question.
pub const REFUSED_MAX: usize = 50;

/// The requirements in the recordings of one guest.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Inferred {
    /// The guest's name.
    pub guest: String,
    /// The number of recordings read.
    pub recordings: usize,
    /// The number of calls in them.
    pub calls: u64,
    /// The number of questions in them, including those that need no grant.
    pub questions: u64,
    /// The grants, by capability.
    pub grants: BTreeMap<String, Grant>,
    /// The maximum number of objects that one call destroyed.
    pub destroyed_max: u64,
    /// Refused questions, which `grants` therefore does not include.
    pub refused: Vec<Refused>,
    /// The number of further kinds of refusals.
    pub more_refused: usize,
    /// The number of entries in questions about resources whose load balancer no recording shows.
    pub unattributed: u64,
    /// The first of them: the question and its position.
    pub first_unattributed: Option<String>,
}

/// A refused question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The question.
    pub call: String,
    /// The error that the guest received.
    pub what: String,
    /// How often it occurred.
    pub times: u64,
    /// The first occurrence: a file and the number of an entry.
    pub first: String,
}

/// The recordings at these paths: given files, all segments below given folders, and for a state folder only those
/// under its `journals`.
///
/// # Errors
/// One line: what cannot be read, or that there is none.
pub fn recordings(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in paths {
        let found = files.len();
        if path.is_dir() {
            collect(path, &mut files)?;
        } else {
            files.push(path.clone());
        }
        if files.len() == found {
            return Err(format!("no recordings in `{}`", path.display()));
        }
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let journals = folder.join("journals");
    if journals.is_dir() {
        return collect(&journals, files);
    }
    let failed = |error| format!("can't list `{}`: {error}", folder.display());
    let segments = trueup_journal::segment_files(folder).map_err(|error| error.to_string())?;
    files.extend(segments.into_iter().map(|segment| segment.path));
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    folders.iter().try_for_each(|folder| collect(folder, files))
}

/// The requirements of the recordings in these files, by guest, and the torn parts at their ends.
///
/// # Errors
/// If a file cannot be read.
pub fn infer(files: &[PathBuf]) -> Result<(Vec<Inferred>, Vec<Torn>), ReadError> {
    let mut guests: BTreeMap<String, Inference> = BTreeMap::new();
    let mut torn = Vec::new();
    // Two passes: one recording may create a resource that an earlier file destroys. Only one file is in memory at a
    // time.
    for file in files {
        let segment = Segment::read(file)?;
        let guest = guests.entry(name_of(file, &segment)).or_default();
        segment.entries.iter().for_each(|entry| guest.learn(entry));
        torn.extend(segment.torn);
    }
    for file in files {
        let segment = Segment::read(file)?;
        if let Some(guest) = guests.get_mut(&name_of(file, &segment)) {
            guest.read(&segment);
        }
    }
    let inferred = guests.into_iter().map(|(name, guest)| guest.end(name));
    Ok((inferred.collect(), torn))
}

/// The configuration's name of the guest: the folder in which a host keeps the recording. A file from elsewhere has the
/// guest's own name, or without one, its digest.
fn name_of(file: &Path, segment: &Segment) -> String {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let mut above = whole.ancestors().skip(2);
    let (guest, root) = (above.next(), above.next());
    let name = |folder: Option<&Path>| Some(folder?.file_name()?.to_str()?.to_owned());
    let of_host = name(root).is_some_and(|root| root == "journals" || root == "instances");
    if let (true, Some(guest)) = (of_host, name(guest)) {
        return trueup_journal::key_of(&guest).unwrap_or(guest);
    }
    let Header { guest, digest, .. } = &segment.header;
    match digest.strip_prefix("sha256:").and_then(|digest| digest.get(..12)) {
        Some(digest) if guest == trueup_engine::UNKNOWN => format!("{guest}-{digest}"),
        _ => guest.clone(),
    }
}

/// The load balancers of one `reconcile`.
type Named = BTreeSet<String>;

#[derive(Default)]
struct Inference {
    inferred: Inferred,
    parents: BTreeMap<(u8, String), Parent>,
    /// The load balancers of each reconcile.
    named: BTreeSet<Named>,
    refused: BTreeMap<(String, String), Refused>,
    destroyed: u64,
}

/// The position of a question.
struct At<'a> {
    file: &'a str,
    n: u64,
    call: &'a str,
}

impl Inference {
    /// Records which resource belongs to which.
    fn learn(&mut self, entry: &Entry) {
        let Event::Ask(ask) = &entry.event else { return };
        let Some(answer) = &ask.answer else { return };
        let objects: Vec<Object> = match ask.name.as_str() {
            "api.list-tagged" => parsed::<Result<Vec<Object>, Error>>(answer)
                .into_iter()
                .flatten()
                .flatten()
                .collect(),
            "api.get" | "api.create" => parsed::<Vec<Result<Object, Error>>>(answer)
                .into_iter()
                .flatten()
                .flatten()
                .collect(),
            _ => return,
        };
        for object in objects {
            let key = (object.spec.kind() as u8, object.identifier);
            self.parents.insert(key, parent(&object.spec));
        }
    }

    fn read(&mut self, segment: &Segment) {
        self.inferred.recordings += 1;
        for entry in &segment.entries {
            match &entry.event {
                Event::Call(call) => {
                    self.inferred.calls += 1;
                    self.destroyed = 0;
                    if call.name == "reconciliation.reconcile" {
                        self.named.extend(named(&call.args));
                    }
                }
                Event::Ask(ask) => {
                    self.inferred.questions += 1;
                    let at = At {
                        file: &segment.name,
                        n: entry.n,
                        call: &ask.name,
                    };
                    self.question(&at, ask);
                }
                Event::Header(_) | Event::Ending(_) | Event::RolledBack(_) => {}
            }
        }
    }

    fn question(&mut self, at: &At<'_>, ask: &Ask) {
        let answer = ask.answer.as_deref();
        match at.call {
            "api.load-balancer" => self.load_balancer(at, &ask.args, answer),
            "api.list-tagged" => self.list(at, answer),
            "api.get" => self.refs(at, Access::Read, &ask.args, answer),
            "api.reset" | "api.destroy" => self.refs(at, Access::Write, &ask.args, answer),
            "api.create" => self.create(at, &ask.args, answer),
            "store.checkpoint" | "store.append" => self.store(at, Access::Write, answer),
            "store.restore" => self.store(at, Access::Read, answer),
            "sandboxes.list-running" => match answer.and_then(denied_in_words) {
                Some(what) => self.refuse(at, &what),
                None => self.grant("cri", Access::Read, SANDBOXES),
            },
            "nftables.apply" => match answer.and_then(denied_in_words) {
                Some(what) => self.refuse(at, &what),
                None => self.nftables(&ask.args),
            },
            "api.list-endpoints" => self.neg(at, Access::Read, &ask.args, answer),
            "api.ensure" | "api.attach" | "api.detach" => self.neg(at, Access::Write, &ask.args, answer),
            "kv.get" | "kv.list-prefix" | "kv.list-keys" => self.etcd(at, Access::Read, &ask.args, answer),
            "kv.put" | "kv.put-if-not-exists" | "kv.delete" | "kv.commit" => {
                self.etcd(at, Access::Write, &ask.args, answer);
            }
            // Log, clock, timers, randomness and metrics need no grant.
            _ => {}
        }
    }

    fn load_balancer(&mut self, at: &At<'_>, args: &RawValue, answer: Option<&RawValue>) {
        #[derive(serde::Deserialize)]
        struct Args {
            identifier: String,
        }
        if let Some(what) = answer.and_then(denied) {
            self.refuse(at, &what);
        } else if let Some(args) = parsed::<Args>(args) {
            self.grant(lbaas::NAME, Access::Read, &args.identifier);
        }
    }

    /// A list shows what the guest may read and omits the rest, so grant what it shows.
    fn list(&mut self, at: &At<'_>, answer: Option<&RawValue>) {
        let listed = answer.and_then(parsed::<Result<Vec<Object>, Error>>);
        match listed {
            Some(Ok(objects)) => objects
                .iter()
                .for_each(|object| self.belongs(at, Access::Read, parent(&object.spec))),
            Some(Err(Error::AccessDenied(what))) => self.refuse(at, &what),
            _ => {}
        }
    }

    fn refs(&mut self, at: &At<'_>, access: Access, args: &RawValue, answer: Option<&RawValue>) {
        #[derive(serde::Deserialize)]
        struct Args {
            refs: Vec<ObjectRef>,
        }
        let Some(args) = parsed::<Args>(args) else { return };
        let answers = answer.and_then(parsed::<Vec<Result<serde::de::IgnoredAny, Error>>>);
        let mut answers = answers.unwrap_or_default().into_iter();
        for asked in args.refs {
            let answer = answers.next();
            if at.call == "api.destroy" && matches!(answer, Some(Ok(_))) {
                self.destroyed += 1;
                self.inferred.destroyed_max = self.inferred.destroyed_max.max(self.destroyed);
            }
            match answer {
                Some(Err(Error::AccessDenied(what))) => self.refuse(at, &what),
                // A missing resource is never refused.
                Some(Err(Error::NotFound))
                    if !self.parents.contains_key(&(asked.kind as u8, asked.identifier.clone())) => {}
                _ => self.belongs(at, access, Parent::Resource(asked.kind, asked.identifier)),
            }
        }
    }

    fn create(&mut self, at: &At<'_>, args: &RawValue, answer: Option<&RawValue>) {
        #[derive(serde::Deserialize)]
        struct Args {
            specs: Vec<Spec>,
        }
        let Some(args) = parsed::<Args>(args) else { return };
        let answers = answer.and_then(parsed::<Vec<Result<serde::de::IgnoredAny, Error>>>);
        let mut answers = answers.unwrap_or_default().into_iter();
        for spec in args.specs {
            match answers.next() {
                Some(Err(Error::AccessDenied(what))) => self.refuse(at, &what),
                _ => referred(&spec)
                    .into_iter()
                    .for_each(|owner| self.belongs(at, Access::Write, owner)),
            }
        }
    }

    fn store(&mut self, at: &At<'_>, access: Access, answer: Option<&RawValue>) {
        let answer = answer.and_then(parsed::<Result<serde::de::IgnoredAny, checkpoint::Error>>);
        match answer {
            Some(Err(checkpoint::Error::AccessDenied(what))) => self.refuse(at, &what),
            _ => self.grant("checkpoint", access, OWN),
        }
    }

    fn neg(&mut self, at: &At<'_>, access: Access, args: &RawValue, answer: Option<&RawValue>) {
        #[derive(serde::Deserialize)]
        struct Args {
            neg: NegRef,
        }
        let answer = answer.and_then(parsed::<Result<serde::de::IgnoredAny, neg::Error>>);
        if let Some(Err(neg::Error::AccessDenied(what))) = answer {
            return self.refuse(at, &what);
        }
        let scope = parsed::<Args>(args).map(|args| neg_scope(&args.neg.name, &args.neg.zone));
        // No configuration accepts any other, and no NEG has such a name.
        if let Some(scope) = scope.filter(|scope| is_neg_scope(scope)) {
            self.grant(NEG, access, &scope);
        }
    }

    /// Grants a key by name, and a prefix as a prefix.
    fn etcd(&mut self, at: &At<'_>, access: Access, args: &RawValue, answer: Option<&RawValue>) {
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct Args {
            key: Option<String>,
            prefix: Option<String>,
            compares: Vec<etcd::Compare>,
            operations: Vec<etcd::Operation>,
        }
        let answer = answer.and_then(parsed::<Result<serde::de::IgnoredAny, etcd::Error>>);
        if let Some(Err(etcd::Error::AccessDenied(what))) = answer {
            return self.refuse(at, &what);
        }
        let args = parsed::<Args>(args).unwrap_or_default();
        let asked = args
            .key
            .iter()
            .chain(&args.prefix)
            .map(|scope| (access, scope.as_str()));
        let compared = args.compares.iter().map(|compare| (Access::Read, compare.key()));
        let changed = args.operations.iter().map(|operation| (access, operation.key()));
        for (access, scope) in asked.chain(compared).chain(changed) {
            match scope {
                // No other scope includes the prefix of all keys.
                "" if args.prefix.is_some() => self.grant(ETCD, access, EVERYTHING),
                scope if is_etcd_scope(scope) => self.grant(ETCD, access, scope),
                _ => {}
            }
        }
    }

    /// Grants each table in the transaction, whatever its result.
    fn nftables(&mut self, args: &RawValue) {
        #[derive(serde::Deserialize)]
        struct Args {
            ruleset: String,
        }
        let touched = parsed::<Args>(args).and_then(|args| tables(&args.ruleset).ok());
        for scope in touched.iter().flatten().map(Table::scope) {
            // No configuration accepts a name with whitespace.
            if is_nftables_scope(&scope) {
                self.grant(NFTABLES, Access::Write, &scope);
            }
        }
    }

    /// Grants the load balancer at the end of the chain of parents.
    fn belongs(&mut self, at: &At<'_>, access: Access, from: Parent) {
        let mut next = Some(from);
        // Bind, frontend, load balancer: a longer chain means an edited recording with a cycle.
        for _ in 0..3 {
            match next {
                Some(Parent::LoadBalancer(identifier)) => return self.grant(lbaas::NAME, access, &identifier),
                Some(Parent::Resource(kind, identifier)) => {
                    next = self.parents.get(&(kind as u8, identifier)).cloned();
                }
                None => break,
            }
        }
        self.inferred.unattributed += 1;
        self.inferred
            .first_unattributed
            .get_or_insert_with(|| format!("{} in {} entry {}", at.call, at.file, at.n));
    }

    fn grant(&mut self, capability: &str, access: Access, scope: &str) {
        let grant = self.inferred.grants.entry(capability.to_owned()).or_default();
        let scopes = match access {
            Access::Read => &mut grant.read,
            Access::Write => &mut grant.write,
        };
        if !scopes.contains(scope) {
            scopes.insert(scope.to_owned());
        }
    }

    fn refuse(&mut self, at: &At<'_>, what: &str) {
        let refused = self.refused.entry((at.call.to_owned(), what.to_owned()));
        let refused = refused.or_insert_with(|| Refused {
            call: at.call.to_owned(),
            what: what.to_owned(),
            times: 0,
            first: format!("{} entry {}", at.file, at.n),
        });
        refused.times += 1;
    }

    /// A reconcile needs read access to all load balancers that it names, and write access to all or none of them. A
    /// refused one is not granted just because it is named.
    fn cover_named(&mut self) {
        let refused = |access: Access, named: &str| {
            let what = format!("no grant to {access} load balancer `{named}`");
            self.refused.values().any(|refused| refused.what == what)
        };
        let mut to_read = BTreeSet::new();
        let mut writable: Vec<&Named> = Vec::new();
        for named in &self.named {
            if named.iter().any(|named| refused(Access::Read, named)) {
                continue;
            }
            to_read.extend(named.iter().cloned());
            if !named.iter().any(|named| refused(Access::Write, named)) {
                writable.push(named);
            }
        }
        let grant = self.inferred.grants.get(lbaas::NAME);
        let mut to_write = grant.map(|grant| grant.write.clone()).unwrap_or_default();
        // One reconcile may add needs of another.
        loop {
            let before = to_write.len();
            for named in &writable {
                if !named.is_disjoint(&to_write) {
                    to_write.extend(named.iter().cloned());
                }
            }
            if to_write.len() == before {
                break;
            }
        }
        for named in to_read {
            self.grant(lbaas::NAME, Access::Read, &named);
        }
        for named in to_write {
            self.grant(lbaas::NAME, Access::Write, &named);
        }
    }

    fn end(mut self, guest: String) -> Inferred {
        self.cover_named();
        self.inferred.guest = guest;
        self.inferred.more_refused = self.refused.len().saturating_sub(REFUSED_MAX);
        self.inferred.refused = self.refused.into_values().take(REFUSED_MAX).collect();
        self.inferred
    }
}

fn parsed<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// The error in an answer of type `result<_, error>` if it was refused.
fn denied(answer: &RawValue) -> Option<String> {
    match parsed::<Result<serde::de::IgnoredAny, Error>>(answer) {
        Some(Err(Error::AccessDenied(what))) => Some(what),
        _ => None,
    }
}

/// The same for an error that is text.
fn denied_in_words(answer: &RawValue) -> Option<String> {
    let error = parsed::<Result<serde::de::IgnoredAny, String>>(answer)?.err()?;
    error.strip_prefix("access denied: ").map(str::to_owned)
}

fn named(args: &RawValue) -> Option<Named> {
    #[derive(serde::Deserialize)]
    struct Args {
        desired: Desired,
    }
    #[derive(serde::Deserialize)]
    struct Desired {
        load_balancers: Named,
    }
    parsed::<Args>(args).map(|args| args.desired.load_balancers)
}

impl Inferred {
    /// TOML to paste under `[guests.NAME]`: one key, and comments.
    pub fn to_toml(&self) -> String {
        let mut text = format!(
            "# [guests.{}]: from {}, {}, {}\n",
            one_line(&self.guest),
            counted(self.recordings as u64, "recording"),
            counted(self.calls, "call"),
            counted(self.questions, "question")
        );
        let grants: Vec<String> = self
            .grants
            .iter()
            .map(|(capability, grant)| format!("{capability} = {}", in_toml(grant)))
            .collect();
        let grants = match grants.as_slice() {
            [] => "{}".to_owned(),
            some => format!("{{ {} }}", some.join(", ")),
        };
        let mut say = |line: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{line}");
        };
        say(format!("grants = {grants}"));
        if let Some(grant) = self.grants.get(lbaas::NAME) {
            if grant.write.is_empty() {
                say("# nothing was written, so nothing is granted to write".to_owned());
            }
            say(match self.destroyed_max {
                0 => "# no call destroyed anything; a limit of lbaas would be: destroy_max = 0".to_owned(),
                max => format!(
                    "# one call destroyed {} at most; a limit of lbaas would be: destroy_max = {max}",
                    counted(max, "object")
                ),
            });
        }
        for refused in &self.refused {
            say(format!(
                "# refused {}, and not granted here: {}: {}; first in {}",
                counted(refused.times, "time"),
                one_line(&refused.call),
                one_line(&refused.what),
                one_line(&refused.first)
            ));
        }
        if self.more_refused > 0 {
            say(format!("# and {} other refusals", self.more_refused));
        }
        if let Some(first) = &self.first_unattributed {
            say(format!(
                "# not known: the load balancers of {} that no recording shows, first {}; grant them by hand",
                counted(self.unattributed, "resource"),
                one_line(first)
            ));
        }
        text
    }
}

fn in_toml(grant: &Grant) -> String {
    let list = |scopes: &BTreeSet<String>| {
        let quoted: Vec<String> = scopes
            .iter()
            .map(|scope| toml::Value::String(scope.clone()).to_string())
            .collect();
        format!("[{}]", quoted.join(", "))
    };
    let keys: Vec<String> = [("read", &grant.read), ("write", &grant.write)]
        .into_iter()
        .filter(|(_, scopes)| !scopes.is_empty())
        .map(|(key, scopes)| format!("{key} = {}", list(scopes)))
        .collect();
    match keys.as_slice() {
        [] => "{}".to_owned(),
        some => format!("{{ {} }}", some.join(", ")),
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Keeps a comment on one line, whatever a recording contains.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
#[path = "infer_tests.rs"]
mod tests;
