//! The board's status, completed with what others know: guests, memory, and whether all is well.

use super::process::Process;
use super::{Reads, health};
use crate::board::{GuestShown, KeyState, ShadowShown, Status};
use crate::swap::Manager;

/// Everything at a glance.
pub(super) fn status(reads: &Reads) -> Status {
    let mut status = reads.board.status();
    if let Some(listens) = reads.listens.get() {
        status.host.admin.clone_from(listens);
    }
    if let Some(manager) = reads.manager() {
        status.guests = guests(manager);
    }
    let guests_bytes = status.guests.iter().map(|guest| guest.memory_bytes).sum();
    status.memory = Process::memory(guests_bytes);
    status.problems = problems(reads, &status);
    status
}

/// Each guest that runs, by name.
pub(super) fn guests(manager: &Manager) -> Vec<GuestShown> {
    let guests = manager.each().map(|(managed, standing)| {
        let guest = &managed.active.instances().program.guest;
        let usage = &managed.active.usage;
        let calls = &managed.active.calls;
        let working = calls.working();
        let [(_, answered), _, (_, failures)] = calls.outcomes();
        GuestShown {
            guest: standing.guest,
            name: guest.name.clone(),
            version: guest.version.clone(),
            digest: guest.digest.to_string(),
            revision: standing.active.map(|active| active.revision),
            working,
            resting: usize::try_from(usage.instances())
                .unwrap_or(usize::MAX)
                .saturating_sub(working),
            calls: answered + failures,
            failures,
            memory_bytes: usage.memory_bytes(),
            quarantined: standing.quarantined.len(),
            shadow: standing.shadow.map(|shadow| ShadowShown {
                candidate: format!("{}@{}", shadow.candidate, shadow.version),
                compared: shadow.compared,
                same: shadow.same,
            }),
        }
    });
    guests.collect()
}

/// What an operator should look at, one line each.
fn problems(reads: &Reads, status: &Status) -> Vec<String> {
    let mut problems = health::why_not_ready(reads);
    let mut count = |count: usize, one: &str, many: &str| match count {
        0 => {}
        1 => problems.push(format!("1 {one}")),
        count => problems.push(format!("{count} {many}")),
    };
    let of = |state| status.keys.get(&state).copied().unwrap_or_default();
    let set_aside = of(KeyState::SetAside);
    count(
        status.in_trouble_count.saturating_sub(set_aside),
        "key failed",
        "keys failed",
    );
    count(set_aside, "key is set aside", "keys are set aside");
    if let Some(source) = &status.source {
        count(source.problem_count, "problem of the source", "problems of the source");
    }
    for guest in &status.guests {
        // Those of Services are counted as keys.
        if guest.guest != crate::guests::lbaas::NAME {
            count(
                guest.quarantined,
                &format!("request to guest `{}` is set aside", guest.guest),
                &format!("requests to guest `{}` are set aside", guest.guest),
            );
        }
    }
    problems
}
