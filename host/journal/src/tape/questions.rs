//! What a comparison of decisions must know of questions, and the recorded questions of one call.
//!
//! The capabilities classify questions; the tape gets the classification as a function.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::divergence::{Asked, Reads};
use crate::entry::{Ask, Entry, Event};

/// How often a recorded answer is repeated in one call: a guest that reads twice sees the same. A guest that waits for
/// a change that the recording does not have is ended.
const REPEATS_MAX: u64 = 1_000;

/// The role of a question in a comparison of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Time, randomness, log and the like: the guest's means.
    Means,
    /// It reads the world.
    Read,
    /// It changes the world.
    Write,
}

/// How to compare a question when comparing decisions.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// Its role.
    pub kind: Kind,
    /// The argument that is a list whose elements are answered one by one, in a list of the same length: each element
    /// is compared separately. `None` if the question is compared as a whole.
    pub list: Option<&'static str>,
    /// The object of a write, from its arguments (for a list, from one element). Writes of one object are compared in
    /// their order, writes of several objects in any order.
    pub object: fn(&Value) -> String,
}

/// How to compare the question of a name.
pub type Questions = fn(&str) -> Question;

/// The arguments of a question without its list, and one element of the list.
#[derive(Debug, Clone)]
pub(super) struct OnePart {
    pub(super) args: Value,
    /// The list's name, the element's index, and the element.
    pub(super) element: Option<(&'static str, usize, Value)>,
}

impl OnePart {
    /// The same for the same question.
    fn key(&self, name: &str) -> String {
        let element = self.value().map(Value::to_string);
        format!("{name} {} {}", self.args, element.unwrap_or_default())
    }

    fn value(&self) -> Option<&Value> {
        self.element.as_ref().map(|(.., value)| value)
    }

    pub(super) fn object(&self, question: &Question) -> String {
        (question.object)(self.value().unwrap_or(&self.args))
    }
}

/// Splits a question: one part, or one for each element of its list.
pub(super) fn parts_of(question: &Question, mut args: Value) -> Vec<OnePart> {
    let list = question.list.and_then(|list| match args.get_mut(list) {
        Some(Value::Array(elements)) => Some((list, std::mem::take(elements))),
        _ => None,
    });
    let Some((list, elements)) = list else {
        return vec![OnePart { args, element: None }];
    };
    let part = |(at, value)| OnePart {
        args: args.clone(),
        element: Some((list, at, value)),
    };
    elements.into_iter().enumerate().map(part).collect()
}

/// One recorded question, or one element of it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) n: u64,
    pub(super) name: String,
    kind: Kind,
    pub(super) asked: OnePart,
    object: String,
    /// The number of this call's writes recorded before it.
    writes_before: usize,
    pub(super) answer: Option<Box<RawValue>>,
    used: bool,
}

impl Part {
    pub(super) fn shown(&self) -> Asked {
        let mut args = self.asked.args.clone();
        if let (Some((list, _, value)), Value::Object(args)) = (&self.asked.element, &mut args) {
            args.insert((*list).to_owned(), Value::Array(vec![value.clone()]));
        }
        Asked::new(&self.name, args.to_string())
    }
}

/// Parts that can stand in for each other, by index. Used ones are passed over once.
#[derive(Debug, Default)]
struct Queue {
    parts: Vec<usize>,
    passed: usize,
}

impl Queue {
    /// The first one that was not asked.
    fn next(&mut self, all: &[Part]) -> Option<usize> {
        let is_used = |at: &usize| all.get(*at).is_some_and(|part| part.used);
        while self.parts.get(self.passed).is_some_and(is_used) {
            self.passed += 1;
        }
        self.parts.get(self.passed).copied()
    }
}

/// The recorded questions of the current call, and which of them were asked. The time that one takes does not depend
/// on how many there are.
#[derive(Debug, Default)]
pub(super) struct CallQuestions {
    parts: Vec<Part>,
    /// By question.
    same: BTreeMap<String, Queue>,
    /// Reads, by question and the number of writes before it.
    same_then: BTreeMap<(String, usize), Queue>,
    /// Means, by name.
    named: BTreeMap<String, Queue>,
    /// Writes, by object.
    of_object: BTreeMap<String, Queue>,
    /// All writes.
    writes: Vec<usize>,
    /// Writes that were made.
    made: usize,
    /// The number of consecutive first writes that were made.
    made_first: usize,
    repeats: u64,
}

impl CallQuestions {
    /// The questions among `entries`, which belong to one call.
    pub(super) fn of(entries: &[Entry], questions: Questions) -> Self {
        let mut call = Self::default();
        let mut writes = 0;
        for entry in entries {
            let Event::Ask(ask) = &entry.event else { continue };
            let question = questions(&ask.name);
            let parts = recorded_parts(entry.n, ask, &question, writes);
            if question.kind == Kind::Write {
                writes += parts.len();
            }
            parts.into_iter().for_each(|part| call.add(part));
        }
        call
    }

