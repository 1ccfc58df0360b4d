//! The lines about events of pod addresses.

use trueup_work::event::{Message, WorldEvent};
use trueup_work::status::pods::Event;

/// The event of a run.
pub(super) fn own(event: &Event) -> WorldEvent {
    WorldEvent::new("ipam", event, message(event))
}

fn message(event: &Event) -> Option<Message> {
    Some(match event {
        Event::Read { instance, stats } => Message::outcome(instance, "true", &stats.to_string()),
        Event::Listening { socket } => Message::Line(format!("listening on {}", socket.display())),
        Event::Released { instance, eni } => Message::outcome(
            instance,
            "released",
            &format!("network interface `{eni}` is unused and can be detached"),
        ),
        Event::Spool {
            instance,
            done,
            kept: 0,
        } => Message::outcome(
            instance,
            "spool",
            &format!("{done} left by pods that ended while no host ran: done"),
        ),
        Event::Spool { instance, done, kept } => Message::Warning(format!(
            "{instance}: of the releases left by pods that ended while no host ran, {done} are done and {kept} are tried \
             again"
        )),
        // `trueup status` shows these; the log has what the host refused to pods.
        Event::Counted { .. } => return None,
        Event::Ended { instance, error } => Message::Warning(format!("{instance}: {error}")),
        Event::RolledBack {
            instance,
            error,
            stands,
        } => Message::Warning(format!(
            "{instance}: what the store took is lost, and the requests that waited failed ({error}): going on from entry \
             {stands} of the journal"
        )),
        Event::ReadingFailed {
            instance,
            error,
            again_in_ms,
        } => Message::failed(instance, &format!("the store can't be read: {error}"), *again_in_ms),
        Event::Down {
            instance,
            error,
            again_in_ms,
        } => Message::failed(instance, error, *again_in_ms),
    })
}
