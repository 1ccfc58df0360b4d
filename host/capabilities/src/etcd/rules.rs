//! What a store refuses, and when a compare holds, for the stores that decide this themselves.
//!
//! Pure, and in etcd 3.4's order: too many, empty, duplicate, too large.

use std::collections::BTreeMap;

use super::{Compare, Error, Operation};

/// The maximum number of operations, and of compares, in a transaction: etcd's default of `--max-txn-ops`.
pub const OPERATIONS_MAX: usize = 128;

/// The maximum size of a request that changes something: etcd's default of `--max-request-bytes`.
pub const REQUEST_BYTES_MAX: usize = 1536 << 10;

/// The most bytes that etcd's encoding adds to a request: its number, its sender, and its kind.
const REQUEST_OVERHEAD: usize = 64;
/// The most bytes that it adds per operation and compare: four tags and lengths.
const ELEMENT_OVERHEAD: usize = 32;

/// Refuses an empty key.
pub(super) fn check_key(key: &str) -> Result<(), Error> {
    if key.is_empty() {
        return Err(Error::Invalid("the key is empty; name one".to_owned()));
    }
    Ok(())
}

/// Refuses a transaction that no store accepts.
pub(super) fn check(compares: &[Compare], operations: &[Operation]) -> Result<(), Error> {
    if compares.len().max(operations.len()) > OPERATIONS_MAX {
        return Err(too_many_operations());
    }
    let compared = compares.iter().map(Compare::key);
    let mut keys = compared.chain(operations.iter().map(Operation::key));
    keys.try_for_each(check_key)?;
    // A key may be deleted twice, but otherwise changed only once.
    let mut puts: BTreeMap<&str, bool> = BTreeMap::new();
    for operation in operations {
        let key = operation.key();
        let is_put = matches!(operation, Operation::Put(_));
        let before = puts.insert(key, is_put);
        if before.is_some_and(|before_is_put| is_put || before_is_put) {
            let text = format!("`{key}` is put twice, or put and deleted, in one transaction; use two");
            return Err(Error::Invalid(text));
        }
    }
    let compares = compares.iter().map(|compare| match compare {
        Compare::Value((key, value)) => key.len() + value.len(),
        other => other.key().len(),
    });
    let changes = operations.iter().map(|operation| match operation {
        Operation::Put((key, value)) => key.len() + value.len(),
        Operation::Delete(key) => key.len(),
    });
    let elements = compares.chain(changes).map(|bytes| bytes + ELEMENT_OVERHEAD);
    let bytes = REQUEST_OVERHEAD + elements.sum::<usize>();
    // Without operations it changes nothing, so etcd answers it without writing and applies no such limit.
    if bytes > REQUEST_BYTES_MAX && !operations.is_empty() {
        let text = format!("the request has {bytes} bytes, above the store's limit of {REQUEST_BYTES_MAX}; split it");
        return Err(Error::Invalid(text));
    }
    Ok(())
}

/// The error for more operations or compares than [`OPERATIONS_MAX`].
pub(super) fn too_many_operations() -> Error {
    Error::TooManyOperations(u32::try_from(OPERATIONS_MAX).unwrap_or(u32::MAX))
}

/// Whether a compare holds for its key's revision of the last change, and value; `None` if the key does not exist.
pub(super) fn holds(compare: &Compare, found: Option<(u64, &[u8])>) -> bool {
    match compare {
        Compare::Absent(_) => found.is_none(),
        Compare::Exists(_) => found.is_some(),
        // A key that does not exist counts as changed at revision 0.
        Compare::ModRevision((_, revision)) => found.map_or(0, |(changed_at, _)| changed_at) == *revision,
        Compare::Value((_, value)) => found.is_some_and(|(_, found)| found == value.as_bytes()),
    }
}

impl Compare {
    /// The key that it looks at.
    pub fn key(&self) -> &str {
        match self {
            Self::Absent(key) | Self::Exists(key) | Self::ModRevision((key, _)) | Self::Value((key, _)) => key,
        }
    }
}

impl Operation {
    /// The key that it changes.
    pub fn key(&self) -> &str {
        match self {
            Self::Put((key, _)) | Self::Delete(key) => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str) -> Operation {
        Operation::Put((key.to_owned(), "v".to_owned()))
    }

    fn delete(key: &str) -> Operation {
        Operation::Delete(key.to_owned())
    }

    fn refused(operations: &[Operation]) -> Option<&'static str> {
        check(&[], operations).err().map(|error| error.kind())
    }

    #[test]
    fn a_key_is_deleted_as_often_as_one_likes_and_otherwise_changed_once() {
        assert_eq!(refused(&[put("a"), put("b"), delete("c"), delete("c")]), None);
        assert_eq!(refused(&[put("a"), put("a")]), Some("invalid"));
        assert_eq!(refused(&[put("a"), delete("a")]), Some("invalid"));
        assert_eq!(refused(&[delete("a"), delete("a"), put("a")]), Some("invalid"));
    }

    #[test]
    fn too_many_comes_before_everything_else() {
        let many = vec![put(""); OPERATIONS_MAX + 1];
        assert_eq!(check(&[], &many), Err(Error::TooManyOperations(128)));
        assert_eq!(refused(&many[1..]), Some("invalid"));
        let compares = vec![Compare::Exists("a".to_owned()); OPERATIONS_MAX + 1];
        assert_eq!(check(&compares, &[]), Err(Error::TooManyOperations(128)));
        assert_eq!(check(&compares[1..], &[put("a")]), Ok(()));
    }

    #[test]
    fn the_size_counts_where_something_is_changed() {
        let value = |bytes| "v".repeat(bytes);
        let put = |bytes| Operation::Put(("k".to_owned(), value(bytes)));
        assert_eq!(check(&[], &[put(REQUEST_BYTES_MAX - 1_000)]), Ok(()));
        assert_eq!(refused(&[put(REQUEST_BYTES_MAX)]), Some("invalid"));
        let compare = [Compare::Value(("k".to_owned(), value(REQUEST_BYTES_MAX)))];
        assert_eq!(check(&compare, &[]), Ok(()));
        assert!(check(&compare, &[put(1)]).is_err());
    }

    #[test]
    fn a_key_that_is_not_there_was_changed_at_revision_0_and_has_no_value() {
        let key = || "k".to_owned();
        let cases = [
            (Compare::Absent(key()), true, false),
            (Compare::Exists(key()), false, true),
            (Compare::ModRevision((key(), 0)), true, false),
            (Compare::ModRevision((key(), 7)), false, true),
            (Compare::ModRevision((key(), u64::MAX)), false, false),
            (Compare::Value((key(), String::new())), false, false),
            (Compare::Value((key(), "v".to_owned())), false, true),
        ];
        for (compare, absent, present) in cases {
            assert_eq!(holds(&compare, None), absent, "{compare:?}");
            assert_eq!(holds(&compare, Some((7, b"v"))), present, "{compare:?}");
        }
    }
}
