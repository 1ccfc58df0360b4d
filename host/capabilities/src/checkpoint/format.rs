//! The bytes of a `file` store: what is written, and what of it stands when it is read.
//!
//! Pure: bytes in, facts out. Little-endian, CRC-32C (Castagnoli):
//!
//! ```text
//! file    TRUEUPCK | u32 format version 1 | u32 CRC of these 12 bytes
//! record  u32 bytes of the payload | u8 kind | u64 number | u32 CRC of these 13 bytes and the payload | payload, UTF-8
//! ```
//! The first record is the data, number 0; entries follow with 1, 2, ... What an interrupted write leaves behind is at the
//! end and was never answered: a torn tail. A wrong record with a right one behind it was answered: damage.

use super::{DATA_BYTES_MAX, ENTRY_BYTES_MAX, Saved};

/// The first bytes of every such file.
pub(super) const MAGIC: &[u8; 8] = b"TRUEUPCK";

/// The one format version there is.
pub(super) const VERSION: u32 = 1;

pub(super) const HEADER_BYTES: usize = 16;

/// What comes before a record's payload.
pub(super) const RECORD_HEAD_BYTES: usize = 17;

const KIND_DATA: u8 = 1;
const KIND_ENTRY: u8 = 2;

/// The file's beginning.
pub(super) fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// What comes before the payload of record `number`. Payloads are limited where they come in: their length fits.
#[expect(clippy::cast_possible_truncation, reason = "at most `DATA_BYTES_MAX`")]
pub(super) fn record_head(number: u64, payload: &str) -> [u8; RECORD_HEAD_BYTES] {
    let kind = if number == 0 { KIND_DATA } else { KIND_ENTRY };
    let mut head = [0; RECORD_HEAD_BYTES];
    let (facts, crc) = head.split_at_mut(13);
    let bytes = (payload.len() as u32).to_le_bytes();
    let fields = bytes.into_iter().chain([kind]).chain(number.to_le_bytes());
    facts.iter_mut().zip(fields).for_each(|(to, byte)| *to = byte);
    let sum = crc32c::crc32c_append(crc32c::crc32c(facts), payload.as_bytes());
    crc.copy_from_slice(&sum.to_le_bytes());
    head
}

/// A record in one piece, as it is appended.
pub(super) fn record(number: u64, payload: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_HEAD_BYTES + payload.len());
    bytes.extend(record_head(number, payload));
    bytes.extend(payload.as_bytes());
    bytes
}

/// What is in a file.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) saved: Saved,
    /// Where the last right record ends.
    pub(super) end: u64,
    /// What comes after it.
    pub(super) torn: Option<Torn>,
}

/// The rest of a write that was interrupted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Torn {
    /// The number of the record that was being written.
    pub record: u64,
    /// Where it begins.
    pub offset: u64,
    /// So many bytes there are from there to the end.
    pub bytes: u64,
    /// How it is seen.
    pub reason: &'static str,
}

#[derive(Debug)]
struct Record<'a> {
    number: u64,
    payload: &'a str,
    next: usize,
}

/// Reads a whole file. The error says which record is damaged, where and how: what stands before it must not be taken for
/// all there was.
pub(super) fn scan(bytes: &[u8]) -> Result<Scan, String> {
    check_header(bytes)?;
    let damaged = |reason: &str| format!("record 0 at offset {HEADER_BYTES} is damaged: {reason}");
    let data = record_at(bytes, HEADER_BYTES).map_err(damaged)?;
    if data.number != 0 {
        return Err(damaged("it is not the data"));
    }
    let mut scan = Scan {
        saved: Saved {
            data: data.payload.to_owned(),
            entries: Vec::new(),
        },
        end: 0,
        torn: None,
    };
    let mut offset = data.next;
    let mut number = 1;
    while offset < bytes.len() {
        let reason = match record_at(bytes, offset) {
            Ok(record) if record.number == number => {
                scan.saved.entries.push(record.payload.to_owned());
                offset = record.next;
                number += 1;
                continue;
            }
            Ok(_) => "it has another number",
            Err(reason) => reason,
        };
        if let Some((later, at)) = right_record_from(bytes, offset, number) {
            return Err(format!(
                "record {number} at offset {offset} is damaged: {reason}; record {later} at offset {at} is right, so \
                 entries that were answered are lost"
            ));
        }
        scan.torn = Some(Torn {
            record: number,
            offset: offset as u64,
            bytes: (bytes.len() - offset) as u64,
            reason,
        });
        break;
    }
    scan.end = offset as u64;
    Ok(scan)
}

fn check_header(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let damaged = |reason: &str| Err(format!("the header at offset 0 is damaged: {reason}"));
    let (Some(facts), Some(version), Some(crc)) = (bytes.get(..12), u32_at(bytes, 8), u32_at(bytes, 12)) else {
        return damaged("it is cut short");
    };
    if !facts.starts_with(MAGIC) {
        return damaged("it does not begin with `TRUEUPCK`");
    }
    if crc32c::crc32c(facts) != crc {
        return damaged(&format!(
            "wrong CRC (format version {version}; this host reads {VERSION})"
        ));
    }
    if version != VERSION {
        return Err(format!(
            "format version {version} is not known; this host reads {VERSION}"
        ));
    }
    Ok(())
}

/// The record at an offset; else why there is none.
fn record_at(bytes: &[u8], offset: usize) -> Result<Record<'_>, &'static str> {
    const SHORT: &str = "it is cut short";
    let rest = bytes.get(offset..).unwrap_or_default();
    let (Some(facts), Some(length), Some(&kind), Some(number), Some(crc)) = (
        rest.get(..13),
        u32_at(rest, 0),
        rest.get(4),
        u64_at(rest, 5),
        u32_at(rest, 13),
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
    let payload = rest.get(RECORD_HEAD_BYTES..RECORD_HEAD_BYTES + length).ok_or(SHORT)?;
    if crc32c::crc32c_append(crc32c::crc32c(facts), payload) != crc {
        return Err("wrong CRC");
    }
    Ok(Record {
        number,
        payload: std::str::from_utf8(payload).map_err(|_| "it is not UTF-8")?,
        next: offset + RECORD_HEAD_BYTES + length,
    })
}

/// The first right record at or after an offset whose number is at least `number`, and where it is. Text has no control
/// characters where a record's kind and length stand, so that few places are looked at twice.
fn right_record_from(bytes: &[u8], offset: usize, number: u64) -> Option<(u64, usize)> {
    let last = bytes.len().checked_sub(RECORD_HEAD_BYTES)?;
    (offset..=last).find_map(|at| {
        let record = record_at(bytes, at).ok()?;
        (record.number >= number).then_some((record.number, at))
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}
