//! Journals over many segments and many instances: rotation, retention, open files, syncing, failed writes.

use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use super::{ask, begun, call, gapless, header, open, raw, written};
use crate::{Ending, Files, Journal, JournalError, Opened, Options, Segment, Sync, Tape, TapeError, segment_files};

#[test]
fn segments_rotate_between_calls_and_the_oldest_go() {
    let dir = TempDir::new().unwrap();
    let options = Options {
        segment_entries: 5,
        keep_bytes: 3000,
        ..Options::default()
    };
    let mut tape = begun(dir.path(), options);
    let mut begun_segments = 1;
    for _ in 0..40 {
        tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
        for at in 0..4 {
            ask(&mut tape, "api.get", json!({"at": at}), json!({"Ok": "some answer"})).unwrap();
        }
        assert!(!tape.wants_rotation(), "never inside a call");
        assert!(matches!(tape.rotate(&header(None)), Err(TapeError::Misplaced(_))));
        tape.end_call(&Ending::result(&()).unwrap()).unwrap();
        assert!(tape.wants_rotation());
        tape.rotate(&header(Some("{}"))).unwrap();
        assert!(!tape.wants_rotation());
        begun_segments += 1;
    }
    let kept = segment_files(dir.path()).unwrap();
    assert!(kept.len() > 1 && kept.len() < begun_segments, "{}", kept.len());
    assert!(kept.iter().map(|file| file.bytes).sum::<u64>() <= 3000);
    assert_eq!(kept.last().map(|file| file.first), Some(40 * 7));
    assert_eq!(gapless(dir.path()), kept[0].first..40 * 7 + 1);
}

#[test]
fn the_newest_segment_stays_whatever_its_size() {
    let dir = TempDir::new().unwrap();
    let options = Options {
        keep_bytes: 1,
        segment_bytes: 100,
        ..Options::default()
    };
    let mut tape = begun(dir.path(), options);
    call(&mut tape, 3);
    tape.rotate(&header(Some(&"x".repeat(1000)))).unwrap();
    assert!(!tape.wants_rotation(), "a large snapshot alone is no reason to rotate");
    assert_eq!(segment_files(dir.path()).unwrap().len(), 1);
    call(&mut tape, 3);
    assert!(tape.wants_rotation());
}

#[test]
fn a_large_state_is_written_again_when_as_much_was_recorded() {
    let dir = TempDir::new().unwrap();
    let options = Options {
        segment_entries: 2,
        ..Options::default()
    };
    let mut tape = begun(dir.path(), options);
    call(&mut tape, 1);
    assert!(tape.wants_rotation(), "a small one is no reason to wait");
    tape.rotate(&header(Some(&"x".repeat(100_000)))).unwrap();
    call(&mut tape, 1);
    assert!(!tape.wants_rotation());
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    ask(&mut tape, "api.get", json!({}), json!("y".repeat(100_000))).unwrap();
    tape.end_call(&Ending::result(&()).unwrap()).unwrap();
    assert!(tape.wants_rotation());
    tape.rotate(&header(Some(&"x".repeat(100_000)))).unwrap();
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    tape.end_call(&Ending::Trap("odd".to_owned())).unwrap();
    assert!(tape.wants_rotation(), "a call that failed is reason enough");
}

#[test]
fn a_journal_keeping_the_last_segment_drops_older_ones_on_the_next() {
    let (dir, _path) = written();
    let Opened { mut journal, .. } = open(
        &dir,
        Options {
            keep_bytes: 0,
            ..Options::default()
        },
    );
    let first = journal.next_n();
    assert_eq!(segment_files(dir.path()).unwrap().len(), 1);
    journal.start_segment(&header(Some("{}"))).unwrap();
    let files = segment_files(dir.path()).unwrap();
    assert_eq!(files.iter().map(|file| file.first).collect::<Vec<_>>(), [first]);
}

