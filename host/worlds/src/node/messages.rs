//! The lines about this node's number and its Services.

use trueup_base::text::counted;
use trueup_work::event::{Own, Said, seconds};

use super::Event;

/// The event of a run.
pub(super) fn own(event: &Event) -> Own {
    Own::new("node", event, Some(message(event)))
}

fn message(event: &Event) -> Said {
    match event {
        Event::Numbered { node, id } => Said::outcome(node, "numbered", &id.to_string()),
        Event::NumberedAgain { node, id } => {
            Said::outcome(&format!("nodesync/{node}"), "true", &format!("it has number {id}"))
        }
        Event::NotNumbered {
            node,
            error,
            again_in_ms,
        } => Said::failed(&format!("nodesync/{node}"), error, *again_in_ms),
        Event::Rendered {
            node,
            services,
            renderers,
        } => {
            let services = counted(*services, "service", "services");
            let what = format!("{services} rendered by {}", names(renderers));
            Said::outcome(node, "true", &what)
        }
        Event::Applied {
            node,
            object,
            renderers,
        } => Said::outcome(node, "true", &format!("{object} applied by {}", names(renderers))),
        Event::NotRendered {
            node,
            error,
            again_in_ms,
        } => Said::failed(&format!("service/{node}"), error, *again_in_ms),
        Event::InStep { renderer } => Said::outcome(renderer, "true", "it has everything"),
        Event::OutOfStep {
            renderer,
            error: Some(error),
            again_in_ms,
        } => {
            let at = again_in_ms.map_or_else(|| "at once".to_owned(), |ms| format!("in {}", seconds(ms)));
            Said::Warning(format!("{renderer}: {error}; it gets everything again {at}"))
        }
        Event::OutOfStep {
            renderer, error: None, ..
        } => Said::outcome(renderer, "waits", "it is to be told everything"),
        Event::SetAside { what, error, failures } => {
            Said::set_aside(what, error, *failures, "until it or the guest changes")
        }
        Event::Problem(problem) => Said::Warning(problem.clone()),
    }
}

fn names(renderers: &[String]) -> String {
    if renderers.is_empty() {
        "no renderer".to_owned()
    } else {
        renderers.join(", ")
    }
}
