//! What an audit log keeps, what a crash may do to it, and that any other change is detected.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use proptest::prelude::*;
use tempfile::TempDir;

use super::line::{NO_HASH, sha256};
use super::verify::segments;
use super::writer::{Head, Open, segment_name};
use super::*;

fn open_with(folder: &Path, segment_bytes_max: u64) -> Result<Audit, AuditError> {
    Audit::open_budgeted(folder, segment_bytes_max, Budgets::new(LINES_PER_MINUTE_MAX, MINUTE))
}

fn guest() -> Identity {
    Identity {
        name: "lbaas".into(),
        guest: "lbaas".into(),
        version: "1".into(),
        digest: "sha256:ab".into(),
        instance: "default/web".into(),
    }
}

/// Room for only two or three lines.
const SMALL: u64 = 1200;

/// Writes `lines` more lines.
fn write(folder: &Path, lines: u64) {
    let audit = open_with(folder, SMALL).unwrap();
    for n in 0..lines {
        audit
            .refused(
                n,
                &guest(),
                Some(n),
                "api.create",
                "lb-2",
                "access denied: \"no\"\n grant",
            )
            .unwrap();
    }
}

fn log(lines: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), lines);
    folder
}

fn names(folder: &Path) -> Vec<String> {
    segments(folder)
        .unwrap()
        .into_iter()
        .map(|(first, _)| segment_name(first))
        .collect()
}

fn problems(folder: &Path) -> Vec<String> {
    let verdict = verify(folder).unwrap();
    verdict.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_log_that_can_not_be_listed_is_not_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    assert!(matches!(verify(&audit), Err(AuditError::None(_))));
    // A link to itself can't be listed, like the folder of another user.
    std::os::unix::fs::symlink(&audit, &audit).unwrap();
    assert!(matches!(verify(&audit), Err(AuditError::Io { .. })));
}

fn read_all(folder: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    walk(folder, |line| lines.push(line)).unwrap();
    lines
}

#[test]
fn what_is_written_is_read_again_through_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let empty = Audit::open(folder.path()).unwrap();
    assert!(verify(folder.path()).unwrap().is_whole(), "a log without lines");
    empty
        .managed(
            5,
            &Identity {
                instance: String::new(),
                ..guest()
            },
            "swap",
            "lbaas@2",
            "done",
        )
        .unwrap();
    drop(empty);
    write(folder.path(), 3);
    write(folder.path(), 3);
    let verdict = verify(folder.path()).unwrap();
    assert!(verdict.is_whole(), "{verdict:?}");
    assert_eq!((verdict.lines, verdict.files), (7, names(folder.path()).len()));
    assert!(verdict.files > 2, "{:?}", names(folder.path()));

    let lines = read_all(folder.path());
    assert_eq!(
        lines.iter().map(|line| line.n).collect::<Vec<_>>(),
        (0..7).collect::<Vec<_>>()
    );
    assert_eq!(
        (lines[0].kind, lines[0].call.as_str(), lines[0].scope.as_str()),
        (Kind::Managed, "swap", "lbaas@2")
    );
    assert_eq!((lines[0].decision.as_str(), lines[0].instance.as_str()), ("", ""));
    assert_eq!(lines[0].prev, NO_HASH);
    assert_eq!(lines[3].decision, "lbaas/default/web#2");
    assert_eq!(
        (lines[3].kind, lines[3].at_ms, lines[3].digest.as_str()),
        (Kind::Refused, 2, "sha256:ab")
    );
    assert!(lines.windows(2).all(|pair| pair[1].prev == pair[0].hash));
}

