//! The operator's commands on a store: inspect it, check it, copy it, restore an earlier checkpoint.
//!
//! Inspecting takes no lock and writes nothing, so it works while a host runs. Copying and restoring take the locks of
//! the stores.
//!
//! ```text
//! PATH -> kind, from its first bytes -> Picture (show), Verdict (verify)
//! FROM -> Saved -> TO        PATH.N -> PATH, and PATH -> PATH.1
//! ```

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

pub use super::accept::{Accepted, accept};
pub use super::anchor::Mark;
pub use super::format::Torn;
pub use super::lock::Holder;

use super::accept::{anchors, lost_rows, next_epoch, not_there, own};
use super::anchor;
use super::disk::Real;
use super::fold::{self, Allocation};
use super::generations::{self, Keep};
use super::lock::{self, Lock, OpenError};
use super::{DATA_BYTES_MAX, ENTRY_BYTES_MAX, Error, Saved, database, format, json_file, place, within};

/// The format of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `checkpoint::file`.
    File,
    /// `checkpoint::database`.
    Database,
    /// `checkpoint::json_file`.
    JsonFile,
}

impl Kind {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Database => "database",
            Self::JsonFile => "json-file",
        }
    }

    /// The kind that a store which does not exist yet would have.
    pub fn of_name(path: &Path) -> Self {
        if path.extension().is_some_and(|ending| ending == "json") {
            Self::JsonFile
        } else {
            Self::File
        }
    }

    /// The kind of a store, by its first bytes. If they do not identify it, the store is damaged, and its name decides.
    fn of_bytes(path: &Path, bytes: &[u8]) -> Self {
        if bytes.starts_with(format::MAGIC) {
            Self::File
        } else if bytes.starts_with(database::MAGIC) {
            Self::Database
        } else if bytes.trim_ascii_start().starts_with(b"{") {
            Self::JsonFile
        } else {
            Self::of_name(path)
        }
    }
}

/// A store, and the instance whose rows are meant.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The file.
    pub path: &'a Path,
    /// For a file that does not exist yet; otherwise the file determines it.
    pub kind: Option<Kind>,
    /// The instance in a database; `None` if the database has only one.
    pub instance: Option<&'a str>,
}

/// Why an operator's command failed. One line.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The arguments name something that does not exist, or the command needs an explicit confirmation.
    #[error("{0}")]
    Misused(String),
    /// The store is in use.
    #[error(transparent)]
    Locked(#[from] OpenError),
    /// The store returned an error.
    #[error("{}: {}", .0.kind(), .0.text())]
    Store(Error),
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// An existing replaced checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Generation {
    /// 1 is the newest.
    pub generation: u32,
    /// The size of the file; in a database, of the data.
    pub bytes: u64,
}

/// The content of a store.
#[derive(Debug, Serialize)]
pub struct Picture {
    /// The store's path.
    pub path: PathBuf,
    /// The store's kind.
    pub kind: Kind,
    /// The instance, in a database.
    pub instance: Option<String>,
    /// The file's size.
    pub bytes: u64,
    /// The size of the data.
    pub data_bytes: usize,
    /// The number of entries after the data.
    pub entries: usize,
    /// The number of the last record, 0 being the data; `None` if records have no numbers.
    pub last_sequence: Option<u64>,
    /// Where the last intact record ends; `None` without records.
    pub end: Option<u64>,
    /// What comes after it.
    pub tail: Option<Torn>,
    /// How much there was according to the anchor, if something is missing; `None` if no loss is known.
    pub lost: Option<String>,
    /// The pid of the host that has the store open; `None` without a host or with an unknown pid. See `in_use`.
    pub pid: Option<u32>,
    /// Whether a host has the store open. If so, `tail` is an unfinished write.
    pub in_use: bool,
    /// Older checkpoints that can be restored.
    pub generations: Vec<Generation>,
    /// The allocations; `None` if the data is not the IPAM guest's.
    pub allocations: Option<Vec<Allocation>>,
    /// Why `allocations` is `None`.
    pub not_understood: Option<String>,
    /// The complete content.
    #[serde(skip)]
    pub saved: Saved,
}

