//! Properties of any sequence of calls: the guest answers, writes and knows what the plain model does, and never breaks
//! what pods rely on.

use std::collections::{BTreeMap, BTreeSet};
use trueup_guest::Guest as _;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::model::{Model, number, read_back};
use crate::addresses::Cooling;
use crate::bindings::exports::trueup::ipam::datastore::{Error, IpamKey};
use crate::bindings::trueup::checkpoint::store::{Error as StoreError, Saved};
use crate::bindings::trueup::cri::sandboxes::Sandbox;
use crate::datastore::Datastore;
use crate::settings::Settings;
use crate::simulated::{Fault, Simulation};

/// How many sequences each property tries; `PROPTEST_CASES` sets more.
const CASES: u32 = 300;

/// One event.
#[derive(Clone, Debug)]
enum Step {
    AddEni(&'static str, i32, bool, bool),
    AddAddress(&'static str, &'static str),
    DelAddress(&'static str, &'static str, bool),
    RemoveEni(&'static str, bool),
    RemoveUnused(u32, u32),
    Assign(IpamKey),
    Unassign(IpamKey),
    Read,
    Advance(u64),
    GoBack(u64),
    Fault(Fault),
    Sandboxes(Vec<Sandbox>),
    /// a new build takes the snapshot
    Carry(Settings),
    /// a new instance without a snapshot
    Begin(Settings),
    /// the same, after another writer has stored this
    Replaced(Settings, Option<Saved>),
}

const ENIS: [&str; 3] = ["eni-a", "eni-b", ""];
const ADDRESSES: [&str; 6] = [
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.9",
    "10.0.0.10",
    "9.255.0.1",
    "255.255.255.255",
];

fn an_eni() -> impl Strategy<Value = &'static str> {
    prop_oneof![20 => select(&ENIS[..]), 1 => Just("eni-none")]
}

fn an_address() -> impl Strategy<Value = &'static str> {
    prop_oneof![30 => select(&ADDRESSES[..]), 1 => Just("10.0.0.01")]
}

fn key(network_name: &str, container_id: &str, if_name: &str) -> IpamKey {
    IpamKey {
        network_name: network_name.to_owned(),
        container_id: container_id.to_owned(),
        if_name: if_name.to_owned(),
    }
}

/// Few keys, some of them of one container, one fully migrated.
fn a_key() -> impl Strategy<Value = IpamKey> {
    select(vec![
        key("net", "c1", "eth0"),
        key("net", "c1", "eth0"),
        key("net", "c1", "eth1"),
        key("net", "c2", "eth0"),
        key("net", "c2", "eth0"),
        key("a\"b\\", "c3", "é\n"),
        key("_migrated-from-cri", "c2", "unknown"),
        key("net", "", "eth0"),
    ])
}

fn a_time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..200_u64, 1 => Just(u64::MAX)]
}