#[test]
fn a_guest_of_another_name_is_found_by_that_in_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::open(folder.path()).unwrap();
    let own = Identity {
        guest: "my_guest".into(),
        ..guest()
    };
    audit.managed(0, &own, "swap", "my_guest@2", "done").unwrap();
    audit.refused(0, &own, Some(69), "api.get", "lb-2", "no").unwrap();
    audit.managed(0, &guest(), "swap", "lbaas@2", "done").unwrap();
    let lines = read_all(folder.path());
    let names: Vec<_> = lines.iter().map(|line| (&*line.guest, &*line.name)).collect();
    assert_eq!(names, [("my_guest", "lbaas"), ("my_guest", "lbaas"), ("lbaas", "")]);
    assert_eq!(lines[1].decision, "lbaas/default/web#69");
}

#[test]
fn the_hash_is_of_the_bytes_before_it() {
    let folder = log(1);
    let text = fs::read_to_string(folder.path().join("0.jsonl")).unwrap();
    let (hashed, hash) = text.trim_end().rsplit_once(",\"hash\":").unwrap();
    assert_eq!(format!("\"{}\"}}", sha256(hashed.as_bytes())), hash);
}

#[test]
fn a_text_of_a_guest_takes_no_more_than_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::open(folder.path()).unwrap();
    audit
        .refused(0, &guest(), None, "api.get", &"ä".repeat(1 << 20), "no")
        .unwrap();
    audit.flush().unwrap();
    let [line] = <[Line; 1]>::try_from(read_all(folder.path())).unwrap();
    assert!(line.scope.ends_with("ä...") && line.scope.len() <= 1024);
    assert_eq!(line.decision, "lbaas/default/web");
}

#[test]
fn a_torn_line_is_cut_off_and_the_log_goes_on() {
    for written in [1, 3] {
        let folder = log(written);
        let (first, newest) = segments(folder.path()).unwrap().pop().unwrap();
        let whole = fs::read(&newest).unwrap();
        let next = Line {
            prev: NO_HASH.into(),
            ..line_of(Kind::Refused, 0, &guest(), "c", "s", "o")
        }
        .seal()
        .unwrap();
        // A line that lacks only its newline is torn, too: no caller got a confirmation for it.
        for torn in [1, 40, next.len() - 1] {
            fs::write(&newest, [&whole, &next[..torn]].concat()).unwrap();
            assert_eq!(
                problems(folder.path()),
                [format!("`{}` ends in a torn line of {torn} bytes", segment_name(first))]
            );
            drop(Audit::open(folder.path()).unwrap());
            assert_eq!(fs::read(&newest).unwrap(), whole);
            assert_eq!(problems(folder.path()), [""; 0]);
        }
        write(folder.path(), 1);
        assert_eq!(verify(folder.path()).unwrap().lines, written + 1);
        assert_eq!(problems(folder.path()), [""; 0]);
    }
}

#[test]
fn a_file_that_was_only_begun_is_removed() {
    let folder = log(2);
    for torn in ["", "{\"n\":2"] {
        fs::write(folder.path().join("2.jsonl"), torn).unwrap();
        drop(open_with(folder.path(), SMALL).unwrap());
        assert_eq!(names(folder.path()), ["0.jsonl"]);
    }
    write(folder.path(), 1);
    assert_eq!(problems(folder.path()), [""; 0]);
}

#[test]
fn a_head_that_is_behind_is_no_damage_and_one_that_is_ahead_is() {
    let folder = log(3);
    let behind = fs::read(folder.path().join("head")).unwrap();
    write(folder.path(), 1);
    let right = fs::read(folder.path().join("head")).unwrap();
    fs::write(folder.path().join("head"), &behind).unwrap();
    assert_eq!(problems(folder.path()), [""; 0]);
    write(folder.path(), 1);
    assert_eq!(problems(folder.path()), [""; 0]);
    // The very last line is missing as a whole.
    let (first, newest) = segments(folder.path()).unwrap().pop().unwrap();
    let text = fs::read_to_string(&newest).unwrap();
    let kept = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
    fs::write(&newest, &text[..kept]).unwrap();
    assert_eq!(
        problems(folder.path()),
        [format!("`{}` lacks line 4 of the log at its end", segment_name(first))]
    );
    fs::write(folder.path().join("head"), right).unwrap();
    assert_eq!(problems(folder.path()), [""; 0], "as it was before that line");
    fs::remove_file(folder.path().join("head")).unwrap();
    assert_eq!(
        problems(folder.path()),
        ["`head` is missing, so it is unknown whether lines are missing at the end"]
    );
}

