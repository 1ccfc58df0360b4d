use proptest::prelude::*;
use trueup_capabilities::renderer::TrafficPolicy;

use super::*;

fn service(name: &str, port: u16) -> ContivService {
    ContivService {
        id: ObjectId {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        },
        traffic_policy: TrafficPolicy::ClusterWide,
        session_affinity_timeout_s: u32::from(port),
        cluster_ips: Vec::new(),
        external_ips: Vec::new(),
        ports: Vec::new(),
        backends: Vec::new(),
    }
}

fn add(name: &str, port: u16) -> Call {
    let service = service(name, port);
    Call::AddService(OfService { service })
}

fn resync(services: &[(&str, u16)]) -> Call {
    let event = ResyncEvent {
        node_ips: Vec::new(),
        services: services.iter().map(|(name, port)| service(name, *port)).collect(),
        frontend_ifs: Vec::new(),
        backend_ifs: Vec::new(),
    };
    Call::Resync(Resync { event })
}

/// Renderers that have what they took, and refuse what the test says.
struct World {
    states: RendererStates,
    has: Vec<Option<Expected>>,
}

impl World {
    fn new(renderers: usize) -> Self {
        Self {
            states: RendererStates::new(renderers),
            has: (0..renderers).map(|_| None).collect(),
        }
    }

    /// The second of two renderers refused the first resync, and now gets one of its own.
    fn in_a_resync() -> Self {
        let mut world = Self::new(2);
        world.call(&resync(&[]), &[1]).unwrap_err();
        world.call(&resync(&[]), &[]).unwrap();
        world.begin_resync(1);
        world
    }

    fn give(&mut self, renderer: usize, call: &Call) {
        self.has[renderer].get_or_insert_with(Expected::default).take(call);
    }

    /// One call of the processor. The renderers in `refuse` refuse their first call.
    fn call(&mut self, call: &Call, refuse: &[usize]) -> Result<(), String> {
        let mut round = self.states.begin(call);
        for renderer in 0..self.has.len() {
            let refuses = refuse.contains(&renderer);
            match self.states.action(renderer, &round) {
                Action::PassOver => continue,
                Action::ResyncThenCall(_) if refuses => {
                    self.states.refused(renderer, &mut round, "no");
                    continue;
                }
                Action::ResyncThenCall(event) => {
                    self.give(renderer, &Call::Resync(Resync { event }));
                    self.states.took_resync_first(renderer);
                }
                Action::Call => {}
            }
            if refuses {
                self.states.refused(renderer, &mut round, "no");
            } else {
                self.give(renderer, call);
                self.states.took(renderer, &mut round);
            }
        }
        self.states.end(call, round)
    }

    fn retry(&mut self, refuse: &[usize]) {
        for renderer in self.states.out_of_step() {
            if refuse.contains(&renderer) {
                self.states.failed(renderer);
                continue;
            }
            self.begin_resync(renderer);
            self.call_resync(renderer);
        }
    }

    fn begin_resync(&mut self, renderer: usize) {
        let event = self.states.begin_resync(renderer).unwrap();
        self.give(renderer, &Call::Resync(Resync { event }));
    }

    /// Gives a renderer what it missed until nothing is left. Returns the number of calls.
    fn call_resync(&mut self, renderer: usize) -> usize {
        let mut asked = 0;
        loop {
            let calls = self.states.next_missed(renderer);
            if calls.is_empty() {
                return asked;
            }
            asked += calls.len();
            for call in calls {
                self.give(renderer, &call);
            }
        }
    }

    fn services(&self, renderer: usize) -> Vec<(String, u32)> {
        let has = self.has[renderer].as_ref().unwrap();
        let services = has.services.values();
        services
            .map(|service| (service.id.name.clone(), service.session_affinity_timeout_s))
            .collect()
    }
}

#[test]
fn a_refusal_causes_a_full_resync_of_that_renderer_alone() {
    let mut world = World::new(2);
    assert_eq!(world.call(&resync(&[]), &[]), Ok(()));
    assert_eq!(world.call(&add("a", 1), &[1]), Err("no".to_owned()));
    world.states.settle();
    assert_eq!(world.states.out_of_step(), [1]);
    // It failed: until its retry it is passed over, and does not count.
    assert_eq!(world.call(&add("a", 1), &[]), Ok(()));
    assert_eq!(world.services(0), [("a".to_owned(), 1)]);
    assert_eq!(world.services(1), []);
    world.states.settle();
    world.retry(&[]);
    assert_eq!(world.services(1), [("a".to_owned(), 1)]);
    assert_eq!(world.states.out_of_step(), [0_usize; 0]);
}

