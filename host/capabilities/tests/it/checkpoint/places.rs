//! Ownership of files: locks, owners, modes, symlinks, and the generations beside a file.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use trueup_capabilities::checkpoint::file::File;
use trueup_capabilities::checkpoint::json_file::JsonFile;
use trueup_capabilities::checkpoint::{OpenError, Store};
use trueup_capabilities::metrics::Registry;

use super::{Scratch, content, file, file_with, filled_file, holds, names, settings, stored, told};

fn json_file(path: &Path) -> Result<JsonFile, OpenError> {
    JsonFile::open(path.to_owned(), 0)
}

fn try_file(path: &Path) -> Result<File, OpenError> {
    File::open(settings(path), Arc::new(Registry::default()))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn one_store_at_a_time_and_the_other_is_told_whose_it_is() {
    let scratch = Scratch::new();
    for name in ["a", "b.json"] {
        let path = scratch.path(name);
        let open = || {
            if name == "a" {
                try_file(&path).map(drop)
            } else {
                json_file(&path).map(drop)
            }
        };
        let first = json_file(&path).unwrap();
        let refused = open().unwrap_err().to_string();
        let expected = format!(
            "checkpoint `{}`: in use by the process with pid {}; stop that one first, or choose another path",
            path.display(),
            std::process::id()
        );
        assert_eq!(refused, expected);
        drop(first);
        open().unwrap();
        let lock = scratch.path(&format!("{name}.lock"));
        assert_eq!(fs::read_to_string(&lock).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(mode(&lock), 0o600);
    }
}

#[test]
fn another_process_that_has_the_lock_is_named() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    let lock = scratch.path("ipam.checkpoint.lock");
    let script = "echo $$ > \"$0\"; echo ready; read line";
    let mut child = Command::new("flock")
        .arg("--exclusive")
        .arg(&lock)
        .args(["sh", "-c", script])
        .arg(&lock)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`flock` is missing: apt-get install util-linux");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    let pid = fs::read_to_string(&lock).unwrap();
    for refused in [try_file(&path).unwrap_err(), json_file(&path).unwrap_err()] {
        let text = refused.to_string();
        assert!(text.contains(&format!("pid {}", pid.trim())), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    let held = try_file(&path).unwrap();
    let taken = Command::new("flock")
        .arg("--nonblock")
        .arg(&lock)
        .arg("true")
        .status()
        .unwrap();
    assert!(!taken.success());
    drop(held);
}

#[tokio::test]
async fn folders_and_files_are_for_their_owner_alone() {
    let scratch = Scratch::new();
    let (path, _store) = filled_file(&scratch, "state/ipam/checkpoint").await;
    assert_eq!(mode(&scratch.path("state")), 0o700);
    assert_eq!(mode(&scratch.path("state/ipam")), 0o700);
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn a_file_that_is_wider_is_narrowed() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    file(&path).checkpoint("data").await.unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    assert!(stored(&file(&path)).await.unwrap().is_some());
    assert_eq!(mode(&path), 0o600);

    let json = scratch.path("ipam.json");
    fs::write(&json, "{}").unwrap();
    fs::set_permissions(&json, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(stored(&json_file(&json).unwrap()).await.unwrap().is_some());
    assert_eq!(mode(&json), 0o600);
}

/// All three calls fail with the text, and change nothing.
async fn refuses(store: &dyn Store, text: &str) {
    for told in [
        stored(store).await.unwrap_err(),
        told(&store.checkpoint("x").await.unwrap_err()),
    ] {
        assert!(told.starts_with("access-denied: ") && told.contains(text), "{told}");
    }
}

#[tokio::test]
async fn what_is_not_a_plain_file_of_this_user_is_not_touched() {
    let scratch = Scratch::new();
    let target = scratch.path("target");
    for put in ["symlink", "folder", "foreign"] {
        let path = scratch.path(put);
        let expected = match put {
            "symlink" => {
                fs::write(&target, "{}").unwrap();
                symlink(&target, &path).unwrap();
                "is a symlink"
            }
            "folder" => {
                fs::create_dir(&path).unwrap();
                "" // The way of opening decides which of two refusals it is.
            }
            _ => {
                fs::write(&path, "{}").unwrap();
                // The tests run as root in a container; elsewhere only root may give files away.
                chown(&path, Some(12_345), None).expect("run the tests as root");
                "belongs to the user 12345"
            }
        };
        if put == "folder" {
            assert!(stored(&file(&path)).await.is_err());
            assert!(file(&path).checkpoint("x").await.is_err());
            assert!(fs::metadata(&path).unwrap().is_dir());
            continue;
        }
        refuses(&file(&path), expected).await;
        let appended = told(&file(&path).append("x").await.unwrap_err());
        assert!(appended.contains(expected), "{appended}");
        refuses(&json_file(&path).unwrap(), expected).await;
        assert_eq!(fs::read(&path).unwrap(), b"{}");
    }
    let lock = scratch.path("other.lock");
    symlink(&target, &lock).unwrap();
    let refused = try_file(&scratch.path("other")).unwrap_err().to_string();
    assert!(refused.contains("opening the lock file"), "{refused}");
}

#[tokio::test]
async fn a_file_that_was_moved_away_gets_no_more_entries() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    let store = file(&path);
    store.checkpoint("one").await.unwrap();
    fs::rename(&path, scratch.path("moved")).unwrap();
    let refused = told(&store.append("lost").await.unwrap_err());
    assert!(refused.contains("was moved away or replaced"), "{refused}");
    store.checkpoint("two").await.unwrap();
    store.append("kept").await.unwrap();
    drop(store);
    let expected = holds("two", &["kept"]);
    assert_eq!(stored(&file(&path)).await, expected);
}

#[tokio::test]
async fn a_stale_temporary_file_is_no_obstacle() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    fs::write(
        scratch.path("ipam.checkpoint.tmp"),
        "half a checkpoint that is longer than the next",
    )
    .unwrap();
    let store = file(&path);
    assert_eq!(stored(&store).await, Ok(None));
    store.checkpoint("data").await.unwrap();
    drop(store);
    assert_eq!(stored(&file(&path)).await, holds("data", &[]));
    assert_eq!(names(scratch.folder.path()), ["ipam.checkpoint"]);
}

async fn generations(scratch: &Scratch, keep_generations: u32) -> Vec<String> {
    let path = scratch.path("ipam.checkpoint");
    let store = file_with(&path, |it| it.keep_generations = keep_generations);
    for data in ["one", "two", "three", "four"] {
        store.checkpoint(data).await.unwrap();
        store.append(&format!("after {data}")).await.unwrap();
    }
    names(scratch.folder.path())
}

#[tokio::test]
async fn so_many_replaced_checkpoints_stay_as_are_wanted_with_their_entries() {
    let scratch = Scratch::new();
    assert_eq!(generations(&scratch, 0).await, ["ipam.checkpoint"]);
    let scratch = Scratch::new();
    assert_eq!(generations(&scratch, 1).await, ["ipam.checkpoint", "ipam.checkpoint.1"]);
    let scratch = Scratch::new();
    let all = ["ipam.checkpoint", "ipam.checkpoint.1", "ipam.checkpoint.2"];
    assert_eq!(generations(&scratch, 2).await, all);
    for (name, data) in all.into_iter().zip(["four", "three", "two"]) {
        let expected = holds(data, &[&format!("after {data}")]);
        assert_eq!(stored(&file(&scratch.path(name))).await, expected);
    }
}

#[tokio::test]
async fn a_gap_in_the_generations_is_filled_before_any_goes() {
    let scratch = Scratch::new();
    generations(&scratch, 3).await;
    fs::remove_file(scratch.path("ipam.checkpoint.2")).unwrap();
    let store = file_with(&scratch.path("ipam.checkpoint"), |it| it.keep_generations = 3);
    store.checkpoint("five").await.unwrap();
    drop(store);
    for (number, data) in [(1, "four"), (2, "three"), (3, "one")] {
        let path = scratch.path(&format!("ipam.checkpoint.{number}"));
        assert_eq!(content(&file(&path)).await.data, data);
    }
}
