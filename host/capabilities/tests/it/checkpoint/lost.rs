//! Stores that look whole but lost something: cut at a record's end, gone, or an older copy.

use std::fs;
use std::path::Path;

use trueup_capabilities::checkpoint::Store;
use trueup_capabilities::checkpoint::json_file::JsonFile;
use trueup_capabilities::checkpoint::tools::{self, Accepted, Mark, ToolError, Verdict};

use super::{Scratch, content, file, file_with, filled_file, holds, stored, told};

fn json_file(path: &Path) -> JsonFile {
    JsonFile::open(path.to_owned(), 0).unwrap()
}

/// The store neither answers nor writes until an operator decides.
async fn refuses(store: &dyn Store, path: &Path, why: &str) {
    for text in [
        stored(store).await.unwrap_err(),
        told(&store.append("x").await.unwrap_err()),
        told(&store.checkpoint("x").await.unwrap_err()),
    ] {
        assert!(text.starts_with("corrupt: ") && text.contains(why), "{text}");
        let accept = format!("`trueup checkpoint accept {}`", path.display());
        assert!(text.contains(&accept) && !text.contains("checkpoint restore"), "{text}");
    }
    let Verdict::Corrupt { text } = tools::verify(path).unwrap().1 else {
        panic!("it is not whole")
    };
    assert!(text.contains(why), "{text}");
}

async fn filled(path: &Path, entries: usize) {
    let store = file(path);
    store.checkpoint("data").await.unwrap();
    for number in 0..entries {
        store.append(&format!("{number}")).await.unwrap();
    }
}

fn entries(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn a_file_cut_at_a_record_s_end_is_not_served_until_it_is_accepted() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam");
    filled(&path, 2).await;
    let short = fs::read(&path).unwrap();
    filled(&scratch.path("more"), 0).await;
    let store = file(&path);
    store.append("2").await.unwrap();
    drop(store);
    assert_eq!(tools::verify(&path).unwrap().1, Verdict::Whole);
    fs::write(&path, &short).unwrap();
    let why = "it ends at checkpoint 1 with 2 entries, and was at checkpoint 1 with 3 entries";
    refuses(&file(&path), &path, why).await;
    assert_eq!(fs::read(&path).unwrap(), short);
    let picture = tools::look(&path).unwrap();
    assert!(picture.lost.unwrap().contains(why), "what is left can be looked at");
    let refused = tools::accept(&path, false).unwrap_err();
    assert!(matches!(refused, ToolError::Misused(_)), "{refused}");
    let refused = refused.to_string();
    assert!(refused.contains(why) && refused.contains("--yes"), "{refused}");
    let accepted = tools::accept(&path, true).unwrap();
    let mark = |records| Some(Mark { epoch: 1, records });
    let expected = Accepted {
        known: mark(3),
        found: mark(2),
    };
    assert_eq!(accepted, Some(expected));
    assert_eq!(tools::accept(&path, false).unwrap(), None);
    let store = file(&path);
    assert_eq!(content(&store).await.entries, entries(2));
    store.append("again").await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_gone_or_older_is_told_from_one_that_never_was() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam");
    assert_eq!(stored(&file(&path)).await, Ok(None), "it never was");
    filled(&path, 2).await;
    let old = fs::read(&path).unwrap();
    file(&path).checkpoint("newer").await.unwrap();
    fs::write(&path, &old).unwrap();
    refuses(
        &file(&path),
        &path,
        "it ends at checkpoint 1 with 2 entries, and was at checkpoint 2",
    )
    .await;
    fs::remove_file(&path).unwrap();
    let gone = "it is gone; it was at checkpoint 2 with 0 entries";
    let store = file(&path);
    assert!(stored(&store).await.unwrap_err().contains(gone));
    assert!(told(&store.append("x").await.unwrap_err()).contains(gone));
    assert!(told(&store.checkpoint("x").await.unwrap_err()).contains(gone));
    assert!(tools::accept(&path, true).is_err(), "a host has it");
    drop(store);
    let accepted = tools::accept(&path, true).unwrap();
    assert_eq!(accepted.unwrap().found, None);
    assert_eq!(stored(&file(&path)).await, Ok(None));
}