#[test]
fn one_that_is_new_gets_a_resync_then_the_call() {
    let mut world = World::new(1);
    world.call(&resync(&[("a", 1)]), &[]).unwrap();
    world.states.is_new(0);
    world.has[0] = None;
    world.call(&add("b", 2), &[]).unwrap();
    assert_eq!(world.services(0), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
}

#[test]
fn a_renderer_that_took_a_refused_call_is_resynced_if_not_retried() {
    let mut world = World::new(2);
    world.call(&resync(&[]), &[]).unwrap();
    world.call(&add("a", 1), &[1]).unwrap_err();
    world.states.settle();
    // The inputs went back: the processor's next call requests nothing.
    world.states.settle();
    assert_eq!(world.states.out_of_step(), [0, 1]);
    world.retry(&[]);
    assert_eq!((world.services(0), world.services(1)), (vec![], vec![]));
}

#[test]
fn a_call_without_a_receiver_is_refused() {
    let mut world = World::new(1);
    world.call(&resync(&[]), &[]).unwrap();
    world.call(&add("a", 1), &[0]).unwrap_err();
    // It also refuses the resync that comes first.
    world.call(&add("a", 1), &[0]).unwrap_err();
    assert!(world.call(&add("a", 1), &[]).unwrap_err().contains("gets everything"));
    world.retry(&[]);
    assert_eq!(world.call(&add("a", 1), &[]), Ok(()));
    let mut world = World::new(1);
    world.call(&resync(&[]), &[]).unwrap();
    world.states.set_aside(0);
    assert_eq!(world.call(&add("a", 1), &[]), Err(ALL_SET_ASIDE.to_owned()));
}

#[test]
fn a_permanent_refusal_by_the_only_renderer_does_not_block_later_calls() {
    let mut world = World::new(1);
    world.call(&resync(&[]), &[]).unwrap();
    // The processor repeats what is pending with each change, in order.
    for port in 1..9 {
        world.call(&add("a", 1), &[0]).unwrap_err();
        assert_eq!(world.call(&add("b", port), &[]), Ok(()));
        world.states.settle();
    }
    assert_eq!(world.services(0), [("b".to_owned(), 8)]);
    // If it refuses one after another, they wait for its retry instead of costing a resync each.
    for name in ["a", "c", "d", "e", "f"] {
        let taken = world.call(&add(name, 1), &[]);
        assert_eq!(taken, Ok(()));
        world.states.failed(0);
    }
    assert_eq!(world.states.resyncs, RESYNCS_MAX);
    world.call(&add("g", 1), &[]).unwrap_err();
    world.states.settle();
    assert_eq!(world.call(&add("g", 1), &[]), Ok(()));
}

#[test]
fn one_that_is_set_aside_is_neither_called_nor_waited_for() {
    let mut world = World::new(2);
    world.call(&resync(&[]), &[1]).unwrap_err();
    world.states.set_aside(1);
    assert_eq!(world.call(&add("a", 1), &[]), Ok(()));
    assert_eq!(world.states.out_of_step(), [0_usize; 0]);
    assert!(world.has[1].is_none());
}

#[test]
fn changes_during_a_resync_follow_it_without_another_resync() {
    let mut world = World::new(2);
    world.call(&resync(&[]), &[1]).unwrap_err();
    world.call(&resync(&[("a", 1)]), &[]).unwrap();
    world.begin_resync(1);
    assert_eq!(world.states.begin_resync(1), None, "it is being told");
    world.call(&add("b", 2), &[]).unwrap();
    // Repeating the same resync gives nothing to catch up on; neither does a call that no renderer took.
    world.call(&resync(&[("a", 1), ("b", 2)]), &[]).unwrap();
    world.call(&add("c", 3), &[0]).unwrap_err();
    world.states.settle();
    assert_eq!(world.services(1), [("a".to_owned(), 1)]);
    assert_eq!(world.call_resync(1), 1);
    assert!(world.states.all()[1].in_step);
    assert_eq!(world.services(1), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
}

#[test]
fn another_resync_makes_up_for_what_was_missed_before_it() {
    let mut world = World::in_a_resync();
    world.call(&add("b", 2), &[]).unwrap();
    world.call(&resync(&[("c", 3)]), &[]).unwrap();
    world.call(&add("d", 4), &[]).unwrap();
    assert_eq!(world.call_resync(1), 2);
    assert_eq!(world.services(1), [("c".to_owned(), 3), ("d".to_owned(), 4)]);
}

#[test]
fn who_missed_too_much_is_told_everything_once_more() {
    let mut world = World::in_a_resync();
    for port in 0..=u16::try_from(MISSED_MAX).unwrap() {
        world.call(&add("a", port), &[]).unwrap();
    }
    world.call(&add("b", 1), &[]).unwrap();
    assert_eq!(world.call_resync(1), 1);
    assert!(world.states.all()[1].in_step);
    assert_eq!(world.services(1), world.services(0));
}

#[test]
fn a_failed_resync_waits_for_its_retry_if_another_renderer_takes_it() {
    let mut world = World::new(2);
    world.call(&resync(&[]), &[1]).unwrap_err();
    assert_eq!(world.call(&resync(&[("a", 1)]), &[]), Ok(()));
    assert_eq!(world.has[1], None);
    world.retry(&[]);
    assert_eq!(world.services(1), [("a".to_owned(), 1)]);
    // If all failed, each gets it until one takes it.
    let mut world = World::new(3);
    world.call(&resync(&[]), &[0, 1, 2]).unwrap_err();
    assert_eq!(world.call(&resync(&[("a", 1)]), &[0]), Ok(()));
    assert_eq!(world.services(1), [("a".to_owned(), 1)]);
    assert_eq!(world.has[2], None);
    world.retry(&[]);
    assert_eq!(world.services(0), world.services(1));
    assert_eq!(world.services(2), world.services(1));
}

/// A processor of one set of services: what it has, and what renderers acknowledged.
#[derive(Debug, Clone)]
enum Op {
    Put(u8, u16),
    Delete(u8),
    New(usize),
    Retry,
    Resync,
    /// A full resync begins; what follows comes before the renderer took it.
    BeginTelling(usize),
    EndTelling(usize),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// After any calls, with refusals by any renderer, and a quiet retry, all have what the processor believes they
    /// have.
    #[test]
    fn all_end_with_what_the_processor_has(
        ops in prop::collection::vec((
            prop_oneof![
                3 => (0_u8..4, 1_u16..4).prop_map(|(name, port)| Op::Put(name, port)),
                2 => (0_u8..4).prop_map(Op::Delete),
                1 => (0_usize..3).prop_map(Op::New),
                1 => Just(Op::Retry),
                1 => Just(Op::Resync),
                2 => (0_usize..3).prop_map(Op::BeginTelling),
                2 => (0_usize..3).prop_map(Op::EndTelling),
            ],
            prop::collection::vec(0_usize..3, 0..3),
        ), 0..40),
    ) {
        let mut world = World::new(3);
        world.call(&resync(&[]), &[]).unwrap();
        let mut wanted: BTreeMap<String, u16> = BTreeMap::new();
        let mut acknowledged: BTreeMap<String, u16> = BTreeMap::new();
        // Like the guest: repeats a refused resync before anything else.
        let mut to_resync = false;
        for (op, refuse) in ops.into_iter().chain((0..3).map(|_| (Op::Retry, Vec::new()))) {
            match op {
                Op::Put(name, port) => { wanted.insert(format!("s{name}"), port); }
                Op::Delete(name) => { wanted.remove(&format!("s{name}")); }
                Op::New(renderer) => {
                    // A version is handed over when its renderer's resync has ended.
                    world.call_resync(renderer);
                    world.states.is_new(renderer);
                    world.has[renderer] = None;
                    continue;
                }
                Op::Retry => {
                    for renderer in 0..3 {
                        world.call_resync(renderer);
                    }
                    world.retry(&refuse);
                }
                Op::Resync => to_resync = true,
                Op::BeginTelling(renderer) => {
                    if let Some(event) = world.states.begin_resync(renderer) {
                        world.give(renderer, &Call::Resync(Resync { event }));
                    }
                }
                Op::EndTelling(renderer) => {
                    world.call_resync(renderer);
                }
            }
            if to_resync {
                let services: Vec<(&str, u16)> = wanted.iter().map(|(name, port)| (name.as_str(), *port)).collect();
                if world.call(&resync(&services), &refuse).is_ok() {
                    acknowledged.clone_from(&wanted);
                    to_resync = false;
                }
            }
            // Like the guest: exactly the differences, in order.
            let names: BTreeSet<String> = wanted.keys().chain(acknowledged.keys()).cloned().collect();
            for name in names.into_iter().filter(|_| !to_resync) {
                let call = match (acknowledged.get(&name), wanted.get(&name)) {
                    (None, Some(port)) => add(&name, *port),
                    (Some(old), Some(new)) if old != new => Call::UpdateService(UpdateService {
                        old: service(&name, *old),
                        new: service(&name, *new),
                    }),
                    (Some(old), None) => Call::DeleteService(OfService { service: service(&name, *old) }),
                    _ => continue,
                };
                if world.call(&call, &refuse).is_ok() {
                    match wanted.get(&name) {
                        Some(port) => acknowledged.insert(name, *port),
                        None => acknowledged.remove(&name),
                    };
                }
            }
            world.states.settle();
        }
        prop_assert_eq!(&acknowledged, &wanted);
        let wanted: Vec<(String, u32)> = wanted.into_iter().map(|(name, port)| (name, u32::from(port))).collect();
        for renderer in 0..3 {
            prop_assert!(world.states.all()[renderer].in_step);
            prop_assert_eq!(world.services(renderer), wanted.clone());
        }
    }
}
