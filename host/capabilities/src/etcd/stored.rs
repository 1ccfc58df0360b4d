//! What a store holds and how it changed, as bytes, because other programs than guests write there, too.

use crate::bindings::etcd::kv::{Error, KeyValue};

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    /// Its name.
    pub key: Vec<u8>,
    /// What is stored.
    pub value: Vec<u8>,
    /// The revision at which the key was created.
    pub create_revision: u64,
    /// The revision at which it was last changed.
    pub mod_revision: u64,
    /// Number of changes since it was created, from 1.
    pub version: u64,
}

impl Stored {
    /// Converts it to the guests' form.
    ///
    /// # Errors
    /// `not-text` if its name or its value is not UTF-8.
    pub fn into_text(self) -> Result<KeyValue, Error> {
        let key = text_of(self.key)?;
        let Ok(value) = String::from_utf8(self.value) else {
            return Err(Error::NotText(key));
        };
        Ok(KeyValue {
            key,
            value,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
        })
    }

    /// Its approximate size.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.value.len()
    }
}

/// A key as text; the error has the readable part of it.
pub(super) fn text_of(key: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(key).map_err(|error| Error::NotText(String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Everything under a prefix at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The store's revision at that moment: a watch after it misses nothing.
    pub revision: u64,
    /// By key.
    pub entries: Vec<Stored>,
}

impl Listing {
    /// Converts all entries to the guests' form.
    ///
    /// # Errors
    /// `not-text` for the first one that is not text.
    pub fn into_texts(self) -> Result<Vec<KeyValue>, Error> {
        self.entries.into_iter().map(Stored::into_text).collect()
    }

    /// The names of all entries.
    ///
    /// # Errors
    /// `not-text` for the first one whose name is not text.
    pub fn into_keys(self) -> Result<Vec<String>, Error> {
        self.entries.into_iter().map(|stored| text_of(stored.key)).collect()
    }
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The key was stored and has this value now.
    Put(Stored),
    /// The key was deleted.
    Deleted(Vec<u8>),
}

impl Event {
    /// The changed key.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(stored) => &stored.key,
            Self::Deleted(key) => key,
        }
    }
}

/// The changes of one revision under a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The revision.
    pub revision: u64,
    /// In the order of the operations; never empty, no key twice.
    pub events: Vec<Event>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(key: &[u8], value: &[u8]) -> Stored {
        Stored {
            key: key.to_vec(),
            value: value.to_vec(),
            create_revision: 2,
            mod_revision: 5,
            version: 3,
        }
    }

    #[test]
    fn what_is_no_text_is_named_by_its_key() {
        let listing = |entries: &[Stored]| Listing {
            revision: 5,
            entries: entries.to_vec(),
        };
        let (fine, value, key) = (stored(b"/a", b"1"), stored(b"/b", b"\xff"), stored(b"/c\xff", b"1"));
        assert_eq!(fine.clone().into_text().unwrap().version, 3);
        assert_eq!(
            listing(&[fine.clone(), value.clone(), key.clone()]).into_texts(),
            Err(Error::NotText("/b".to_owned()))
        );
        assert_eq!(
            listing(&[fine.clone(), value.clone()]).into_keys(),
            Ok(vec!["/a".into(), "/b".into()])
        );
        assert_eq!(
            listing(&[fine, key]).into_keys(),
            Err(Error::NotText("/c\u{fffd}".to_owned()))
        );
    }
}
