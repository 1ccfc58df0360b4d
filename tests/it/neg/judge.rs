//! Judges a host by the server's ledger: what it requested, when that arrived, and when it took effect.
//!
//! Knows nothing about hosts. It takes every detachment for the start of a migration, so it does not fit tests in which
//! pods come and go. All rules are about order, sizes and minimum pauses; none limits how long something takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::compute::{Does, Endpoint, Operation};

/// The difference between the server's clock and the host's: one reads the machine's clock at its start and then runs
/// evenly, the other reads it each time.
pub(crate) const CLOCKS_APART_MS: u64 = 10;

/// The rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The number of pods, all of which belong in NEGs.
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

/// The result of a judgement.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Requested detachments.
    pub(crate) starts: usize,
    /// Those of them whose endpoints came back after the following wait.
    pub(crate) late: usize,
    /// Operations that failed.
    pub(crate) failed: usize,
    /// The most pods missing at once, after all had been there.
    pub(crate) missing_max: usize,
    /// Repeated requests.
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

/// Checks a ledger against the rules. A violation fails the test.
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

/// Every operation has its own request id, and requests what is neither there nor on its way.
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

/// A start detaches at most a tenth; the next one comes after its end, and after the wait if it ended well.
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

/// A VM and an IPv4 address identify a pod in either stack.
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
        // If a step's attachments take longer than the wait, the next step is not at fault.
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

/// Starts whose pods were not all back at the end of the wait.
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

/// The contents of the NEGs once everything due by then has taken effect.
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
