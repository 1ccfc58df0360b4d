//! The requests of an instance while it begins in the active instance's current state, and their answers. They are not
//! recorded if the active instance did not begin there.
//!
//! A guest with timers schedules waiting timers anew in `restore`, and later calls name timers by their ids. This
//! module therefore begins the active guest once more, with the ids that its instance has.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;
use trueup_base::clock::VirtualClock;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::reading::parsed;
use trueup_capabilities::timers::Timers;
use trueup_capabilities::{Backends, Host};
use trueup_instance::{Instance, Instances, REPLAY_GUARD, Start};
use trueup_journal::{Ask, Entry, Event, Header, Tape};

/// The call that fires a timer.
const ON_TIMER: &str = "timer-events.on-timer";

/// A number among the arguments of a call or a question.
fn number(args: &RawValue, name: &str) -> Option<u64> {
    parsed::<Value>(args)?.get(name)?.as_u64()
}

/// The requests of the active guest while it begins with this header at this time, with these waiting timers (when
/// each is due, and its id). `None` if it asks more than can be answered here, or does not begin.
pub(super) async fn asked(
    active: &Instances,
    header: &Header,
    now_ms: u64,
    timers: &[(u64, u64)],
) -> Option<Vec<Entry>> {
    let settings: Value = parsed(&header.settings)?;
    let backends = Backends {
        clock: Arc::new(VirtualClock::new(now_ms)),
        ..Instances::trial()
    };
    let identity = active.identity("shadow");
    let mut host = Host::new(identity, Tape::memory(), Grants::default(), backends, active.limits);
    host.timers = Timers::again(timers);
    let start = Start {
        settings: &settings,
        snapshot: header.snapshot.as_deref(),
        cpu_max: REPLAY_GUARD,
    };
    let begun = Instance::start(&active.engine, &active.program, host, start).await;
    let entries = begun.ok()?.host_mut().tape.take_entries();
    let is_time = |entry: &Entry| match &entry.event {
        Event::Ask(ask) => ask.name.starts_with("timers.") || ask.name.starts_with("clock."),
        _ => false,
    };
    entries.iter().all(is_time).then_some(entries)
}

/// The timers that wait after these entries, which start where an instance begins: when each is due, and its id.
pub(super) fn waiting(begun_ms: u64, entries: impl IntoIterator<Item = Entry>) -> Vec<(u64, u64)> {
    let (mut now_ms, mut due) = (begun_ms, BTreeMap::new());
    for entry in entries {
        let Ask { name, args, answer } = match entry.event {
            Event::Call(call) => {
                now_ms = call.at_ms;
                let fired = number(&call.args, "timer").filter(|_| call.name == ON_TIMER);
                fired.and_then(|timer| due.remove(&timer));
                continue;
            }
            Event::Ask(ask) => ask,
            _ => continue,
        };
        let answered = answer.and_then(|answer| answer.get().parse::<u64>().ok());
        match (name.as_str(), answered) {
            ("clock.now-ms", Some(now)) => now_ms = now,
            ("timers.schedule", Some(timer)) => {
                let delay_ms = number(&args, "delay_ms");
                due.extend(delay_ms.map(|delay_ms| (timer, now_ms.saturating_add(delay_ms))));
            }
            ("timers.cancel", _) => {
                number(&args, "timer").and_then(|timer| due.remove(&timer));
            }
            _ => {}
        }
    }
    due.into_iter().map(|(timer, due_ms)| (due_ms, timer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_timers_are_those_scheduled_and_neither_fired_nor_cancelled() {
        let lines = [
            r#"{"n":1,"ask":"timers.schedule","args":{"delay_ms":5},"answer":1}"#,
            r#"{"n":2,"at_ms":100,"call":"syncer.sync","args":{}}"#,
            r#"{"n":3,"ask":"timers.schedule","args":{"delay_ms":20},"answer":2}"#,
            r#"{"n":4,"ask":"clock.now-ms","args":{},"answer":103}"#,
            r#"{"n":5,"ask":"timers.schedule","args":{"delay_ms":20},"answer":3}"#,
            r#"{"n":6,"ask":"timers.schedule","args":{"delay_ms":20},"answer":4}"#,
            r#"{"n":7,"ask":"timers.cancel","args":{"timer":4},"answer":true}"#,
            r#"{"n":8,"result":null}"#,
            r#"{"n":9,"at_ms":120,"call":"timer-events.on-timer","args":{"timer":2}}"#,
            r#"{"n":10,"result":true}"#,
        ];
        let entries = lines.map(|line| Entry::parse(line).unwrap());
        assert_eq!(waiting(50, entries), [(55, 1), (123, 3)]);
        let other = r#"{"n":11,"at_ms":121,"call":"syncer.sync","args":{"timer":1}}"#;
        let fired = r#"{"n":12,"at_ms":122,"call":"timer-events.on-timer","args":{"timer":1}}"#;
        let after = |last: &str| waiting(50, [lines[0], last].map(|line| Entry::parse(line).unwrap()));
        assert_eq!((after(other), after(fired)), (vec![(55, 1)], vec![]));
    }
}
