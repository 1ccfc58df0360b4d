//! A host in this process that is easy to start and kill, and misbehaves in at most one way.
//!
//! It serves the ledger's own test: an oracle that never finds anything is worthless. An honest host carries out a
//! request at one moment between question and answer; if it is killed in between, no answer comes.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rand::seq::IteratorRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::ledger::{Answered, FULL, Key};
use super::rounds::{Host, Pool, ask};

/// What a host does wrong now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    /// ADD returns an address that another key holds.
    GivesTwice,
    /// A repeated ADD returns another address.
    GivesAnother,
    /// A kill undoes the last answered ADD.
    LosesAdds,
    /// A kill undoes the last answered DEL.
    LosesDels,
    /// After a kill two keys have swapped their addresses.
    Swaps,
    /// It forgets releases made while it was down.
    LosesReleases,
    /// GC frees what must stay.
    FreesTooMuch,
    /// GC keeps what must go.
    FreesTooLittle,
    /// After a kill an address is held for an unknown key.
    HoldsForNobody,
    /// After a kill an address is neither held nor given out.
    LosesAddresses,
    /// Reports that no address is free to a key that holds one.
    Refuses,
    /// Fails without a reason.
    Fails,
    /// A kill leaves damaged data behind.
    Damages,
}

pub(crate) struct Fake {
    dir: TempDir,
    socket: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    lie: Lie,
    random: ChaCha8Rng,
    /// Counts starts; `None` while it is dead. It never carries out a request of an earlier life.
    life: Option<u32>,
    lives: u32,
    pool: Pool,
    /// Address and device number: an ENI keeps an address in use until the host restarts.
    held: BTreeMap<Key, (Ipv4Addr, i64)>,
    spool: Vec<Key>,
    /// The last answer.
    added: Option<Key>,
    deleted: Option<(Key, Ipv4Addr)>,
    lost: Vec<Ipv4Addr>,
}

impl Fake {
    pub(crate) fn new(lie: Lie, seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = State {
            lie,
            random: ChaCha8Rng::seed_from_u64(seed),
            life: None,
            lives: 0,
            pool: Pool::new(),
            held: BTreeMap::new(),
            spool: Vec::new(),
            added: None,
            deleted: None,
            lost: Vec::new(),
        };
        Self {
            socket: dir.path().join("cni.sock"),
            dir,
            state: Arc::new(Mutex::new(state)),
        }
    }
}

impl Host for Fake {
    fn socket(&self) -> &Path {
        &self.socket
    }

    fn start(&self) {
        let draft = self.dir.path().join("new.sock");
        let listener = UnixListener::bind(&draft).unwrap();
        std::fs::rename(&draft, &self.socket).unwrap();
        let mut state = self.state.lock().unwrap();
        state.lives += 1;
        let life = state.lives;
        state.life = Some(life);
        let State { pool, held, .. } = &mut *state;
        held.values_mut()
            .for_each(|(address, device)| *device = pool[address].unwrap_or(-1));
        for key in std::mem::take(&mut state.spool) {
            if state.lie != Lie::LosesReleases {
                state.held.remove(&key);
            }
        }
        let state = Arc::clone(&self.state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if state.lock().unwrap().life != Some(life) {
                    return;
                }
                let state = Arc::clone(&state);
                thread::spawn(move || serve(stream.unwrap(), &state, life));
            }
        });
    }

    fn start_in_vain(&self, _: Duration) {
        self.start();
        self.kill();
    }

    fn kill(&self) {
        let mut state = self.state.lock().unwrap();
        if state.life.take().is_some() {
            state.lie_after_kill();
            drop(state);
            // Wakes the thread that waits for the next client.
            _ = UnixStream::connect(&self.socket);
        }
    }

    fn shown(&self) -> BTreeMap<Ipv4Addr, Key> {
        let answer = ask(&self.socket, &json!({"command": "SHOW"})).unwrap();
        let field = |row: &Value, at: usize| row[at].as_str().unwrap().to_owned();
        let row = |row: &Value| {
            let key = Key {
                network: field(row, 1),
                container: field(row, 2),
                interface: field(row, 3),
            };
            (field(row, 0).parse().unwrap(), key)
        };
        answer["ok"].as_array().unwrap().iter().map(row).collect()
    }

    fn put_pool(&self, pool: &Pool) {
        self.state.lock().unwrap().pool = pool.clone();
    }

    fn release(&self, key: &Key) -> Answered {
        let mut state = self.state.lock().unwrap();
        if state.life.is_some() {
            state.held.remove(key);
        } else {
            state.spool.push(key.clone());
        }
        Answered::Done
    }

    fn inspect(&self) -> Result<(), String> {
        let mut state = self.state.lock().unwrap();
        if state.lie == Lie::Damages && state.now_and_then() {
            return Err("the file is damaged".to_owned());
        }
        Ok(())
    }
}

