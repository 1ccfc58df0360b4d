//! The operator's commands on a store: inspect it, check it, copy it, restore an earlier checkpoint, accept what
//! remains of it.
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

pub use super::anchor::Mark;
pub use super::format::Torn;

use super::anchor::{self, FORGOTTEN};
use super::format::{self, Scan, Version};
use super::generations::{self, Keep};
use super::place::{self, OpenError, Real};
use super::{DATA_BYTES_MAX, ENTRY_BYTES_MAX, Error, Saved, json_file, within};

/// The format of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `checkpoint::file`.
    File,
    /// `checkpoint::json_file`.
    JsonFile,
}

impl Kind {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::JsonFile => "json-file",
        }
    }

    /// The kind that a store which does not exist yet would have.
    pub fn of_name(path: &Path) -> Self {
        match path.extension().is_some_and(|ending| ending == "json") {
            true => Self::JsonFile,
            false => Self::File,
        }
    }
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

/// A command that can't be carried out on the store at `path`.
fn misused(path: &Path, why: impl std::fmt::Display) -> ToolError {
    ToolError::Misused(format!("`{}`: {why}", path.display()))
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
    /// The size of the file.
    pub bytes: u64,
}

/// The content of a store.
#[derive(Debug, Serialize)]
pub struct Picture {
    /// The store's path.
    pub path: PathBuf,
    /// The store's kind.
    pub kind: Kind,
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
    /// The complete content, or what is before the damage.
    #[serde(skip)]
    pub saved: Saved,
    /// The damage, if there is some.
    #[serde(skip)]
    pub damage: Option<Error>,
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

/// As `read`, but reads a `file` store again if a host has it open and the end looks unfinished.
fn read_in_use(path: &Path, kind: Kind, known: Option<Mark>) -> Result<Scan, Error> {
    for _ in 1..LOOKS_MAX {
        match read(path, kind, known) {
            Ok(reading) if reading.torn.is_none() => return Ok(reading),
            _ if kind == Kind::JsonFile || place::lock_holder(path).is_none() => break,
            _ => std::thread::sleep(LOOK_PAUSE),
        }
    }
    read(path, kind, known)
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
    // Without such a beginning the store is damaged, and its name decides.
    Ok(Some(match bytes.as_slice() {
        bytes if bytes.starts_with(format::MAGIC) => Kind::File,
        bytes if bytes.trim_ascii_start().starts_with(b"{") => Kind::JsonFile,
        _ => Kind::of_name(path),
    }))
}

fn kind_there(path: &Path) -> Result<Kind, ToolError> {
    if let Some(found) = kind_of(path)? {
        return Ok(found);
    }
    // It never existed, or it is gone.
    Err(match anchor::lost(anchor::look(path)?, None) {
        None => misused(path, "there is no checkpoint"),
        Some(lost) => anchor::corrupt(path, &lost).into(),
    })
}

/// What the anchor of a store says; `None` also for a kind without records, whose anchor says nothing of its content.
fn known_of(path: &Path, kind: Kind) -> Result<Option<Mark>, Error> {
    match kind {
        Kind::File => anchor::look(path),
        Kind::JsonFile => Ok(None),
    }
}

/// Reads what is stored there, without a lock and without writing.
///
/// # Errors
/// If nothing is stored there, or none of it can be read.
pub fn look(path: &Path) -> Result<Picture, ToolError> {
    let kind = kind_there(path)?;
    let holder = place::lock_holder(path);
    let generations = generations_beside(path)?;
    // Read the anchor before the file: a host that writes meanwhile raises both.
    let known = known_of(path, kind)?;
    let mut damage = None;
    let reading = match (kind, read_in_use(path, kind, None)) {
        (Kind::File, Err(found)) => {
            let before = format::intact(&place::read_bytes(path)?).map_err(|_| found.clone())?;
            damage = Some(found);
            Scan { torn: None, ..before }
        }
        (_, reading) => reading?,
    };
    let has_records = kind == Kind::File;
    Ok(Picture {
        path: path.to_owned(),
        kind,
        bytes: reading.bytes,
        data_bytes: reading.saved.data.len(),
        entries: reading.saved.entries.len(),
        last_sequence: has_records.then_some(reading.mark().records),
        end: has_records.then_some(reading.end),
        lost: anchor::lost(known, Some(reading.mark())),
        tail: reading.torn,
        pid: holder.flatten(),
        in_use: holder.is_some(),
        generations,
        saved: reading.saved,
        damage,
    })
}

fn generations_beside(path: &Path) -> Result<Vec<Generation>, Error> {
    let all = generations::list(path).map_err(|error| place::failed(path, "looking for generations of", &error))?;
    let sized = all.into_iter().map(|generation| {
        let path = generations::path_of(path, generation);
        let meta = std::fs::metadata(&path).map_err(|error| place::failed(&path, "looking at", &error))?;
        let bytes = meta.len();
        Ok(Generation { generation, bytes })
    });
    sized.collect()
}

/// The content of a store, which must hold at least what is `known` if it has records. The text of a `json-file` store
/// counts as data without records, and without its trailing newline.
fn read(path: &Path, kind: Kind, known: Option<Mark>) -> Result<Scan, Error> {
    if kind == Kind::File {
        let bytes = place::read_bytes(path)?;
        return format::scan(&bytes, known).map_err(|damage| {
            // With the anchor, the text says as the host does how far the store was durable.
            let anchored = anchor::look(path).ok().flatten();
            anchor::corrupt(path, &format::scan(&bytes, anchored).err().unwrap_or(damage))
        });
    }
    let mut data = json_file::read(path, &mut place::open_there(path)?)?;
    let bytes = data.len() as u64;
    if data.ends_with('\n') {
        data.pop();
    }
    Ok(Scan {
        version: Version::One,
        epoch: json_file::MARK.epoch,
        saved: Saved::of(data),
        bytes,
        end: bytes,
        torn: None,
    })
}

/// Checks whether a store is whole: every record, or text that is valid JSON. Takes no lock and writes nothing.
///
/// # Errors
/// If nothing is stored there, or it can't be read at all. Damage is not an error here.
pub fn verify(path: &Path) -> Result<(Kind, Verdict), ToolError> {
    let found = kind_there(path);
    let kind = found.as_ref().map_or_else(|_| Kind::of_name(path), |kind| *kind);
    let checked = found.and_then(|kind| Ok(check(path, kind, anchor::look(path)?)?));
    match checked {
        Err(ToolError::Store(Error::Corrupt(text))) => Ok((kind, Verdict::Corrupt { text })),
        checked => Ok((kind, checked?)),
    }
}

/// Reads the whole store, which must hold at least what is `known`.
fn check(path: &Path, kind: Kind, known: Option<Mark>) -> Result<Verdict, Error> {
    let reading = read_in_use(path, kind, known)?;
    if kind == Kind::JsonFile {
        let json: Result<serde::de::IgnoredAny, _> = serde_json::from_str(&reading.saved.data);
        json.map_err(|error| Error::Corrupt(format!("{}: not JSON: {error}", path.display())))?;
    }
    Ok(match reading.torn {
        None => Verdict::Whole,
        Some(tail) if place::lock_holder(path).is_some() => Verdict::Unfinished { tail },
        Some(tail) => Verdict::Torn { tail },
    })
}

/// The result of copying or restoring.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// The kind of the target store.
    pub kind: Kind,
    /// The size of its data.
    pub data_bytes: usize,
    /// The number of entries after the data in the target.
    pub entries: usize,
    /// The number of entries merged into the data.
    pub folded: usize,
    /// An interrupted, unanswered write that was left out.
    pub left_out: Option<Torn>,
}