fn an_entry() -> impl Strategy<Value = String> {
    let change = |op: &'static str| {
        (a_key(), an_address(), a_time()).prop_map(move |(key, ipv4, at)| {
            let quoted = |text: &str| Value::from(text).to_string();
            let (network, container, interface) = (
                quoted(&key.network_name),
                quoted(&key.container_id),
                quoted(&key.if_name),
            );
            format!(
                r#"{{"op":"{op}","networkName":{network},"containerID":{container},"ifName":{interface},"ipv4":"{ipv4}","at":{at}}}"#
            )
        })
    };
    prop_oneof![
        6 => change("assign"),
        4 => change("unassign"),
        2 => (an_address(), an_address(), a_time())
            .prop_map(|(one, two, at)| format!(r#"{{"op":"forget","ipv4":["{one}","{two}"],"at":{at}}}"#)),
        2 => (an_address(), a_time(), an_address(), a_time()).prop_map(|(one, at, two, then)| format!(
            r#"{{"op":"rest","addresses":[{{"ipv4":"{one}","at":{at}}},{{"ipv4":"{two}","at":{then}}}]}}"#
        )),
        1 => Just(r#"{"op":"lend"}"#.to_owned()),
    ]
}

fn a_checkpoint() -> impl Strategy<Value = String> {
    let element = (a_key(), prop_oneof![8 => an_address(), 1 => Just("2001:db8::1")], 0..30_u8).prop_map(
        |(key, ipv4, oddity)| match oddity {
            0 => "null".to_owned(),
            1 => format!(r#"{{"ipv4":"{ipv4}","later":[1,{{}}]}}"#),
            _ => {
                let quoted = |text: &str| Value::from(text).to_string();
                let (network, container) = (quoted(&key.network_name), quoted(&key.container_id));
                let interface = quoted(&key.if_name);
                format!(
                    r#" {{"networkName":{network},"ipv4":"{ipv4}","containerID":{container},"x":null,"ifName":{interface}}}"#
                )
            }
        },
    );
    let version = select(vec![
        "vpc-cni-ipam/1",
        "vpc-cni-ipam/1",
        "vpc-cni-ipam/1",
        "vpc-cni-ipam/1",
        "2",
    ]);
    let whole = (version, prop::collection::vec(element, 0..6)).prop_map(|(version, elements)| {
        format!(
            "{{\"allocations\":[{}],\"version\":\"{version}\"}}\n",
            elements.join(",")
        )
    });
    prop_oneof![
        20 => whole,
        1 => select(vec!["", "[]", "{}", r#"{"version":"vpc-cni-ipam/1"}"#, r#"{"version":"vpc-cni-ipam/1","allocations":{}}"#])
            .prop_map(str::to_owned),
    ]
}

fn a_saved() -> impl Strategy<Value = Option<Saved>> {
    let saved = (a_checkpoint(), prop::collection::vec(an_entry(), 0..4));
    prop_oneof![
        1 => Just(None),
        12 => saved.prop_map(|(data, entries)| Some(Saved { data, entries })),
    ]
}

fn some_settings() -> impl Strategy<Value = Settings> {
    (
        select(vec![false, true, true]),
        select(vec![0, 1, 2, 1000]),
        select(vec![0, 10, 30]),
        select(vec![0, 40]),
        any::<bool>(),
    )
        .prop_map(
            |(reads_store, compact_after, period_ms, min_eni_lifetime_ms, holds_unknown)| Settings {
                reads_store,
                compact_after,
                cooling: Cooling::of_ms(period_ms),
                min_eni_lifetime_ms,
                holds_unknown,
            },
        )
}

fn a_fault() -> impl Strategy<Value = Fault> {
    let error = select(vec![
        StoreError::Unavailable("disk full".to_owned()),
        StoreError::Corrupt("bad sum".to_owned()),
        StoreError::AccessDenied("no".to_owned()),
    ]);
    let call = select(vec![
        "append",
        "append",
        "checkpoint",
        "checkpoint",
        "restore",
        "list-running",
    ]);
    (call, error, any::<bool>()).prop_map(|(call, error, has_effect)| Fault {
        call,
        error,
        has_effect,
    })
}

fn some_sandboxes() -> impl Strategy<Value = Vec<Sandbox>> {
    let ip = prop_oneof![8 => an_address(), 1 => Just("fd00::1")];
    let sandbox = (select(vec!["c1", "c2", "c3", ""]), ip).prop_map(|(id, ip)| Sandbox {
        id: id.to_owned(),
        ip: ip.to_owned(),
        namespace: String::new(),
        name: String::new(),
    });
    prop::collection::vec(sandbox, 0..5)
}

/// A step of a node without faults.
fn a_calm_step() -> BoxedStrategy<Step> {
    prop_oneof![
        2 => (an_eni(), -1..2_i32, any::<bool>(), any::<bool>()).prop_map(|(a, b, c, d)| Step::AddEni(a, b, c, d)),
        10 => (an_eni(), an_address()).prop_map(|(eni, address)| Step::AddAddress(eni, address)),
        4 => (an_eni(), an_address(), any::<bool>()).prop_map(|(a, b, c)| Step::DelAddress(a, b, c)),
        2 => (an_eni(), any::<bool>()).prop_map(|(eni, force)| Step::RemoveEni(eni, force)),
        2 => (0..4_u32, 0..4_u32).prop_map(|(warm, minimum)| Step::RemoveUnused(warm, minimum)),
        12 => a_key().prop_map(Step::Assign),
        10 => a_key().prop_map(Step::Unassign),
        3 => Just(Step::Read),
        6 => select(vec![0, 1, 5, 10, 11, 30, 31, 100]).prop_map(Step::Advance),
    ]
    .boxed()
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => a_calm_step(),
        1 => select(vec![1, 20, 1_000_000]).prop_map(Step::GoBack),
        5 => a_fault().prop_map(Step::Fault),
        1 => some_sandboxes().prop_map(Step::Sandboxes),
        1 => some_settings().prop_map(Step::Carry),
        1 => some_settings().prop_map(Step::Begin),
        2 => (some_settings(), a_saved()).prop_map(|(settings, saved)| Step::Replaced(settings, saved)),
    ]
}

/// Interfaces with addresses, so that there is something to give out from the start.
fn first_steps() -> Vec<Step> {
    vec![
        Step::AddEni("eni-a", 1, false, false),
        Step::AddEni("eni-b", 0, false, false),
        Step::AddAddress("eni-a", "10.0.0.1"),
        Step::AddAddress("eni-a", "10.0.0.10"),
        Step::AddAddress("eni-b", "10.0.0.9"),
    ]
}

/// The guest and the model, each with a world of its own.
struct Pair {
    guest: Datastore,
    world: Simulation,
    model: Model,
}

impl Pair {
    fn new(settings: Settings, world: Simulation) -> Self {
        let mut pair = Self {
            guest: Datastore::new(settings),
            world: world.clone(),
            model: Model::new(settings, world),
        };
        pair.guest.begin(&mut pair.world);
        pair
    }

    fn worlds(&mut self, change: impl Fn(&mut Simulation)) {
        change(&mut self.world);
        change(&mut self.model.world);
    }

    fn restart(mut self, settings: Settings, carries: bool) -> Self {
        let snapshot = self.guest.snapshot();
        self.guest = Datastore::new(settings);
        self.guest.begin(&mut self.world);
        if carries {
            self.guest.restore(&mut self.world, &snapshot).unwrap();
            assert_eq!(self.guest.snapshot(), snapshot);
            self.model = self.model.carried(settings);
        } else {
            self.model = self.model.begun_anew(settings);
        }
        self
    }

    /// Applies the step to both, checks that they answer alike, and returns what a pod got or gave back.
    fn step(mut self, step: &Step) -> (Self, Option<(bool, String)>) {
        let readings = self.world.readings;
        let Self { guest, world, model } = &mut self;
        let mut event = None;
        match step {
            Step::AddEni(id, device, primary, trunk) => assert_eq!(
                guest.add_eni(world, id, *device, *primary, *trunk),
                model.add_eni(id, *device, *primary, *trunk)
            ),
            Step::AddAddress(eni, ipv4) => {
                assert_eq!(guest.add_address(world, eni, ipv4), model.add_address(eni, ipv4));
            }
            Step::DelAddress(eni, ipv4, force) => assert_eq!(
                guest.del_address(world, eni, ipv4, *force),
                model.del_address(eni, ipv4, *force)
            ),
            Step::RemoveEni(eni, force) => {
                assert_eq!(guest.remove_eni(world, eni, *force), model.remove_eni(eni, *force));
            }
            Step::RemoveUnused(warm, minimum) => assert_eq!(
                guest.remove_unused_eni(world, *warm, *minimum),
                model.remove_unused(*warm, *minimum)
            ),
            Step::Assign(key) => {
                let had = guest.find(key.clone());
                let answer = guest.assign(world, key.clone());
                assert_eq!(answer, model.assign(key));
                // A repeated call is answered from memory: it writes nothing, and a failed write may remain until then.
                if let Ok(answer) = answer
                    && had != Some(answer.clone())
                {
                    is_stored(world, &answer.ip, Some(key));
                    event = Some((true, answer.ip));
                }
            }
            Step::Unassign(key) => {
                let answer = guest.unassign(world, key.clone());
                assert_eq!(answer, model.unassign(key));
                if let Ok(answer) = answer {
                    is_stored(world, &answer.ip, None);
                    event = Some((false, answer.ip));
                }
            }
            Step::Read => assert_eq!(guest.read_backing_store(world), model.read_backing_store()),
            Step::Advance(ms) => self.worlds(|world| world.now_ms += ms),
            Step::GoBack(ms) => self.worlds(|world| world.now_ms = world.now_ms.saturating_sub(*ms)),
            Step::Fault(fault) => self.worlds(|world| world.faults.push_back(fault.clone())),
            Step::Sandboxes(sandboxes) => self.worlds(|world| world.sandboxes.clone_from(sandboxes)),
            Step::Carry(settings) => self = self.restart(*settings, true),
            Step::Begin(settings) => self = self.restart(*settings, false),
            Step::Replaced(settings, saved) => {
                self.worlds(|world| world.stored.clone_from(saved));
                self = self.restart(*settings, false);
            }
        }
        assert!(self.world.readings <= readings + 1, "the clock was read twice");
        self.agree();
        (self, event)
    }

    /// Checks that both asked, stored, know and show the same, and that the state is sound.
    fn agree(&mut self) {
        assert_eq!(self.world.take_asked(), self.model.world.take_asked());
        assert_eq!(self.world.stored, self.model.world.stored);
        let snapshot: Value = serde_json::from_str(&self.guest.snapshot()).unwrap();
        assert_eq!(snapshot, self.model.snapshot());
        let metrics: BTreeMap<_, _> = self
            .model
            .metrics()
            .into_iter()
            .map(|(n, v)| (n.to_owned(), v))
            .collect();
        assert_eq!(self.world.record.metrics, metrics);
        let allocated = self.guest.allocated_ips();
        let shown: Vec<_> = allocated
            .into_iter()
            .map(|pod| (pod.key, pod.ip, pod.device_number))
            .collect();
        assert_eq!(shown, self.model.allocated());

        let keys: BTreeSet<_> = shown.iter().map(|(key, _, _)| key).collect();
        assert_eq!(keys.len(), shown.len(), "no key has two addresses");
        for (key, ip, device_number) in &shown {
            let found = self.guest.find((*key).clone()).unwrap();
            assert_eq!((&found.ip, found.device_number), (ip, *device_number));
            assert_eq!(self.model.find(key), Some(found));
        }
        let infos = self.guest.eni_infos();
        let all: Vec<&String> = infos
            .enis
            .iter()
            .flat_map(|e| &e.addresses)
            .map(|a| &a.address)
            .collect();
        let distinct: BTreeSet<_> = all
            .iter()
            .chain(shown.iter().map(|(_, ip, _)| ip).collect::<Vec<_>>().iter())
            .copied()
            .collect();
        let held = shown.iter().filter(|(_, ip, _)| !all.contains(&ip)).count();
        assert_eq!(distinct.len(), all.len() + held, "no address is in two ENIs");
        for eni in &infos.enis {
            let taken = |ip: &&String| shown.iter().any(|(_, other, _)| *ip == other);
            let ips = self.guest.eni_ips(&eni.id).unwrap();
            let free: Vec<_> = ips.iter().filter(|ip| !taken(ip)).cloned().collect();
            assert_eq!(self.guest.freeable_ips(&eni.id), free);
        }
        let stats = self.guest.stats();
        assert_eq!((stats.total, stats.assigned), (infos.total_ips, infos.assigned_ips));
        assert_eq!(
            (stats.total as usize, stats.assigned as usize),
            (all.len(), shown.len() - held)
        );
    }
}

/// True if the store has the address with exactly this key, or not at all for `None`.
fn is_stored(world: &Simulation, ip: &str, key: Option<&IpamKey>) {
    let saved = world.stored.as_ref().expect("something is stored after an answer Ok");
    let (claims, _) = read_back(saved).unwrap();
    let holders: Vec<_> = claims
        .iter()
        .filter(|(_, claimed)| claimed == ip)
        .map(|(key, _)| key)
        .collect();
    assert_eq!(holders, Vec::from_iter(key));
}

proptest! {
    #![proptest_config(super::cases::at_least(CASES, 20_000))]

    #[test]
    fn the_guest_does_what_the_plain_model_does(
        settings in some_settings(),
        saved in a_saved(),
        sandboxes in some_sandboxes(),
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let world = Simulation { now_ms: 100, stored: saved, sandboxes, ..Simulation::default() };
        let mut pair = Pair::new(settings, world);
        for step in first_steps().iter().chain(&steps) {
            (pair, _) = pair.step(step);
        }
    }
}

/// The node of the calm property: each new instance learns of the interfaces before it reads.
fn calm_node() -> impl Strategy<Value = (Settings, Vec<Vec<Step>>)> {
    let settings = (some_settings(), select(vec![1, 2, 5, 1000]), select(vec![10, 30])).prop_map(
        |(settings, compact_after, period_ms)| Settings {
            reads_store: true,
            compact_after,
            cooling: Cooling::of_ms(period_ms),
            ..settings
        },
    );
    (
        settings,
        prop::collection::vec(prop::collection::vec(a_calm_step(), 0..25), 1..5),
    )
}

proptest! {
    #![proptest_config(super::cases::at_least(CASES, 20_000))]

    #[test]
    fn no_address_is_given_out_while_it_rests_over_restarts_too((settings, lives) in calm_node(), carries: bool) {
        let mut pair = Pair::new(settings, Simulation { now_ms: 100, ..Simulation::default() });
        let mut given_back: BTreeMap<u32, u64> = BTreeMap::new();
        for (life, steps) in lives.iter().enumerate() {
            if life > 0 {
                pair = pair.restart(settings, carries);
            }
            for step in first_steps().iter().chain([&Step::Read]).chain(steps) {
                let before = pair.guest.allocated_ips();
                let event;
                (pair, event) = pair.step(step);
                let now_ms = pair.world.now_ms;
                match (step, event) {
                    (_, Some((true, ip))) => {
                        let rests = given_back.get(&number(&ip).unwrap()).is_some_and(|&at| settings.cooling.rests(at, now_ms));
                        prop_assert!(!rests, "{ip} is given out at {now_ms}");
                    }
                    (_, Some((false, ip))) => {
                        given_back.insert(number(&ip).unwrap(), now_ms);
                    }
                    (Step::DelAddress(..) | Step::RemoveEni(..), None) => {
                        let after = pair.guest.allocated_ips();
                        for pod in before.iter().filter(|pod| !after.contains(pod)) {
                            given_back.insert(number(&pod.ip).unwrap(), now_ms);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(super::cases::at_least(CASES, 20_000))]

    #[test]
    fn any_text_is_read_without_a_trap(
        data in prop_oneof![any::<String>(), a_checkpoint(), "[\\[{\"a:,0]{0,40}"],
        entries in prop::collection::vec(prop_oneof![any::<String>(), an_entry(), "[\\[{\"a:,0]{0,40}"], 0..3),
        settings in some_settings(),
    ) {
        let mut world = Simulation { stored: Some(Saved { data: data.clone(), entries }), ..Simulation::default() };
        let mut guest = Datastore::new(Settings { reads_store: true, ..settings });
        guest.begin(&mut world);
        let before = guest.snapshot();
        match guest.read_backing_store(&mut world) {
            Ok(()) => {}
            Err(Error::BackingStore(why)) => {
                prop_assert!(why.starts_with("checkpoint: "), "{}", why);
                let quoted = Value::from(why.as_str()).to_string();
                prop_assert_eq!(guest.snapshot(), before.replace("\"blocked\":null", &format!("\"blocked\":{quoted}")));
            }
            Err(error) => prop_assert!(false, "{:?}", error),
        }
        if let Err(why) = guest.restore(&mut world, &data) {
            prop_assert!(why.starts_with("state: "), "{}", why);
        }
    }
}
