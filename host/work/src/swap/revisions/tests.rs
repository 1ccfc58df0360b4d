use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::*;

fn revision(version: &str) -> Revision {
    Revision {
        revision: 0,
        reference: format!("builtin:lbaas@{version}"),
        name: "lbaas".to_owned(),
        version: version.to_owned(),
        digest: format!("sha256:{version}"),
        at_ms: 7,
        by: By::Swap,
        vouched: None,
        note: None,
        afresh: false,
    }
}

#[test]
fn what_was_refused_is_tried_again_until_another_version_is_made_active() {
    let dir = tempfile::tempdir().unwrap();
    let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
    let configured = |version: &str| Configured {
        reference: "file:x.wasm".to_owned(),
        digest: format!("sha256:{version}"),
        settings: None,
        was_refused: false,
    };
    let settings = json!({"max_servers": 3});
    revisions.configure(configured("1"), &settings).unwrap();
    revisions.refuse(configured("2")).unwrap();
    assert_eq!(
        revisions.configured(),
        Some(&configured("1")),
        "it still counts as an edit"
    );
    revisions.push(revision("3")).unwrap();
    let again = Revisions::load(dir.path(), "lbaas").unwrap();
    let seen = again.configured().unwrap();
    assert!(!seen.is_edited(&configured("2")), "the operator has decided since");
    let other_settings = Configured {
        settings: Some(json!({"max_servers": 2})),
        ..configured("2")
    };
    assert!(seen.is_edited(&other_settings), "and decides again");
    assert!(
        !configured("2").is_edited(&other_settings),
        "those are for the active version"
    );
    assert_eq!(again.settings(), Some(&settings), "a refused version changes none");
}

#[test]
fn revisions_are_numbered_and_survive() {
    let dir = tempfile::tempdir().unwrap();
    let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
    assert_eq!((revisions.active(), revisions.previous()), (None, None));
    for (number, version) in [(1, "1"), (2, "2"), (3, "2")] {
        assert_eq!(revisions.push(revision(version)).unwrap(), number);
    }
    let configured = Configured {
        reference: "builtin:lbaas@1".to_owned(),
        digest: "sha256:1".to_owned(),
        settings: None,
        was_refused: false,
    };
    revisions.configure(configured.clone(), &json!({})).unwrap();

    let again = Revisions::load(dir.path(), "lbaas").unwrap();
    assert_eq!(again.all(), revisions.all());
    assert_eq!(again.configured(), Some(&configured));
    assert_eq!(again.active().unwrap().revision, 3);
    assert_eq!(
        again.previous().unwrap().revision,
        1,
        "2 is the same guest as the active one"
    );
    assert_eq!(again.numbered(2).unwrap().version, "2");
}

#[test]
fn a_rollback_passes_over_versions_that_were_rolled_back_from() {
    let dir = tempfile::tempdir().unwrap();
    let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
    let mut push = |version: &str, by: By| {
        revisions
            .push(Revision {
                by,
                ..revision(version)
            })
            .unwrap();
        revisions.previous().map(|target| target.revision)
    };
    assert_eq!(push("1", By::Swap), None);
    assert_eq!(push("2", By::Swap), Some(1));
    assert_eq!(push("3", By::Swap), Some(2));
    assert_eq!(push("3", By::Swap), Some(2), "the same again");
    assert_eq!(push("2", By::Rollback), Some(1), "a second one goes further back");
    assert_eq!(push("2", By::Swap), Some(1));
    assert_eq!(push("1", By::Rollback), None, "only --to goes to 2 or 3");
    assert_eq!(push("3", By::Rollback), None, "with --to");
    assert_eq!(push("2", By::Swap), Some(8), "it is no longer left");
    assert_eq!(push("1", By::FallBack), Some(8));
}

#[test]
fn a_rollback_after_one_to_a_named_revision_never_goes_forward() {
    let dir = tempfile::tempdir().unwrap();
    let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
    for (version, by) in [("1", By::Swap), ("2", By::Swap), ("3", By::Swap), ("1", By::Rollback)] {
        revisions
            .push(Revision {
                by,
                ..revision(version)
            })
            .unwrap();
    }
    assert_eq!(revisions.previous(), None, "2 is newer than 1");
    assert_eq!(revisions.before().unwrap().revision, 3);
}

