//! The in-memory index of a recording: for each decision its position, and what the list shows about it.
//!
//! It receives entries in order and answers questions about them; `growth.rs` reads them.

use std::hash::{DefaultHasher, Hasher as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trueup_capabilities::questions;
use trueup_journal::{Ask, Call, Ending, Entry, Event, Kind};

/// Further decisions are not listed: 2,000,000 of them take 200 MB.
pub(super) const DECISIONS_MAX: usize = 2_000_000;

/// The filter that selects decisions with a problem.
const PROBLEMS: &str = "problems";

/// The name of the call for questions while a guest starts.
const STARTING: &str = "init and restore";

/// How a decision ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// With a result.
    Ok,
    /// With a result that is an error.
    Error,
    Trap,
    Deadline,
    Memory,
    Cancelled,
    /// The recording contains no end.
    #[default]
    Open,
}

impl Outcome {
    /// A cancelled decision is none: the host stopped, or there was a newer input.
    pub(super) fn is_problem(self) -> bool {
        matches!(self, Self::Error | Self::Trap | Self::Deadline | Self::Memory)
    }

    pub(super) fn of(ending: &Ending) -> Self {
        match ending {
            // A function that may return an error returns `{"Ok":...}` or `{"Err":...}`.
            Ending::Result(value) if value.get().starts_with("{\"Err\"") => Self::Error,
            Ending::Result(_) => Self::Ok,
            Ending::Trap(_) => Self::Trap,
            Ending::Deadline(_) => Self::Deadline,
            Ending::Memory(_) => Self::Memory,
            Ending::Cancelled(_) => Self::Cancelled,
        }
    }
}

/// Whether a question with this name writes something.
pub(super) fn is_write(ask: &str) -> bool {
    questions::kind(ask) == Kind::Write
}

/// One decision: a call, its questions, and how it ended. Serialized, it is a row of the list.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Decision {
    /// The number of its first entry.
    pub(super) n: u64,
    /// When it began, in milliseconds since 1970. `None` for questions during a start.
    pub(super) at_ms: Option<u64>,
    /// The latest known time in it, relative to its beginning: from its clock readings and sleeps.
    pub(super) took_ms: Option<u64>,
    /// Its position in [`Index::names`].
    pub(super) name: u32,
    pub(super) asks: u32,
    pub(super) writes: u32,
    pub(super) outcome: Outcome,
    /// Whether its effect was lost: see the recording's rollback.
    pub(super) rolled_back: bool,
    /// Its position in [`Index::segments`].
    pub(super) segment: u32,
    /// The offset of its first line in the file.
    #[serde(skip)]
    pub(super) offset: u64,
    /// The length of all its lines in bytes.
    #[serde(skip)]
    pub(super) bytes: u64,
    /// A hash of name and arguments: equal for decisions with the same input.
    #[serde(skip)]
    pub(super) asked: u64,
}

/// One file of the recording.
#[derive(Debug, Clone, Default)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) who: Option<Who>,
    /// The first entry where another guest, which the recording was compared with, decides differently.
    pub(super) differs_at: Option<u64>,
    /// What is wrong with the file, as the reader reports it.
    pub(super) note: Option<String>,
}

/// The guest that decided in a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Who {
    pub(super) guest: String,
    pub(super) version: String,
    pub(super) digest: String,
    /// The number of the header's entry.
    pub(super) first: u64,
}

/// The index of a recording.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Further decisions are not listed.
    decisions_max: usize,
    /// Changes whenever positions change.
    pub(super) generation: u64,
    pub(super) segments: Vec<Segment>,
    pub(super) decisions: Vec<Decision>,
    pub(super) names: Vec<String>,
    /// The number of bytes read, and in total.
    pub(super) read: u64,
    pub(super) size: u64,
    /// Whether everything present has been read.
    pub(super) is_read: bool,
    pub(super) is_full: bool,
}

/// An entry, and the range of its line in the file.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) entry: Entry,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Selects the decisions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Filter {
    /// `problems` selects errors, traps, and what met a limit, and those where another guest is known to differ; any
    /// other text, all.
    #[serde(default)]
    pub(super) outcome: String,
    /// If `true`, only decisions that write something.
    #[serde(default, deserialize_with = "as_text")]
    pub(super) writes: bool,
    /// Only decisions whose name contains this.
    #[serde(default)]
    pub(super) name: String,
}

