//! The lines about this node's number and its Services.

use trueup_base::text::counted;
use trueup_work::event::{Message, WorldEvent, seconds};

use super::Event;

/// The event of a run.
pub(super) fn own(event: &Event) -> WorldEvent {
    WorldEvent::new("node", event, Some(message(event)))
}

fn message(event: &Event) -> Message {
    match event {
        Event::Numbered { node, id } => Message::outcome(node, "numbered", &id.to_string()),
        Event::NumberedAgain { node, id } => {
            Message::outcome(&format!("nodesync/{node}"), "true", &format!("it has number {id}"))
        }
        Event::NotNumbered {
            node,
            error,
            again_in_ms,
        } => Message::failed(&format!("nodesync/{node}"), error, *again_in_ms),
        Event::Rendered {
            node,
            services,
            renderers,
        } => {
            let services = counted(*services, "service", "services");
            let what = format!("{services} rendered by {}", names(renderers));
            Message::outcome(node, "true", &what)
        }
        Event::Applied {
            node,
            object,
            renderers,
        } => Message::outcome(node, "true", &format!("{object} applied by {}", names(renderers))),
        Event::NotRendered {
            node,
            error,
            again_in_ms,
        } => Message::failed(&format!("service/{node}"), error, *again_in_ms),
        Event::InStep { renderer } => Message::outcome(renderer, "true", "it has everything"),
        Event::OutOfStep {
            renderer,
            error: Some(error),
            again_in_ms,
        } => {
            let at = again_in_ms.map_or_else(|| "at once".to_owned(), |ms| format!("in {}", seconds(ms)));
            Message::Warning(format!("{renderer}: {error}; it gets everything again {at}"))
        }
        Event::OutOfStep {
            renderer, error: None, ..
        } => Message::outcome(renderer, "waits", "it gets everything again"),
        Event::SetAside {
            what,
            error,
            failures,
            journal,
        } => {
            let until = format!("until it or the guest changes, its recording is {}", journal.display());
            Message::set_aside(what, error, *failures, &until)
        }
        Event::Problem(problem) => Message::Warning(problem.clone()),
    }
}

fn names(renderers: &[String]) -> String {
    if renderers.is_empty() {
        "no renderer".to_owned()
    } else {
        renderers.join(", ")
    }
}
