//! The rows of the embedded store, and the operations on them.
//!
//! ```text
//! keys     key  -> revision created, revision changed, version, value
//! state    name -> number
//! ```
//! Every function here is one transaction.

use redb::{ReadableDatabase as _, ReadableTable, TableDefinition};

use crate::etcd::{Applied, Compare, Event, FIRST_REVISION, Listing, Stored, rules};

type Key = &'static [u8];
type Held = (u64, u64, u64, &'static [u8]);

const KEYS: TableDefinition<'_, Key, Held> = TableDefinition::new("trueup_etcd_keys");
/// Earlier hosts kept the history in the file.
const HISTORY: TableDefinition<'_, (), ()> = TableDefinition::new("trueup_etcd_history");
const STATE: TableDefinition<'_, &str, u64> = TableDefinition::new("trueup_etcd_state");

/// The layout of the rows.
const LAYOUT: &str = "layout";
const LAYOUT_VERSION: u64 = 1;
/// The newest revision; missing before the first change.
const REVISION: &str = "revision";

/// One change of a transaction: a key, and its new value; `None` deletes it.
pub(super) type Change = (Vec<u8>, Option<Vec<u8>>);

/// Creates missing tables, and refuses those of another layout.
pub(super) fn prepare(database: &redb::Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut state = transaction.open_table(STATE)?;
        transaction.open_table(KEYS)?;
        transaction.delete_table(HISTORY)?;
        for row in ["compacted", "history_bytes"] {
            state.remove(row)?;
        }
        let layout = state.get(LAYOUT)?.map(|row| row.value());
        match layout {
            None => {
                state.insert(LAYOUT, LAYOUT_VERSION)?;
            }
            Some(LAYOUT_VERSION) => {}
            Some(version) => {
                let text = format!("its layout {version} is not known; this host reads {LAYOUT_VERSION}");
                return Err(redb::Error::Corrupted(text));
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

/// Takes over entries as another store has them, and its revision if that is newer. Returns whether it was.
pub(super) fn take_over(database: &redb::Database, other: &Listing) -> Result<bool, redb::Error> {
    let transaction = database.begin_write()?;
    let is_newer = {
        let mut keys = transaction.open_table(KEYS)?;
        for entry in &other.entries {
            let created = entry.create_revision;
            let changed = entry.mod_revision;
            let held = (created, changed, entry.version, entry.value.as_slice());
            keys.insert(entry.key.as_slice(), held)?;
        }
        let mut state = transaction.open_table(STATE)?;
        let is_newer = other.revision > number(&state, REVISION, FIRST_REVISION)?;
        if is_newer {
            state.insert(REVISION, other.revision)?;
        }
        is_newer
    };
    transaction.commit()?;
    Ok(is_newer)
}

/// Makes all changes if every compare holds. Also returns what changed.
pub(super) fn apply(
    database: &redb::Database,
    compares: &[Compare],
    changes: &[Change],
) -> Result<(Applied, Vec<Event>), redb::Error> {
    let transaction = database.begin_write()?;
    let before = number(&transaction.open_table(STATE)?, REVISION, FIRST_REVISION)?;
    let held = all_hold(&transaction.open_table(KEYS)?, compares)?;
    let changes = if held { changes } else { &[] };
    let events = write(&transaction, before + 1, changes)?;
    let mut applied = Applied {
        held,
        changed: !events.is_empty(),
        revision: before,
    };
    if applied.changed {
        applied.revision += 1;
        transaction.open_table(STATE)?.insert(REVISION, applied.revision)?;
        transaction.commit()?;
    } else {
        transaction.abort()?;
    }
    Ok((applied, events))
}

fn all_hold(keys: &impl ReadableTable<Key, Held>, compares: &[Compare]) -> Result<bool, redb::Error> {
    for compare in compares {
        let row = keys.get(compare.key().as_bytes())?;
        let found = row.as_ref().map(|row| {
            let (_, mod_revision, _, value) = row.value();
            (mod_revision, value)
        });
        if !rules::holds(compare, found) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the changes at this revision. Returns those that changed something.
fn write(transaction: &redb::WriteTransaction, revision: u64, changes: &[Change]) -> Result<Vec<Event>, redb::Error> {
    let mut keys = transaction.open_table(KEYS)?;
    let mut events = Vec::new();
    for (key, value) in changes {
        match value {
            Some(value) => {
                // When the key was created, and how often it has changed since.
                let before = keys.get(key.as_slice())?.map(|row| (row.value().0, row.value().2));
                let (created, version) = before.map_or((revision, 1), |(created, version)| (created, version + 1));
                let held = (created, revision, version, value.as_slice());
                keys.insert(key.as_slice(), held)?;
                events.push(Event::Put(stored(key, held)));
            }
            None if keys.remove(key.as_slice())?.is_some() => events.push(Event::Deleted(key.clone())),
            None => {}
        }
    }
    Ok(events)
}