/// The result of checking a store.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Verdict {
    /// The store is intact.
    Whole,
    /// A running host is writing.
    Unfinished {
        /// The unfinished write.
        tail: Torn,
    },
    /// A write was interrupted before it was answered. The next host cuts it off and continues.
    Torn {
        /// The rest of that write.
        tail: Torn,
    },
    /// An answered change is lost, or may be.
    Corrupt {
        /// Describes the damage and its place.
        text: String,
    },
}

/// A running host may be between two writes: the number of readings that give it time to finish.
const LOOKS_MAX: u32 = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// The result of reading a `file` store.
pub(super) struct Reading {
    bytes: u64,
    pub(super) mark: Mark,
    saved: Saved,
    end: u64,
    torn: Option<Torn>,
}

/// Reads a `file` store, which must hold at least what is `known`.
pub(super) fn read_file(path: &Path, known: Option<Mark>) -> Result<Reading, Error> {
    let bytes = read_bytes(path)?;
    let shown = path.display();
    let scan = format::scan(&bytes, known).map_err(|damage| {
        let way_out = anchor::way_out(path);
        Error::Corrupt(format!("{shown}: {damage}; {way_out}"))
    })?;
    Ok(Reading {
        bytes: bytes.len() as u64,
        mark: scan.mark(),
        saved: scan.saved,
        end: scan.end,
        torn: scan.torn,
    })
}

/// As `read_file`, but reads again if a host has the file open and the end looks unfinished.
fn read_file_in_use(path: &Path, known: Option<Mark>) -> Result<Reading, Error> {
    for _ in 1..LOOKS_MAX {
        match read_file(path, known) {
            Ok(reading) if reading.torn.is_none() => return Ok(reading),
            _ if lock::holder(path).is_none() => break,
            _ => std::thread::sleep(LOOK_PAUSE),
        }
    }
    read_file(path, known)
}

pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>, Error> {
    let mut file =
        place::open_any(path)?.ok_or_else(|| Error::Unavailable(format!("{}: it is gone", path.display())))?;
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes);
    read.map_err(|error| place::failed(path, "reading", &error))?;
    Ok(bytes)
}

