//! Infers the smallest grants that would allow the questions in recordings.
//!
//! It only reads recordings: it runs no guest and contacts no backend. Each capability reads its own questions.
//!
//! ```text
//! recordings -> readers of the capabilities -> each question: granted (capability, access, scope), refused, or unknown
//! ```

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use trueup_base::regular;
use trueup_base::text::counted;
use trueup_capabilities::grants::{Access, Grant};
use trueup_capabilities::holdings::{COUNTS_FIRST, WAITS};
use trueup_capabilities::questions::{CAPABILITIES, Readers};
use trueup_capabilities::reading::{Action, Need, Write};
use trueup_journal::{Ask, Event, Header, ReadError, Segment, Torn};

use crate::folders::folders_in;

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
/// One line: what cannot be read, that there is none, or that a file is no recording.
pub fn recordings(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in paths {
        let found = files.len();
        let shown = path.display();
        if path.is_dir() {
            collect(path, &mut files)?;
        } else if is_something_else(path) {
            let give = "give one, such as `journals/GUEST/KEY/0.jsonl`, a folder of them, or a state folder";
            return Err(format!("`{shown}` is no recording: {give}"));
        } else {
            files.push(path.clone());
        }
        if files.len() == found {
            return Err(format!("no recordings in `{shown}`"));
        }
    }
    Ok(files)
}

/// Whether a file begins otherwise than a recording, damaged or not. `false` for one that is empty or can't be read.
fn is_something_else(file: &Path) -> bool {
    let mut first = [0];
    let read = regular::open(file).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && (first != *b"{" || is_audit_log(regular::folder_of(file)))
}

