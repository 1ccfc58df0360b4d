//! Many nodes start at once against one database, with any interleaving of their questions: each gets its own number.
//!
//! Between two questions, the test runs a node again from its start with the answers so far: as in a replay, the first
//! question without an answer is the one that it waits for.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;
use trueup_guest::Guest as _;
use trueup_guest::bindings::trueup::etcd::kv::{self, KeyValue};
use trueup_guest::testing::{Simulated, Transcript};

use crate::bindings::exports::trueup::nodesync::node_sync::{ClusterState, Error, VppNode};
use crate::node_sync::NodeSync;
use crate::record::{self, Stored};
use crate::world::World;

const PREFIX: &str = "/vnf-agent/contiv-ksr/";
/// How many schedules to try; `PROPTEST_CASES` sets more.
const CASES: u32 = 64;
/// As many nodes as in the largest test of the whole system.
const NODES_MAX: usize = 50;

type Store = BTreeMap<String, String>;

#[derive(Clone, Debug)]
enum Question {
    Keys(String),
    Create(String, String),
}

#[derive(Clone, Debug)]
enum Answer {
    Keys(Vec<String>),
    Created(Result<bool, kv::Error>),
}

/// Replays earlier answers; the next question waits.
#[derive(Default)]
struct Tape {
    answers: std::vec::IntoIter<Answer>,
    next: Option<Question>,
    record: Transcript,
}

impl Tape {
    fn wait<T>(&mut self, question: Question) -> Result<T, kv::Error> {
        self.next = Some(question);
        Err(kv::Error::Unavailable("not answered yet".to_owned()))
    }
}

impl World for Tape {
    fn list_keys(&mut self, prefix: &str) -> Result<Vec<String>, kv::Error> {
        match self.answers.next() {
            Some(Answer::Keys(keys)) => Ok(keys),
            Some(answer) => panic!("{answer:?} to a listing"),
            None => self.wait(Question::Keys(prefix.to_owned())),
        }
    }

    fn put_if_not_exists(&mut self, key: &str, value: &str) -> Result<bool, kv::Error> {
        match self.answers.next() {
            Some(Answer::Created(created)) => created,
            Some(answer) => panic!("{answer:?} to a creation"),
            None => self.wait(Question::Create(key.to_owned(), value.to_owned())),
        }
    }

    fn get(&mut self, key: &str) -> Result<Option<KeyValue>, kv::Error> {
        panic!("a node that allocates reads {key}")
    }

    fn put(&mut self, key: &str, _: &str) -> Result<u64, kv::Error> {
        panic!("a node that allocates writes {key}")
    }
}

impl Simulated for Tape {
    fn record(&mut self) -> &mut Transcript {
        &mut self.record
    }
}

/// A host with its guest during a resync.
struct Host {
    name: String,
    attempts: u32,
    listing: ClusterState,
    answers: Vec<Answer>,
    id: u32,
}

impl Host {
    fn new(index: usize, attempts: u32) -> Self {
        Self {
            name: format!("node-{index}"),
            attempts,
            listing: listing(&Store::new()),
            answers: Vec::new(),
            id: 0,
        }
    }

    /// Asks the database one question, or ends the resync. With `is_lost` the database carries out the request, and its
    /// answer is lost.
    fn step(&mut self, store: &mut Store, is_lost: bool) -> Result<(), TestCaseError> {
        let settings = format!(
            r#"{{"node_name": "{}", "allocation_attempts": {}}}"#,
            self.name, self.attempts
        );
        let mut node_sync = NodeSync::init(&settings).unwrap();
        let mut tape = Tape {
            answers: self.answers.clone().into_iter(),
            ..Tape::default()
        };
        let result = node_sync.resync(&mut tape, self.listing.clone());
        if let Some(question) = tape.next {
            self.answers.push(ask(store, question, is_lost));
            return Ok(());
        }
        match result {
            Ok(()) => {
                self.id = node_sync.id;
                prop_assert!(self.id != 0);
            }
            Err(error) => {
                let is_expected = match &error {
                    Error::AttemptsExhausted(attempts) => *attempts == self.attempts,
                    Error::Database(text) => text == "unavailable: lost",
                    _ => false,
                };
                prop_assert!(is_expected, "{:?}", error);
                prop_assert_eq!(node_sync.id, 0);
                // Like the host: again, with a fresh listing.
                self.answers.clear();
                self.listing = listing(store);
            }
        }
        Ok(())
    }
}

fn ask(store: &mut Store, question: Question, is_lost: bool) -> Answer {
    match question {
        Question::Keys(prefix) => Answer::Keys(store.keys().filter(|key| key.starts_with(&prefix)).cloned().collect()),
        Question::Create(key, value) => {
            let is_new = !store.contains_key(&key);
            store.entry(key).or_insert(value);
            Answer::Created(if is_lost {
                Err(kv::Error::Unavailable("lost".to_owned()))
            } else {
                Ok(is_new)
            })
        }
    }
}

fn listing(store: &Store) -> ClusterState {
    let node = |(key, value): (&String, &String)| VppNode {
        id: record::id(PREFIX, key).unwrap(),
        name: Stored::read(value).unwrap().name,
        ip_addresses: Vec::new(),
    };
    ClusterState {
        vpp_nodes: store.iter().map(node).collect(),
        kube_nodes: Vec::new(),
    }
}

/// Runs until every node has its number; `schedule` picks the node of each turn and whether its answer is lost.
fn run(count: usize, attempts: u32, schedule: &[(Index, bool)]) -> Result<(), TestCaseError> {
    let mut store = Store::new();
    let mut hosts: Vec<Host> = (0..count).map(|index| Host::new(index, attempts)).collect();
    for (turn, is_lost) in schedule {
        let waiting: Vec<usize> = (0..count).filter(|&index| hosts[index].id == 0).collect();
        if waiting.is_empty() {
            break;
        }
        hosts[waiting[turn.index(waiting.len())]].step(&mut store, *is_lost)?;
    }
    // The others go on in lockstep, which is the worst case: all ask before any gets an answer.
    while hosts.iter().any(|host| host.id == 0) {
        for host in hosts.iter_mut().filter(|host| host.id == 0) {
            host.step(&mut store, false)?;
        }
    }
    let ids: BTreeSet<u32> = hosts.iter().map(|host| host.id).collect();
    let expected: BTreeSet<u32> = (1..=u32::try_from(count).unwrap()).collect();
    prop_assert_eq!(ids, expected);
    prop_assert_eq!(store.len(), count);
    for host in &hosts {
        let stored = Stored::read(&store[&record::key(PREFIX, host.id)]).unwrap();
        prop_assert_eq!(&stored.name, &host.name, "the record under the number is this node's");
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::cases::at_least(CASES, 2000))]

    #[test]
    fn each_of_many_nodes_gets_its_own_number_from_1_to_n(
        count in 1..=8_usize, attempts in 1..=11_u32,
        schedule in prop::collection::vec((any::<Index>(), prop::bool::weighted(0.1)), 0..120),
    ) {
        run(count, attempts, &schedule)?;
    }
}

#[test]
fn fifty_nodes_that_all_ask_before_anybody_is_answered() {
    for attempts in [1, 11, 1000] {
        run(NODES_MAX, attempts, &[]).unwrap();
    }
}
