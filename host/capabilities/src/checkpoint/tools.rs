//! What an operator does with a store: looks at it, checks it, copies it, brings an earlier checkpoint back.
//!
//! Looking takes no lock and writes nothing, so that it works while a host runs. Copying and bringing back take the locks
//! of the stores.
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

/// A way of storing.
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
    /// As the configuration has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Database => "database",
            Self::JsonFile => "json-file",
        }
    }

    /// What a store that is not there yet would be.
    pub fn of_name(path: &Path) -> Self {
        if path.extension().is_some_and(|ending| ending == "json") {
            Self::JsonFile
        } else {
            Self::File
        }
    }

    /// What a store is, by its first bytes; where they tell nothing, it is damaged, and its name says what it was.
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

/// Which store, and whose rows of it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The file.
    pub path: &'a Path,
    /// For a file that is not there yet; else the file tells.
    pub kind: Option<Kind>,
    /// Whose rows of a database; none where it has those of one instance.
    pub instance: Option<&'a str>,
}

/// Why an operator's wish was not carried out. One line.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It was asked for what there is not, or what is not done without saying so.
    #[error("{0}")]
    Misused(String),
    /// It is in use.
    #[error(transparent)]
    Locked(#[from] OpenError),
    /// The store refused.
    #[error("{}: {}", .0.kind(), .0.text())]
    Store(Error),
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// A replaced checkpoint that is still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Generation {
    /// 1 is the newest.
    pub generation: u32,
    /// Its size: the file's, or in a database the data's.
    pub bytes: u64,
}

/// What is stored.
#[derive(Debug, Serialize)]
pub struct Picture {
    /// Where.
    pub path: PathBuf,
    /// How.
    pub kind: Kind,
    /// Whose rows, in a database.
    pub instance: Option<String>,
    /// The file's size.
    pub bytes: u64,
    /// The size of the data.
    pub data_bytes: usize,
    /// So many entries follow it.
    pub entries: usize,
    /// The number of the last record, 0 that of the data; none where records have no numbers.
    pub last_sequence: Option<u64>,
    /// Where the last right record ends; none where there are no records.
    pub end: Option<u64>,
    /// What comes after it.
    pub tail: Option<Torn>,
    /// What is missing: how much there was, by the anchor beside it; none: nothing, as far as this is known.
    pub lost: Option<String>,
    /// The pid of the host that has it now; none: no host, or one whose pid is not known. See `in_use`.
    pub pid: Option<u32>,
    /// Whether a host has it now. Then `tail` is a write that is not finished yet.
    pub in_use: bool,
    /// Older checkpoints that can be brought back.
    pub generations: Vec<Generation>,
    /// Who holds what; none where this is not the IPAM guest's.
    pub allocations: Option<Vec<Allocation>>,
    /// Why `allocations` is none.
    pub not_understood: Option<String>,
    /// All of it.
    #[serde(skip)]
    pub saved: Saved,
}

/// Whether a store is whole.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Verdict {
    /// All of it is right.
    Whole,
    /// A running host is writing.
    Unfinished {
        /// What it has not finished.
        tail: Torn,
    },
    /// A write was interrupted, and never answered. The next host cuts it off, and goes on.
    Torn {
        /// What is left of it.
        tail: Torn,
    },
    /// What was answered is lost, or may be.
    Corrupt {
        /// What, and where.
        text: String,
    },
}

/// A host that runs may be between two writes: it is given so many moments to finish.
const LOOKS_MAX: u32 = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// A reading of a `file` store.
pub(super) struct Reading {
    bytes: u64,
    pub(super) mark: Mark,
    saved: Saved,
    end: u64,
    torn: Option<Torn>,
}

/// Reads a `file` store, of which at least what is `known` must be there.
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

/// As `read_file`; where a host has it open and the end looks unfinished, again.
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

/// What kind of store is there; none where nothing is.
///
/// # Errors
/// Where it can't be read.
pub fn kind_of(path: &Path) -> Result<Option<Kind>, ToolError> {
    /// Enough for any beginning, and for white space before JSON.
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

/// Whose rows are meant.
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

/// What is stored there, without a lock and without writing anything.
///
/// # Errors
/// Where there is nothing, or it can't be read.
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
            // Before the file: a host that writes meanwhile raises both.
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

/// The text of a `json-file` store, without the newline that it ends with.
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

/// Whether what is stored there is whole: every record, every row of every instance and generation of a database, or text
/// that is JSON. Takes no lock and writes nothing.
///
/// # Errors
/// Where there is nothing, or it can't be read at all; damage is no error here.
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

/// Reads all of it, of which at least what is `known` must be there.
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

/// What was copied, or brought back.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// The kind of the store that has it now.
    pub kind: Kind,
    /// Whose rows it has become, in a database.
    pub instance: Option<String>,
    /// The size of its data.
    pub data_bytes: usize,
    /// So many entries follow the data there.
    pub entries: usize,
    /// So many entries went into the data.
    pub folded: usize,
    /// What was left out: an interrupted write, never answered.
    pub left_out: Option<Torn>,
}

/// The name that rows get in a new database where none is given: the guest's that has a store.
const INSTANCE_DEFAULT: &str = "ipam";

/// Copies what `from` holds to `to`, which takes both locks. What `to` holds already becomes a generation, where `replace`
/// allows it.
///
/// # Errors
/// Where `from` holds nothing or can't be read, `to` holds something and `replace` is false, or one of them is in use.
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

/// Puts it there in one step; what was there becomes a generation.
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

/// Brings back the checkpoint that was replaced `generation` checkpoints ago, with the entries that followed it. The present
/// one, damaged or not, becomes generation 1 first.
///
/// # Errors
/// Where there is no such generation, it is damaged itself, or the store is in use.
pub fn restore(at: Place<'_>, generation: u32) -> Result<Copied, ToolError> {
    let path = at.path;
    let beside = generations::path_of(path, generation);
    let present = kind_of(path)?;
    let kind = match present {
        Some(Kind::Database) => Kind::Database,
        // The present one may be damaged or gone; what comes back tells what it is.
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