/// Whether a folder holds an audit log, whose files have the names of recordings.
fn is_audit_log(folder: &Path) -> bool {
    folder.join("head").is_file()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let journals = folder.join("journals");
    if journals.is_dir() {
        return collect(&journals, files);
    }
    if is_audit_log(folder) {
        return Ok(());
    }
    let failed = |error| format!("can't list `{}`: {error}", folder.display());
    let segments = trueup_journal::segment_files(folder).map_err(|error| error.to_string())?;
    files.extend(segments.into_iter().map(|segment| segment.path));
    let folders = folders_in(folder).map_err(failed)?;
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
        // What answers show: an earlier question may need it.
        for entry in &segment.entries {
            if let Event::Ask(ask) = &entry.event
                && let Some((_, reader)) = guest.readers.of(&ask.name)
            {
                reader.learn(ask);
            }
        }
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

#[derive(Default)]
struct Inference {
    inferred: Inferred,
    readers: Readers,
    refused: BTreeMap<(String, String), Refused>,
    /// What the current call destroyed.
    destroyed: u64,
}

impl Inference {
    fn read(&mut self, segment: &Segment) {
        self.inferred.recordings += 1;
        for entry in &segment.entries {
            match &entry.event {
                Event::Call(call) => {
                    self.inferred.calls += 1;
                    self.destroyed = 0;
                    self.readers.all().for_each(|(_, reader)| reader.called(call));
                }
                Event::Ask(ask) => {
                    self.inferred.questions += 1;
                    self.question(&segment.name, entry.n, ask);
                }
                Event::Header(_) | Event::Ending(_) | Event::RolledBack(_) => {}
            }
        }
    }

    /// Reads the question at entry `n`. Log, clock, timers, randomness and metrics need no grant.
    fn question(&mut self, file: &str, n: u64, ask: &Ask) {
        let Self { inferred, readers, .. } = self;
        let Some((capability, reader)) = readers.of(&ask.name) else {
            return;
        };
        let Some(granted) = &capability.grant else { return };
        if capability.limits_destroying {
            let is_destroyed = |write: &&Write| write.action == Action::Destroy && write.error.is_none();
            self.destroyed += reader.wrote(n, ask).iter().filter(is_destroyed).count() as u64;
            inferred.destroyed_max = inferred.destroyed_max.max(self.destroyed);
        }
        for need in reader.needs(ask) {
            match need {
                Need::Access(access, scope) => {
                    let grant = inferred.grants.entry(granted.name.to_owned()).or_default();
                    match access {
                        Access::Read => grant.read.insert(scope),
                        Access::Write => grant.write.insert(scope),
                    };
                }
                // Its grants allow it: the change was to be counted, or looked at, first.
                Need::Refused(what) if what.contains(WAITS) || what == COUNTS_FIRST => {}
                Need::Refused(what) => {
                    let refused = self.refused.entry((ask.name.clone(), what.clone()));
                    let refused = refused.or_insert_with(|| Refused {
                        call: ask.name.clone(),
                        what,
                        times: 0,
                        first: format!("{file} entry {n}"),
                    });
                    refused.times += 1;
                }
                Need::Unknown => {
                    inferred.unattributed += 1;
                    let first = &mut inferred.first_unattributed;
                    first.get_or_insert_with(|| format!("{} in {file} entry {n}", ask.name));
                }
            }
        }
    }

    fn end(mut self, guest: String) -> Inferred {
        for (capability, reader) in self.readers.all() {
            let Some(granted) = &capability.grant else { continue };
            let name = granted.name;
            let mut grant = self.inferred.grants.remove(name).unwrap_or_default();
            reader.complete(&mut grant);
            if grant != Grant::default() {
                self.inferred.grants.insert(name.to_owned(), grant);
            }
        }
        self.inferred.guest = guest;
        self.inferred.more_refused = self.refused.len().saturating_sub(REFUSED_MAX);
        self.inferred.refused = self.refused.into_values().take(REFUSED_MAX).collect();
        self.inferred
    }
}

impl Inferred {
    /// TOML to paste under `[guests.NAME]`: one key, and comments.
    pub fn to_toml(&self) -> String {
        let guest = one_line(&self.guest);
        let calls = counted(self.calls, "call", "calls");
        let recordings = counted(self.recordings, "recording", "recordings");
        let questions = counted(self.questions, "question", "questions");
        let mut lines = vec![format!("# [guests.{guest}]: from {recordings}, {calls}, {questions}")];
        let mut grants = toml::Table::try_from(&self.grants).unwrap_or_default();
        let lists = grants.iter_mut().filter_map(|(_, grant)| grant.as_table_mut());
        lists.for_each(|grant| grant.retain(|_, scopes| scopes.as_array().is_none_or(|scopes| !scopes.is_empty())));
        lines.push(format!("grants = {}", toml::Value::Table(grants)));
        let limited = CAPABILITIES.iter().filter(|capability| capability.limits_destroying);
        for capability in limited.filter_map(|capability| Some(capability.grant.as_ref()?.name)) {
            let Some(grant) = self.grants.get(capability) else {
                continue;
            };
            if grant.write.is_empty() {
                lines.push("# nothing was written, so nothing is granted to write".to_owned());
            }
            let max = self.destroyed_max;
            let destroyed = match max {
                0 => "no call destroyed anything".to_owned(),
                max => format!("one call destroyed {} at most", counted(max, "object", "objects")),
            };
            let limit = format!("a limit of {capability} would be: destroy_max = {max}");
            lines.push(format!("# {destroyed}; {limit}"));
        }
        for of in &self.refused {
            let times = counted(of.times, "time", "times");
            let what = one_line(&format!("{}: {}; first in {}", of.call, of.what, of.first));
            lines.push(format!("# refused {times}, and not granted here: {what}"));
        }
        if self.more_refused > 0 {
            lines.push(format!("# and {} other refusals", self.more_refused));
        }
        if let Some(first) = &self.first_unattributed {
            let resources = counted(self.unattributed, "resource", "resources");
            let first = one_line(first);
            let that = format!("that no recording shows, first {first}; grant them by hand");
            lines.push(format!("# not known: the load balancers of {resources} {that}"));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

/// Keeps a comment on one line, whatever a recording contains.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
#[path = "infer_tests.rs"]
mod tests;
