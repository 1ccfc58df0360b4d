//! The promises of every store, tested on each of them; and random operations against a model.

use proptest::prelude::*;
use trueup_capabilities::checkpoint::Simulated;
use trueup_capabilities::checkpoint::file::Settings;
use trueup_capabilities::checkpoint::json_file::JsonFile;
use trueup_capabilities::checkpoint::{DATA_BYTES_MAX, ENTRY_BYTES_MAX, Saved, Store};

use super::{Scratch, file_with, holds, saved, stored, told};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    File { shared_sync: bool },
    JsonFile,
}

const ON_DISK: [Backend; 3] = [
    Backend::File { shared_sync: false },
    Backend::File { shared_sync: true },
    Backend::JsonFile,
];

impl Backend {
    fn open(self, scratch: &Scratch, keep_generations: u32) -> Box<dyn Store> {
        match self {
            Self::File { shared_sync } => {
                let set = |it: &mut Settings| (it.keep_generations, it.shared_sync) = (keep_generations, shared_sync);
                Box::new(file_with(&scratch.path("ipam.checkpoint"), set))
            }
            Self::JsonFile => Box::new(JsonFile::open(scratch.path("ipam.json"), keep_generations).unwrap()),
        }
    }

    fn keeps_entries(self) -> bool {
        self != Self::JsonFile
    }

    /// The form in which `restore` returns data: the JSON file is read whole, with its trailing newline.
    fn read_back(self, data: &str) -> String {
        if self.keeps_entries() {
            data.to_owned()
        } else {
            format!("{data}\n")
        }
    }
}

/// Waits until everything written is durable, as the host does before an answer leaves it.
async fn settle(store: &dyn Store) {
    store.durable(store.written()).await.unwrap();
}

async fn conforms(store: &dyn Store, keeps_entries: bool, read_back: impl Fn(&str) -> String) {
    assert_eq!(stored(store).await, Ok(None));
    let too_early = store.append("early").await.unwrap_err();
    if keeps_entries {
        assert_eq!(told(&too_early), "unavailable: nothing to append to");
    }
    store.checkpoint("one").await.unwrap();
    assert_eq!(stored(store).await, holds(&read_back("one"), &[]));

    let texts = ["{\"op\":\"é \\u0000\"}", "", "two\nlines"];
    if keeps_entries {
        for text in texts {
            store.append(text).await.unwrap();
        }
        assert_eq!(stored(store).await, holds("one", &texts));
    } else {
        assert_eq!(
            told(&store.append("entry").await.unwrap_err()),
            "unavailable: this store keeps no entries: set compact_after to 0"
        );
    }

    store.checkpoint("").await.unwrap();
    assert_eq!(stored(store).await, holds(&read_back(""), &[]));
    settle(store).await;
}

#[tokio::test]
async fn the_simulated_store_keeps_the_promise() {
    conforms(&Simulated::default(), true, str::to_owned).await;
}

#[tokio::test]
async fn every_store_on_disk_conforms_and_keeps_its_content_over_a_restart() {
    for backend in ON_DISK {
        let scratch = Scratch::new();
        let store = backend.open(&scratch, 2);
        conforms(store.as_ref(), backend.keeps_entries(), |data| backend.read_back(data)).await;
        store.checkpoint("kept").await.unwrap();
        let entries: &[&str] = if backend.keeps_entries() { &["too"] } else { &[] };
        for entry in entries {
            store.append(entry).await.unwrap();
        }
        settle(store.as_ref()).await;
        drop(store);
        let store = backend.open(&scratch, 2);
        let expected = holds(&backend.read_back("kept"), entries);
        assert_eq!(stored(store.as_ref()).await, expected, "{backend:?}");
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_what_is_just_large_enough_is_kept() {
    for backend in ON_DISK {
        let scratch = Scratch::new();
        let store = backend.open(&scratch, 0);
        store.checkpoint("small").await.unwrap();
        let refused = told(&store.checkpoint(&"x".repeat(DATA_BYTES_MAX + 1)).await.unwrap_err());
        assert!(
            refused.starts_with("unavailable: ") && refused.ends_with("the data is too large: 67108865 bytes"),
            "{backend:?} {refused}"
        );
        if backend.keeps_entries() {
            let refused = told(&store.append(&"x".repeat(ENTRY_BYTES_MAX + 1)).await.unwrap_err());
            assert!(
                refused.ends_with("the entry is too large: 1048577 bytes"),
                "{backend:?} {refused}"
            );
            let largest = "y".repeat(ENTRY_BYTES_MAX);
            store.append(&largest).await.unwrap();
            let expected = holds("small", &[&largest]);
            assert!(stored(store.as_ref()).await == expected, "{backend:?}");
        } else {
            assert_eq!(stored(store.as_ref()).await, holds("small\n", &[]));
        }
        let largest = "z".repeat(DATA_BYTES_MAX);
        store.checkpoint(&largest).await.unwrap();
        drop(store);
        let store = backend.open(&scratch, 0);
        let expected = holds(&backend.read_back(&largest), &[]);
        assert!(stored(store.as_ref()).await == expected, "{backend:?}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Checkpoint(String),
    Append(String),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = "[a-z{}\"é]{0,40}";
    let step = prop_oneof![
        2 => text.prop_map(Step::Checkpoint),
        8 => text.prop_map(Step::Append),
        2 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..30)
}

/// Compares a store after the steps with the expected content.
async fn work(backend: Backend, steps: &[Step]) {
    let scratch = Scratch::new();
    let mut store = backend.open(&scratch, 2);
    let mut model: Option<Saved> = None;
    for step in steps {
        match step {
            Step::Checkpoint(data) => {
                store.checkpoint(data).await.unwrap();
                model = Some(saved(&backend.read_back(data), &[]));
            }
            Step::Append(entry) => {
                let appended = store.append(entry).await;
                match &mut model {
                    Some(saved) if backend.keeps_entries() => {
                        appended.unwrap();
                        saved.entries.push(entry.clone());
                    }
                    _ => assert!(appended.is_err()),
                }
            }
            Step::Reopen => {
                settle(store.as_ref()).await;
                drop(store);
                store = backend.open(&scratch, 2);
            }
        }
        assert_eq!(stored(store.as_ref()).await, Ok(model.clone()), "{backend:?} {step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_work_with_restarts_is_what_a_list_would_hold(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for backend in ON_DISK {
                work(backend, &steps).await;
            }
        });
    }
}
