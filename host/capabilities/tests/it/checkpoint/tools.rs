//! An operator's commands on a store.

use std::fs;
use std::path::Path;

use trueup_capabilities::checkpoint::file::File;
use trueup_capabilities::checkpoint::tools::{self, Copied, Generation, Kind, Verdict};
use trueup_capabilities::checkpoint::{Saved, Store};

use super::{Scratch, content, file, file_with, holds, saved, stored};

const DATA: &str = r#"{"version":"vpc-cni-ipam/1","allocations":[{"networkName":"net","containerID":"c1","ifName":"eth0","ipv4":"10.0.0.5"}]}"#;
const ASSIGN: &str =
    r#"{"op":"assign","networkName":"net","containerID":"c2","ifName":"eth0","ipv4":"10.0.0.4","at":7}"#;
const FOLDED: &str = r#"{"version":"vpc-cni-ipam/1","allocations":[{"networkName":"net","containerID":"c2","ifName":"eth0","ipv4":"10.0.0.4"},{"networkName":"net","containerID":"c1","ifName":"eth0","ipv4":"10.0.0.5"}]}"#;

fn keeping(path: &Path) -> File {
    file_with(path, |it| it.keep_generations = 3)
}

async fn fill(store: &dyn Store, content: &Saved) {
    store.checkpoint(&content.data).await.unwrap();
    for entry in &content.entries {
        store.append(entry).await.unwrap();
    }
}

/// Stands in for the guest's format.
fn fold(saved: &Saved) -> Result<String, String> {
    match saved.data.as_str() {
        DATA => Ok(FOLDED.to_owned()),
        _ => Err("checkpoint: not JSON".to_owned()),
    }
}

fn copy(from: &Path, to: &Path, kind: Option<Kind>, replace: bool) -> Result<Copied, tools::ToolError> {
    tools::copy(from, to, kind, replace, fold)
}

fn refused(result: Result<Copied, tools::ToolError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn a_store_is_shown_while_a_host_has_it() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    let store = keeping(&path);
    fill(&store, &saved("old", &[])).await;
    fill(&store, &saved(DATA, &[ASSIGN])).await;
    let picture = tools::look(&path).unwrap();
    assert_eq!(picture.kind, Kind::File);
    assert_eq!((picture.entries, picture.last_sequence), (1, Some(1)));
    assert_eq!((picture.data_bytes, picture.end), (DATA.len(), Some(picture.bytes)));
    assert_eq!((picture.in_use, picture.pid), (true, Some(std::process::id())));
    assert_eq!(picture.tail, None);
    let bytes = 24 + 25 + 3;
    assert_eq!(picture.generations, [Generation { generation: 1, bytes }]);
    assert_eq!(picture.saved, saved(DATA, &[ASSIGN]));
    assert_eq!(tools::verify(&path).unwrap(), (Kind::File, Verdict::Whole));

    // Bytes of a record that the host has not finished writing.
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend([9, 0, 0]);
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(tools::verify(&path).unwrap().1, Verdict::Unfinished { .. }));
    assert!(tools::look(&path).unwrap().tail.is_some());
    drop(store);
    assert!(matches!(tools::verify(&path).unwrap().1, Verdict::Torn { .. }));
    let picture = tools::look(&path).unwrap();
    assert!(!picture.in_use && picture.entries == 1);
    assert_eq!(fs::read(&path).unwrap(), bytes, "looking changes nothing");
}

#[tokio::test]
async fn what_one_store_holds_is_copied_to_another_of_any_kind() {
    let scratch = Scratch::new();
    let content = saved(DATA, &[ASSIGN]);
    let first = scratch.path("first");
    fill(&file(&first), &content).await;
    let second = scratch.path("folder/second");
    let copied = copy(&first, &second, None, false).unwrap();
    assert_eq!((copied.kind, copied.entries), (Kind::File, 1));
    assert_eq!((copied.folded, copied.left_out), (0, None));
    assert_eq!(stored(&file(&second)).await, holds(DATA, &[ASSIGN]));
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());

    let json = scratch.path("ipam.json");
    let copied = copy(&second, &json, None, false).unwrap();
    assert_eq!((copied.kind, copied.entries, copied.folded), (Kind::JsonFile, 0, 1));
    assert_eq!(fs::read_to_string(&json).unwrap(), format!("{FOLDED}\n"));
    let third = scratch.path("third");
    copy(&json, &third, None, false).unwrap();
    assert_eq!(stored(&file(&third)).await, holds(FOLDED, &[]));
}

#[tokio::test]
async fn existing_content_is_replaced_only_on_request_and_kept_as_generation() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    fill(&file(&from), &saved("new", &["entry"])).await;
    fill(&file(&to), &saved("old", &[])).await;
    let expected = format!(
        "`{}`: it holds something already; with `--replace` that becomes a generation",
        to.display()
    );
    assert_eq!(refused(copy(&from, &to, None, false)), expected);
    assert_eq!(content(&file(&to)).await.data, "old");
    copy(&from, &to, None, true).unwrap();
    assert_eq!(content(&file(&to)).await.data, "new");
    let generation = scratch.path("to.1");
    assert_eq!(content(&file(&generation)).await.data, "old");
}

