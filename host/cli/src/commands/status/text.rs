//! A status as text: single lines, and tables for lists.

use trueup_base::text::{counted, passed};
use trueup_work::status::{
    GuestShown, HostShown, KeyShown, KeyState, MigrationShown, OperationShown, QueueShown, Role, ShadowShown, Status,
};
use trueup_worlds::neg::Migration;
use trueup_worlds::neg::guest as neg;

use crate::commands::guest::shadow::promoted;
use crate::output::{self, Column, and_more, or_dash, printable};

/// How many operations in flight get a line; the longest-running come first.
const IN_FLIGHT_MAX: usize = 10;

/// The whole status, in lines that may hold any characters; `keys`: all keys, in place of those in trouble and those
/// `beside`.
pub(super) fn lines(status: &Status, keys: Option<&[KeyShown]>, beside: &[KeyShown]) -> Vec<String> {
    let host = &status.host;
    let config = format!("config    {}{}", host.config, read_again(host));
    let mut lines = vec![format!("host      {}", who(host)), config];
    if !host.admin.is_empty() {
        lines.push(format!("admin     {}", host.admin.join(", ")));
    }
    lines.extend(lease(host).map(|text| format!("lease     {text}")));
    lines.extend(source(status).map(|text| format!("source    {text}")));
    lines.extend(queue(status).map(|text| format!("queue     {text}")));
    lines.extend(node(status).map(|text| format!("node      {text}")));
    lines.extend(pods(status).map(|text| format!("pods      {text}")));
    lines.extend(negs(status));
    if status.queue.is_some() {
        lines.push(format!("keys      {}", counts(status)));
        let decisions = counted(status.total.decisions, "decision", "decisions");
        let effects = status.total.effects;
        let objects = format!("{} created, {} destroyed", effects.created, effects.destroyed);
        lines.push(format!("done      {decisions}, {objects}"));
    }
    let memory = status.memory;
    let resident = bytes(memory.resident_bytes);
    let peak = bytes(memory.peak_bytes);
    let of_guests = format!("guests have {}", bytes(memory.guests_bytes));
    lines.push(format!("memory    {resident} ({peak} at most); {of_guests}"));
    let of_source = status.source.iter().flat_map(|source| &source.problems);
    let of_node = status.node.iter().flat_map(|node| &node.problems);
    let problems = of_source.chain(of_node);
    lines.extend(problems.map(|problem| format!("problem   {problem}")));
    if let Some(source) = &status.source {
        lines.extend(source.notes.iter().map(|note| format!("note      {note}")));
        let more = source.note_count.saturating_sub(source.notes.len());
        lines.extend(and_more(more, "").map(|more| format!("note      {more}")));
    }
    lines.push(String::new());
    lines.extend(guests(&status.guests));
    let in_trouble = keys.unwrap_or(&status.in_trouble);
    if !in_trouble.is_empty() || !beside.is_empty() {
        lines.push(String::new());
        lines.extend(key_table(in_trouble.iter().chain(beside), status));
        let more = status.in_trouble_count.saturating_sub(in_trouble.len());
        lines.extend(and_more(more, ": `trueup status --keys`").filter(|_| keys.is_none()));
    }
    let verdict = match status.problems.as_slice() {
        [] => without_problems(status),
        problems => format!("not well: {}", problems.join("; ")),
    };
    lines.extend([String::new(), verdict]);
    lines
}

/// The text if nothing is wrong: that all is well, which keys are not in sync yet, or which host leads in place of this
/// one.
pub(in crate::commands) fn without_problems(status: &Status) -> String {
    if status.host.role == Role::Standby {
        let leader = status.host.leader.as_deref().unwrap_or("another host");
        return format!("standby: `{}` leads; ask it", printable(leader));
    }
    let of = |state| status.keys.get(&state).copied().unwrap_or_default();
    let waiting = [KeyState::Held, KeyState::Running, KeyState::Queued].into_iter();
    let waiting = waiting.filter(|state| of(*state) > 0);
    let waiting: Vec<String> = waiting.map(|state| format!("{} {}", of(state), state.name())).collect();
    match waiting.is_empty() {
        true => "all is well".to_owned(),
        false => format!("nothing is wrong; not true yet: {}", waiting.join(", ")),
    }
}

fn who(host: &HostShown) -> String {
    let mut text = process(host);
    if !host.identity.is_empty() {
        text += &format!(", as `{}`", host.identity);
    }
    text.extend(host.leader.iter().map(|leader| format!(", `{leader}` leads")));
    text += if host.stopping { ", stopping" } else { "" };
    text
}

