//! The rows of the embedded store, and the operations on them.
//!
//! ```text
//! keys     key                -> revision created, revision changed, version, value
//! history  (revision, number) -> key; and of a put: revision created, version, value
//! state    name               -> number
//! ```
//! Every function here is one transaction. It removes the oldest history above the limit.

use redb::{ReadableDatabase as _, ReadableTable, Table, TableDefinition};

use super::Keep;
use crate::bindings::etcd::kv::Compare;
use crate::etcd::api::{Applied, FIRST_REVISION};
use crate::etcd::history::Look;
use crate::etcd::rules::{self, Found};
use crate::etcd::stored::{Changes, Event, Listing, Stored};

type Key = &'static [u8];
type Held = (u64, u64, u64, &'static [u8]);
type Position = (u64, u32);
type Kept = (&'static [u8], u64, u64, Option<&'static [u8]>);

const KEYS: TableDefinition<'_, Key, Held> = TableDefinition::new("trueup_etcd_keys");
const HISTORY: TableDefinition<'_, Position, Kept> = TableDefinition::new("trueup_etcd_history");
const STATE: TableDefinition<'_, &str, u64> = TableDefinition::new("trueup_etcd_state");

/// The layout of the rows.
const LAYOUT: &str = "layout";
const LAYOUT_VERSION: u64 = 1;
/// The newest revision; missing before the first change.
const REVISION: &str = "revision";
/// History begins after this one.
const COMPACTED: &str = "compacted";
/// The size of `history`.
const HISTORY_BYTES: &str = "history_bytes";

/// One change of a transaction: a key, and its new value; `None` deletes it.
pub(super) type Change = (Vec<u8>, Option<Vec<u8>>);

/// Creates missing tables, and refuses those of another layout.
pub(super) fn prepare(database: &redb::Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut state = transaction.open_table(STATE)?;
        transaction.open_table(KEYS)?;
        transaction.open_table(HISTORY)?;
        let layout = state.get(LAYOUT)?.map(|row| row.value());
        match layout {
            None => {
                state.insert(LAYOUT, LAYOUT_VERSION)?;
            }
            Some(LAYOUT_VERSION) => {}
            Some(version) => {
                return Err(redb::Error::Corrupted(format!(
                    "its layout {version} is not known; this host reads {LAYOUT_VERSION}"
                )));
            }
        }
    }
    Ok(transaction.commit()?)
}

fn number(state: &impl ReadableTable<&'static str, u64>, name: &str, absent: u64) -> Result<u64, redb::Error> {
    Ok(state.get(name)?.map_or(absent, |row| row.value()))
}

/// The newest revision.
pub(super) fn revision(database: &redb::Database) -> Result<u64, redb::Error> {
    number(&database.begin_read()?.open_table(STATE)?, REVISION, FIRST_REVISION)
}

fn stored(key: &[u8], held: (u64, u64, u64, &[u8])) -> Stored {
    let (create_revision, mod_revision, version, value) = held;
    Stored {
        key: key.to_vec(),
        value: value.to_vec(),
        create_revision,
        mod_revision,
        version,
    }
}

/// The value of a key.
pub(super) fn get(database: &redb::Database, key: &[u8]) -> Result<Option<Stored>, redb::Error> {
    let keys = database.begin_read()?.open_table(KEYS)?;
    Ok(keys.get(key)?.map(|row| stored(key, row.value())))
}

/// Everything under a prefix.
pub(super) fn listing(database: &redb::Database, prefix: &[u8]) -> Result<Listing, redb::Error> {
    let transaction = database.begin_read()?;
    let revision = number(&transaction.open_table(STATE)?, REVISION, FIRST_REVISION)?;
    let keys = transaction.open_table(KEYS)?;
    let mut entries = Vec::new();
    for row in keys.range(prefix..)? {
        let (key, held) = row?;
        if !key.value().starts_with(prefix) {
            break;
        }
        entries.push(stored(key.value(), held.value()));
    }
    Ok(Listing { revision, entries })
}

/// The first change under a prefix after a revision; `None` if the history does not reach back that far, or if that
/// revision never existed.
pub(super) fn look(database: &redb::Database, prefix: &[u8], after: u64) -> Result<Option<Look>, redb::Error> {
    let transaction = database.begin_read()?;
    let state = transaction.open_table(STATE)?;
    let revision = number(&state, REVISION, FIRST_REVISION)?;
    if after < number(&state, COMPACTED, 0)? || after > revision {
        return Ok(None);
    }
    let history = transaction.open_table(HISTORY)?;
    let mut found: Option<Changes> = None;
    for row in history.range((after.saturating_add(1), 0)..)? {
        let (position, kept) = row?;
        let (at, _) = position.value();
        if found.as_ref().is_some_and(|found| found.revision != at) {
            break;
        }
        if kept.value().0.starts_with(prefix) {
            let of = found.get_or_insert(Changes {
                revision: at,
                events: Vec::new(),
            });
            of.events.push(event(at, kept.value()));
        }
    }
    Ok(Some(found.map_or(Look::NothingUpTo(revision), Look::Changes)))
}

fn event(revision: u64, kept: (&[u8], u64, u64, Option<&[u8]>)) -> Event {
    match kept {
        (key, create_revision, version, Some(value)) => {
            Event::Put(stored(key, (create_revision, revision, version, value)))
        }
        (key, _, _, None) => Event::Deleted(key.to_vec()),
    }
}