#[tokio::test]
async fn what_can_not_be_copied_is_said() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to.json"));
    let text = refused(copy(&from, &to, None, false));
    assert!(text.ends_with("there is no checkpoint"), "{text}");
    let held = file(&from);
    fill(&held, &saved("not the guest's", &["entry"])).await;
    let text = refused(copy(&from, &to, None, false));
    assert!(text.contains("in use by"), "{text}");
    drop(held);
    let text = refused(copy(&from, &to, None, false));
    assert!(text.ends_with("checkpoint: not JSON"), "{text}");
    assert!(!to.exists());
    let text = refused(copy(&from, &from, None, true));
    assert!(text.ends_with("it can't be copied to itself"), "{text}");
    fs::write(&to, "{}").unwrap();
    let text = refused(copy(&from, &to, Some(Kind::File), true));
    assert!(
        text.ends_with("it is of the kind `json-file`: leave out `--kind`"),
        "{text}"
    );
}

#[tokio::test]
async fn a_torn_tail_is_left_out_of_a_copy_and_stays_where_it_is() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    fill(&file(&from), &saved("data", &["entry"])).await;
    let mut bytes = fs::read(&from).unwrap();
    let whole = bytes.clone();
    bytes.extend([1, 2, 3]);
    fs::write(&from, &bytes).unwrap();
    let copied = copy(&from, &to, None, false).unwrap();
    assert_eq!(copied.left_out.unwrap().bytes, 3);
    assert_eq!(fs::read(&from).unwrap(), bytes);
    assert_eq!(fs::read(&to).unwrap(), whole);
}

#[tokio::test]
async fn an_earlier_checkpoint_comes_back_and_the_present_one_can_come_back_too() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    let store = keeping(&path);
    for data in ["one", "two", "three", "four"] {
        fill(&store, &saved(data, &[&format!("after {data}")])).await;
    }
    assert!(refused(tools::restore(&path, 3)).contains("in use by"));
    drop(store);
    let none = format!("`{}`: no generation 4; there are 1, 2, 3", path.display());
    assert_eq!(refused(tools::restore(&path, 4)), none);
    let copied = tools::restore(&path, 3).unwrap();
    assert_eq!((copied.entries, copied.data_bytes), (1, 3));
    let now = holds("one", &["after one"]);
    assert_eq!(stored(&file(&path)).await, now);
    let mut all = Vec::new();
    for generation in 1..=4 {
        let path = scratch.path(&format!("ipam.checkpoint.{generation}"));
        all.push(content(&file(&path)).await.data);
    }
    assert_eq!(all, ["four", "three", "two", "one"]);
    tools::restore(&path, 1).unwrap();
    assert_eq!(content(&file(&path)).await.data, "four");
}

#[tokio::test]
async fn a_damaged_store_is_repaired_from_a_generation_and_kept_as_one() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    let store = keeping(&path);
    fill(&store, &saved("good", &["entry"])).await;
    fill(&store, &saved("bad", &[])).await;
    drop(store);
    fs::write(&path, "nonsense").unwrap();
    let picture = tools::look(&path).unwrap_err().to_string();
    assert!(picture.starts_with("corrupt: "), "{picture}");
    tools::restore(&path, 1).unwrap();
    let expected = holds("good", &["entry"]);
    assert_eq!(stored(&keeping(&path)).await, expected);
    assert_eq!(fs::read(scratch.path("ipam.checkpoint.1")).unwrap(), b"nonsense");
    let text = refused(tools::restore(&path, 1));
    assert!(text.starts_with("corrupt: "), "{text}");
    fs::remove_file(&path).unwrap();
    tools::restore(&path, 2).unwrap();
    assert_eq!(stored(&keeping(&path)).await, expected);
}

#[tokio::test]
async fn a_json_file_is_checked_shown_and_brought_back_too() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.json");
    fs::write(&path, format!("{DATA}\n")).unwrap();
    fs::write(scratch.path("ipam.json.1"), FOLDED).unwrap();
    assert_eq!(tools::verify(&path).unwrap(), (Kind::JsonFile, Verdict::Whole));
    let picture = tools::look(&path).unwrap();
    assert_eq!((picture.kind, picture.last_sequence), (Kind::JsonFile, None));
    assert_eq!(picture.saved, saved(DATA, &[]));
    tools::restore(&path, 1).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{FOLDED}\n"));
    assert_eq!(
        fs::read_to_string(scratch.path("ipam.json.1")).unwrap(),
        format!("{DATA}\n")
    );
    fs::write(&path, "{").unwrap();
    assert!(matches!(
        tools::verify(&path).unwrap(),
        (Kind::JsonFile, Verdict::Corrupt { .. })
    ));
}
