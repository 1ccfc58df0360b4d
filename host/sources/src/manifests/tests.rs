//! Tests with folders on a real file system. The clock of a look is a number, the clock of a watch is real.

use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::object::{Batch, Objects};

fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{type: LoadBalancer, ports: [{{port: 80}}]}}\n"
    )
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (file, text) in files {
        write(&folder, file, text);
    }
    folder
}

fn write(folder: &TempDir, file: &str, text: &str) {
    let path = folder.path().join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn names(objects: &Objects) -> Vec<String> {
    objects.iter().map(|(reference, _)| reference.name.clone()).collect()
}

/// The reading is complete, and has one object, `a`.
#[track_caller]
fn assert_only_a(reading: &Folder) {
    let read = (names(&reading.now.objects), reading.is_complete());
    assert_eq!(read, (vec!["a".to_owned()], true));
}

/// The problems, without the path of the folder.
fn said(folder: &TempDir, problems: &[Problem]) -> Vec<String> {
    let prefix = format!("{}/", folder.path().display());
    problems
        .iter()
        .map(|problem| problem.to_string().replace(&prefix, ""))
        .collect()
}

/// A settled folder at 1,000 ms.
fn settled(folder: &TempDir) -> Folder {
    let mut reading = Folder::open(folder.path()).unwrap();
    reading.look(0);
    assert_eq!(reading.look(1_000), None);
    reading
}

#[test]
fn all_manifests_below_a_folder_are_read_and_nothing_else() {
    let broken = "{";
    let folder = folder(&[
        ("a.yaml", &service("a")),
        ("deep/er/b.yml", &service("b")),
        (
            "c.json",
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"}}"#,
        ),
        ("comment.yaml", "# nothing yet\n"),
        (".hidden.yaml", broken),
        (".git/config.yaml", broken),
        ("a.yaml~", broken),
        ("~a.yaml", broken),
        ("#a.yaml#", broken),
        (".a.yaml.swp", broken),
        ("a.yaml.tmp", broken),
        ("README.md", broken),
    ]);
    #[cfg(unix)]
    {
        write(&folder, ".data/linked", &service("linked"));
        std::os::unix::fs::symlink(".data/linked", folder.path().join("linked.yaml")).unwrap();
        std::os::unix::fs::symlink(".", folder.path().join("circle")).unwrap();
    }
    let snapshot = load(folder.path()).unwrap();
    assert_eq!(names(&snapshot.objects), ["a", "b", "c", "linked"]);
    assert_eq!(snapshot.problems, []);
    assert!(snapshot.is_complete());
    assert_eq!(load(folder.path()).unwrap(), snapshot);
}

#[test]
fn a_missing_folder_is_an_error_with_its_path() {
    let error = load(Path::new("/nonexistent/manifests")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "reading the manifests folder `/nonexistent/manifests`; check the path under [source]"
    );
    assert!(
        std::error::Error::source(&error)
            .unwrap()
            .to_string()
            .contains("No such file")
    );
}

#[test]
fn problems_name_file_and_line_and_the_rest_goes_on() {
    let text = format!("{}---\napiVersion: v1\nkind: Service\nmetadata: {{}}\n", service("b"));
    let folder = folder(&[("a.yaml", &service("a")), ("sub/b.yaml", &text), ("c.yaml", "{")]);
    fs::write(folder.path().join("latin1.yaml"), b"a: \xe4").unwrap();
    let snapshot = load(folder.path()).unwrap();
    assert_eq!(names(&snapshot.objects), ["a", "b"]);
    let said = said(&folder, &snapshot.problems);
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].starts_with("c.yaml:1: "), "{said:?}");
    assert_eq!(said[1], "latin1.yaml: cannot be read: it is no text (UTF-8)");
    assert_eq!(said[2], "sub/b.yaml:8: metadata.name: is missing from this Service");
    assert!(!snapshot.is_complete());
}

#[test]
fn of_one_object_in_two_places_the_first_stays() {
    let second = format!("# again\n{}", service("web")).replace("LoadBalancer", "ClusterIP");
    let folder = folder(&[("b.yaml", &second), ("a.yaml", &service("web"))]);
    let snapshot = load(folder.path()).unwrap();
    let spec = snapshot
        .objects
        .service("default", "web")
        .unwrap()
        .spec
        .as_ref()
        .unwrap();
    assert_eq!(spec.type_.as_deref(), Some("LoadBalancer"));
    let path = folder.path().display().to_string();
    let problem = snapshot.problems[0].to_string();
    assert_eq!(
        problem,
        format!("{path}/b.yaml:2: Service default/web is already in {path}/a.yaml:1: this one is not used")
    );
    assert!(snapshot.is_complete(), "nothing is hidden by it");

    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    let snapshot = load(folder.path()).unwrap();
    assert_eq!(
        (names(&snapshot.objects), snapshot.problems),
        (vec!["web".to_owned()], vec![])
    );
}