/// Takes over entries as another store has them. The history then begins after that store's revision, if it is newer.
pub(super) fn take_over(database: &redb::Database, other: &Listing) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut keys = transaction.open_table(KEYS)?;
        for entry in &other.entries {
            let held = (
                entry.create_revision,
                entry.mod_revision,
                entry.version,
                entry.value.as_slice(),
            );
            keys.insert(entry.key.as_slice(), held)?;
        }
        let mut state = transaction.open_table(STATE)?;
        if other.revision > number(&state, REVISION, FIRST_REVISION)? {
            state.insert(REVISION, other.revision)?;
            state.insert(COMPACTED, other.revision)?;
        }
    }
    Ok(transaction.commit()?)
}

/// Makes all changes if every compare holds.
pub(super) fn apply(
    database: &redb::Database,
    keep: Keep,
    compares: &[Compare],
    changes: &[Change],
) -> Result<Applied, redb::Error> {
    let transaction = database.begin_write()?;
    let before = number(&transaction.open_table(STATE)?, REVISION, FIRST_REVISION)?;
    let held = all_hold(&transaction.open_table(KEYS)?, compares)?;
    let next = before + 1;
    let bytes = if held {
        write(&transaction, next, changes)?
    } else {
        None
    };
    let Some(bytes) = bytes else {
        transaction.abort()?;
        return Ok(Applied {
            held,
            changed: false,
            revision: before,
        });
    };
    {
        let mut state = transaction.open_table(STATE)?;
        state.insert(REVISION, next)?;
        let bytes = number(&state, HISTORY_BYTES, 0)? + bytes;
        state.insert(HISTORY_BYTES, bytes)?;
        let mut history = transaction.open_table(HISTORY)?;
        trim(&mut state, &mut history, next, keep)?;
    }
    transaction.commit()?;
    Ok(Applied {
        held,
        changed: true,
        revision: next,
    })
}

fn all_hold(keys: &impl ReadableTable<Key, Held>, compares: &[Compare]) -> Result<bool, redb::Error> {
    for compare in compares {
        let row = keys.get(compare.key().as_bytes())?;
        let found = row.as_ref().map(|row| {
            let (_, mod_revision, _, value) = row.value();
            Found { mod_revision, value }
        });
        if !rules::holds(compare, found) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Records the changes as one revision. Returns the size of their history, or `None` if nothing changed.
fn write(transaction: &redb::WriteTransaction, revision: u64, changes: &[Change]) -> Result<Option<u64>, redb::Error> {
    let mut keys = transaction.open_table(KEYS)?;
    let mut history = transaction.open_table(HISTORY)?;
    let mut count = 0;
    let mut bytes = 0;
    for (key, value) in changes {
        let kept_bytes = match value {
            Some(value) => {
                let (created, version) = position(&keys, key, revision)?;
                keys.insert(key.as_slice(), (created, revision, version, value.as_slice()))?;
                let kept = (key.as_slice(), created, version, Some(value.as_slice()));
                history.insert((revision, count), kept)?;
                key.len() + value.len()
            }
            None => {
                if keys.remove(key.as_slice())?.is_none() {
                    continue;
                }
                history.insert((revision, count), (key.as_slice(), 0, 0, None))?;
                key.len()
            }
        };
        count += 1;
        bytes += kept_bytes as u64;
    }
    Ok((count > 0).then_some(bytes))
}

/// When a key that is put now was created, and how often it has changed since.
fn position(keys: &impl ReadableTable<Key, Held>, key: &[u8], revision: u64) -> Result<(u64, u64), redb::Error> {
    let before = keys.get(key)?;
    Ok(before.map_or((revision, 1), |row| {
        let (created, _, version, _) = row.value();
        (created, version + 1)
    }))
}

/// Removes the oldest revisions until the history is within the limits.
fn trim(
    state: &mut Table<'_, &'static str, u64>,
    history: &mut Table<'_, Position, Kept>,
    newest: u64,
    keep: Keep,
) -> Result<(), redb::Error> {
    let mut compacted = number(state, COMPACTED, 0)?;
    let mut bytes = number(state, HISTORY_BYTES, 0)?;
    let oldest = newest.saturating_sub(keep.revisions);
    // Always keep the newest one, so that a watch that is up to date misses nothing.
    while compacted < oldest || (bytes > keep.bytes && compacted + 1 < newest) {
        compacted += 1;
        bytes = bytes.saturating_sub(forget(history, compacted)?);
    }
    state.insert(COMPACTED, compacted)?;
    state.insert(HISTORY_BYTES, bytes)?;
    Ok(())
}

/// Removes one revision from the history and returns its size.
fn forget(history: &mut Table<'_, Position, Kept>, revision: u64) -> Result<u64, redb::Error> {
    let mut bytes = 0;
    for row in history.extract_from_if((revision, 0)..=(revision, u32::MAX), |_, _| true)? {
        let (_, kept) = row?;
        let (key, _, _, value) = kept.value();
        bytes += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
    }
    Ok(bytes)
}

/// Removes the history up to a revision.
pub(super) fn compact(database: &redb::Database, revision: u64) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut state = transaction.open_table(STATE)?;
        let mut history = transaction.open_table(HISTORY)?;
        let newest = number(&state, REVISION, FIRST_REVISION)?;
        let keep = Keep {
            revisions: newest.saturating_sub(revision),
            bytes: u64::MAX,
        };
        trim(&mut state, &mut history, newest, keep)?;
    }
    Ok(transaction.commit()?)
}