/// A query's values are text, even if the query is parsed into several structs.
fn as_text<'de, D: serde::Deserializer<'de>>(text: D) -> Result<bool, D::Error> {
    Ok(String::deserialize(text)? == "true")
}

impl Filter {
    fn lets_all_through(&self) -> bool {
        self.outcome != PROBLEMS && !self.writes && self.name.is_empty()
    }
}

impl Index {
    /// An empty index for at most this many decisions.
    pub(super) fn of_at_most(decisions_max: usize) -> Self {
        Self {
            decisions_max,
            ..Self::default()
        }
    }

    /// Adds the next entry of the last segment.
    pub(super) fn take(&mut self, Located { entry, offset, bytes }: Located) {
        self.read += bytes;
        let n = entry.n;
        match entry.event {
            Event::Header(header) => {
                if let Some(segment) = self.segments.last_mut() {
                    segment.who = Some(Who {
                        guest: header.guest,
                        version: header.version,
                        digest: header.digest,
                        first: n,
                    });
                }
            }
            Event::Call(call) => self.begin(n, offset, Some(&call)),
            Event::Ask(ask) => {
                if self.open().is_none() {
                    self.begin(n, offset, None);
                }
                if let Some(decision) = self.open() {
                    decision.ask(&ask);
                }
            }
            Event::Ending(ending) => {
                if let Some(decision) = self.open() {
                    decision.outcome = Outcome::of(&ending);
                }
            }
            Event::RolledBack(last_kept) => {
                let newest = self.decisions.iter_mut().rev();
                let lost = newest.take_while(|decision| decision.n > last_kept);
                return lost.for_each(|decision| decision.rolled_back = true);
            }
        }
        if let Some(decision) = self.last_here().filter(|decision| decision.n <= n) {
            decision.bytes = (offset + bytes).saturating_sub(decision.offset);
        }
    }