#[test]
fn a_file_is_read_once_it_keeps_still() {
    let folder = folder(&[]);
    let mut reading = settled(&folder);
    write(&folder, "a.yaml", "apiVersion: v1\n");
    assert_eq!(reading.look(2_000), Some(QUIET_MS));
    assert!(!reading.is_complete());
    write(&folder, "a.yaml", &service("a"));
    assert_eq!(reading.look(2_150), Some(QUIET_MS), "it was written to");
    assert_eq!(reading.look(2_300), Some(50));
    assert!(reading.now.objects.is_empty());
    assert_eq!(reading.look(2_350), None);
    assert_only_a(&reading);
}

#[test]
fn a_file_cut_short_takes_nothing_away_until_it_stays_so() {
    let folder = folder(&[("a.yaml", &format!("{}---\n{}", service("a"), service("b")))]);
    let mut reading = settled(&folder);
    // The remaining content counts. An empty file is a problem and removes nothing.
    for cut in [service("a"), String::new()] {
        let before = names(&reading.now.objects);
        write(&folder, "a.yaml", &cut);
        assert_eq!(reading.look(10_000), Some(SHRUNK_MS));
        assert_eq!(reading.look(11_999), Some(1));
        assert_eq!(names(&reading.now.objects), before);
        assert_eq!(reading.look(12_000), None);
        assert_eq!(names(&reading.now.objects), ["a"]);
        assert_eq!(reading.now.problems.is_empty(), !cut.is_empty());
    }

    // A new file has no previous objects that a wait could protect.
    write(&folder, "b.yaml", &service("b"));
    reading.look(13_000);
    assert_eq!(reading.look(13_200), None);
    assert_eq!(names(&reading.now.objects), ["a", "b"]);
}

#[test]
fn a_file_cut_short_and_written_again_was_never_empty() {
    let folder = folder(&[("a.yaml", &service("a"))]);
    let mut reading = settled(&folder);
    write(&folder, "a.yaml", "");
    reading.look(2_000);
    write(&folder, "a.yaml", &format!("{}# longer\n", service("a")));
    assert_eq!(reading.look(3_000), Some(QUIET_MS));
    assert_eq!(reading.look(3_200), None);
    assert_only_a(&reading);
}

#[test]
fn a_file_that_goes_away_takes_its_objects_with_it_after_a_while() {
    let folder = folder(&[("a.yaml", &service("a")), ("b.yaml", &service("b"))]);
    let mut reading = settled(&folder);
    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    assert_eq!(reading.look(2_000), Some(SHRUNK_MS));
    assert_eq!(names(&reading.now.objects), ["a", "b"]);
    assert_eq!(reading.look(4_000), None);
    assert_eq!(names(&reading.now.objects), ["b"]);
}

#[test]
fn a_renamed_file_takes_nothing_away() {
    let folder = folder(&[("a.yaml", &service("a"))]);
    let mut reading = settled(&folder);
    fs::rename(folder.path().join("a.yaml"), folder.path().join("z.yaml")).unwrap();
    for now_ms in (2_000..=5_000).step_by(100) {
        reading.look(now_ms);
        assert_eq!(names(&reading.now.objects), ["a"], "at {now_ms}");
    }
    assert_eq!((&reading.now.problems, reading.is_complete()), (&vec![], true));
}

