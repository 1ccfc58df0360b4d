//! A listing in pages, all at the revision of the first page.

use etcd_client::{Client, GetOptions};

use super::connection::{Connection, Failed};
use super::failure::Failure;
use super::{stored, unsigned};
use crate::etcd::{Error, Listing};

/// The initial page size in keys. With a service's configuration of some kilobytes each, that is a message of a few
/// MiB.
const PAGE_KEYS: i64 = 1_000;

/// The maximum message size, four times gRPC's default. If a page exceeds it, the client halves the page, down to the
/// largest value that etcd takes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// The maximum listing size: a guest gets a quarter of it at most.
const LISTING_BYTES_MAX: usize = 256 << 20;

/// How often a listing restarts because its revision was compacted meanwhile. Operators compact every few minutes.
const BEGINNINGS_MAX: u32 = 3;

/// Everything under a prefix, or only the names.
pub(super) async fn list(connection: &Connection, prefix: &str, keys_only: bool) -> Result<Listing, Error> {
    for _ in 0..BEGINNINGS_MAX {
        match list_once(connection, prefix.as_bytes(), keys_only).await {
            Err(Failed(Failure::Compacted, _)) => {}
            listed => return listed.map_err(Failed::of_read),
        }
    }
    let text = format!("etcd was compacted in the middle of {BEGINNINGS_MAX} listings of `{prefix}`");
    Err(Error::Unavailable(text))
}

async fn list_once(connection: &Connection, prefix: &[u8], keys_only: bool) -> Result<Listing, Failed> {
    let mut listing = Listing::default();
    let mut bytes = 0;
    let mut limit = PAGE_KEYS;
    loop {
        let last = listing.entries.last();
        let from = last.map_or_else(|| first(prefix), |last| after(&last.key));
        let mut options = GetOptions::new().with_range(end(prefix)).with_limit(limit);
        options = options.with_revision(i64::try_from(listing.revision).unwrap_or_default());
        if keys_only {
            options = options.with_keys_only();
        }
        let ask = |client: Client| {
            let (from, options) = (from.clone(), options.clone());
            async move {
                let mut kv = client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
                kv.get(from, Some(options)).await
            }
        };
        let mut page = match connection.read(ask).await {
            Err(Failed(Failure::TooLong, _)) if limit > 1 => {
                limit /= 2;
                continue;
            }
            page => page?,
        };
        if listing.revision == 0 {
            listing.revision = page.header().map_or(0, |header| unsigned(header.revision()));
        }
        let entries: Vec<_> = page.take_kvs().into_iter().map(stored).collect();
        bytes += entries.iter().map(crate::etcd::Stored::bytes).sum::<usize>();
        if bytes > LISTING_BYTES_MAX {
            let prefix = String::from_utf8_lossy(prefix);
            let text = format!("what is under `{prefix}` has more than {LISTING_BYTES_MAX} bytes; list less at once");
            return Err(Failed(Failure::Refused(Error::Unavailable(text)), String::new()));
        }
        // An empty page that claims to have a successor would repeat forever.
        let is_last = !page.more() || entries.is_empty();
        listing.entries.extend(entries);
        if is_last {
            return Ok(listing);
        }
    }
}

/// The first key that a prefix may have. etcd has no empty key.
pub(super) fn first(prefix: &[u8]) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.to_vec() }
}

/// The first key after this one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key after all keys with the prefix; `\0` if there is none.
fn end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_its_last_byte_is_one_more() {
        assert_eq!(end(b"/a/"), b"/a0");
        assert_eq!(end(b"a\xff\xff"), b"b");
        assert_eq!(end(b"\xff"), b"\0");
        assert_eq!(end(b""), b"\0");
        assert_eq!(first(b""), b"\0");
        assert_eq!(after(b"/a/1"), b"/a/1\0");
    }
}