/// One question, carried out at one moment unless a kill comes first, and one answer unless a kill comes before that.
fn serve(stream: UnixStream, state: &Mutex<State>, life: u32) {
    let pause = |question: &Value| {
        // A CHECK changes nothing, so its timing does not matter.
        if question["command"] == "CHECK" {
            return;
        }
        let us = state.lock().unwrap().random.random_range(0..1500);
        thread::sleep(Duration::from_micros(us));
    };
    let mut line = String::new();
    let read = BufReader::new(&stream).read_line(&mut line);
    let Ok(question) = serde_json::from_str::<Value>(&line) else {
        return assert!(read.is_err() || line.is_empty(), "{line}");
    };
    pause(&question);
    let mut alive = state.lock().unwrap();
    if alive.life != Some(life) {
        return;
    }
    let answer = alive.answer(&question);
    drop(alive);
    pause(&question);
    // Under the lock: an answer that leaves was given before the kill.
    let mut alive = state.lock().unwrap();
    if alive.life == Some(life) {
        alive.answered(&question, &answer);
        _ = writeln!(&stream, "{answer}");
    }
}

fn key(question: &Value) -> Key {
    let field = |name: &str| question[name].as_str().unwrap().to_owned();
    Key {
        network: field("network"),
        container: field("containerId"),
        interface: field("ifName"),
    }
}

fn refused(code: u32, text: &str) -> Value {
    json!({"v": 1, "error": {"code": code, "msg": text}})
}

fn allocation((address, device): (Ipv4Addr, i64)) -> Value {
    json!({"v": 1, "ok": {"ip": address, "deviceNumber": device}})
}

impl State {
    fn now_and_then(&mut self) -> bool {
        self.random.random_range(0..4) == 0
    }

    fn lies(&mut self, lie: Lie) -> bool {
        self.lie == lie && self.now_and_then()
    }

    fn is_free(&self, address: Ipv4Addr) -> bool {
        self.held.values().all(|(held, _)| *held != address)
    }

    /// The first address that is on an ENI, not held, and not lost.
    fn candidate(&self) -> Option<(Ipv4Addr, i64)> {
        let mut routed = self
            .pool
            .iter()
            .filter_map(|(address, device)| Some((*address, (*device)?)));
        routed.find(|(address, _)| !self.lost.contains(address) && self.is_free(*address))
    }

    fn answer(&mut self, question: &Value) -> Value {
        match question["command"].as_str().unwrap() {
            "ADD" => self.add(&key(question)),
            "DEL" => match self.held.remove(&key(question)) {
                Some(held) => allocation(held),
                None => json!({"v": 1, "ok": {}}),
            },
            "CHECK" if self.lies(Lie::Fails) => refused(11, "so it is"),
            "CHECK" => match self.held.get(&key(question)) {
                Some(held) => allocation(*held),
                None => refused(3, "the container has no address"),
            },
            "GC" => self.gc(question),
            _ => {
                let row = |(key, (address, _)): (&Key, &(Ipv4Addr, i64))| {
                    json!([address, key.network, key.container, key.interface])
                };
                json!({"ok": self.held.iter().map(row).collect::<Vec<_>>()})
            }
        }
    }

    fn add(&mut self, key: &Key) -> Value {
        if self.lies(Lie::Fails) {
            return refused(11, "so it is");
        }
        let another = self.candidate().is_some() && self.lies(Lie::GivesAnother);
        if let Some(held) = self.held.get(key).copied().filter(|_| !another) {
            if self.lies(Lie::Refuses) {
                return refused(11, FULL);
            }
            return allocation(held);
        }
        let twice = self.lies(Lie::GivesTwice);
        let taken = twice
            .then(|| self.held.values().copied().choose(&mut self.random))
            .flatten();
        match taken.or_else(|| self.candidate()) {
            Some(candidate) => {
                self.held.insert(key.clone(), candidate);
                allocation(candidate)
            }
            None => refused(11, FULL),
        }
    }

    fn gc(&mut self, question: &Value) -> Value {
        let (too_much, too_little) = (self.lies(Lie::FreesTooMuch), self.lies(Lie::FreesTooLittle));
        let valid = question["valid"].as_array().unwrap();
        let freed = |key: &Key| {
            let stays = valid.contains(&json!([key.container, key.interface]));
            question["network"] == key.network.as_str() && !too_little && (too_much || !stays)
        };
        self.held.retain(|key, _| !freed(key));
        json!({"v": 1, "ok": {}})
    }

    /// Remembers what a kill must not undo.
    fn answered(&mut self, question: &Value, answer: &Value) {
        let Some(ip) = answer["ok"].get("ip") else {
            return;
        };
        match question["command"].as_str().unwrap() {
            "ADD" => self.added = Some(key(question)),
            "DEL" => self.deleted = Some((key(question), ip.as_str().unwrap().parse().unwrap())),
            _ => {}
        }
    }

    fn lie_after_kill(&mut self) {
        if !self.now_and_then() {
            return;
        }
        match self.lie {
            Lie::LosesAdds => {
                if let Some(key) = self.added.take() {
                    self.held.remove(&key);
                }
            }
            Lie::LosesDels => {
                if let Some((key, address)) = self.deleted.take()
                    && self.is_free(address)
                {
                    self.held.entry(key).or_insert((address, -1));
                }
            }
            Lie::Swaps => {
                let mut held = self.held.values_mut();
                if let (Some(one), Some(other)) = (held.next(), held.next_back()) {
                    std::mem::swap(one, other);
                }
            }
            Lie::HoldsForNobody => {
                if let Some(candidate) = self.candidate() {
                    let nobody = || "nobody".to_owned();
                    let key = Key {
                        network: nobody(),
                        container: nobody(),
                        interface: nobody(),
                    };
                    self.held.insert(key, candidate);
                }
            }
            Lie::LosesAddresses => self.lost.extend(self.candidate().map(|(address, _)| address)),
            _ => {}
        }
    }
}
