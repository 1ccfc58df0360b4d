//! `[guests.NAME]`: which guest decides, its settings, its grants and its limits.
//!
//! This module checks only the form of the guest's reference; loading the guest checks whether it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trueup_capabilities::grants::{EVERYTHING, Grant, Grants};
use trueup_capabilities::holdings::ApproveAbove;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::questions;
use trueup_capabilities::reading::Granted;
use trueup_registry::{MUST, Reference, Verify};

use super::section::{Given, Section};

/// The default number of calls that the gate of a swap replays: seconds at most, and every kind of change of a day.
pub const GATE_CALLS: u64 = 100;

/// How much may differ at the gate of a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Only accepted differences of results and writes. Reads, clock and random values may differ.
    #[default]
    Identical,
    /// Only accepted differences of requests and results.
    Strict,
    /// Anything may differ, and is reported.
    Report,
    /// Nothing is replayed. The candidate must still read snapshots.
    Off,
}

/// One `[guests.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    /// The position of the section, `FILE:LINE`, for errors found when the guest is loaded.
    pub location: String,
    /// `use`: the component.
    pub reference: Reference,
    /// `verify`: who must have signed it, unless it ships with the host. Default: no signature required.
    pub verify: Verify,
    /// `settings`: the JSON object passed to `init`. Default: empty. The guest itself validates it.
    pub settings: Value,
    /// What it may access beyond log, clock, timers, random and metrics. Default: nothing.
    pub grants: Grants,
    /// Its resource limits.
    pub limits: Limits,
    /// What a version must prove before it decides anything.
    pub proof: Proof,
    /// What happens to an input on which the guest fails.
    pub failure: FailurePolicy,
    /// How many objects it may destroy in one round without an approval. Keys of `[guests.NAME]`: `approve_above` (10)
    /// objects, and `approve_above_percent` (50).
    pub approve_above: ApproveAbove,
}

/// What a candidate must prove before it becomes the active version. Keys of `[guests.NAME]`: `gate` (`"identical"`),
/// `gate_calls` (100), `accepted_differences` and `self_test` (none).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// How the candidate's answers to recorded calls must compare.
    pub gate: Mode,
    /// How many of the newest recorded calls of the active version the host replays. Default: [`GATE_CALLS`].
    pub gate_calls: u64,
    /// A file of accepted differences.
    pub accepted_differences: Option<PathBuf>,
    /// A folder of scenarios that the candidate must pass.
    pub self_test: Option<PathBuf>,
    /// The candidate starts without the state of the active version. Only valid if the host can send it everything
    /// again.
    pub afresh: bool,
}

/// What happens to an input on which the guest fails: it traps, exceeds its limits, or gives no answer. Keys of
/// `[guests.NAME]`: `on_failure` (`"retry"`), `fall_back` (none), `quarantine_after` (5), `cycles_max` (3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailurePolicy {
    /// The reaction.
    pub on_failure: OnFailure,
    /// The number of consecutive failures after which an input is set aside. Default: 5.
    pub quarantine_after: u32,
    /// The number of create-and-destroy cycles with the same desired state after which a key is set aside. Default: 3.
    pub cycles_max: u32,
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self {
            on_failure: OnFailure::Retry,
            quarantine_after: 5,
            cycles_max: 3,
        }
    }
}

/// The reaction to a failure of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnFailure {
    /// The host retries the input with growing pauses, then sets it aside.
    Retry,
    /// The host sets it aside at once: what is applied remains unchanged.
    Hold,
    /// Instead of setting it aside, the host makes another version active.
    FallBack(Reference),
}

impl Guest {
    /// The file of the section.
    pub fn file(&self) -> &str {
        match self.location.rsplit_once(':') {
            Some((file, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => file,
            _ => &self.location,
        }
    }

    /// Every component that may decide at some point: each is pinned and verified.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        let fall_back = match &self.failure.on_failure {
            OnFailure::FallBack(reference) => Some(reference),
            OnFailure::Retry | OnFailure::Hold => None,
        };
        std::iter::once(&self.reference).chain(fall_back)
    }

    /// `None` only if a problem was found.
    pub(super) fn read(mut section: Section<'_>) -> Option<Self> {
        let given = section.given("use");
        if given.is_none() {
            section.missing("use", MUST);
        }
        let reference = given.and_then(|given| read_reference(&section, &given, MUST));
        let note = "; log, clock, timers, random and metrics need no grant";
        let approved = ApproveAbove::default();
        let mut verify = section.section("verify");
        let folder = section.document.folder;
        let key = |text: &str| (!text.is_empty()).then(|| folder.join(text));
        // An empty list would look as if the guest were verified.
        let keys = verify.filled_list("keys", "be the file of a public key", "at least one public key", key);
        Some(Self {
            location: section.document.location(section.line),
            verify: Verify { keys },
            settings: Value::Object(section.json_object("settings")),
            grants: read_grants(section.section("grants").of_names("capability", note)),
            limits: read_limits(section.section("limits")),
            proof: read_proof(&mut section),
            failure: read_failure(&mut section),
            approve_above: ApproveAbove {
                objects: section.whole("approve_above", approved.objects, 0..=1_000_000),
                percent: section.whole("approve_above_percent", approved.percent, 0..=100),
            },
            // The last: what is wrong with the other keys is reported in any case.
            reference: reference?,
        })
    }
}

