//! What the answers imply about every key, and what contradicts them.
//!
//! Knows nothing about how the host works. It assumes nothing about an operation without an answer: the host carried it
//! out or not. Once the host is dead, it is one of the two, and the first reading after that tells which.
//!
//! ```text
//! asked    the belief covers every possible state from now on
//! answered the belief becomes the answer, if that is possible
//! read     the belief becomes the host's report, if that is possible
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Mutex;

/// The owner of an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) network: String,
    pub(crate) container: String,
    pub(crate) interface: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            network,
            container,
            interface,
        } = self;
        write!(f, "{network}/{container}/{interface}")
    }
}

/// A client's request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked<'a> {
    Add(&'a Key),
    Del(&'a Key),
    Check(&'a Key),
    /// All keys of a network, and those of them that must stay.
    Gc(&'a [Key], &'a BTreeSet<Key>),
    /// DEL by the plugin, which also succeeds without a host.
    Release(&'a Key),
}

impl Asked<'_> {
    /// All keys that this concerns.
    pub(crate) fn keys(&self) -> &[Key] {
        match self {
            Self::Add(key) | Self::Del(key) | Self::Check(key) | Self::Release(key) => std::slice::from_ref(*key),
            Self::Gc(all, _) => all,
        }
    }

    /// The belief if this may have been carried out.
    fn perhaps(&self, key: &Key, belief: Belief) -> Belief {
        match self {
            Self::Add(_) => match belief {
                // A repeated ADD returns the existing address.
                Belief::Holds(_) => belief,
                _ => Belief::Any,
            },
            Self::Gc(_, stay) if stay.contains(key) => belief,
            Self::Del(_) | Self::Release(_) | Self::Gc(..) => match belief {
                Belief::Holds(address) => Belief::Perhaps(address),
                _ => belief,
            },
            Self::Check(_) => belief,
        }
    }
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(key) => write!(f, "ADD {key}"),
            Self::Del(key) => write!(f, "DEL {key}"),
            Self::Check(key) => write!(f, "CHECK {key}"),
            Self::Release(key) => write!(f, "DEL by the plugin {key}"),
            Self::Gc(_, stay) => {
                write!(f, "GC but for")?;
                stay.iter().try_for_each(|key| write!(f, " {key}"))
            }
        }
    }
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Done: this address, of the ENI with this device number.
    Address(Ipv4Addr, i64),
    Done,
    /// The error's code and text.
    Refused(u64, String),
    /// No answer came: it was carried out, or not.
    Nothing,
    /// It was not sent.
    Unsent,
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address, device) => write!(f, "{address} on {device}"),
            Self::Done => write!(f, "done"),
            Self::Refused(code, text) => write!(f, "error {code}: {text}"),
            Self::Nothing => write!(f, "no answer"),
            Self::Unsent => write!(f, "not sent"),
        }
    }
}

/// The error of CHECK for a key without an address.
const UNKNOWN: u64 = 3;

/// The error of everything that may succeed later.
const LATER: u64 = 11;

/// The refusal of ADD if all addresses are held or rest.
pub(crate) const FULL: &str = "no address is free";

/// What a key may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belief {
    Nothing,
    Holds(Ipv4Addr),
    /// This address, or nothing.
    Perhaps(Ipv4Addr),
    /// Any address, or nothing.
    Any,
}

impl Belief {
    fn is_sure(self) -> bool {
        matches!(self, Self::Nothing | Self::Holds(_))
    }

    /// What is wrong, if the key holds `found`.
    fn against(self, found: Option<Ipv4Addr>) -> Option<Wrong> {
        match (self, found) {
            (Self::Holds(_), None) => Some(Wrong::Lost),
            (Self::Nothing, Some(_)) => Some(Wrong::Back),
            (Self::Holds(held) | Self::Perhaps(held), Some(found)) if held != found => Some(Wrong::Moved),
            _ => None,
        }
    }
}

/// What a host must never do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Two keys hold one address.
    Double,
    /// A key holds nothing, though its ADD was answered and no client asked for its release.
    Lost,
    /// A key holds an address, though its release was answered and no client asked for an address since.
    Back,
    /// A key holds another address than its answer named.
    Moved,
    /// An address is held for an unknown key, or lists of holders differ.
    Stray,
    /// An event without an explanation.
    Unexpected,
}

/// The violation, and the events before it.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) wrong: Wrong,
    pub(crate) what: String,
    /// The events of the keys and the address concerned, and those that concern all.
    pub(crate) history: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}: {}", self.wrong, self.what)?;
        self.history.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// How a reading resolved the operations without an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    /// How many keys hold an address.
    pub(crate) held: u32,
    /// How many hold none.
    pub(crate) free: u32,
}