/// `, read again 60 s ago; a reload was refused 12 s ago; changed since it was read: trueup check, then kill -HUP 17`.
fn read_again(host: &HostShown) -> String {
    let mut text = String::new();
    if let Some(at_ms) = host.reloaded_ms {
        text += &format!(", read again {}", since(at_ms, host.now_ms));
    }
    if let Some(refused) = &host.refused_reload {
        text += &format!("; a reload was refused {}", since(refused.at_ms, host.now_ms));
    }
    if host.config_changed {
        let pid = host.pid;
        text += &format!("; changed since it was read: `trueup check`, then `kill -HUP {pid}`");
    }
    text
}

/// `trueup 0.1.0, process 17, leading, up 12 s`.
pub(in crate::commands) fn process(host: &HostShown) -> String {
    let HostShown { version, pid, role, .. } = host;
    let up = passed(host.now_ms.saturating_sub(host.started_ms));
    format!("trueup {version}, process {pid}, {role}, up {up}")
}

/// `trueup/trueup: held by a since 2026-11-25T13:40:00Z, renewed 2026-11-25T13:41:02Z; 3 changes of holder`.
fn lease(host: &HostShown) -> Option<String> {
    let election = host.election.as_ref()?;
    let at = |time: &Option<String>| time.clone().unwrap_or_else(|| "an unknown time".to_owned());
    let acquired = at(&election.acquired);
    let renewed = at(&election.renewed);
    let held = match &election.holder {
        Some(holder) => format!("held by `{holder}` since {acquired}, renewed {renewed}"),
        None => "held by no host".to_owned(),
    };
    let changes = counted(election.transitions, "change of holder", "changes of holder");
    let mut text = format!("{}: {held}; {changes}", election.lease);
    if let Some(error) = &election.error {
        text += &format!("; the last request failed: {error}");
    }
    Some(text)
}

fn source(status: &Status) -> Option<String> {
    let source = status.source.as_ref()?;
    let some = source.objects.iter().filter(|(_, count)| **count > 0);
    let objects: Vec<String> = some.map(|(kind, count)| format!("{count} {kind}")).collect();
    let some = objects.join(", ");
    let objects = if some.is_empty() { "no objects" } else { &some };
    let state = match (source.synced, source.complete) {
        (false, _) => "not looked at yet",
        (true, true) => "complete",
        (true, false) => "not complete: what is missing is kept",
    };
    let last = match source.changed_ms {
        None => "no change yet".to_owned(),
        Some(at_ms) => format!("last change {}", since(at_ms, status.host.now_ms)),
    };
    Some(format!("{}: {objects}; {state}; {last}", source.kind))
}

fn queue(status: &Status) -> Option<String> {
    let queue = status.queue?;
    let oldest = match queue.oldest_waiting_ms {
        0 => String::new(),
        ms => format!("; the oldest waits for {}", passed(ms)),
    };
    Some(in_queue(&queue) + &oldest)
}

/// `1 ready, 2 delayed, 3 running (1 asleep)`.
pub(in crate::commands) fn in_queue(queue: &QueueShown) -> String {
    let ready = queue.ready;
    let delayed = queue.delayed;
    let running = queue.running;
    let asleep = queue.sleeping;
    format!("{ready} ready, {delayed} delayed, {running} running ({asleep} asleep)")
}

/// The operations in flight, and the progress of each migration.
fn negs(status: &Status) -> Vec<String> {
    let Some(negs) = &status.negs else { return Vec::new() };
    let operations = counted(negs.operations, "operation", "operations");
    let endpoints = counted(negs.endpoints, "endpoint", "endpoints");
    let done = format!("{} attached, {} detached", negs.attached, negs.detached);
    let mut lines = vec![format!("negs      {operations} on {endpoints} in flight; {done}")];
    for MigrationShown { key, migration } in &negs.migrations {
        let text = migration_text(migration, status.host.now_ms);
        lines.push(format!("migrates  {key}: {text}"));
    }
    let more = negs.migration_count.saturating_sub(negs.migrations.len());
    lines.extend(and_more(more, " that migrate"));
    for key in &negs.error_states {
        lines.push(format!("error     {key}: {}", in_error_state(key)));
    }
    let more = negs.error_state_count.saturating_sub(negs.error_states.len());
    lines.extend(and_more(more, " in their error state"));
    for operation in negs.in_flight.iter().take(IN_FLIGHT_MAX) {
        let text = operation_text(operation, status.host.now_ms);
        lines.push(format!("in flight {}: {text}", operation.key));
    }
    lines.extend(and_more(negs.operations.saturating_sub(IN_FLIGHT_MAX), " operations"));
    lines
}

fn in_error_state(key: &str) -> String {
    let key = printable(key);
    format!("in its error state, until `trueup neg error-state {key} off`")
}