#[test]
fn while_a_file_is_broken_what_it_held_stays() {
    let both = format!("{}---\n{}", service("a"), service("b"));
    let folder = folder(&[("a.yaml", &both)]);
    let mut reading = settled(&folder);

    write(
        &folder,
        "a.yaml",
        &format!(
            "{}---\nnonsense: [and more, than there was before, by far so that it grew\n",
            service("c")
        ),
    );
    reading.look(2_000);
    reading.look(10_000);
    assert_eq!(
        names(&reading.now.objects),
        ["a", "b", "c"],
        "what can be read counts, what cannot be read stays"
    );
    assert_eq!(reading.now.problems.len(), 1);
    assert!(!reading.is_complete());

    write(&folder, "a.yaml", &service("c"));
    reading.look(20_000);
    assert_eq!(reading.look(30_000), None);
    assert_eq!(names(&reading.now.objects), ["c"]);
    assert!(reading.is_complete());

    write(
        &folder,
        "a.yaml",
        "[[[[ broken again, and longer than what was there before, so that no wait is needed, and gone then",
    );
    reading.look(40_000);
    reading.look(50_000);
    assert_eq!(names(&reading.now.objects), ["c"]);
    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    reading.look(60_000);
    assert_eq!(reading.look(70_000), None);
    assert!(reading.now.objects.is_empty() && reading.now.problems.is_empty() && reading.is_complete());
}

#[test]
fn a_folder_that_goes_away_takes_nothing_with_it() {
    let parent = TempDir::new().unwrap();
    let inner = parent.path().join("manifests");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("a.yaml"), service("a")).unwrap();
    let mut reading = Folder::open(&inner).unwrap();
    reading.look(0);
    reading.look(1_000);
    fs::rename(&inner, parent.path().join("away")).unwrap();
    reading.look(2_000);
    reading.look(60_000);
    assert_eq!(names(&reading.now.objects), ["a"]);
    let problem = reading.now.problems[0].to_string();
    assert!(
        problem.contains("manifests: cannot be listed: No such file"),
        "{problem}"
    );
    assert!(!reading.is_complete() && !reading.listed);

    fs::rename(parent.path().join("away"), &inner).unwrap();
    reading.look(61_000);
    assert!(reading.is_complete() && reading.now.problems.is_empty() && reading.listed);
}

#[test]
fn a_manifest_that_is_no_file_any_more_keeps_its_objects() {
    let folder = folder(&[("a.yaml", &service("a")), ("b.yaml", &service("b"))]);
    let mut reading = settled(&folder);
    let (a, b) = (folder.path().join("a.yaml"), folder.path().join("b.yaml"));
    fs::remove_file(&a).unwrap();
    std::os::unix::fs::symlink("nowhere", &a).unwrap();
    fs::remove_file(&b).unwrap();
    fs::create_dir(&b).unwrap();
    reading.look(2_000);
    reading.look(60_000);
    assert_eq!(names(&reading.now.objects), ["a", "b"]);
    let said = said(&folder, &reading.now.problems);
    assert!(said[0].starts_with("a.yaml: cannot be read: "), "{said:?}");
    assert_eq!(said[1], "b.yaml: is a folder, must be a file");
    assert!(!reading.is_complete());
}

#[test]
fn a_file_too_large_is_a_problem() {
    let folder = folder(&[]);
    let file = fs::File::create(folder.path().join("a.yaml")).unwrap();
    file.set_len(FILE_BYTES_MAX + 1).unwrap();
    let reading = settled(&folder);
    assert_eq!(
        said(&folder, &reading.now.problems),
        ["a.yaml: has 67108865 bytes, more than 67108864: not read"]
    );
}

async fn next(batches: &mut mpsc::Receiver<Batch>) -> Batch {
    // Shorter than the interval of looks without an event.
    tokio::time::timeout(Duration::from_secs(25), batches.recv())
        .await
        .expect("a batch within 25 s")
        .expect("it goes on")
}