pub(crate) struct Ledger {
    /// Whether an error that says "later" may come at any time, and leaves the result open.
    failures: bool,
    state: Mutex<State>,
}

struct State {
    beliefs: BTreeMap<Key, Belief>,
    /// The certain owners.
    owners: BTreeMap<Ipv4Addr, Key>,
    history: Vec<Event>,
    broken: Option<Broken>,
}

struct Event {
    /// `None` means all.
    keys: Vec<Key>,
    address: Option<Ipv4Addr>,
    text: String,
}

impl Ledger {
    /// Starts with these keys, which hold nothing.
    pub(crate) fn new(keys: impl IntoIterator<Item = Key>, failures: bool) -> Self {
        let state = State {
            beliefs: keys.into_iter().map(|key| (key, Belief::Nothing)).collect(),
            owners: BTreeMap::new(),
            history: Vec::new(),
            broken: None,
        };
        Self {
            failures,
            state: Mutex::new(state),
        }
    }

    /// Records what concerns all keys.
    pub(crate) fn note(&self, text: String) {
        self.state.lock().unwrap().tell(&[], None, text);
    }

    /// Whether this key certainly holds an address, or certainly none; `None` if it may be either.
    pub(crate) fn holds(&self, key: &Key) -> Option<bool> {
        match self.state.lock().unwrap().beliefs[key] {
            Belief::Holds(_) => Some(true),
            Belief::Nothing => Some(false),
            Belief::Perhaps(_) | Belief::Any => None,
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.state.lock().unwrap().broken.is_some()
    }

    /// The first violation.
    pub(crate) fn broken(&self) -> Result<(), Broken> {
        self.state.lock().unwrap().broken.take().map_or(Ok(()), Err)
    }

    /// Reports a violation that the ledger can't see.
    pub(crate) fn breaks(&self, keys: &[Key], what: String) {
        self.state.lock().unwrap().breaks(Wrong::Unexpected, keys, None, what);
    }

    /// Runs a request, and judges the answer. No other client asks for the same keys meanwhile.
    pub(crate) fn carry_out(&self, who: &str, asked: Asked<'_>, send: impl FnOnce() -> Answered) -> Answered {
        let keys = asked.keys();
        let mut state = self.state.lock().unwrap();
        state.tell(keys, None, format!("{who}: {asked}"));
        let mut before = Vec::new();
        for key in keys {
            let belief = state.beliefs[key];
            before.push((key, belief));
            state.believe(key, asked.perhaps(key, belief));
        }
        drop(state);
        let answered = send();
        let mut state = self.state.lock().unwrap();
        let address = match answered {
            Answered::Address(address, _) => Some(address),
            _ => None,
        };
        state.tell(keys, address, format!("{who}: {asked} -> {answered}"));
        for (key, belief) in before {
            state.judge(self.failures, &asked, &answered, key, belief);
        }
        answered
    }

    /// Takes the host's report while no request is pending: for each key, and as a list of all held addresses.
    pub(crate) fn read(&self, found: &BTreeMap<Key, Option<Ipv4Addr>>, shown: &BTreeMap<Ipv4Addr, Key>) -> Decided {
        let mut state = self.state.lock().unwrap();
        let mut decided = Decided::default();
        for (key, found) in found {
            let belief = state.beliefs[key];
            let is = found.map_or_else(|| "nothing".to_owned(), |address| address.to_string());
            if !belief.is_sure() || belief.against(*found).is_some() {
                state.tell(std::slice::from_ref(key), *found, format!("read: {key} holds {is}"));
            }
            if !belief.is_sure() {
                *(if found.is_some() {
                    &mut decided.held
                } else {
                    &mut decided.free
                }) += 1;
            }
            if let Some(wrong) = belief.against(*found) {
                state.breaks(
                    wrong,
                    std::slice::from_ref(key),
                    *found,
                    format!("{key} holds {is}, not {belief:?}"),
                );
            }
        }
        // First forget all owners, since keys that swapped addresses would conflict.
        for key in found.keys() {
            state.believe(key, Belief::Nothing);
        }
        for (key, address) in found {
            if let Some(address) = address {
                state.hold(key, *address);
            }
        }
        let held = found
            .iter()
            .filter_map(|(key, address)| Some((*address.as_ref()?, key.clone())));
        let held: BTreeMap<Ipv4Addr, Key> = held.collect();
        for address in held.keys().chain(shown.keys()) {
            let (asked, listed) = (held.get(address), shown.get(address));
            if asked != listed {
                let name = |key: Option<&Key>| key.map_or_else(|| "nobody".to_owned(), Key::to_string);
                let what = format!("{address} is {}'s, and {}'s in the list", name(asked), name(listed));
                let keys: Vec<Key> = asked.into_iter().chain(listed).cloned().collect();
                state.breaks(Wrong::Stray, &keys, Some(*address), what);
            }
        }
        decided
    }
}

impl State {
    fn tell(&mut self, keys: &[Key], address: Option<Ipv4Addr>, text: String) {
        let keys = keys.to_vec();
        self.history.push(Event { keys, address, text });
    }