#[test]
fn a_damaged_log_stays_as_it_is_and_goes_on_in_a_file_that_says_so() {
    let folder = log(2);
    let file = folder.path().join("0.jsonl");
    let damaged = fs::read_to_string(&file).unwrap().replacen("lb-2", "lb-1", 1);
    fs::write(&file, &damaged).unwrap();
    write(folder.path(), 1);
    write(folder.path(), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
    assert_eq!(names(folder.path())[..2], ["0.jsonl", "2.jsonl"]);
    let edited = "line 1 was edited: its hash is not that of its text";
    assert_eq!(
        problems(folder.path()),
        [
            format!("`0.jsonl` {edited}"),
            format!("`2.jsonl` line 1 says that the log was found damaged here: {edited}"),
        ],
        "one break, however often the host starts"
    );
    let lines = read_all(folder.path());
    assert_eq!(lines.iter().map(|line| line.n).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(
        (lines[1].call.as_str(), lines[1].scope.as_str()),
        ("audit.open", "0.jsonl")
    );

    // The log seals the damaged file as the host found it, so later changes to it are detected.
    fs::write(&file, damaged.replacen("lb-2", "lb-3", 1)).unwrap();
    assert!(
        problems(folder.path()).contains(
            &"`2.jsonl` line 1 has a `prev` that is not the hash of what is before it: a line was removed, inserted or moved"
                .to_owned()
        ),
        "{:?}",
        problems(folder.path())
    );
}

#[test]
fn files_that_are_gone_are_missed() {
    let folder = log(8);
    let all = names(folder.path());
    assert!(all.len() >= 3, "{all:?}");
    fs::remove_file(folder.path().join(&all[1])).unwrap();
    let found = problems(folder.path());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("`{}` lacks lines ", all[2])), "{found:?}");

    for name in &all {
        _ = fs::remove_file(folder.path().join(name));
    }
    assert_eq!(
        problems(folder.path()),
        ["`head` lacks lines 0 to 7 of the log at its end"]
    );
    write(folder.path(), 1);
    assert_eq!(names(folder.path()), ["8.jsonl"], "no number is given twice");
    assert!(!verify(folder.path()).unwrap().is_whole());
}

#[test]
fn old_files_go_and_the_chain_still_shows_what_was_cut() {
    let log = log(20);
    let folder = log.path();
    let (files, long_ago) = (names(folder), SystemTime::UNIX_EPOCH);
    assert!(files.len() > 4, "{files:?}");
    let copy = TempDir::new().unwrap();
    for file in &files {
        fs::copy(folder.join(file), copy.path().join(file)).unwrap();
    }
    let bytes = |name: &String| fs::metadata(folder.join(name)).unwrap().len();
    let audit = open_with(folder, SMALL).unwrap();
    assert_eq!(audit.keep_within(u64::MAX, long_ago).unwrap(), 0);
    let two_less = files.iter().skip(2).map(bytes).sum();
    assert_eq!(audit.keep_within(two_less, long_ago).unwrap(), 2);
    drop(audit);
    let verdict = verify(folder).unwrap();
    let first = read_all(folder).first().unwrap().n;
    assert_eq!((verdict.is_whole(), verdict.removed), (true, first), "{verdict:?}");
    let said = read_all(folder)
        .into_iter()
        .find(|line| line.kind == Kind::Dropped)
        .unwrap();
    assert_eq!(said.scope, format!("lines 0 to {}", first - 1));

    // The host stopped before it removed the files, so they may still exist.
    let restore = |name: &String| fs::copy(copy.path().join(name), folder.join(name)).unwrap();
    restore(&files[1]);
    assert_eq!(problems(folder), [] as [String; 0]);
    fs::remove_file(folder.join(&files[1])).unwrap();
    // This removes one more line than the log reported.
    fs::remove_file(folder.join(&files[2])).unwrap();
    let lacks = problems(folder);
    assert!(lacks.len() == 1 && lacks[0].contains("before it"), "{lacks:?}");
    restore(&files[2]);

    // Removes all files but the newest, by age.
    let audit = open_with(folder, SMALL).unwrap();
    let later = SystemTime::now() + Duration::from_secs(60);
    assert!(audit.keep_within(u64::MAX, later).unwrap() > 0);
    drop(audit);
    assert!(verify(folder).unwrap().is_whole());
    // The line may have gone to a new file.
    assert!(names(folder).len() <= 2, "{:?}", names(folder));
}