    fn add(&mut self, part: Part) {
        let at = self.parts.len();
        let key = part.asked.key(&part.name);
        match part.kind {
            Kind::Means => self.named.entry(part.name.clone()).or_default().parts.push(at),
            Kind::Read => {
                let then = self.same_then.entry((key.clone(), part.writes_before));
                then.or_default().parts.push(at);
            }
            Kind::Write => {
                self.of_object.entry(part.object.clone()).or_default().parts.push(at);
                self.writes.push(at);
            }
        }
        self.same.entry(key).or_default().parts.push(at);
        self.parts.push(part);
    }

    /// The first part of the question `key` that was not asked.
    fn left(&mut self, key: &str) -> Option<usize> {
        self.same.get_mut(key)?.next(&self.parts)
    }

    /// The next recorded answer of time, randomness and the like: to the same question, or if `by_name`, to the next
    /// one of that name.
    pub(super) fn means(&mut self, name: &str, asked: &OnePart, by_name: bool) -> Option<&Part> {
        let same = self.left(&asked.key(name));
        let named = self.named.get_mut(name).filter(|_| by_name);
        let at = same.or_else(|| named?.next(&self.parts))?;
        self.take(at)
    }

    /// The recorded answer of a read. Prefers one given after exactly the same writes, and repeats the last one on
    /// further reads; otherwise takes the next one left. If all were given, and before the guest's last writes, the
    /// recording can't tell what it would see now.
    ///
    /// # Errors
    /// An entry where the recording has it, but after other writes than the guest has made. `None`: nowhere.
    pub(super) fn read(&mut self, name: &str, asked: &OnePart) -> Result<&Part, Option<u64>> {
        let key = asked.key(name);
        // Only the first recorded writes without a gap correspond to a moment in the recording.
        let now = (self.made == self.made_first).then_some(self.made);
        let mut of_now = now.and_then(|now| self.same_then.get_mut(&(key.clone(), now)));
        let next = of_now.as_mut().and_then(|queue| queue.next(&self.parts));
        let again = of_now.and_then(|queue| queue.parts.last().copied());
        let again = again.filter(|_| self.repeats < REPEATS_MAX);
        let Some(at) = next.or(again).or_else(|| self.left(&key)) else {
            let same = self.same.get(&key);
            let elsewhere = same.and_then(|queue| self.parts.get(*queue.parts.first()?));
            return Err(elsewhere.map(|part| part.n));
        };
        self.repeats += u64::from(next.is_none() && again.is_some());
        self.take(at).ok_or(None)
    }

    /// The next recorded write of this object, with its index for [`CallQuestions::take`].
    pub(super) fn write(&mut self, object: &str) -> Option<(usize, &Part)> {
        let at = self.of_object.get_mut(object)?.next(&self.parts)?;
        Some((at, self.parts.get(at)?))
    }

    /// Counts a part as asked.
    pub(super) fn take(&mut self, at: usize) -> Option<&Part> {
        let part = self.parts.get_mut(at)?;
        if part.kind == Kind::Write && !part.used {
            self.made += 1;
        }
        part.used = true;
        let is_made = |write: &usize| self.parts.get(*write).is_some_and(|part| part.used);
        while self.writes.get(self.made_first).is_some_and(is_made) {
            self.made_first += 1;
        }
        self.parts.get(at)
    }

    /// The first recorded write that was not made, and their number.
    pub(super) fn unmade(&self) -> Option<(&Part, u64)> {
        let is_unmade = |part: &&Part| part.kind == Kind::Write && !part.used;
        let mut unmade = self.parts.iter().filter(is_unmade);
        let first = unmade.next()?;
        Some((first, 1 + unmade.count() as u64))
    }

    /// Whether everything recorded, except means, was asked.
    pub(super) fn is_used_up(&self) -> bool {
        self.parts.iter().all(|part| part.kind == Kind::Means || part.used)
    }

    /// Reads that one side asked more often than the other.
    pub(super) fn differing_reads(&self) -> Reads {
        let is_unasked = |part: &&Part| part.kind == Kind::Read && !part.used;
        let mut unasked = self.parts.iter().filter(is_unasked);
        let first = unasked.next();
        let count = u64::from(first.is_some()) + unasked.count() as u64 + self.repeats;
        let first = match first {
            Some(part) => format!("{} of entry {} was not asked", part.shown(), part.n),
            None if self.repeats > 0 => "a read was asked more often than recorded".to_owned(),
            None => String::new(),
        };
        Reads { count, first }
    }
}

/// The parts of a recorded question, each with its answer.
fn recorded_parts(n: u64, ask: &Ask, question: &Question, writes_before: usize) -> Vec<Part> {
    // The reader has checked that these are JSON.
    let args = serde_json::from_str(ask.args.get()).unwrap_or(Value::Null);
    let parts = parts_of(question, args);
    let one_by_one: Option<Vec<Box<RawValue>>> = match &ask.answer {
        Some(answer) if question.list.is_some() => serde_json::from_str(answer.get()).ok(),
        _ => None,
    };
    let one_by_one = one_by_one.filter(|answers| answers.len() == parts.len());
    let part = |(at, asked): (usize, OnePart)| Part {
        n,
        name: ask.name.clone(),
        kind: question.kind,
        object: asked.object(question),
        asked,
        writes_before,
        answer: match &one_by_one {
            Some(answers) => answers.get(at).cloned(),
            None => ask.answer.clone(),
        },
        used: false,
    };
    parts.into_iter().enumerate().map(part).collect()
}