/// Copies the content of `from` to `to` and takes both locks. `kind` is that of a new `to`; `None` goes by its name.
/// Existing content of `to` becomes a generation if `replace` allows it. A store without entries gets what `fold` makes
/// of data and entries.
///
/// # Errors
/// If `from` is empty or can't be read, if `to` has content and `replace` is false, or if one of them is in use.
pub fn copy(
    from: &Path,
    to: &Path,
    kind: Option<Kind>,
    replace: bool,
    fold: fn(&Saved) -> Result<String, String>,
) -> Result<Copied, ToolError> {
    let source = kind_there(from)?;
    if is_same(from, to) {
        return Err(misused(from, "it can't be copied to itself"));
    }
    let present = kind_of(to)?;
    let target = match present {
        Some(found) if kind.is_some_and(|wanted| wanted != found) => {
            let why = format!("it is of the kind `{}`: leave out `--kind`", found.name());
            return Err(misused(to, why));
        }
        Some(found) => found,
        None => kind.unwrap_or_else(|| Kind::of_name(to)),
    };
    let _from = place::lock(from)?;
    let _to = place::lock(to)?;
    let Scan { saved, torn, .. } = read(from, source, known_of(from, source)?)?;
    let entries = saved.entries.len();
    let saved = match target {
        Kind::JsonFile => Saved::of(fold(&saved).map_err(|why| Error::Corrupt(format!("{}: {why}", from.display())))?),
        Kind::File => saved,
    };
    if present.is_some() && !replace {
        let why = "it holds something already; with `--replace` that becomes a generation";
        return Err(misused(to, why));
    }
    store(to, target, &saved)?;
    Ok(Copied {
        kind: target,
        data_bytes: saved.data.len(),
        folded: entries - saved.entries.len(),
        entries: saved.entries.len(),
        left_out: torn,
    })
}

fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| {
        let folder = std::fs::canonicalize(place::folder_of(path)).ok()?;
        Some(folder.join(path.file_name()?))
    };
    one == other || whole(one).is_some_and(|one| Some(one) == whole(other))
}

/// Writes the store in one step; the previous content becomes a generation.
fn store(path: &Path, kind: Kind, saved: &Saved) -> Result<(), Error> {
    within(path, "the data", &saved.data, DATA_BYTES_MAX)?;
    for entry in &saved.entries {
        within(path, "the entry", entry, ENTRY_BYTES_MAX)?;
    }
    let (bytes, mark) = match kind {
        Kind::File => {
            let epoch = next_epoch(path)?;
            let records = saved.entries.len() as u64;
            let mut bytes = format::header(epoch);
            let texts = std::iter::once(&saved.data).chain(&saved.entries);
            for (number, text) in (0_u64..).zip(texts) {
                bytes.extend(format::record(Version::Two, number, number.saturating_sub(1), text));
            }
            (bytes, Mark { epoch, records })
        }
        Kind::JsonFile => ([saved.data.as_bytes(), b"\n"].concat(), json_file::MARK),
    };
    generations::put(&Real, path, Keep::All, &[&bytes])?;
    anchor::set(&Real, path, Some(mark))
}

/// An epoch that no earlier file at `path` had, as far as the existing files can be read.
fn next_epoch(path: &Path) -> Result<u64, Error> {
    let known = anchor::look(path).ok().flatten().map_or(0, |mark| mark.epoch);
    let present = match place::open_any(path)? {
        Some(_) => format::read_header(&place::read_bytes(path)?).map_or(0, |(_, epoch)| epoch),
        None => 0,
    };
    Ok(known.max(present) + 1)
}

/// Restores the checkpoint from `generation` checkpoints ago, with the entries after it. The current one, damaged or
/// not, becomes generation 1 first.
///
/// # Errors
/// If the generation does not exist or is damaged, or if the store is in use.
pub fn restore(path: &Path, generation: u32) -> Result<Copied, ToolError> {
    let beside = generations::path_of(path, generation);
    // The current file may be damaged or gone; the restored one determines the kind.
    let Some(kind) = kind_of(&beside)?.filter(|_| generation > 0) else {
        let all = generations_beside(path)?.into_iter();
        let mut known: Vec<String> = all.map(|known| known.generation.to_string()).collect();
        if known.is_empty() {
            known.push("none".to_owned());
        }
        let why = format!("no generation {generation}; there are {}", known.join(", "));
        return Err(misused(path, why));
    };
    let _lock = place::lock(path)?;
    let Scan { saved, torn, .. } = read(&beside, kind, None)?;
    store(path, kind, &saved)?;
    Ok(Copied {
        kind,
        data_bytes: saved.data.len(),
        entries: saved.entries.len(),
        folded: 0,
        left_out: torn,
    })
}

/// A change that [`accept`] made.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// The state that the anchor knew; `None` if it knew none or can't be read.
    pub known: Option<Mark>,
    /// The state that exists and is accepted from now on. `None` if there is none: the next host begins with an empty
    /// store.
    pub found: Option<Mark>,
}

/// Accepts what exists as complete: a truncated store, an older copy, or none. Returns the change; `None` if nothing is
/// missing. `confirmed`: whether entries may be lost by this.
///
/// # Errors
/// If the store is in use or damaged in itself. A damaged store must first be moved away or restored. If entries are
/// lost, and that is not confirmed.
pub fn accept(path: &Path, confirmed: bool) -> Result<Option<Accepted>, ToolError> {
    let _lock = place::lock(path)?;
    let found = kind_of(path)?.map(|kind| read(path, kind, None)).transpose()?;
    let found = found.map(|scan| scan.mark());
    // A damaged anchor is replaced, too.
    let known = anchor::look(path);
    if known.as_ref().ok() == Some(&found) {
        return Ok(None);
    }
    if !confirmed && let Some(lost) = known.as_ref().ok().and_then(|known| anchor::lost(*known, found)) {
        let shown = path.display();
        let text = format!("{shown}: {lost}; {FORGOTTEN}; to go on: `trueup checkpoint accept {shown} --yes`");
        return Err(ToolError::Misused(text));
    }
    anchor::set(&Real, path, found)?;
    let known = known.unwrap_or_default();
    Ok(Some(Accepted { known, found }))
}
