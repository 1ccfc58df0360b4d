//! The steps of one key's plan, read from the guest's requests: NEGs that are created; endpoints that are added,
//! removed, or change their address families.
//!
//! Pure. An endpoint is moved if it is detached, and attached again to the same NEG with one address more or less:
//! that is how a migration looks from outside, whichever guest decides it.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use trueup_capabilities::neg::simulated::Operation as UnderWay;
use trueup_capabilities::neg::{Endpoint, Error, NegRef};
use trueup_journal::{Ask, Event};

use super::{Action, Step};
use crate::neg::progress::{self, State};
use crate::neg::shown;

/// The steps of one key so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) steps: Vec<Step>,
    /// Operations that were started and have not ended, in the order of their numbers.
    pub(super) in_flight: BTreeMap<u64, UnderWay>,
    /// What was detached and not attached again, by NEG, port and node.
    detached: BTreeMap<Attachment, Vec<Out>>,
}

/// NEG, port and node.
type Attachment = (NegRef, String, String);

/// An endpoint that was detached, and the step that did it. `None` if that operation is still under way.
type Out = (Endpoint, Option<usize>);

/// The arguments of an operation.
#[derive(serde::Deserialize)]
struct Operation {
    neg: NegRef,
    endpoints: Vec<Endpoint>,
}

#[derive(serde::Deserialize)]
struct Ensure {
    neg: NegRef,
    subnet: String,
}

impl Story {
    /// A story that begins while these operations are under way.
    pub(super) fn beginning_with(under_way: &BTreeMap<u64, UnderWay>) -> Self {
        let mut story = Self {
            in_flight: under_way.clone(),
            ..Self::default()
        };
        for operation in under_way.values().filter(|operation| !operation.attaches) {
            for endpoint in &operation.endpoints {
                story.take_out(&operation.neg, endpoint, None);
            }
        }
        story
    }

    /// Takes in a request, made this long after the beginning.
    pub(super) fn read(&mut self, after_ms: u64, event: &Event) {
        let Event::Ask(ask) = event else { return };
        match ask.name.as_str() {
            "api.ensure" => self.ensured(after_ms, ask),
            "api.attach" => self.started(after_ms, ask, true),
            "api.detach" => self.started(after_ms, ask, false),
            _ => {}
        }
    }

    fn ensured(&mut self, after_ms: u64, ask: &Ask) {
        let (Some(Ok(true)), Some(Ensure { neg, subnet })) = (answer::<bool>(ask), parsed(&ask.args)) else {
            return;
        };
        self.steps.push(Step {
            after_ms,
            action: Action::Create,
            neg: neg.name,
            zone: neg.zone,
            subnet: Some(subnet),
            endpoints: Vec::new(),
            moved: 0,
        });
    }

    fn started(&mut self, after_ms: u64, ask: &Ask, attaches: bool) {
        let (Some(Ok(number)), Some(Operation { neg, endpoints })) = (answer::<u64>(ask), parsed(&ask.args)) else {
            return;
        };
        let at = self.steps.len();
        let mut moved = 0;
        for endpoint in &endpoints {
            if !attaches {
                self.take_out(&neg, endpoint, Some(at));
            } else if let Some(step) = self.put_back(&neg, endpoint) {
                moved += 1;
                if let Some(step) = step.and_then(|step| self.steps.get_mut(step)) {
                    step.moved += 1;
                }
            }
        }
        self.steps.push(Step {
            after_ms,
            action: if attaches { Action::Attach } else { Action::Detach },
            neg: neg.name.clone(),
            zone: neg.zone.clone(),
            subnet: None,
            endpoints: endpoints.clone(),
            moved,
        });
        let operation = UnderWay {
            attaches,
            neg,
            endpoints,
        };
        self.in_flight.insert(number, operation);
    }

    fn take_out(&mut self, neg: &NegRef, endpoint: &Endpoint, step: Option<usize>) {
        let at = (neg.clone(), endpoint.port.clone(), endpoint.node.clone());
        self.detached.entry(at).or_default().push((endpoint.clone(), step));
    }

    /// The step that detached the endpoint in its other form. `None` if no step did.
    fn put_back(&mut self, neg: &NegRef, endpoint: &Endpoint) -> Option<Option<usize>> {
        let at = (neg.clone(), endpoint.port.clone(), endpoint.node.clone());
        let there = self.detached.get_mut(&at)?;
        let at = there.iter().position(|(other, _)| shown::are_twins(other, endpoint))?;
        Some(there.swap_remove(at).1)
    }
}