#[test]
fn after_a_failed_call_a_new_segment_is_due_instead_of_the_old_one() {
    let dir = TempDir::new().unwrap();
    let mut tape = begun(dir.path(), Options::default());
    call(&mut tape, 1);
    assert!(!tape.wants_rotation());
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    tape.end_call(&Ending::Trap("unreachable".into())).unwrap();
    assert!(tape.wants_rotation());
    drop(tape);
    let Opened {
        mut journal, newest, ..
    } = open(&dir, Options::default());
    let newest = newest.unwrap();
    assert!(!newest.can_go_on() && !newest.ends_inside_call());
    assert!(matches!(journal.continue_segment(), Err(JournalError::Misplaced(_))));
    let rest = newest.without_failed_calls();
    assert_eq!(rest.entries.iter().map(|entry| entry.n).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(rest.can_go_on());
}

#[test]
fn few_files_stay_open_however_many_journals_write() {
    let dir = TempDir::new().unwrap();
    let files = Files::new(3);
    let mut tapes: Vec<Tape> = (0..10)
        .map(|key| {
            let opened = Journal::open(&dir.path().join(key.to_string()), Options::default(), &files).unwrap();
            let mut journal = opened.journal;
            journal.start_segment(&header(None)).unwrap();
            Tape::record(journal)
        })
        .collect();
    for _ in 0..3 {
        for tape in &mut tapes {
            call(tape, 2);
            assert!(files.open_count() <= 3);
        }
    }
    for key in 0..10 {
        let segment = Segment::read(&dir.path().join(format!("{key}/0.jsonl"))).unwrap();
        assert_eq!(segment.entries.len(), 12);
    }
    drop(tapes);
    assert_eq!(files.open_count(), 0);
}

#[test]
fn every_way_of_syncing_writes_the_same() {
    let mut texts = Vec::new();
    for sync in [Sync::Write, Sync::Fsync, Sync::Interval { ms: 10 }] {
        let dir = TempDir::new().unwrap();
        let mut tape = begun(
            &dir.path().join("a/b"),
            Options {
                sync,
                ..Options::default()
            },
        );
        call(&mut tape, 2);
        tape.journal_mut().unwrap().tick(std::time::Instant::now()).unwrap();
        tape.journal_mut().unwrap().sync_now().unwrap();
        texts.push(fs::read_to_string(dir.path().join("a/b/0.jsonl")).unwrap());
    }
    assert!(texts[0].lines().count() == 5 && texts[0] == texts[1] && texts[1] == texts[2]);
}

/// The next entry can't be written to this file; the tape then answers nothing more.
fn stops(mut tape: Tape, path: &Path) {
    let named = |error: &JournalError| assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    match ask(&mut tape, "api.create", json!({}), json!("x".repeat(LIMIT_BYTES))) {
        Err(TapeError::Journal(error @ JournalError::Io { .. })) => named(&error),
        other => panic!("{other:?}"),
    }
    let mut asked = false;
    let next = tape.ask_now("api.create", &json!({}), || {
        asked = true;
        Ok(json!(1))
    });
    match next {
        Err(TapeError::Journal(error @ JournalError::Stopped { .. })) => named(&error),
        other => panic!("{other:?}"),
    }
    assert!(!asked, "what can't be recorded is not done");
    assert!(tape.end_call(&Ending::Trap("x".into())).is_err());
    assert!(tape.rotate(&header(None)).is_err());
}

/// The size of a file at which the kernel refuses to write more, where the test sets that limit.
const LIMIT_BYTES: usize = 8192;

#[test]
#[cfg(target_os = "linux")]
fn after_a_failed_write_nothing_more_is_written_or_answered() {
    const LIMITED: &str = "TRUEUP_TEST_FILE_SIZE_LIMITED";
    if std::env::var_os(LIMITED).is_none() {
        // The limit is per process, so the test runs again in its own process. `ulimit` counts blocks of 512 bytes.
        let limited = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", LIMIT_BYTES / 512);
        let name = "tests::journals::after_a_failed_write_nothing_more_is_written_or_answered";
        let ran = std::process::Command::new("sh")
            .args(["-c", &limited])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(LIMITED, "")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let dir = TempDir::new().unwrap();
    let mut opened = Journal::open(dir.path(), Options::default(), &Files::new(1)).unwrap();
    opened.journal.start_segment(&header(None)).unwrap();
    let mut tape = Tape::record(opened.journal);
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    stops(tape, &dir.path().join("0.jsonl"));
}

#[test]
#[cfg(target_os = "linux")]
fn after_a_file_that_cannot_be_opened_again_nothing_more_is_answered() {
    let dir = TempDir::new().unwrap();
    let files = Files::new(1);
    let mut opened = Journal::open(dir.path(), Options::default(), &files).unwrap();
    opened.journal.start_segment(&header(None)).unwrap();
    let mut tape = Tape::record(opened.journal);
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    // Another journal causes the file to be closed, so that the tape opens it again. Now it is a link, which is never
    // followed.
    let other = TempDir::new().unwrap();
    let mut pushing = Journal::open(other.path(), Options::default(), &files).unwrap();
    pushing.journal.start_segment(&header(None)).unwrap();
    let path = dir.path().join("0.jsonl");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    stops(tape, &path);
}