fn read_reference(section: &Section<'_>, given: &Given<'_>, must: &str) -> Option<Reference> {
    let text = given.text().ok_or_else(|| must.to_owned());
    let reference = text.and_then(|text| Reference::configured(text, section.document.folder));
    reference.map_err(|reason| section.wrong_value(given, reason)).ok()
}

fn read_proof(section: &mut Section<'_>) -> Proof {
    let modes = [
        ("identical", Mode::Identical),
        ("strict", Mode::Strict),
        ("report", Mode::Report),
        ("off", Mode::Off),
    ];
    Proof {
        gate: section.choice("gate", Mode::Identical, &modes),
        // As many as the default 1 MiB segments of a hundred keys hold. Each takes at least a fraction of a
        // millisecond.
        gate_calls: section.whole("gate_calls", GATE_CALLS, 1..=100_000),
        accepted_differences: section.path("accepted_differences"),
        self_test: section.path("self_test"),
        afresh: section.truth("afresh", false),
    }
}

fn read_failure(section: &mut Section<'_>) -> FailurePolicy {
    let default = FailurePolicy::default();
    let choices = [("retry", "retry"), ("hold", "hold"), ("fall-back", "fall-back")];
    let policy = section.choice("on_failure", "retry", &choices);
    let given = section.given("fall_back");
    match (policy, &given) {
        ("fall-back", None) => {
            let text = "must name the guest to fall back to, such as `builtin:lbaas@1`";
            section.missing("fall_back", text);
        }
        ("retry" | "hold", Some(given)) => {
            section.wrong_given(given, "is used with `on_failure = \"fall-back\"` alone");
        }
        _ => {}
    }
    let must = "must name a guest, such as `builtin:lbaas@1`";
    let fall_back = given.and_then(|given| read_reference(section, &given, must));
    FailurePolicy {
        on_failure: match (policy, fall_back) {
            ("hold", _) => OnFailure::Hold,
            ("fall-back", Some(reference)) => OnFailure::FallBack(reference),
            _ => OnFailure::Retry,
        },
        // After more tries than this, success is not to be expected.
        quarantine_after: section.whole("quarantine_after", default.quarantine_after, 1..=1_000),
        // A single time is not a cycle yet.
        cycles_max: section.whole("cycles_max", default.cycles_max, 2..=1_000),
    }
}

fn read_grants(mut section: Section<'_>) -> Grants {
    let mut by_capability = BTreeMap::new();
    for (capability, granting) in questions::granted() {
        let name = granting.name;
        let mut grant = section.section(name);
        let mut granted = Grant {
            read: read_scopes(&mut grant, granting, "read"),
            write: read_scopes(&mut grant, granting, "write"),
            // The host remembers each call for a minute, in 8 bytes. A million take 8 MiB, and no backend answers more.
            calls_per_minute: grant.optional_whole("calls_per_minute", 1..=1_000_000),
            ..Grant::default()
        };
        if capability.limits_destroying {
            // Zero is valid: such a guest creates and resets. A million is more than one call can destroy.
            granted.destroy_max = grant.optional_whole("destroy_max", 0..=1_000_000);
            // `destroy_max = 0` forbids destroying. 100 means no limit, and is valid.
            granted.destroy_percent = grant.optional_whole("destroy_percent", 1..=100);
        } else {
            for key in ["destroy_max", "destroy_percent"] {
                grant.refuse(key, format_args!("is a limit of lbaas alone: {name} has none"));
            }
        }
        if grant.is_present {
            by_capability.insert(name.to_owned(), granted);
        }
    }
    Grants::new(by_capability)
}

fn read_scopes(section: &mut Section<'_>, granted: &Granted, key: &'static str) -> BTreeSet<String> {
    let must = format!("be {}, or \"{EVERYTHING}\" for everything", granted.scope);
    section.texts(key, &must, granted.is_scope).into_iter().collect()
}

fn read_limits(mut section: Section<'_>) -> Limits {
    /// Zero is valid: the host drops lines above the limit, and the call continues.
    const LINES: RangeInclusive<u32> = 0..=1_000_000;
    let default = Limits::default();
    Limits {
        // From the size of a guest's own data to all that 32 bits address.
        memory_bytes: section.whole("memory_bytes", default.memory_bytes, 1 << 20..=1 << 32),
        // Up to an hour: a guest under a debugger may take that long.
        cpu_ms: section.whole("cpu_ms", default.cpu_ms, 1..=3_600_000),
        // Up to a day: a longer wait should be a retry.
        call_ms: section.whole("call_ms", default.call_ms, 1..=86_400_000),
        // Each is an entry of the journal: ten million take some gigabytes.
        imports_per_call: section.whole("imports_per_call", default.imports_per_call, 1..=10_000_000),
        // A request comes from the guest's memory, which is 4 GiB at most.
        question_bytes: section.whole("question_bytes", default.question_bytes, 1 << 10..=1 << 32),
        // The host copies an answer into the guest's memory at least once, so it must stay well below the 32-bit limit.
        answer_bytes: section.whole("answer_bytes", default.answer_bytes, 1 << 10..=1 << 30),
        log_lines_per_call: section.whole("log_lines_per_call", default.log_lines_per_call, LINES),
        metric_lines_per_call: section.whole("metric_lines_per_call", default.metric_lines_per_call, LINES),
    }
}