#[test]
fn lines_that_change_places_are_found() {
    let folder = log(2);
    let file = folder.path().join("0.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(&file, format!("{}\n{}\n", lines[1], lines[0])).unwrap();
    assert_eq!(
        problems(folder.path())[..2],
        [
            "`0.jsonl` line 1 is line 1 of the log, must be line 0: a line was removed, inserted or moved",
            "`0.jsonl` line 2 is line 0 of the log, must be line 2: a line was removed, inserted or moved",
        ]
    );
    fs::write(&file, format!("{}\n{}\n{}\n", lines[0], lines[0], lines[1])).unwrap();
    assert_eq!(
        problems(folder.path())[0],
        "`0.jsonl` line 2 is line 0 of the log, must be line 1: a line was removed, inserted or moved"
    );
}

#[test]
fn a_failed_write_is_an_error_and_nothing_is_written_after_it() {
    let folder = log(1);
    let audit = Audit::open(folder.path()).unwrap();
    // A device without space, on which not even the length can be set.
    let path = PathBuf::from("/dev/full");
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    audit.end.lock().segment = Some(Open { file, path, bytes: 0 });
    let one = || {
        audit
            .managed(0, &guest(), "swap", "lbaas@2", "done")
            .map_err(|error| error.to_string())
    };
    assert_eq!(one(), Err("can't write `/dev/full`".to_owned()));
    assert!(one().unwrap_err().contains("until the host is started again"));
    assert_eq!(problems(folder.path()), [""; 0]);
    write(folder.path(), 1);
    assert_eq!(verify(folder.path()).unwrap().lines, 2);
}

fn refuse(audit: &Audit, times: u64) {
    for n in 0..times {
        audit
            .refused(n, &guest(), Some(n), "api.get", &format!("lb-{n}"), "no")
            .unwrap();
    }
}

#[test]
fn a_guest_with_too_many_refusals_has_its_lines_and_a_notice() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::open_budgeted(folder.path(), SEGMENT_BYTES_MAX, Budgets::new(5, MINUTE * 60)).unwrap();
    refuse(&audit, 105);
    audit.managed(200, &guest(), "swap", "lbaas@2", "done").unwrap();
    let lines = read_all(folder.path());
    let scopes: Vec<_> = lines.iter().map(|line| line.scope.as_str()).collect();
    let order = ["lb-0", "lb-1", "lb-2", "lb-3", "lb-4", "*", "lbaas@2"];
    assert_eq!(scopes, order, "in the order in which they came, and not limited itself");
    assert_eq!(
        (lines[5].call.as_str(), lines[5].at_ms, lines[5].guest.as_str()),
        ("*", 5, "lbaas")
    );
    assert_eq!(problems(folder.path()), [""; 0]);
}

