//! The messages about this node's number and its Services.

use trueup_runtime::worlds::node::Event;

use super::{failed, seconds, times};
use crate::output;

/// One line for each event: the outcome to stdout, warnings to stderr.
pub(super) fn say(event: &Event) {
    let line = |name: &str, what: &str, more: &str| output::line_if_read(&format!("{name:<24} {what:<8} {more}"));
    match event {
        Event::Numbered { node, id } => line(node, "numbered", &id.to_string()),
        Event::NumberedAgain { node, id } => line(&format!("nodesync/{node}"), "true", &format!("it has number {id}")),
        Event::NotNumbered {
            node,
            error,
            again_in_ms,
        } => failed(&format!("nodesync/{node}"), error, *again_in_ms),
        Event::Rendered {
            node,
            services,
            renderers,
        } => {
            let by = names(renderers);
            line(
                node,
                "true",
                &format!("{} rendered by {by}", counted(*services, "service")),
            );
        }
        Event::Applied {
            node,
            object,
            renderers,
        } => line(node, "true", &format!("{object} applied by {}", names(renderers))),
        Event::NotRendered {
            node,
            error,
            again_in_ms,
        } => failed(&format!("service/{node}"), error, *again_in_ms),
        Event::InStep { renderer } => line(renderer, "true", "it has everything"),
        Event::OutOfStep {
            renderer,
            error: Some(error),
            again_in_ms,
        } => {
            let at = again_in_ms.map_or_else(|| "at once".to_owned(), |ms| format!("in {}", seconds(ms)));
            output::talk(&format!("warning: {renderer}: {error}; it gets everything again {at}"));
        }
        Event::OutOfStep {
            renderer, error: None, ..
        } => line(renderer, "waits", "it is to be told everything"),
        Event::SetAside { what, error, failures } => line(
            what,
            "failed",
            &format!(
                "{error}; set aside after {} until it or the guest changes",
                times(*failures)
            ),
        ),
        Event::Problem(problem) => output::talk(&format!("warning: {problem}")),
    }
}

fn names(renderers: &[String]) -> String {
    if renderers.is_empty() {
        "no renderer".to_owned()
    } else {
        renderers.join(", ")
    }
}

fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}
