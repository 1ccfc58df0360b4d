//! A journal's folder on the disk: its name, its segment files, and the operations on them that must not fail halfway.
//!
//! Each key has a folder name of its own. Characters other than `A-Z a-z 0-9 . _ -` are written as `%` and two
//! hexadecimal digits, so `default/web` becomes `default%2Fweb`. The names `.`, `..`, hidden files and nested folders
//! never occur.
//!
//! Knows names and bytes; `reader.rs` and `writer.rs` know the content of segments.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use trueup_base::{regular, replace};

use crate::writer::JournalError;

const EXTENSION: &str = ".jsonl";

/// What is escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-');

/// The longest escaped key that is not shortened. A file name may have 255 bytes, and a shortened one needs 34 more.
const ESCAPED_BYTES_MAX: usize = 200;

/// Between the beginning of a long key and its hash; an escaped key never contains it.
const SHORTENED: &str = "%~";

/// The folder that holds the segments of one instance: `<root>/<guest>/<key>`.
pub fn instance_dir(root: &Path, guest: &str, key: &str) -> PathBuf {
    guest_dir(root, guest).join(path_component(key))
}

/// The folder that holds all instances of one guest: `<root>/<guest>`.
pub fn guest_dir(root: &Path, guest: &str) -> PathBuf {
    root.join(path_component(guest))
}

/// A key as the name of one file or folder. Two keys never share a name, unless their escaped form is longer than 200
/// bytes and a 128-bit hash collides.
pub fn path_component(key: &str) -> String {
    if key.is_empty() {
        // A lone `%` is not an escape, so no other key maps to it.
        return "%".to_owned();
    }
    // A leading dot would hide the file, or name a folder above.
    let (dot, rest) = key.strip_prefix('.').map_or(("", key), |rest| ("%2E", rest));
    let mut name = format!("{dot}{}", utf8_percent_encode(rest, ESCAPED));
    if name.len() > ESCAPED_BYTES_MAX {
        name.truncate(ESCAPED_BYTES_MAX);
        name += &format!("{SHORTENED}{:032x}", fnv1a(key.as_bytes()));
    }
    name
}

/// The key with this name; `None` for a name that [`path_component`] does not produce, or a shortened one.
pub fn key_of(component: &str) -> Option<String> {
    if component == "%" {
        return Some(String::new());
    }
    let key = percent_decode_str(component).decode_utf8().ok()?;
    // Each key has one name: `%41` is not the name of `A`.
    (path_component(&key) == component).then(|| key.into_owned())
}

/// FNV-1a, 128 bits: names must stay the same across releases, which the standard library's hashers don't promise.
/// Kubernetes has no keys this long (a namespace and a name have 63 bytes each), so a collision is of no use to an
/// attacker.
fn fnv1a(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let add = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
    bytes.iter().fold(BASIS, add)
}

/// One file of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    /// Number of its header's entry, from the file name.
    pub first: u64,
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// The segments in a journal's folder, oldest first. Skips files with other names, which do not belong to the journal.
pub fn segment_files(dir: &Path) -> Result<Vec<SegmentFile>, JournalError> {
    let with_size = |first| {
        let path = segment_path(dir, first);
        let bytes = fs::metadata(&path).map_err(failed("look at", &path))?.len();
        Ok(SegmentFile { first, path, bytes })
    };
    segment_numbers(dir)?.into_iter().map(with_size).collect()
}

/// The segments in a journal's folder by name alone, oldest first: the numbers of their headers' entries. For readers
/// of a journal that is being written, while its segments come and go.
pub fn segment_numbers(dir: &Path) -> Result<Vec<u64>, JournalError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed("list", dir))? {
        let name = entry.map_err(failed("list", dir))?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(EXTENSION));
        let first = stem.and_then(|stem| stem.parse().ok().filter(|first: &u64| first.to_string() == stem));
        found.extend(first);
    }
    found.sort_unstable();
    Ok(found)
}

/// The file of the segment that begins with entry `first`.
pub fn segment_path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first}{EXTENSION}"))
}

pub(crate) fn failed(tried: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError::Io {
        tried,
        path: path.to_owned(),
        source,
    }
}

/// Writes a line, or restores the previous content as well as possible. The first error counts: the journal stops with
/// it. What could not be restored is a torn line, which is cut off when the journal is opened next.
pub(crate) fn write_whole(to: &mut impl Write, line: &[u8], undo: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    to.write_all(line).inspect_err(|_| {
        let _ = undo();
    })
}

pub(crate) fn truncate(path: &Path, bytes: u64) -> Result<(), JournalError> {
    let cut = |file: File| file.set_len(bytes).and_then(|()| file.sync_all());
    let opened = regular::open_own(OpenOptions::new().write(true), path);
    opened.and_then(cut).map_err(failed("cut the torn end off", path))
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    replace::sync_folder(dir).map_err(failed("sync", dir))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Takes three bytes, then the device is full.
    struct Full(Vec<u8>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.len() >= 3 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.extend(bytes.iter().take(3));
            Ok(bytes.len().min(3))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_written_in_part_is_taken_back() {
        let mut file = Full(Vec::new());
        let mut restored = false;
        let error = write_whole(&mut file, b"abcdef", || {
            restored = true;
            Err(io::ErrorKind::Other.into())
        });
        assert_eq!(
            error.expect_err("full").kind(),
            io::ErrorKind::StorageFull,
            "the first error counts"
        );
        assert!(restored && file.0 == b"abc");
        write_whole(&mut Vec::new(), b"abcdef", || panic!("nothing to restore")).unwrap();
    }

    #[test]
    fn a_key_reads_well_and_stays_one_component() {
        for (key, name) in [
            ("default/web", "default%2Fweb"),
            ("web-1.v2_x", "web-1.v2_x"),
            ("", "%"),
            (".", "%2E"),
            ("..", "%2E."),
            ("%2F", "%252F"),
            ("ä", "%C3%A4"),
            ("a\0b", "a%00b"),
        ] {
            assert_eq!(path_component(key), name);
            assert_eq!(key_of(name).as_deref(), Some(key));
        }
        assert_eq!(
            instance_dir(Path::new("r"), "lbaas@2", "a/b"),
            Path::new("r/lbaas%402/a%2Fb")
        );
    }

    #[test]
    fn a_name_that_no_key_gives_has_no_key() {
        for name in [".hidden", "%4", "%4z", "%41", "%2f", "%FF", "a b", ""] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }

    #[test]
    fn long_keys_that_differ_only_at_the_end_keep_apart() {
        let names: BTreeMap<String, usize> = (0..2000)
            .map(|end| (path_component(&format!("{}{end}", "/".repeat(300))), end))
            .collect();
        assert_eq!(names.len(), 2000);
        assert!(names.keys().all(|name| name.len() <= 255 && key_of(name).is_none()));
    }

    proptest! {
        #[test]
        fn names_are_safe_and_give_the_key_back(key in "\\PC{0,60}|[a-z%/.~]{0,190}|[./%]{0,20}") {
            let name = path_component(&key);
            prop_assert!(!name.is_empty() && !name.starts_with('.') && name.len() <= 255);
            prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-%~".contains(&b)));
            match key_of(&name) {
                Some(back) => prop_assert_eq!(back, key),
                None => prop_assert!(name.contains(SHORTENED)),
            }
        }

        #[test]
        fn different_keys_have_different_names(a in "[a-cA-C/.%2]{0,6}", b in "[a-cA-C/.%2]{0,6}") {
            prop_assert_eq!(a == b, path_component(&a) == path_component(&b));
        }
    }
}