#[tokio::test]
async fn the_way_out_of_a_damaged_file_names_only_what_succeeds() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam");
    filled(&path, 2).await;
    let mut bytes = fs::read(&path).unwrap();
    bytes[24] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(tools::look(&path).is_err(), "its first record is damaged");
    let (shown, away) = (path.display(), scratch.path("ipam.damaged"));
    let moved = format!(
        "`mv {shown} {}`, then `trueup checkpoint accept {shown}` goes on",
        away.display()
    );
    let refused = tools::accept(&path, true).unwrap_err().to_string();
    assert!(refused.contains(&moved) && !refused.contains("restore"), "{refused}");

    fs::write(scratch.path("ipam.3"), "").unwrap();
    let refused = stored(&file(&path)).await.unwrap_err();
    let restore = format!("`trueup checkpoint restore {shown} --generation 3`");
    assert!(refused.contains(&restore) && refused.contains(&moved), "{refused}");

    fs::rename(&path, &away).unwrap();
    assert_eq!(tools::accept(&path, true).unwrap().unwrap().found, None);
    assert_eq!(stored(&file(&path)).await, Ok(None));
}

#[tokio::test]
async fn what_is_whole_before_the_damage_is_shown() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam");
    filled(&path, 1).await;
    let before = fs::metadata(&path).unwrap().len();
    let store = file(&path);
    for number in 1..4 {
        store.append(&format!("{number}")).await.unwrap();
    }
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    bytes[usize::try_from(before).unwrap()] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let picture = tools::look(&path).unwrap();
    assert_eq!((picture.saved.entries, picture.tail), (entries(1), None));
    let damage = picture.damage.unwrap();
    assert!(damage.text().contains("record 2 at offset"), "{damage:?}");
}

#[test]
fn a_file_that_is_no_checkpoint_is_not_to_be_moved_away() {
    let scratch = Scratch::new();
    let path = scratch.path("passwd");
    fs::write(&path, "root:x:0:0").unwrap();
    let said = tools::look(&path).unwrap_err().to_string();
    assert!(said.contains("it is no checkpoint"), "{said}");
    assert!(!said.contains("mv ") && !said.contains("accept"), "{said}");
}

#[tokio::test]
async fn a_generation_that_is_brought_back_is_all_there_is() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam");
    let keeping = || file_with(&path, |it| it.keep_generations = 2);
    let store = keeping();
    store.checkpoint("one").await.unwrap();
    store.append("entry").await.unwrap();
    store.checkpoint("two").await.unwrap();
    drop(store);
    fs::remove_file(&path).unwrap();
    assert!(stored(&keeping()).await.is_err());
    tools::restore(&path, 1).unwrap();
    assert_eq!(tools::verify(&path).unwrap().1, Verdict::Whole);
    let store = keeping();
    assert_eq!(stored(&store).await, holds("one", &["entry"]));
    store.append("more").await.unwrap();
}

#[tokio::test]
async fn a_file_that_a_running_host_lost_comes_back_with_its_next_checkpoint() {
    let scratch = Scratch::new();
    let (path, store) = filled_file(&scratch, "ipam").await;
    fs::remove_file(&path).unwrap();
    assert!(store.append("lost").await.is_err());
    store.checkpoint("all of it").await.unwrap();
    drop(store);
    assert_eq!(stored(&file(&path)).await, holds("all of it", &[]));
}

#[tokio::test]
async fn a_damaged_anchor_is_told_and_can_be_accepted() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam");
    filled(&path, 2).await;
    fs::write(scratch.path("ipam.anchor"), "nonsense").unwrap();
    let text = stored(&file(&path)).await.unwrap_err();
    assert!(text.contains("ipam.anchor: neither of its lines is right"), "{text}");
    tools::accept(&path, true).unwrap();
    assert_eq!(content(&file(&path)).await.entries, entries(2));
}

#[tokio::test]
async fn a_json_file_that_is_gone_is_told_from_one_that_never_was() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.json");
    assert_eq!(stored(&json_file(&path)).await, Ok(None));
    // Another program wrote it, and this host read it.
    fs::write(&path, "{}").unwrap();
    assert!(stored(&json_file(&path)).await.unwrap().is_some());
    fs::remove_file(&path).unwrap();
    let text = stored(&json_file(&path)).await.unwrap_err();
    assert!(text.starts_with("corrupt: ") && text.contains("it is gone"), "{text}");
    tools::accept(&path, true).unwrap();
    assert_eq!(stored(&json_file(&path)).await, Ok(None));
}
