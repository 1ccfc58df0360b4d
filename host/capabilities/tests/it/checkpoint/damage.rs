//! Files that were cut, or whose bits were flipped: answered changes are present, or their loss is reported.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use trueup_capabilities::checkpoint::file::{File, TORN_TAILS_TOTAL};
use trueup_capabilities::checkpoint::tools::{self, Verdict};
use trueup_capabilities::checkpoint::{Error, Store as _};
use trueup_capabilities::metrics::Registry;

use super::{Scratch, content, file, filled_file, holds, names, settings, stored, told};

/// The size of a record without its payload.
const RECORD_HEAD_BYTES: usize = 25;
const HEADER_BYTES: usize = 24;

/// A file with `count` entries, and the ends of its records: the data's first.
async fn written(path: &Path, count: usize) -> (Vec<u8>, Vec<String>, Vec<usize>) {
    let store = file(path);
    let data = format!(r#"{{"version":"vpc-cni-ipam/1","allocations":[]{}}}"#, " ".repeat(200));
    store.checkpoint(&data).await.unwrap();
    let mut ends = vec![HEADER_BYTES + RECORD_HEAD_BYTES + data.len()];
    let mut entries = Vec::new();
    for number in 0..count {
        let entry = format!(
            r#"{{"op":"assign","networkName":"net","containerID":"c{number}","ifName":"eth0","ipv4":"10.0.{}.{}","at":{number}}}"#,
            number / 250,
            number % 250
        );
        store.append(&entry).await.unwrap();
        ends.push(ends.last().unwrap() + RECORD_HEAD_BYTES + entry.len());
        entries.push(entry);
    }
    drop(store);
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len(), *ends.last().unwrap());
    (bytes, entries, ends)
}

#[tokio::test]
async fn a_file_cut_anywhere_in_its_last_4_kib_keeps_its_whole_records() {
    let scratch = Scratch::new();
    let (bytes, entries, ends) = written(&scratch.path("whole"), 60).await;
    let from = bytes.len() - 4096;
    assert!(from > ends[0], "the cuts are in entries");
    for cut in from..=bytes.len() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("cut");
        fs::write(&path, &bytes[..cut]).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        let boundary = ends[whole];
        let verdict = tools::verify(&path).unwrap().1;
        let metrics = Arc::new(Registry::default());
        let store = File::open(settings(&path), Arc::clone(&metrics)).unwrap();
        let read = content(&store).await.entries;
        assert_eq!(read, entries[..whole], "cut at {cut}");
        assert_eq!(fs::read(&path).unwrap(), bytes[..boundary], "cut at {cut}");
        if cut == boundary {
            assert_eq!(verdict, Verdict::Whole, "cut at {cut}");
            assert_eq!(metrics.number(TORN_TAILS_TOTAL), Some(0.0));
            assert_eq!(names(folder.path()), ["cut"]);
        } else {
            let Verdict::Torn { tail } = verdict else {
                panic!("cut at {cut}: {verdict:?}");
            };
            assert_eq!((tail.record, tail.offset), (whole as u64 + 1, boundary as u64));
            assert_eq!(metrics.number(TORN_TAILS_TOTAL), Some(1.0), "cut at {cut}");
            let kept = format!("cut.torn-{boundary}");
            assert_eq!(names(folder.path()), ["cut".to_owned(), kept.clone()]);
            assert_eq!(fs::read(folder.path().join(kept)).unwrap(), bytes[boundary..cut]);
        }
        // The next entry follows the last intact one.
        store.append("next").await.unwrap();
        drop(store);
        let again = content(&file(&path)).await.entries;
        assert_eq!(again.len(), whole + 1);
        assert_eq!(again.last().unwrap(), "next");
    }
}

