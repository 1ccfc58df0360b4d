//! The bytes of a `file` store: what is written, and which part is valid when it is read.
//!
//! Pure: bytes in, facts out. Little-endian, CRC-32C (Castagnoli):
//!
//! ```text
//! file    TRUEUPCK | u32 format version 2 | u64 epoch | u32 CRC of these 20 bytes
//! record  u32 bytes of the payload | u8 kind | u64 number | u64 durable | u32 CRC of these 21 bytes and the payload
//!         | payload, UTF-8
//! ```
//! The first record is the data, number 0; entries follow with 1, 2, ... `durable` is the number of the last durable
//! record at the time of writing. Version 1 has neither epoch nor `durable`; the host reads it, and appends to it, as
//! it is.
//!
//! Records up to a known durable one must be intact: a wrong one was already answered, and counts as damage. After
//! that, a disk may have kept a later record and lost an earlier one of the same sync. None of them was answered, so
//! from the first wrong one on they are a torn tail. Later records and the anchor (`anchor.rs`) say which records are
//! durable.

use super::anchor::{self, Mark};
use super::{DATA_BYTES_MAX, ENTRY_BYTES_MAX, Saved};

/// The first bytes of every such file.
pub(super) const MAGIC: &[u8; 8] = b"TRUEUPCK";

/// The layout of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// The host reads it, and appends to it until the next checkpoint.
    One,
    /// The host writes this version.
    Two,
}

impl Version {
    /// The bytes of the header, and those before the payload that a record's CRC covers.
    fn bytes(self) -> (usize, usize) {
        match self {
            Self::One => (16, 13),
            Self::Two => (HEADER_BYTES, RECORD_HEAD_BYTES - CRC_BYTES),
        }
    }
}

/// The format version that the host writes.
const VERSION: u32 = 2;

pub(super) const HEADER_BYTES: usize = 24;

/// The size of a record's head, before its payload.
pub(super) const RECORD_HEAD_BYTES: usize = 25;

const CRC_BYTES: usize = 4;

const KIND_DATA: u8 = 1;
const KIND_ENTRY: u8 = 2;

/// The beginning of a new file.
pub(super) fn header(epoch: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(epoch.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// The head of record `number`. Callers limit the payload, so its length fits.
#[expect(clippy::cast_possible_truncation, reason = "at most `DATA_BYTES_MAX`")]
pub(super) fn record_head(version: Version, number: u64, durable: u64, payload: &str) -> Vec<u8> {
    let kind = if number == 0 { KIND_DATA } else { KIND_ENTRY };
    let mut head = Vec::with_capacity(RECORD_HEAD_BYTES + payload.len());
    head.extend((payload.len() as u32).to_le_bytes());
    head.push(kind);
    head.extend(number.to_le_bytes());
    if version == Version::Two {
        head.extend(durable.to_le_bytes());
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head), payload.as_bytes());
    head.extend(sum.to_le_bytes());
    head
}

/// A whole record, as it is appended.
pub(super) fn record(version: Version, number: u64, durable: u64, payload: &str) -> Vec<u8> {
    let mut bytes = record_head(version, number, durable, payload);
    bytes.extend(payload.as_bytes());
    bytes
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) version: Version,
    pub(super) epoch: u64,
    pub(super) saved: Saved,
    /// The size of the file.
    pub(super) bytes: u64,
    /// Where the last intact record ends.
    pub(super) end: u64,
    /// What comes after it.
    pub(super) torn: Option<Torn>,
}

impl Scan {
    /// The position of the store.
    pub(super) fn mark(&self) -> Mark {
        let epoch = self.epoch;
        let records = self.saved.entries.len() as u64;
        Mark { epoch, records }
    }
}

/// The rest of an interrupted write.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Torn {
    /// The number of the record that was being written.
    pub record: u64,
    /// Where it begins.
    pub offset: u64,
    /// The number of bytes from there to the end.
    pub bytes: u64,
    /// Why it counts as torn.
    pub reason: &'static str,
}

#[derive(Debug)]
struct Record<'a> {
    number: u64,
    durable: u64,
    payload: &'a str,
    next: usize,
}

/// Reads a whole file. `known` is its minimum state; `None` if that is unknown. The error says which record is damaged,
/// where and how, or what is lost: the caller must not treat the rest as complete.
pub(super) fn scan(bytes: &[u8], known: Option<Mark>) -> Result<Scan, String> {
    let scan = intact(bytes)?;
    if let Some(torn) = &scan.torn {
        let Torn {
            record, offset, reason, ..
        } = *torn;
        let start = usize::try_from(offset).unwrap_or(bytes.len());
        let durable = durable_behind(scan.version, bytes, start, record);
        let anchored = known.filter(|known| known.epoch == scan.epoch);
        if let Some(durable) = durable.max(anchored.map(|known| known.records))
            && durable >= record
        {
            return Err(format!(
                "record {record} at offset {offset} is damaged: {reason}; records up to {durable} were durable, so \
                 entries that were answered are lost"
            ));
        }
    }
    anchor::lost(known, Some(scan.mark())).map_or(Ok(scan), Err)
}