    /// Keeps only the first violation: those that follow from it add nothing.
    fn breaks(&mut self, wrong: Wrong, keys: &[Key], address: Option<Ipv4Addr>, what: String) {
        if self.broken.is_some() {
            return;
        }
        let concerned = |event: &&Event| {
            event.keys.is_empty()
                || event.keys.iter().any(|key| keys.contains(key))
                || (address.is_some() && event.address == address)
        };
        let history = self.history.iter().filter(concerned).map(|event| event.text.clone());
        let history = history.collect();
        self.broken = Some(Broken { wrong, what, history });
    }

    /// Replaces the belief about a key, and forgets its address unless it certainly holds it.
    fn believe(&mut self, key: &Key, belief: Belief) {
        let before = self.beliefs.insert(key.clone(), belief);
        if let Some(Belief::Holds(address)) = before
            && belief != Belief::Holds(address)
            && self.owners.get(&address) == Some(key)
        {
            self.owners.remove(&address);
        }
    }

    /// The key certainly holds this from now on.
    fn hold(&mut self, key: &Key, address: Ipv4Addr) {
        self.believe(key, Belief::Holds(address));
        if let Some(other) = self.owners.get(&address).filter(|other| *other != key) {
            let (keys, what) = (
                [key.clone(), other.clone()],
                format!("{address} is held by {other} and {key}"),
            );
            self.breaks(Wrong::Double, &keys, Some(address), what);
        }
        self.owners.insert(address, key.clone());
    }

    /// Judges the answer for one of the keys, with the belief `before` the request.
    fn judge(&mut self, failures: bool, asked: &Asked<'_>, answered: &Answered, key: &Key, before: Belief) {
        let found = match (asked, answered) {
            (_, Answered::Nothing) => return,
            (_, Answered::Unsent) => {
                self.believe(key, before);
                if let Belief::Holds(address) = before {
                    self.hold(key, address);
                }
                return;
            }
            (Asked::Gc(_, stay), Answered::Done) => {
                if !stay.contains(key) {
                    self.believe(key, Belief::Nothing);
                }
                return;
            }
            (Asked::Release(_) | Asked::Del(_), Answered::Done) => {
                self.believe(key, Belief::Nothing);
                return;
            }
            (Asked::Add(_) | Asked::Check(_) | Asked::Del(_), Answered::Address(address, _)) => Some(*address),
            (Asked::Add(_), Answered::Refused(LATER, text)) if text == FULL => None,
            (Asked::Check(_) | Asked::Del(_), Answered::Refused(UNKNOWN, _)) => None,
            (_, Answered::Refused(LATER, _)) if failures => return,
            _ => {
                let what = format!("{asked} -> {answered}");
                return self.breaks(Wrong::Unexpected, asked.keys(), None, what);
            }
        };
        // Only ADD turns nothing into an address.
        let wrong = before.against(found);
        let wrong = wrong.filter(|wrong| !matches!((asked, before, wrong), (Asked::Add(_), Belief::Nothing, _)));
        let wrong = wrong.filter(|wrong| !matches!((asked, before, wrong), (Asked::Add(_), Belief::Perhaps(_), _)));
        if let Some(wrong) = wrong {
            let what = format!("{asked} -> {answered}, but it was {before:?}");
            self.breaks(wrong, std::slice::from_ref(key), found, what);
        }
        match (asked, found) {
            // After a DEL without an answer, the address may still go: the DEL may be on its way to the store.
            (Asked::Check(_), _) if !before.is_sure() => {}
            (Asked::Add(_) | Asked::Check(_), Some(address)) => self.hold(key, address),
            _ => self.believe(key, Belief::Nothing),
        }
        if let (Asked::Add(_), Answered::Address(_, ..0)) = (asked, answered) {
            let what = format!("{asked} -> {answered}, where no pod can use it");
            self.breaks(Wrong::Unexpected, std::slice::from_ref(key), found, what);
        }
    }
}