/// The kind of the store at this path; `None` if nothing exists there.
///
/// # Errors
/// If it can't be read.
pub fn kind_of(path: &Path) -> Result<Option<Kind>, ToolError> {
    /// Enough for any header, and for white space before JSON.
    const BEGINNING: u64 = 4096;
    let Some(file) = place::open_any(path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    let read = file.take(BEGINNING).read_to_end(&mut bytes);
    read.map_err(|error| place::failed(path, "reading", &error))?;
    Ok(Some(Kind::of_bytes(path, &bytes)))
}

fn kind_there(at: Place<'_>) -> Result<Kind, ToolError> {
    let path = at.path.display();
    let found = match kind_of(at.path)? {
        Some(found) => found,
        None => return Err(not_there(at.path)?),
    };
    match at.kind {
        Some(wanted) if wanted != found => Err(ToolError::Misused(format!(
            "`{path}`: it is of the kind `{}`, not `{}`",
            found.name(),
            wanted.name()
        ))),
        _ => Ok(found),
    }
}

/// The instance whose rows are meant.
fn instance_of(at: Place<'_>, database: &redb::Database) -> Result<String, ToolError> {
    let path = at.path.display();
    let all = database::instances(at.path, database)?;
    let list = all
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    match (at.instance, all.as_slice()) {
        (Some(name), _) if all.iter().any(|other| other == name) => Ok(name.to_owned()),
        (Some(name), []) => Err(ToolError::Misused(format!(
            "`{path}`: nothing is stored for `{name}`, nor for others"
        ))),
        (Some(name), _) => Err(ToolError::Misused(format!(
            "`{path}`: nothing is stored for `{name}`; there are {list}"
        ))),
        (None, [only]) => Ok(only.clone()),
        (None, []) => Err(ToolError::Misused(format!("`{path}`: nothing is stored in it"))),
        (None, _) => Err(ToolError::Misused(format!(
            "`{path}`: it has the rows of several instances; choose with `--instance` one of {list}"
        ))),
    }
}

/// Reads what is stored there, without a lock and without writing.
///
/// # Errors
/// If nothing is stored there, or it can't be read.
pub fn look(at: Place<'_>) -> Result<Picture, ToolError> {
    let path = at.path;
    let kind = kind_there(at)?;
    let holder = lock::holder(path);
    let mut picture = Picture {
        path: path.to_owned(),
        kind,
        instance: None,
        bytes: 0,
        data_bytes: 0,
        entries: 0,
        last_sequence: None,
        end: None,
        tail: None,
        lost: None,
        pid: holder.and_then(|holder| holder.pid),
        in_use: holder.is_some(),
        generations: Vec::new(),
        allocations: None,
        not_understood: None,
        saved: Saved {
            data: String::new(),
            entries: Vec::new(),
        },
    };
    match kind {
        Kind::File => {
            // Read the anchor before the file: a host that writes meanwhile raises both.
            let known = anchor::look(path)?;
            let reading = read_file_in_use(path, None)?;
            picture.lost = anchor::lost(known, Some(reading.mark));
            picture.bytes = reading.bytes;
            picture.end = Some(reading.end);
            picture.tail = reading.torn;
            picture.last_sequence = Some(reading.saved.entries.len() as u64);
            picture.saved = reading.saved;
        }
        Kind::Database => {
            let known = anchors(path)?;
            let snapshot = database::snapshot(path)?;
            picture.lost = lost_rows(path, &snapshot, &known)?;
            let instance = instance_of(at, &snapshot)?;
            picture.bytes = size(path)?;
            picture.generations = database::generations(path, &snapshot, &instance)?;
            picture.saved = database::stored(path, &snapshot, &instance, 0)?.ok_or_else(|| gone(path))?;
            picture.last_sequence = Some(picture.saved.entries.len() as u64);
            picture.instance = Some(instance);
        }
        Kind::JsonFile => {
            picture.saved = read_json(path)?;
            picture.bytes = size(path)?;
        }
    }
    if kind != Kind::Database {
        picture.generations = generations_beside(path)?;
    }
    picture.data_bytes = picture.saved.data.len();
    picture.entries = picture.saved.entries.len();
    match fold::allocations(&picture.saved) {
        Ok(all) => picture.allocations = Some(all),
        Err(why) => picture.not_understood = Some(why),
    }
    Ok(picture)
}

fn gone(path: &Path) -> Error {
    Error::Unavailable(format!("{}: it is gone", path.display()))
}

fn size(path: &Path) -> Result<u64, Error> {
    let meta = std::fs::metadata(path);
    Ok(meta.map_err(|error| place::failed(path, "looking at", &error))?.len())
}

fn generations_beside(path: &Path) -> Result<Vec<Generation>, Error> {
    let all = generations::list(path).map_err(|error| place::failed(path, "looking for generations of", &error))?;
    all.into_iter()
        .map(|generation| {
            let bytes = size(&generations::path_of(path, generation))?;
            Ok(Generation { generation, bytes })
        })
        .collect()
}

/// The text of a `json-file` store, without its trailing newline.
pub(super) fn read_json(path: &Path) -> Result<Saved, Error> {
    let mut file = place::open_any(path)?.ok_or_else(|| gone(path))?;
    let mut data = json_file::read(path, &mut file)?;
    if data.ends_with('\n') {
        data.pop();
    }
    Ok(Saved {
        data,
        entries: Vec::new(),
    })
}

/// Checks whether a store is whole: every record; every row of every instance and generation of a database; or text
/// that is valid JSON. Takes no lock and writes nothing.
///
/// # Errors
/// If nothing is stored there, or it can't be read at all. Damage is not an error here.
pub fn verify(path: &Path) -> Result<(Kind, Verdict), ToolError> {
    let at = Place {
        path,
        kind: None,
        instance: None,
    };
    let kind = match kind_there(at) {
        Ok(kind) => kind,
        Err(ToolError::Store(Error::Corrupt(text))) => return Ok((Kind::of_name(path), Verdict::Corrupt { text })),
        Err(error) => return Err(error),
    };
    let known = anchors(path);
    let checked = known.and_then(|known| check(path, kind, &known));
    match checked {
        Ok(verdict) => Ok((kind, verdict)),
        Err(Error::Corrupt(text)) => Ok((kind, Verdict::Corrupt { text })),
        Err(error) => Err(error.into()),
    }
}

/// Reads the whole store, which must hold at least what is `known`.
fn check(path: &Path, kind: Kind, known: &[(Option<String>, Mark)]) -> Result<Verdict, Error> {
    match kind {
        Kind::File => read_file_in_use(path, own(known)).map(|reading| match reading.torn {
            None => Verdict::Whole,
            Some(tail) if lock::holder(path).is_some() => Verdict::Unfinished { tail },
            Some(tail) => Verdict::Torn { tail },
        }),
        Kind::Database => database::snapshot(path).and_then(|snapshot| {
            database::check(path, &snapshot)?;
            match lost_rows(path, &snapshot, known)? {
                None => Ok(Verdict::Whole),
                Some(lost) => Err(Error::Corrupt(format!("{}: {lost}", path.display()))),
            }
        }),
        Kind::JsonFile => read_json(path).and_then(|saved| {
            let json: Result<serde::de::IgnoredAny, _> = serde_json::from_str(&saved.data);
            json.map(|_| Verdict::Whole)
                .map_err(|error| Error::Corrupt(format!("{}: not JSON: {error}", path.display())))
        }),
    }
}

/// The result of copying or restoring.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// The kind of the target store.
    pub kind: Kind,
    /// The instance that now owns the rows, in a database.
    pub instance: Option<String>,
    /// The size of its data.
    pub data_bytes: usize,
    /// The number of entries after the data in the target.
    pub entries: usize,
    /// The number of entries merged into the data.
    pub folded: usize,
    /// An interrupted, unanswered write that was left out.
    pub left_out: Option<Torn>,
}