#[test]
fn lines_that_are_not_synced_are_in_the_files_and_counted_later() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::open_budgeted(folder.path(), SMALL, Budgets::new(u32::MAX, MINUTE)).unwrap();
    refuse(&audit, 20);
    assert!(names(folder.path()).len() > 5, "{:?}", names(folder.path()));
    let counted = || Head::read(folder.path()).unwrap().unwrap().unwrap().lines;
    assert!(counted() < 20);
    let verdict = verify(folder.path()).unwrap();
    assert_eq!((verdict.is_whole(), verdict.lines), (true, 20), "{verdict:?}");
    audit.flush().unwrap();
    assert_eq!(counted(), 20);
}

#[test]
fn where_there_is_no_log_nothing_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(verify(folder.path()), Err(AuditError::None(_))));
    assert!(matches!(
        verify(&folder.path().join("nowhere")),
        Err(AuditError::None(_))
    ));
}

/// A change, insertion or removal of one byte of one file.
#[derive(Debug, Clone)]
enum Edit {
    Replace(u8),
    Insert(u8),
    Remove,
}

fn edit() -> impl Strategy<Value = (prop::sample::Index, prop::sample::Index, Edit)> {
    // Prefer bytes with a meaning in a line.
    let byte = || {
        prop_oneof![
            any::<u8>(),
            Just(b'\n'),
            Just(b'"'),
            Just(b'0'),
            Just(b'1'),
            Just(b'a'),
            Just(b' ')
        ]
    };
    let edit = prop_oneof![
        byte().prop_map(Edit::Replace),
        byte().prop_map(Edit::Insert),
        Just(Edit::Remove)
    ];
    (any::<prop::sample::Index>(), any::<prop::sample::Index>(), edit)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_done_to_its_bytes_is_found(edits in prop::collection::vec(edit(), 1..5)) {
        let folder = log(5);
        let files: Vec<PathBuf> = names(folder.path())
            .into_iter()
            .chain(["head".to_owned()])
            .map(|name| folder.path().join(name))
            .collect();
        let before: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        let mut after = before.clone();
        for (file, at, edit) in edits {
            let bytes = file.get_mut(&mut after);
            match edit {
                Edit::Insert(byte) => bytes.insert(at.index(bytes.len() + 1), byte),
                _ if bytes.is_empty() => {}
                Edit::Replace(byte) => *at.get_mut(bytes) = byte,
                Edit::Remove => {
                    bytes.remove(at.index(bytes.len()));
                }
            }
        }
        for (file, bytes) in files.iter().zip(&after) {
            fs::write(file, bytes).unwrap();
        }
        let verdict = verify(folder.path()).unwrap();
        prop_assert_eq!(verdict.is_whole(), before == after, "{:?}", verdict);
        for problem in &verdict.problems {
            prop_assert!(files.iter().any(|file| file.ends_with(&problem.file)));
        }
        // Opening the log loses nothing but a torn end.
        let audit = open_with(folder.path(), SMALL).unwrap();
        audit.managed(0, &guest(), "swap", "lbaas@2", "done").unwrap();
        for (file, bytes) in files.iter().zip(&after).filter(|(file, _)| !file.ends_with("head")) {
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let kept = fs::read(file).unwrap_or_default();
            prop_assert!(kept.starts_with(&bytes[..whole]), "{}", file.display());
        }
    }
}

#[test]
fn each_guest_has_a_limit_of_lines_per_window() {
    let begun = Instant::now();
    let minute = Duration::from_secs(60);
    let mut budgets = Budgets::new(2, minute);
    let all = [
        Admitted::Line,
        Admitted::Line,
        Admitted::Notice,
        Admitted::Nothing,
        Admitted::Nothing,
    ];
    for now in [begun, begun + minute] {
        assert_eq!(all.map(|_| budgets.admit("a", now)), all);
        assert_eq!(budgets.admit("b", now), Admitted::Line);
    }
    let outcome = budgets.notice();
    assert!(
        outcome.starts_with("access denied: 2 refusals within 60 s; "),
        "{outcome}"
    );
}