#[tokio::test]
async fn a_flipped_bit_is_corruption_but_in_the_last_record_a_torn_tail() {
    let scratch = Scratch::new();
    let (bytes, entries, ends) = written(&scratch.path("whole"), 8).await;
    let last = ends[ends.len() - 2];
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut torn = 0;
    for round in 0..1_000 {
        let at = random.random_range(0..bytes.len());
        let bit = random.next_u32() % 8;
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << bit;
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("flipped");
        fs::write(&path, &flipped).unwrap();
        let verdict = tools::verify(&path).unwrap().1;
        let metrics = Arc::new(Registry::default());
        let store = File::open(settings(&path), Arc::clone(&metrics)).unwrap();
        if at < last {
            let told_each = [
                stored(&store).await.unwrap_err(),
                told(&store.append("x").await.unwrap_err()),
                told(&store.checkpoint("x").await.unwrap_err()),
            ];
            for text in told_each {
                let named = format!("corrupt: {}: ", path.display());
                assert!(text.starts_with(&named), "round {round}, byte {at}: {text}");
                assert!(!text.contains('\n'));
            }
            assert!(matches!(verdict, Verdict::Corrupt { .. }), "{verdict:?}");
            assert_eq!(fs::read(&path).unwrap(), flipped);
            assert_eq!(names(folder.path()), ["flipped"]);
            assert_eq!(metrics.number(TORN_TAILS_TOTAL), Some(0.0));
        } else {
            torn += 1;
            assert!(matches!(verdict, Verdict::Torn { .. }), "{verdict:?}");
            let read = content(&store).await.entries;
            assert_eq!(read, entries[..entries.len() - 1], "round {round}, byte {at}");
            let kept = folder.path().join(format!("flipped.torn-{last}"));
            assert_eq!(fs::read(kept).unwrap(), flipped[last..]);
            assert_eq!(fs::read(&path).unwrap(), bytes[..last]);
            assert_eq!(metrics.number(TORN_TAILS_TOTAL), Some(1.0));
        }
    }
    assert!(torn > 50, "the last record was hit {torn} times");
}

async fn refused(bytes: &[u8]) -> String {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    fs::write(&path, bytes).unwrap();
    let text = stored(&file(&path)).await.unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    text.replace(&path.display().to_string(), "PATH")
}

/// An unknown version may or may not begin as version 2 does, with an epoch.
fn header(version: u32, epoch: u64) -> Vec<u8> {
    let mut bytes = b"TRUEUPCK".to_vec();
    bytes.extend(version.to_le_bytes());
    if version > 1 {
        bytes.extend(epoch.to_le_bytes());
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Of format version 1.
fn record(kind: u8, number: u64, payload: &[u8]) -> Vec<u8> {
    record_with(kind, number, &[], payload)
}

/// Of format version 2.
fn record_2(kind: u8, number: u64, durable: u64, payload: &[u8]) -> Vec<u8> {
    record_with(kind, number, &durable.to_le_bytes(), payload)
}

fn record_with(kind: u8, number: u64, durable: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    let facts = [&length[..], &[kind], &number.to_le_bytes(), durable].concat();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&facts), payload);
    [&facts[..], &crc.to_le_bytes(), payload].concat()
}

#[tokio::test]
async fn the_bytes_are_those_of_the_specification() {
    let scratch = Scratch::new();
    let (path, store) = filled_file(&scratch, "ipam.checkpoint").await;
    store.append("é").await.unwrap();
    store.append("").await.unwrap();
    let expected = [
        header(2, 1),
        record_2(1, 0, 0, b"data"),
        record_2(2, 1, 0, "é".as_bytes()),
        record_2(2, 2, 1, b""),
    ];
    assert_eq!(fs::read(&path).unwrap(), expected.concat());
    store.checkpoint("next").await.unwrap();
    let expected = [header(2, 2), record_2(1, 0, 0, b"next")];
    assert_eq!(fs::read(&path).unwrap(), expected.concat());
}

#[tokio::test]
async fn a_file_of_format_version_1_is_read_and_gone_on_with() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    let old = [header(1, 0), record(1, 0, b"x"), record(2, 1, b"a")].concat();
    fs::write(&path, &old).unwrap();
    let store = file(&path);
    assert_eq!(content(&store).await.entries, ["a"]);
    store.append("b").await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), [old.clone(), record(2, 2, b"b")].concat());
    drop(store);
    // After its first start with this host, missing entries are detected.
    fs::write(&path, &old).unwrap();
    let text = stored(&file(&path)).await.unwrap_err();
    assert!(
        text.contains("ends at checkpoint 0 with 1 entries, and was at checkpoint 0 with 2"),
        "{text}"
    );
    fs::write(&path, [old, record(2, 2, b"b")].concat()).unwrap();
    let store = file(&path);
    store.checkpoint("y").await.unwrap();
    assert!(fs::read(&path).unwrap().starts_with(&header(2, 1)));
}