fn parsed<T: DeserializeOwned>(text: &RawValue) -> Option<T> {
    serde_json::from_str(text.get()).ok()
}

fn answer<T: DeserializeOwned>(ask: &Ask) -> Option<Result<T, Error>> {
    parsed(ask.answer.as_ref()?)
}

/// The operations under way in a snapshot of the guest, by number. Empty if the guest uses another format. `settings`
/// has the name of each subnet's NEG.
pub(super) fn under_way(snapshot: &str, settings: &Value) -> BTreeMap<u64, UnderWay> {
    let State { operations, .. } = State::read(snapshot).unwrap_or_default();
    let endpoint = |(ip, ipv6, port, node)| Endpoint { ip, ipv6, port, node };
    let read = |operation: progress::Operation| {
        let name = settings.get("neg_names")?.get(&operation.subnet)?.as_str()?.to_owned();
        let under_way = UnderWay {
            attaches: operation.started().attaches,
            neg: NegRef {
                name,
                zone: operation.zone,
            },
            endpoints: operation.endpoints.into_iter().map(endpoint).collect(),
        };
        Some((operation.operation, under_way))
    };
    operations.into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoint(n: u8, is_dual: bool) -> Value {
        let ipv6 = if is_dual { format!("fd00::{n}") } else { String::new() };
        json!({"ip": format!("10.0.0.{n}"), "ipv6": ipv6, "port": "80", "node": "vm"})
    }

    fn ask(name: &str, args: &Value, answer: &Value) -> Event {
        let line = json!({"n": 1, "ask": name, "args": args, "answer": answer}).to_string();
        trueup_journal::Entry::parse(&line).unwrap().event
    }

    fn operation(name: &str, endpoints: &[Value], answer: &Value) -> Event {
        let args = json!({"neg": {"name": "web", "zone": "a"}, "endpoints": endpoints});
        ask(name, &args, answer)
    }

    /// Action, number of endpoints, and how many of these move.
    fn steps(story: &Story) -> Vec<(Action, usize, usize)> {
        let steps = story.steps.iter();
        steps
            .map(|step| (step.action, step.endpoints.len(), step.moved))
            .collect()
    }

    #[test]
    fn what_comes_back_with_one_address_more_is_moved_and_the_rest_is_not() {
        let mut story = Story::default();
        let made = json!({"neg": {"name": "web", "zone": "a"}, "subnet": "s"});
        story.read(0, &ask("api.ensure", &made, &json!({"Ok": true})));
        story.read(0, &ask("api.ensure", &made, &json!({"Ok": false})));
        story.read(0, &operation("api.attach", &[endpoint(9, true)], &json!({"Ok": 1})));
        let out = [endpoint(1, false), endpoint(2, false), endpoint(3, true)];
        story.read(0, &operation("api.detach", &out, &json!({"Ok": 2})));
        story.read(
            5,
            &operation("api.detach", &[endpoint(4, false)], &json!({"Err": "NotFound"})),
        );
        let back = [endpoint(1, true), endpoint(2, true), endpoint(3, true)];
        story.read(9, &operation("api.attach", &back, &json!({"Ok": 3})));
        assert_eq!(
            steps(&story),
            [
                (Action::Create, 0, 0),
                (Action::Attach, 1, 0),
                (Action::Detach, 3, 2),
                (Action::Attach, 3, 2),
            ]
        );
        assert_eq!(story.steps[3].after_ms, 9);
        assert_eq!(story.in_flight.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn what_is_under_way_already_moves_too() {
        let row = json!(["10.0.0.1", "", "80", "vm"]);
        let snapshot = json!({"version": 1, "operations": [
            {"operation": 7, "does": "detach", "zone": "a", "subnet": "s", "migration": true, "endpoints": [row]},
            {"operation": 8, "does": "attach", "zone": "a", "subnet": "unnamed", "migration": false, "endpoints": [row]},
        ]});
        let under_way = under_way(&snapshot.to_string(), &json!({"neg_names": {"s": "web"}}));
        assert_eq!(
            under_way.keys().copied().collect::<Vec<_>>(),
            [7],
            "the other's NEG has no name"
        );
        let mut story = Story::beginning_with(&under_way);
        story.read(0, &operation("api.attach", &[endpoint(1, true)], &json!({"Ok": 9})));
        assert_eq!(steps(&story), [(Action::Attach, 1, 1)]);
        assert_eq!(super::under_way("another guest's", &json!({})), BTreeMap::new());
    }
}