/// The activity in the NEGs of one key, one line each.
#[cfg_attr(not(feature = "top"), expect(dead_code, reason = "`top` alone shows them"))]
pub(in crate::commands) fn negs_of(key: &KeyShown, status: &Status) -> Vec<String> {
    let now_ms = status.host.now_ms;
    let negs = status.negs.iter().filter(|_| key.guest == neg::NAME);
    let migrations = negs.clone().flat_map(|negs| &negs.migrations);
    let migrations = migrations.filter(|shown| shown.key == key.key);
    let in_flight = negs.flat_map(|negs| &negs.in_flight);
    let in_flight = in_flight.filter(|operation| operation.key == key.key);
    let in_error_state = is_in_error_state(key, status).then(|| format!("error     {}", in_error_state(&key.key)));
    let migrates = migrations.map(|shown| format!("migrates  {}", migration_text(&shown.migration, now_ms)));
    let flies = in_flight.map(|operation| format!("in flight {}", operation_text(operation, now_ms)));
    in_error_state.into_iter().chain(migrates).chain(flies).collect()
}

fn is_in_error_state(key: &KeyShown, status: &Status) -> bool {
    let mut negs = status.negs.iter().filter(|_| key.guest == neg::NAME);
    negs.any(|negs| negs.error_states.contains(&key.key))
}

/// `operation 7 detaches 60 endpoints at zone-a/default, for 12 s`.
fn operation_text(of: &OperationShown, now_ms: u64) -> String {
    let endpoints = counted(of.endpoints, "endpoint", "endpoints");
    let at = printable(&of.at);
    let number = of.operation;
    let action = &of.action;
    let since = passed(now_ms.saturating_sub(of.since_ms));
    format!("operation {number} {action}es {endpoints} at {at}, for {since}")
}

/// `540 of 600 endpoints to move, goes on in 42 s`.
fn migration_text(of: &Migration, now_ms: u64) -> String {
    let mut text = format!("{} of {} endpoints to move", of.migrating, of.of);
    if !of.detaching_at.is_empty() {
        let places: Vec<_> = of.detaching_at.iter().map(|place| printable(place)).collect();
        text += &format!(", detaching at {}", places.join(", "));
    }
    match of.paused_until_ms {
        Some(until_ms) => text += &format!(", goes on in {}", passed(until_ms.saturating_sub(now_ms))),
        None if of.paused => text += ", goes on when that has ended",
        None => {}
    }
    text
}

/// `` `node-a` has number 3; 50 nodes numbered; 12 services to render; they wait for an approval ``.
fn node(status: &Status) -> Option<String> {
    let node = status.node.as_ref()?;
    let nodes = counted(node.nodes, "node", "nodes");
    let services = counted(node.services, "service", "services");
    let number = match node.number {
        None => "no number".to_owned(),
        Some(number) => format!("number {number}; {nodes} numbered"),
    };
    let mut text = format!("`{}` has {number}; {services} to render", node.name);
    text.extend(node.waits_for.iter().map(|what| format!("; they wait for {what}")));
    Some(text)
}

fn pods(status: &Status) -> Option<String> {
    let pods = status.pods.as_ref()?;
    let state = if pods.serving { "served" } else { "not served" };
    let mut text = format!("`{}` {state}", pods.instance);
    // Without its store the host knows no address, and the last line says why.
    if pods.serving {
        text += &format!(": {}, {} free", pods.stats, pods.stats.free);
        if pods.stats.resting > 0 {
            text += &format!(", {} resting", pods.stats.resting);
        }
        text.extend(pods.error.iter().map(|error| format!("; {error}")));
    }
    text.extend(pods.next_try_in_ms.map(|ms| format!("; next try in {}", passed(ms))));
    Some(text)
}

fn counts(status: &Status) -> String {
    let of = |state: KeyState| status.keys.get(&state).copied().unwrap_or_default();
    let is_shown = |state: &KeyState| match state {
        KeyState::Gone => false,
        state => of(*state) > 0 || *state == KeyState::True,
    };
    let shown = KeyState::ALL.iter().copied().rev().filter(is_shown);
    let shown = shown.map(|state| format!("{} {}", of(state), state.name().replace('-', " ")));
    shown.collect::<Vec<_>>().join(", ")
}

