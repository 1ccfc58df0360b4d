//! Judges by the server's ledger what a host has done: what it asked for, when that arrived, and when it took effect.
//!
//! Knows nothing of hosts. Every detachment is taken for a start of a migration: where pods come and go, it is the wrong
//! judge. All rules are about order, sizes and pauses that may not be shorter; none about what may take how long.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::compute::{Does, Endpoint, Operation};

/// The server's clock and the host's are two: one is read from the machine at its start and goes on evenly, the other is
/// read from the machine each time.
pub(crate) const CLOCKS_APART_MS: u64 = 10;

/// What is allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Pods, all of which are to be in NEGs.
    pub(crate) pods: usize,
    /// A tenth: `pods / 10`, rounded up, but at least one.
    pub(crate) at_once: usize,
    pub(crate) wait_ms: u64,
}

impl Rules {
    /// With the migrator's usual tenth.
    pub(crate) fn new(pods: usize, wait_ms: u64) -> Self {
        Self {
            pods,
            at_once: pods.div_ceil(10).max(1),
            wait_ms,
        }
    }
}

/// What a judgement comes to.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Detachments that were asked for.
    pub(crate) starts: usize,
    /// Those of them whose endpoints came back later than the wait after them.
    pub(crate) late: usize,
    /// Operations that failed.
    pub(crate) failed: usize,
    /// So many pods were missing at most, once all had been there.
    pub(crate) missing_max: usize,
    /// Requests that came again.
    pub(crate) repeats: u64,
    breaches: Vec<String>,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            starts,
            late,
            failed,
            missing_max,
            repeats,
            breaches: _,
        } = self;
        write!(
            f,
            "{starts} starts, {late} of them came back late, at most {missing_max} missing; {failed} operations failed, \
             {repeats} requests came again"
        )
    }
}

/// Holds a ledger against the rules. Whatever breaks one fails the test.
#[track_caller]
pub(crate) fn judge(ledger: &[Operation], rules: Rules) -> Judged {
    let changes: Vec<&Operation> = ledger.iter().filter(|change| change.does != Does::Insert).collect();
    let mut judged = Judged {
        failed: ledger.iter().filter(|operation| operation.failure.is_some()).count(),
        repeats: ledger.iter().map(|operation| operation.repeats).sum(),
        ..Judged::default()
    };
    nothing_is_doubled(&changes, &mut judged);
    starts_are_small_and_apart(&changes, rules, &mut judged);
    no_more_than_a_tenth_is_missing(&changes, rules, &mut judged);
    println!("{judged}");
    assert!(judged.breaches.is_empty(), "{judged}\n{}", judged.breaches.join("\n"));
    judged
}

/// Every operation has a request id of its own, and asks for what is neither there nor on its way already.
fn nothing_is_doubled(changes: &[&Operation], judged: &mut Judged) {
    let mut ids = BTreeSet::new();
    for change in changes {
        let id = change.request_id.as_deref();
        if id.is_none_or(|id| !ids.insert(id)) {
            judged.breach(change, &format!("has no request id of its own: {id:?}"));
        }
    }
    for (at, change) in changes.iter().enumerate() {
        let earlier = &changes[..at];
        let contents = contents_at(earlier, change.received_ms);
        let there = contents.get(&place(change));
        let holds = |endpoint: &Endpoint| there.is_some_and(|there| there.contains(endpoint));
        let excludes =
            |endpoint: &Endpoint| there.is_some_and(|there| there.iter().any(|other| other.excludes(endpoint)));
        let on_the_way: BTreeSet<&Endpoint> = earlier
            .iter()
            .filter(|other| place(other) == place(change) && other.done_ms.is_none_or(|ms| ms > change.received_ms))
            .flat_map(|other| &other.endpoints)
            .collect();
        for endpoint in &change.endpoints {
            let wrong = match change.does {
                Does::Attach if excludes(endpoint) => "attaches what is there",
                Does::Detach if !holds(endpoint) => "detaches what is not there",
                _ if on_the_way.iter().any(|other| other.excludes(endpoint)) => "touches what is on its way",
                _ => continue,
            };
            judged.breach(change, &format!("{wrong}: {endpoint:?}"));
            break;
        }
    }
}

/// A start puts back a tenth at most; the next comes after it has ended, and the wait after a good end.
fn starts_are_small_and_apart(changes: &[&Operation], rules: Rules, judged: &mut Judged) {
    let starts: Vec<&Operation> = detachments(changes).collect();
    judged.starts = starts.len();
    for start in &starts {
        if start.endpoints.len() > rules.at_once {
            judged.breach(start, &format!("takes out more than {}", rules.at_once));
        }
    }
    for pair in starts.windows(2) {
        let [before, next] = pair else { continue };
        let earliest_ms = match (before.done_ms, &before.failure) {
            (None, _) => u64::MAX,
            (Some(done_ms), Some(_)) => done_ms,
            (Some(done_ms), None) => done_ms + rules.wait_ms - CLOCKS_APART_MS,
        };
        if next.received_ms < earliest_ms {
            judged.breach(next, &format!("comes too early after {}", described(before)));
        }
    }
}

