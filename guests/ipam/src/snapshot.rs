//! The whole memory as text, for the next build of this guest.
//!
//! Without settings. `read` accepts only what this guest could have written: otherwise two keys with one address would
//! live on.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use trueup_guest::text;

use crate::address::Address;
use crate::bindings::exports::trueup::ipam::datastore::IpamKey;
use crate::eni::{Eni, EniKey, Traits};
use crate::json::{self, Json, Members};
use crate::key::Key;
use crate::memory::{Holder, Memory};
use crate::writing::Book;

/// The version of the text.
const VERSION: &str = "trueup-ipam/1";

/// The text for `lifecycle.snapshot`. Writing into a String can't fail, here and below.
pub(crate) fn write(memory: &Memory, book: &Book) -> String {
    let mut out = format!(r#"{{"version":"{VERSION}","enis":"#);
    json::push_list(&mut out, memory.enis(), |out, (key, eni)| {
        push_eni(out, memory, key, eni)
    });
    out.push_str(r#","resting":"#);
    json::push_list(&mut out, memory.rests().iter(), |out, (address, time)| {
        let _ = write!(out, r#"{{"ipv4":"{address}","at":{time}}}"#);
    });
    out.push_str(r#","held":"#);
    json::push_list(&mut out, memory.held(), |out, (address, holder)| {
        out.push_str(r#"{"key":"#);
        push_key(out, &holder.key);
        let _ = write!(out, r#","ipv4":"{address}"}}"#);
    });
    let _ = write!(
        out,
        r#","store":{{"in_step":{},"entries":{},"blocked":"#,
        book.in_step, book.entries
    );
    match &book.blocked {
        Some(why) => json::push_text(&mut out, why),
        None => out.push_str("null"),
    }
    out.push_str("}}");
    out
}

fn push_eni(out: &mut String, memory: &Memory, key: &EniKey, eni: &Eni) {
    out.push_str(r#"{"id":"#);
    json::push_text(out, &key.id);
    let Traits {
        is_primary,
        is_trunk,
        created_at_ms,
    } = eni.traits;
    let _ = write!(
        out,
        r#","device_number":{},"is_primary":{is_primary},"is_trunk":{is_trunk},"created_at_ms":{created_at_ms},"addresses":"#,
        key.device_number
    );
    json::push_list(out, eni.addresses(), |out, (address, time)| {
        let _ = write!(out, r#"{{"address":"{address}","key":"#);
        match memory.holder(address) {
            Some(holder) => push_key(out, &holder.key),
            None => out.push_str("null"),
        }
        out.push_str(r#","unassigned_at_ms":"#);
        match time {
            Some(time) => {
                let _ = write!(out, "{time}}}");
            }
            None => out.push_str("null}"),
        }
    });
    out.push('}');
}

fn push_key(out: &mut String, key: &Key) {
    let fields = key.fields();
    out.push_str(r#"{"network_name":"#);
    json::push_text(out, &fields.network_name);
    out.push_str(r#","container_id":"#);
    json::push_text(out, &fields.container_id);
    out.push_str(r#","if_name":"#);
    json::push_text(out, &fields.if_name);
    out.push('}');
}

/// Reads what [`write()`] wrote.
///
/// # Errors
/// The version that wrote the text, or that it is no snapshot of this guest.
pub(crate) fn read(text: &str) -> Result<(Memory, Book), String> {
    let no_snapshot = || "state: not a snapshot of this guest".to_owned();
    let members = Json::read(text).and_then(Json::members).ok_or_else(no_snapshot)?;
    let version = members.text("version").ok_or_else(no_snapshot)?;
    if version != VERSION {
        let version = text::quoted(&version);
        return Err(format!(
            "state: unknown version {version}; this guest reads \"{VERSION}\""
        ));
    }
    let book = read_book(&members).ok_or_else(no_snapshot)?;
    let memory = read_memory(&members).ok_or_else(no_snapshot)?;
    Ok((memory, book))
}

fn read_book(members: &Members<'_>) -> Option<Book> {
    let store = members.get("store")?.members()?;
    let blocked = store.get("blocked")?;
    Some(Book {
        in_step: store.boolean("in_step")?,
        entries: store.whole("entries")?,
        blocked: if blocked.is_null() { None } else { Some(blocked.text()?) },
    })
}

fn read_memory(members: &Members<'_>) -> Option<Memory> {
    let mut memory = Memory::default();
    for value in members.list("enis")? {
        read_eni(&mut memory, &value.members()?)?;
    }
    let held = members.get("held").map_or(Some(Vec::new()), Json::list)?;
    for value in held {
        let held = value.members()?;
        let address = Address::parse(&held.text("ipv4")?)?;
        let is_free = memory.place(address).is_none() && memory.holder(address).is_none();
        allocate(&mut memory, is_free.then_some(address)?, read_key(held.get("key")?)?)?;
    }
    let mut seen = BTreeSet::new();
    for value in members.list("resting")? {
        let rest = value.members()?;
        let address = Address::parse(&rest.text("ipv4")?)?;
        let is_new = memory.place(address).is_none() && seen.insert(address);
        memory.replace_unassigned_at(is_new.then_some(address)?, Some(rest.whole("at")?));
    }
    Some(memory)
}

fn read_eni(memory: &mut Memory, eni: &Members<'_>) -> Option<()> {
    let id = eni.text("id")?;
    let traits = Traits {
        is_primary: eni.boolean("is_primary")?,
        is_trunk: eni.boolean("is_trunk")?,
        created_at_ms: eni.whole("created_at_ms")?,
    };
    let is_new = memory.eni_key(&id).is_none();
    memory.add_eni(is_new.then_some(&id)?, eni.whole("device_number")?, traits);
    let place = memory.eni_key(&id)?.clone();
    for value in eni.list("addresses")? {
        let members = value.members()?;
        let address = Address::parse(&members.text("address")?)?;
        let is_new = memory.place(address).is_none();
        memory.add_address(&place, is_new.then_some(address)?);
        let time = members.get("unassigned_at_ms")?;
        let time = if time.is_null() { None } else { Some(time.whole()?) };
        memory.replace_unassigned_at(address, time);
        let key = members.get("key")?;
        if !key.is_null() {
            allocate(memory, address, read_key(key)?)?;
        }
    }
    Some(())
}

/// `None` if the key already has an address.
fn allocate(memory: &mut Memory, address: Address, key: Key) -> Option<()> {
    let is_new = memory.address_of(&key).is_none();
    is_new.then(|| memory.allocate(address, Holder::new(key, address)))
}

/// `None` if the key is incomplete.
fn read_key(value: Json<'_>) -> Option<Key> {
    let members = value.members()?;
    let key = Key::new(IpamKey {
        network_name: members.text("network_name")?,
        container_id: members.text("container_id")?,
        if_name: members.text("if_name")?,
    });
    key.missing().is_none().then_some(key)
}