#[tokio::test]
async fn what_is_wrong_is_told_with_record_and_offset() {
    let old = |records: &[Vec<u8>]| [header(1, 0), records.concat()].concat();
    for (bytes, expected) in [
        (vec![], "the file is empty"),
        (
            b"TRUEUPCK".to_vec(),
            "the header at offset 0 is damaged: it is cut short",
        ),
        (header(3, 0), "format version 3 is not known; this host reads 1 and 2"),
        (old(&[]), "record 0 at offset 16 is damaged: it is cut short"),
        (
            old(&[record(2, 1, b"x")]),
            "record 0 at offset 16 is damaged: it is not the data",
        ),
        (
            old(&[record(1, 0, b"x"), record(2, 2, b"y")]),
            "record 1 at offset 34 is damaged: it has another number; records up to 2 were durable",
        ),
        (
            old(&[record(1, 0, b"\xff")]),
            "record 0 at offset 16 is damaged: it is not UTF-8",
        ),
    ] {
        let text = refused(&bytes).await;
        assert!(text.starts_with(&format!("corrupt: PATH: {expected}")), "{text}");
    }
}

#[tokio::test]
async fn an_older_record_behind_the_last_is_a_torn_tail() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    let whole = [header(1, 0), record(1, 0, b"x"), record(2, 1, b"a"), record(2, 2, b"b")].concat();
    let tail = record(2, 1, b"a");
    fs::write(&path, [whole.clone(), tail.clone(), vec![0; 100]].concat()).unwrap();
    assert_eq!(content(&file(&path)).await.entries, ["a", "b"]);
    assert_eq!(fs::read(&path).unwrap(), whole);
    let kept = fs::read(scratch.path(&format!("ipam.checkpoint.torn-{}", whole.len()))).unwrap();
    assert_eq!(kept, [tail, vec![0; 100]].concat());
}

#[tokio::test]
async fn a_file_without_an_anchor_that_was_moved_away_is_asked_for_no_more() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    fs::write(&path, b"nonsense").unwrap();
    let store = file(&path);
    assert!(stored(&store).await.unwrap_err().starts_with("corrupt: "));
    fs::rename(&path, scratch.path("moved")).unwrap();
    assert_eq!(stored(&store).await, Ok(None));
    store.checkpoint("new").await.unwrap();
    store.append("entry").await.unwrap();
    assert_eq!(stored(&store).await, holds("new", &["entry"]));
    assert_eq!(fs::read(scratch.path("moved")).unwrap(), b"nonsense");
}

#[tokio::test]
async fn what_was_whole_a_moment_ago_is_no_torn_tail() {
    let scratch = Scratch::new();
    let (path, store) = filled_file(&scratch, "ipam.checkpoint").await;
    store.append("entry").await.unwrap();
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let text = stored(&store).await.unwrap_err();
    assert!(text.contains("it was whole when it was written"), "{text}");
    // This is permanent: a second request does not take it for an interrupted write.
    assert_eq!(stored(&store).await.unwrap_err(), text);
    let refused = [store.append("next").await, store.checkpoint("next").await];
    assert!(
        refused.iter().all(|answer| matches!(answer, Err(Error::Corrupt(_)))),
        "{refused:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes);
    // Deleting the file does not help: the loss remains until an operator accepts it.
    fs::remove_file(&path).unwrap();
    assert!(matches!(store.checkpoint("next").await, Err(Error::Corrupt(_))));
    drop(store);
    tools::accept(&path, true).unwrap();
    let store = file(&path);
    store.checkpoint("another").await.unwrap();
    assert_eq!(stored(&store).await, holds("another", &[]));
}