/// The records before the first that is not intact, whether that one was answered or not. Fails without any.
pub(super) fn intact(bytes: &[u8]) -> Result<Scan, String> {
    let (version, epoch) = read_header(bytes)?;
    let (start, _) = version.bytes();
    let damaged = |reason: &str| format!("record 0 at offset {start} is damaged: {reason}");
    let data = record_at(version, bytes, start).map_err(damaged)?;
    if data.number != 0 {
        return Err(damaged("it is not the data"));
    }
    let mut saved = Saved::of(data.payload);
    let (mut offset, mut number, mut torn) = (data.next, 1, None);
    while offset < bytes.len() && torn.is_none() {
        let reason = match record_at(version, bytes, offset) {
            Ok(record) if record.number == number => {
                saved.entries.push(record.payload.to_owned());
                (offset, number) = (record.next, number + 1);
                continue;
            }
            Ok(_) => "it has another number",
            Err(reason) => reason,
        };
        torn = Some(Torn {
            record: number,
            offset: offset as u64,
            bytes: (bytes.len() - offset) as u64,
            reason,
        });
    }
    Ok(Scan {
        version,
        epoch,
        saved,
        bytes: bytes.len() as u64,
        end: offset as u64,
        torn,
    })
}

/// The version and the epoch of a file.
pub(super) fn read_header(bytes: &[u8]) -> Result<(Version, u64), String> {
    if bytes.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let damaged = |reason: &str| Err(format!("the header at offset 0 is damaged: {reason}"));
    let Some(found) = u32_at(bytes, 8) else {
        return damaged("it is cut short");
    };
    if !bytes.starts_with(MAGIC) {
        return damaged("it does not begin with `TRUEUPCK`");
    }
    let version = if found == 1 { Version::One } else { Version::Two };
    let facts = version.bytes().0 - CRC_BYTES;
    let (Some(facts), Some(crc)) = (bytes.get(..facts), u32_at(bytes, facts)) else {
        return damaged("it is cut short");
    };
    if crc32c::crc32c(facts) != crc {
        let why = format!("wrong CRC (format version {found}; this host reads 1 and {VERSION})");
        return damaged(&why);
    }
    match version {
        Version::One => Ok((version, 0)),
        Version::Two if found == VERSION => Ok((version, u64_at(bytes, 12).unwrap_or_default())),
        Version::Two => Err(format!(
            "format version {found} is not known; this host reads 1 and {VERSION}"
        )),
    }
}

/// The record at an offset, or why there is none.
fn record_at(version: Version, bytes: &[u8], offset: usize) -> Result<Record<'_>, &'static str> {
    const SHORT: &str = "it is cut short";
    let rest = bytes.get(offset..).unwrap_or_default();
    let (_, fact_bytes) = version.bytes();
    let (Some(facts), Some(length), Some(&kind), Some(number), Some(crc)) = (
        rest.get(..fact_bytes),
        u32_at(rest, 0),
        rest.get(4),
        u64_at(rest, 5),
        u32_at(rest, fact_bytes),
    ) else {
        return Err(SHORT);
    };
    let length = length as usize;
    let most = match kind {
        KIND_DATA => DATA_BYTES_MAX,
        KIND_ENTRY => ENTRY_BYTES_MAX,
        _ => return Err("it is of no known kind"),
    };
    if (kind == KIND_DATA) != (number == 0) {
        return Err("its kind and its number do not agree");
    }
    if length > most {
        return Err("it is longer than a record can be");
    }
    let head_bytes = fact_bytes + CRC_BYTES;
    let payload = rest.get(head_bytes..head_bytes + length).ok_or(SHORT)?;
    if crc32c::crc32c_append(crc32c::crc32c(facts), payload) != crc {
        return Err("wrong CRC");
    }
    let durable = match version {
        // An earlier host treated everything up to an intact record as answered, including the record itself.
        Version::One => number,
        Version::Two => u64_at(rest, 13).unwrap_or_default(),
    };
    Ok(Record {
        number,
        durable,
        payload: std::str::from_utf8(payload).map_err(|_| "it is not UTF-8")?,
        next: offset + head_bytes + length,
    })
}

/// The highest durable number that intact records from an offset on, with at least this number, report; `None` if there
/// are none. Text has no control characters at the place of a record's kind and length, so few places are checked
/// twice.
fn durable_behind(version: Version, bytes: &[u8], mut offset: usize, number: u64) -> Option<u64> {
    let mut durable = None;
    while offset < bytes.len() {
        match record_at(version, bytes, offset) {
            Ok(record) if record.number >= number => {
                durable = durable.max(Some(record.durable));
                offset = record.next;
            }
            _ => offset += 1,
        }
    }
    durable
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}