fn guests(guests: &[GuestShown]) -> Vec<String> {
    let shadow = |of: &ShadowShown| {
        let promoted = promoted(of.promoted_after);
        format!("{}: {} of {} the same{promoted}", of.candidate, of.same, of.compared)
    };
    let columns: [Column<'_, GuestShown>; 11] = [
        ("GUEST", &|of| of.guest.clone()),
        ("VERSION", &|of| format!("{}@{}", of.name, of.version)),
        ("REVISION", &|of| or_dash(of.revision)),
        ("DIGEST", &|of| output::short(&of.digest).to_owned()),
        ("WORKING", &|of| of.working.to_string()),
        ("RESTING", &|of| of.resting.to_string()),
        ("CALLS", &|of| of.calls.to_string()),
        ("FAILED", &|of| of.failures.to_string()),
        ("SET ASIDE", &|of| of.quarantined.to_string()),
        ("MEMORY", &|of| bytes(of.memory_bytes)),
        ("SHADOW", &|of| or_dash(of.shadow.as_ref().map(shadow))),
    ];
    output::columns(columns, guests)
}

fn key_table<'a>(keys: impl Iterator<Item = &'a KeyShown>, status: &Status) -> Vec<String> {
    let columns: [Column<'_, KeyShown>; 7] = [
        ("KEY", &|key| key.key.clone()),
        ("GUEST", &|key| key.guest.clone()),
        ("STATE", &|key| key.state.name().replace('-', " ")),
        ("SINCE", &|key| since(key.since_ms, status.host.now_ms)),
        ("FAILURES", &|key| key.failures.to_string()),
        ("NEXT TRY", &next_try),
        ("WHAT", &|key| what(key, status)),
    ];
    output::columns(columns, keys)
}

/// When the host works on a key next, if known.
pub(in crate::commands) fn next_try(key: &KeyShown) -> String {
    match (key.state, key.next_try_in_ms) {
        (KeyState::Failed | KeyState::Queued, Some(0)) => "when it is its turn".to_owned(),
        (KeyState::Failed | KeyState::Queued, Some(ms)) => format!("in {}", passed(ms)),
        (KeyState::Failed | KeyState::SetAside, None) => "when it changes".to_owned(),
        _ => "-".to_owned(),
    }
}

/// Its error, that it is in its error state, the progress of its migration, or what is in service.
pub(in crate::commands) fn what(key: &KeyShown, status: &Status) -> String {
    if key.state == KeyState::Held {
        return "kept as it is: what can't be read of the source may name it".to_owned();
    }
    if key.error.is_none() && is_in_error_state(key, status) {
        return in_error_state(&key.key);
    }
    let negs = status.negs.iter().filter(|_| key.guest == neg::NAME);
    let mut migrations = negs.flat_map(|negs| &negs.migrations);
    let migration = migrations.find(|shown| shown.key == key.key);
    match (&key.error, migration, key.in_service.as_slice()) {
        (Some(error), ..) => printable(error),
        (None, Some(shown), _) => migration_text(&shown.migration, status.host.now_ms),
        (None, None, []) => "-".to_owned(),
        (None, None, serving) => format!("in service: {}", printable(&serving.join(", "))),
    }
}

/// `12.3 MiB`.
pub(in crate::commands) fn bytes(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((bits, unit)) = UNITS.iter().find(|(bits, _)| bytes >> bits > 0) else {
        return format!("{bytes} B");
    };
    // In tenths, so that rounding never reaches the next unit.
    let tenths = (u128::from(bytes) * 10) >> bits;
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// `12 s ago`.
pub(in crate::commands) fn since(at_ms: u64, now_ms: u64) -> String {
    format!("{} ago", passed(now_ms.saturating_sub(at_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0, 1023, 1024, 1536, 1 << 20, 5 << 30].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 GiB"]
        );
        assert_eq!(
            [0, 9_999, 10_000, 119_999, 120_000, 7_200_000, 864_000_000].map(passed),
            ["0.0 s", "9.9 s", "10 s", "119 s", "2 min", "2 h", "10 d"]
        );
    }

    #[test]
    fn a_migration_says_how_far_it_is_and_what_it_waits_for() {
        let mut migration = Migration {
            migrating: 540,
            of: 600,
            ..Migration::default()
        };
        assert_eq!(migration_text(&migration, 1_000), "540 of 600 endpoints to move");
        migration.paused = true;
        migration.detaching_at.insert("a/s".to_owned());
        assert_eq!(
            migration_text(&migration, 1_000),
            "540 of 600 endpoints to move, detaching at a/s, goes on when that has ended"
        );
        migration.detaching_at.clear();
        migration.paused_until_ms = Some(43_000);
        assert_eq!(
            migration_text(&migration, 1_000),
            "540 of 600 endpoints to move, goes on in 42 s"
        );
        let operation = OperationShown {
            operation: 7,
            action: "detach".to_owned(),
            at: "a/s".to_owned(),
            endpoints: 60,
            since_ms: 1_000,
            ..OperationShown::default()
        };
        assert_eq!(
            operation_text(&operation, 13_000),
            "operation 7 detaches 60 endpoints at a/s, for 12 s"
        );
    }
}