    fn here(&self) -> u32 {
        u32::try_from(self.segments.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    fn last_here(&mut self) -> Option<&mut Decision> {
        let here = self.here();
        self.decisions.last_mut().filter(|decision| decision.segment == here)
    }

    /// The decision to which the next entry belongs.
    fn open(&mut self) -> Option<&mut Decision> {
        self.last_here().filter(|decision| decision.outcome == Outcome::Open)
    }

    fn begin(&mut self, n: u64, offset: u64, call: Option<&Call>) {
        // The questions of the start are complete: the guest runs.
        if let Some(start) = self.open().filter(|decision| decision.at_ms.is_none()) {
            start.outcome = Outcome::Ok;
        }
        if self.decisions.len() >= self.decisions_max {
            self.is_full = true;
            return;
        }
        let segment = self.here();
        let mut asked = DefaultHasher::new();
        if let Some(call) = call {
            asked.write(call.name.as_bytes());
            asked.write_u8(0);
            asked.write(call.args.get().as_bytes());
        }
        let name = self.name(call.map_or(STARTING, |call| &call.name));
        self.decisions.push(Decision {
            n,
            segment,
            offset,
            at_ms: call.map(|call| call.at_ms),
            name,
            asked: asked.finish(),
            ..Decision::default()
        });
    }

    fn name(&mut self, name: &str) -> u32 {
        let known = self.names.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Forgets the oldest segments, whose files were removed.
    pub(super) fn forget_segments(&mut self, count: usize) {
        let gone = u32::try_from(count).unwrap_or(u32::MAX);
        self.segments.drain(..count.min(self.segments.len()));
        self.decisions.retain_mut(|decision| {
            let stays = decision.segment >= gone;
            decision.segment = decision.segment.saturating_sub(gone);
            stays
        });
        self.generation += 1;
    }

    /// Forgets everything, because the files were replaced.
    pub(super) fn forget_all(&mut self) {
        *self = Self {
            generation: self.generation + 1,
            ..Self::of_at_most(self.decisions_max)
        };
    }

    /// The position in the whole list of the decision with entry `n`. `None` if that is before the first or after the
    /// last.
    pub(super) fn holding(&self, n: u64) -> Option<usize> {
        let after = self.decisions.last().is_some_and(|last| last.last() < n);
        let begun = self.decisions.partition_point(|decision| decision.n <= n);
        begun.checked_sub(1).filter(|_| !after)
    }

    pub(super) fn name_of(&self, decision: &Decision) -> &str {
        nth(&self.names, decision.name).map_or("", String::as_str)
    }

    /// The guest that made a decision.
    pub(super) fn who(&self, decision: &Decision) -> Option<&Who> {
        self.segment_of(decision)?.who.as_ref()
    }

    pub(super) fn segment_of(&self, decision: &Decision) -> Option<&Segment> {
        nth(&self.segments, decision.segment)
    }

    /// Whether another guest is known to differ first in this decision.
    pub(super) fn differs(&self, decision: &Decision) -> bool {
        let at = self.segment_of(decision).and_then(|segment| segment.differs_at);
        at.is_some_and(|at| (decision.n..=decision.last()).contains(&at))
    }

    /// The decisions that pass a filter, in order.
    pub(super) fn listed<'i>(&'i self, filter: &'i Filter) -> Box<dyn Iterator<Item = &'i Decision> + 'i> {
        if filter.lets_all_through() {
            return Box::new(self.decisions.iter());
        }
        let wanted: Vec<bool> = self.names.iter().map(|name| name.contains(&filter.name)).collect();
        let fits = move |decision: &&Decision| {
            nth(&wanted, decision.name) == Some(&true)
                && (filter.outcome != PROBLEMS || decision.outcome.is_problem() || self.differs(decision))
                && (!filter.writes || decision.writes > 0)
        };
        Box::new(self.decisions.iter().filter(fits))
    }

    /// The number of decisions that pass a filter.
    pub(super) fn count(&self, filter: &Filter) -> usize {
        match filter.lets_all_through() {
            true => self.decisions.len(),
            false => self.listed(filter).count(),
        }
    }

    /// The nearest decision with the same input by another guest: the next later one, else the nearest earlier one.
    pub(super) fn twin(&self, decision: &Decision) -> Option<&Decision> {
        let digest = |decision: &Decision| self.who(decision).map(|who| &who.digest);
        let own = digest(decision);
        let is_twin = |other: &&Decision| {
            decision.at_ms.is_some()
                && other.asked == decision.asked
                && other.name == decision.name
                && other.segment != decision.segment
                && digest(other) != own
        };
        let at = self.holding(decision.n)?;
        let (before, after) = self.decisions.split_at_checked(at)?;
        after.iter().find(is_twin).or_else(|| before.iter().rev().find(is_twin))
    }
}

/// A decision keeps positions in 4 bytes.
fn nth<T>(all: &[T], at: u32) -> Option<&T> {
    all.get(usize::try_from(at).ok()?)
}

impl Decision {
    /// The number of its last entry, or of the one that would end it.
    pub(super) fn last(&self) -> u64 {
        self.n + u64::from(self.asks) + 1
    }

    fn ask(&mut self, ask: &Ask) {
        self.asks = self.asks.saturating_add(1);
        self.writes = self.writes.saturating_add(u32::from(is_write(&ask.name)));
        let Some(began) = self.at_ms else { return };
        match (ask.name.as_str(), &ask.answer) {
            ("clock.now-ms", Some(now)) => {
                let took = now.get().parse::<u64>().ok().and_then(|now| now.checked_sub(began));
                self.took_ms = self.took_ms.max(took);
            }
            ("clock.sleep-ms", Some(_)) => {
                let args: Value = serde_json::from_str(ask.args.get()).unwrap_or_default();
                if let Some(slept) = args.get("duration_ms").and_then(Value::as_u64) {
                    self.took_ms = Some(self.took_ms.unwrap_or(0).saturating_add(slept));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index of one segment: a header followed by these lines.
    fn index(lines: &[&str]) -> Index {
        let mut index = Index::of_at_most(DECISIONS_MAX);
        index.segments.push(Segment::default());
        let mut offset = 0;
        let located = |line: &&str| {
            let bytes = line.len() as u64 + 1;
            let at = offset;
            offset += bytes;
            Located {
                entry: Entry::parse(line).unwrap(),
                offset: at,
                bytes,
            }
        };
        lines.iter().map(located).for_each(|entry| index.take(entry));
        index
    }

    #[test]
    fn a_full_index_lists_no_more_and_stays_as_small_where_it_begins_anew() {
        let call = |n: u64| Located {
            entry: Entry::parse(&format!(r#"{{"n":{n},"at_ms":{n},"call":"a.b","args":{{}}}}"#)).unwrap(),
            offset: n,
            bytes: 1,
        };
        let mut index = Index::of_at_most(2);
        for generation in 0..2 {
            (1..4).map(call).for_each(|entry| index.take(entry));
            assert_eq!((index.decisions.len(), index.is_full), (2, true), "{generation}");
            index.forget_all();
        }
    }

    const CALLS: [&str; 9] = [
        r#"{"n":1,"ask":"store.restore","args":{},"answer":null}"#,
        r#"{"n":2,"at_ms":1000,"call":"reconciliation.reconcile","args":{"a":1}}"#,
        r#"{"n":3,"ask":"api.create","args":{},"answer":[]}"#,
        r#"{"n":4,"ask":"clock.now-ms","args":{},"answer":1020}"#,
        r#"{"n":5,"ask":"clock.sleep-ms","args":{"duration_ms":30},"answer":null}"#,
        r#"{"n":6,"result":{"Ok":{}}}"#,
        r#"{"n":7,"at_ms":2000,"call":"reconciliation.status","args":{}}"#,
        r#"{"n":8,"result":{"Err":"no"}}"#,
        r#"{"n":9,"at_ms":3000,"call":"reconciliation.reconcile","args":{"a":1}}"#,
    ];

    #[test]
    fn a_decision_is_summed_up() {
        let index = index(&CALLS);
        let outcomes: Vec<(u64, Outcome)> = index.decisions.iter().map(|d| (d.n, d.outcome)).collect();
        assert_eq!(
            outcomes,
            [
                (1, Outcome::Ok),
                (2, Outcome::Ok),
                (7, Outcome::Error),
                (9, Outcome::Open)
            ]
        );
        let reconcile = &index.decisions[1];
        assert_eq!((reconcile.asks, reconcile.writes, reconcile.took_ms), (3, 1, Some(50)));
        assert_eq!(index.name_of(reconcile), "reconciliation.reconcile");
        let bytes: u64 = CALLS[1..6].iter().map(|line| line.len() as u64 + 1).sum();
        assert_eq!((reconcile.offset, reconcile.bytes), (CALLS[0].len() as u64 + 1, bytes));
        assert_eq!(index.holding(4), Some(1));
        assert_eq!(index.holding(0), None);
        assert_eq!((index.holding(10), index.holding(99_999)), (Some(3), None));
    }

    #[test]
    fn filters_let_through_what_they_say() {
        let index = index(&CALLS);
        let listed = |filter: Filter| index.listed(&filter).map(|decision| decision.n).collect::<Vec<_>>();
        assert_eq!(listed(Filter::default()), [1, 2, 7, 9]);
        let outcome = |outcome: &str| Filter {
            outcome: outcome.to_owned(),
            ..Filter::default()
        };
        assert_eq!(listed(outcome("problems")), [7]);
        let writes = Filter {
            writes: true,
            ..Filter::default()
        };
        assert_eq!(listed(writes), [2]);
        let name = Filter {
            name: "status".to_owned(),
            ..Filter::default()
        };
        assert_eq!((listed(name.clone()), index.count(&name)), (vec![7], 1));
    }

    #[test]
    fn what_was_rolled_back_is_marked() {
        let mut lines = CALLS[..8].to_vec();
        lines.push(r#"{"n":9,"rolled-back":6}"#);
        let lost: Vec<bool> = index(&lines)
            .decisions
            .iter()
            .map(|decision| decision.rolled_back)
            .collect();
        assert_eq!(lost, [false, false, true]);
    }
}