/// The default name of the instance in a new database: that of the guest that has a store.
const INSTANCE_DEFAULT: &str = "ipam";

/// Copies the content of `from` to `to` and takes both locks. Existing content of `to` becomes a generation if
/// `replace` allows it.
///
/// # Errors
/// If `from` is empty or can't be read, if `to` has content and `replace` is false, or if one of them is in use.
pub fn copy(from: Place<'_>, to: Place<'_>, replace: bool) -> Result<Copied, ToolError> {
    let kind = kind_there(from)?;
    if is_same(from.path, to.path) {
        let path = from.path.display();
        return Err(ToolError::Misused(format!("`{path}`: it can't be copied to itself")));
    }
    let there = kind_of(to.path)?;
    let target = match there {
        Some(_) => kind_there(to)?,
        None => to.kind.unwrap_or_else(|| Kind::of_name(to.path)),
    };
    let _from = Lock::take(from.path)?;
    let _to = Lock::take(to.path)?;
    let (saved, left_out, instance) = match kind {
        Kind::File => {
            let reading = read_file(from.path, anchor::look(from.path)?)?;
            (reading.saved, reading.torn, None)
        }
        Kind::Database => {
            let snapshot = database::snapshot(from.path)?;
            let instance = instance_of(from, &snapshot)?;
            let saved = database::stored(from.path, &snapshot, &instance, 0)?.ok_or_else(|| gone(from.path))?;
            (saved, None, Some(instance))
        }
        Kind::JsonFile => (read_json(from.path)?, None, None),
    };
    let entries = saved.entries.len();
    let saved = match target {
        Kind::JsonFile => Saved {
            data: fold::data(&saved).map_err(|why| Error::Corrupt(format!("{}: {why}", from.path.display())))?,
            entries: Vec::new(),
        },
        Kind::File | Kind::Database => saved,
    };
    let name = to.instance.map(str::to_owned).or(instance);
    let name = name.unwrap_or_else(|| INSTANCE_DEFAULT.to_owned());
    if !replace {
        refuse_full(to.path, there, &name)?;
    }
    store(to.path, target, &name, &saved)?;
    Ok(Copied {
        kind: target,
        instance: (target == Kind::Database).then_some(name),
        data_bytes: saved.data.len(),
        folded: entries - saved.entries.len(),
        entries: saved.entries.len(),
        left_out,
    })
}

fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| {
        let folder = std::fs::canonicalize(place::folder(path)).ok()?;
        Some(folder.join(path.file_name()?))
    };
    one == other || whole(one).is_some_and(|one| Some(one) == whole(other))
}