/// Pods are known by VM and IPv4 address, which they have in either stack.
fn no_more_than_a_tenth_is_missing(changes: &[&Operation], rules: Rules, judged: &mut Judged) {
    let mut moments: Vec<u64> = changes.iter().filter_map(|change| change.effect_ms()).collect();
    moments.sort_unstable();
    moments.dedup();
    let late = late(changes, rules);
    judged.late = late.len();
    let mut were_all_there = false;
    for moment in moments {
        let contents = contents_at(changes, moment);
        let there: BTreeSet<Pod<'_>> = contents.values().flatten().map(|endpoint| pod(endpoint)).collect();
        were_all_there |= there.len() == rules.pods;
        if !were_all_there {
            continue;
        }
        let missing = rules.pods - there.len();
        judged.missing_max = judged.missing_max.max(missing);
        // Those of a step whose attachments take longer than the wait are no fault of the next one.
        let excused = late
            .iter()
            .filter(|start| start.effect_ms().is_some_and(|ms| ms <= moment))
            .flat_map(|start| start.endpoints.iter().map(pod))
            .filter(|pod| !there.contains(pod))
            .collect::<BTreeSet<_>>();
        if missing > rules.at_once + excused.len() {
            let excused = excused.len();
            judged.breaches.push(format!(
                "at {moment} {missing} pods are missing, {excused} of them of steps that came back late"
            ));
        }
    }
    if !were_all_there {
        judged
            .breaches
            .push(format!("there never were all {} pods", rules.pods));
    }
}

/// Starts whose pods were not all back when the wait had passed.
fn late<'a>(changes: &[&'a Operation], rules: Rules) -> Vec<&'a Operation> {
    let is_late = |start: &&Operation| {
        let Some(effect_ms) = start.effect_ms() else {
            return false;
        };
        let back_by = |pod: Pod<'_>| {
            changes
                .iter()
                .filter(|change| change.does == Does::Attach && change.id > start.id)
                .filter(|change| change.effect_ms().is_some_and(|ms| ms <= effect_ms + rules.wait_ms))
                .any(|change| change.endpoints.iter().any(|endpoint| self::pod(endpoint) == pod))
        };
        !start.endpoints.iter().all(|endpoint| back_by(pod(endpoint)))
    };
    detachments(changes).filter(is_late).collect()
}

fn detachments<'a>(changes: &[&'a Operation]) -> impl Iterator<Item = &'a Operation> {
    changes.iter().copied().filter(|change| change.does == Does::Detach)
}

/// What is in the NEGs once everything that is due by then has taken effect.
fn contents_at<'a>(changes: &[&'a Operation], ms: u64) -> BTreeMap<Place<'a>, BTreeSet<&'a Endpoint>> {
    let due = changes
        .iter()
        .filter_map(|change| Some((change.effect_ms()?, change.id, *change)));
    let mut effects: Vec<(u64, u64, &Operation)> = due.filter(|(effect_ms, ..)| *effect_ms <= ms).collect();
    effects.sort_unstable_by_key(|(effect_ms, id, _)| (*effect_ms, *id));
    let mut contents: BTreeMap<Place<'_>, BTreeSet<&Endpoint>> = BTreeMap::new();
    for (.., change) in effects {
        let there = contents.entry(place(change)).or_default();
        for endpoint in &change.endpoints {
            match change.does {
                Does::Attach => there.insert(endpoint),
                Does::Detach => there.remove(endpoint),
                Does::Insert => continue,
            };
        }
    }
    contents
}

/// By VM and IPv4 address.
type Pod<'a> = (&'a str, &'a str);

fn pod(endpoint: &Endpoint) -> Pod<'_> {
    (&endpoint.instance, &endpoint.ip_address)
}

/// Zone and name of a NEG.
type Place<'a> = (&'a str, &'a str);

fn place(change: &Operation) -> Place<'_> {
    (&change.zone, &change.neg)
}

fn described(operation: &Operation) -> String {
    let Operation {
        id,
        does,
        zone,
        neg,
        endpoints,
        received_ms,
        done_ms,
        failure,
        ..
    } = operation;
    let count = endpoints.len();
    format!(
        "operation {id} ({does:?} of {count} in {neg}@{zone}, came at {received_ms}, done at {done_ms:?}, {failure:?})"
    )
}

impl Judged {
    fn breach(&mut self, operation: &Operation, what: &str) {
        self.breaches.push(format!("{} {what}", described(operation)));
    }
}