fn changed(batch: &Batch) -> Vec<(String, bool)> {
    batch
        .changes
        .iter()
        .map(|change| (change.reference.name.clone(), change.now.is_some()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_folder_says_what_changes() {
    let folder = folder(&[("a.yaml", &service("a"))]);
    let mut batches = watch(folder.path()).unwrap();
    let first = next(&mut batches).await;
    assert_eq!((changed(&first), first.complete), (vec![("a".to_owned(), true)], true));

    write(&folder, "new/b.yaml", &service("b"));
    let mut batch = next(&mut batches).await;
    assert_eq!(changed(&batch), [("b".to_owned(), true)]);

    write(
        &folder,
        "new/b.yaml",
        "{ this is not a manifest, but it is longer than the one that was there, so no long wait",
    );
    batch = next(&mut batches).await;
    assert_eq!(
        (changed(&batch), batch.complete, &batch.new_problems),
        (vec![], false, &batch.problems)
    );
    assert_eq!(batch.problems.len(), 1);

    fs::remove_file(folder.path().join("new/b.yaml")).unwrap();
    batch = next(&mut batches).await;
    assert_eq!((changed(&batch), batch.complete), (vec![("b".to_owned(), false)], true));
    assert_eq!((batch.problems, batch.new_problems), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_takes_the_path_of_another_is_watched() {
    let parent = folder(&[("manifests/a.yaml", &service("a")), ("other/a.yaml", &service("a"))]);
    let path = |name: &str| parent.path().join(name);
    let mut batches = watch(&path("manifests")).unwrap();
    next(&mut batches).await;
    fs::rename(path("manifests"), path("away")).unwrap();
    fs::rename(path("other"), path("manifests")).unwrap();
    // The look after these events is over.
    tokio::time::sleep(Duration::from_secs(3)).await;
    write(&parent, "manifests/b.yaml", &service("b"));
    // A look between the two renames finds no folder, which changes nothing.
    let mut seen = Vec::new();
    while seen.is_empty() {
        seen = changed(&next(&mut batches).await);
    }
    assert_eq!(seen, [("b".to_owned(), true)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_folder_says_so_and_a_dropped_watch_ends() {
    let folder = folder(&[]);
    let mut batches = watch(folder.path()).unwrap();
    assert_eq!(
        next(&mut batches).await,
        Batch {
            complete: true,
            ..Batch::default()
        }
    );
    batches.close();
    assert_eq!(
        tokio::time::timeout(Duration::from_secs(60), batches.recv())
            .await
            .expect("the watch ends"),
        None
    );
    assert!(watch(&folder.path().join("missing")).is_err());
}

#[test]
fn a_file_that_is_emptied_is_a_problem_until_it_holds_objects_or_goes() {
    let folder = folder(&[("a.yaml", &service("a")), ("b.yaml", &service("b"))]);
    let mut reading = settled(&folder);
    for text in ["", "# nothing is left\n", "---\n"] {
        write(&folder, "a.yaml", text);
        reading.look(2_000);
        reading.look(2_000 + SHRUNK_MS);
        assert_eq!(names(&reading.now.objects), ["a", "b"], "{text:?}");
        assert_eq!(
            said(&folder, &reading.now.problems),
            [
                "a.yaml:1: held 1 object, and holds nothing now: what was known of it stays; put objects into the file, or remove it"
            ]
        );
        assert!(!reading.is_complete());
    }
    write(&folder, "a.yaml", &service("c"));
    reading.look(10_000);
    reading.look(11_000);
    assert_eq!(names(&reading.now.objects), ["b", "c"]);
    assert!(reading.is_complete());

    write(&folder, "a.yaml", "");
    reading.look(20_000);
    reading.look(20_000 + SHRUNK_MS);
    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    reading.look(30_000);
    reading.look(30_000 + SHRUNK_MS);
    assert_eq!(names(&reading.now.objects), ["b"]);
    assert!(reading.is_complete());
}

#[test]
fn a_file_without_a_byte_may_have_held_objects_before_the_start() {
    let folder = folder(&[("a.yaml", ""), ("b.yaml", &service("b"))]);
    let snapshot = load(folder.path()).unwrap();
    assert_eq!(
        said(&folder, &snapshot.problems),
        ["a.yaml:1: holds nothing; put objects into the file, or remove it"]
    );
    assert!(!snapshot.is_complete());
}

#[test]
fn a_typo_keeps_what_was_known_of_the_object() {
    let folder = folder(&[("a.yaml", &service("a"))]);
    let mut reading = settled(&folder);
    let before = reading.now.objects.clone();
    for (typo, problem) in [
        ("ports:", "spec.prots: unknown field; did you mean `ports`?"),
        (
            "LoadBalancer",
            "spec.type: was `LoadBalncer`, must be one of ClusterIP, NodePort, LoadBalancer, ExternalName; did you mean `LoadBalancer`?",
        ),
        (
            "80",
            "spec.ports[0].port: was 808100, must be a whole number from 1 to 65535",
        ),
    ] {
        let written = match typo {
            "ports:" => "prots:",
            "80" => "808100",
            _ => "LoadBalncer",
        };
        let now_ms = 2_000 + 10_000 * u64::try_from(written.len()).unwrap();
        write(&folder, "a.yaml", &service("a").replace(typo, written));
        reading.look(now_ms);
        reading.look(now_ms + SHRUNK_MS);
        assert_eq!(reading.now.objects, before, "{written}");
        assert_eq!(said(&folder, &reading.now.problems), [format!("a.yaml:4: {problem}")]);
        assert!(!reading.is_complete());
    }
}