fn refuse_full(path: &Path, there: Option<Kind>, instance: &str) -> Result<(), ToolError> {
    let holds = match there {
        None => false,
        Some(Kind::Database) => {
            let snapshot = database::snapshot(path)?;
            database::instances(path, &snapshot)?
                .iter()
                .any(|name| name == instance)
        }
        Some(Kind::File | Kind::JsonFile) => true,
    };
    if !holds {
        return Ok(());
    }
    let path = path.display();
    Err(ToolError::Misused(format!(
        "`{path}`: it holds something already; with `--replace` that becomes a generation"
    )))
}

/// Writes the store in one step; the previous content becomes a generation.
fn store(path: &Path, kind: Kind, instance: &str, saved: &Saved) -> Result<(), Error> {
    within(path, "the data", &saved.data, DATA_BYTES_MAX)?;
    for entry in &saved.entries {
        within(path, "the entry", entry, ENTRY_BYTES_MAX)?;
    }
    match kind {
        Kind::File => {
            let mark = Mark {
                epoch: next_epoch(path)?,
                records: saved.entries.len() as u64,
            };
            let mut bytes = format::header(mark.epoch);
            let texts = std::iter::once(&saved.data).chain(&saved.entries);
            for (number, text) in (0_u64..).zip(texts) {
                let durable = number.saturating_sub(1);
                bytes.extend(format::record(format::Version::Two, number, durable, text));
            }
            put(path, &[&bytes])?;
            anchor::set(&Real, path, Some(mark))
        }
        Kind::JsonFile => {
            put(path, &[saved.data.as_bytes(), b"\n"])?;
            anchor::set(&Real, path, Some(json_file::MARK))
        }
        Kind::Database => database::store(path, instance, saved),
    }
}

fn put(path: &Path, pieces: &[&[u8]]) -> Result<(), Error> {
    place::look(path)?;
    let replaced = generations::replace(&Real, path, Keep::All, pieces);
    replaced.map(drop).map_err(|unreplaced| unreplaced.error)
}

/// Restores the checkpoint from `generation` checkpoints ago, with the entries after it. The current one, damaged or
/// not, becomes generation 1 first.
///
/// # Errors
/// If the generation does not exist or is damaged, or if the store is in use.
pub fn restore(at: Place<'_>, generation: u32) -> Result<Copied, ToolError> {
    let path = at.path;
    let beside = generations::path_of(path, generation);
    let present = kind_of(path)?;
    let kind = match present {
        Some(Kind::Database) => Kind::Database,
        // The current file may be damaged or gone; the restored one determines the kind.
        _ => match kind_of(&beside)? {
            Some(kind) if generation > 0 => kind,
            _ => return Err(no_generation(path, generation, &generations_beside(path)?)),
        },
    };
    if let Some(wanted) = at.kind.filter(|wanted| *wanted != kind) {
        let (found, wanted) = (kind.name(), wanted.name());
        let path = path.display();
        return Err(ToolError::Misused(format!(
            "`{path}`: it is of the kind `{found}`, not `{wanted}`"
        )));
    }
    let _lock = Lock::take(path)?;
    let mut instance = None;
    let mut left_out = None;
    let saved = match kind {
        Kind::File => {
            let reading = read_file(&beside, None)?;
            left_out = reading.torn;
            reading.saved
        }
        Kind::JsonFile => read_json(&beside)?,
        Kind::Database => {
            let snapshot = database::snapshot(path)?;
            let name = instance_of(at, &snapshot)?;
            let found = match generation {
                0 => None,
                _ => database::stored(path, &snapshot, &name, generation)?,
            };
            let Some(saved) = found else {
                let all = database::generations(path, &snapshot, &name)?;
                return Err(no_generation(path, generation, &all));
            };
            instance = Some(name);
            saved
        }
    };
    store(path, kind, instance.as_deref().unwrap_or_default(), &saved)?;
    Ok(Copied {
        kind,
        instance,
        data_bytes: saved.data.len(),
        entries: saved.entries.len(),
        folded: 0,
        left_out,
    })
}

fn no_generation(path: &Path, generation: u32, all: &[Generation]) -> ToolError {
    let list: Vec<String> = all.iter().map(|known| known.generation.to_string()).collect();
    let known = if list.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are {}", list.join(", "))
    };
    ToolError::Misused(format!("`{}`: no generation {generation}; {known}", path.display()))
}