#[test]
fn the_oldest_are_forgotten_and_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
    for _ in 0..REVISIONS_MAX + 2 {
        revisions.push(revision("1")).unwrap();
    }
    assert_eq!(revisions.all().len(), REVISIONS_MAX);
    assert_eq!(revisions.all().first().unwrap().revision, 3);
    assert_eq!(revisions.next_number(), REVISIONS_MAX as u64 + 3);
}

#[test]
fn a_reader_beside_the_host_finds_a_list_that_fits_its_anchor() {
    let dir = tempfile::tempdir().unwrap();
    let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut count = 0;
            while !is_done.load(Ordering::Relaxed) {
                Revisions::load(dir.path(), "lbaas").unwrap();
                count += 1;
            }
            count
        });
        for _ in 0..400 {
            revisions.push(revision("1")).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        assert_ne!(reader.join().unwrap(), 0);
    });
}

#[test]
fn a_list_that_was_lost_is_no_guest_that_was_never_active() {
    let dir = tempfile::tempdir().unwrap();
    let file = Revisions::place(dir.path(), "lbaas");
    let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
    revisions.push(revision("1")).unwrap();
    let older = std::fs::read(&file).unwrap();
    revisions.push(revision("2")).unwrap();
    let newest = std::fs::read(&file).unwrap();

    std::fs::write(&file, older).unwrap();
    let error = Revisions::load(dir.path(), "lbaas").unwrap_err();
    assert!(
        error.contains("is an older one, though revision 2, `lbaas@2`"),
        "{error}"
    );
    std::fs::remove_file(&file).unwrap();
    let error = Revisions::load(dir.path(), "lbaas").unwrap_err();
    assert!(
        error.contains(
            "lbaas.json is missing or empty, though revision 2, `lbaas@2` (sha256:2), was active; restore it"
        ),
        "{error}"
    );
    std::fs::write(&file, &newest).unwrap();
    assert_eq!(
        Revisions::load(dir.path(), "lbaas").unwrap().active(),
        revisions.active()
    );
    // As the error says: without both files, it begins anew.
    std::fs::remove_file(&file).unwrap();
    std::fs::remove_file(file.with_extension("anchor")).unwrap();
    assert_eq!(Revisions::load(dir.path(), "lbaas").unwrap().active(), None);
}

#[test]
fn a_list_of_an_older_host_gets_its_anchor_with_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = Revisions::place(dir.path(), "lbaas");
    let mut revisions = Revisions::load(dir.path(), "lbaas").unwrap();
    let configured = Configured {
        reference: "builtin:lbaas@1".to_owned(),
        digest: "sha256:1".to_owned(),
        settings: None,
        was_refused: false,
    };
    revisions.push(revision("1")).unwrap();
    revisions.configure(configured.clone(), &json!({})).unwrap();
    std::fs::remove_file(file.with_extension("anchor")).unwrap();
    let mut again = Revisions::load(dir.path(), "lbaas").unwrap();
    again.configure(configured, &json!({})).unwrap();
    std::fs::remove_file(&file).unwrap();
    Revisions::load(dir.path(), "lbaas").unwrap_err();
}

#[test]
fn a_file_that_can_not_be_read_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = Revisions::place(dir.path(), "lbaas");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    for (text, reason) in [
        ("{", "EOF"),
        (
            r#"{"format":0,"configured":null,"revisions":[]}"#,
            "format was 0, must be 1",
        ),
        (
            r#"{"format":1,"configured":null,"revisions":[],"x":1}"#,
            "unknown field `x`",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = Revisions::load(dir.path(), "lbaas").unwrap_err();
        assert!(error.contains(reason) && error.contains("move it and "), "{error}");
    }
}

#[test]
fn a_list_that_is_not_damaged_is_not_to_be_moved_away() {
    let dir = tempfile::tempdir().unwrap();
    let file = Revisions::place(dir.path(), "lbaas");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, r#"{"format":2,"revisions":{"newest":7}}"#).unwrap();
    let error = Revisions::load(dir.path(), "lbaas").unwrap_err();
    assert!(
        error.ends_with("format was 2, must be 1; start the trueup that wrote it, or a newer one"),
        "{error}"
    );
    let step = |kind: io::ErrorKind| next(&kind.into(), "move it");
    assert_eq!(step(io::ErrorKind::InvalidData), "move it");
    assert_eq!(
        step(io::ErrorKind::PermissionDenied),
        "read it as the user that the host runs as, or as root"
    );
}
