//! How often a guest may make requests, how much one call may destroy, and which refusals are audited.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trueup_base::clock::{Clock, Sleep, VirtualClock};
use trueup_journal::{Ending, Files, Tape};

use super::engine::{Engine, engine, refs};
use super::{destroy, guest, reset, segment, short};
use crate::audit::{self, Audit, Line};
use crate::bindings::checkpoint::store::Host as _;
use crate::bindings::cri::sandboxes::Host as _;
use crate::bindings::host::log::Level;
use crate::bindings::host::timers::Host as _;
use crate::bindings::lbaas::api::Host as _;
use crate::checkpoint;
use crate::grants::{EVERYTHING, Grant, Grants};
use crate::guard::AUDITED_PER_CALL_MAX;
use crate::holdings::{COUNTS_FIRST, Uncounted};
use crate::lbaas::testing::backend;
use crate::lbaas::{Api, ObjectRef};
use crate::log::KeptLog;
use crate::meter::Limits;
use crate::{Backends, Host, Identity, testing};

/// All of `lbaas`, `checkpoint` and `cri`, with these limits on each capability that has them.
fn limited(calls_per_minute: Option<u32>, destroy_max: Option<u32>, destroy_percent: Option<u8>) -> Grants {
    let grant = |is_lbaas: bool| Grant {
        read: [EVERYTHING.to_owned()].into(),
        write: [EVERYTHING.to_owned()].into(),
        calls_per_minute,
        destroy_max: destroy_max.filter(|_| is_lbaas),
        destroy_percent: destroy_percent.filter(|_| is_lbaas),
    };
    let of = |name: &str| (name.to_owned(), grant(name == "lbaas"));
    Grants::new([of("lbaas"), of("checkpoint"), of("cri")].into())
}

fn backends(engine: &Arc<Engine>, clock: &Arc<VirtualClock>) -> Backends {
    let api: Arc<dyn Api> = Arc::<Engine>::clone(engine);
    Backends {
        lbaas: Some(api),
        clock: Arc::<VirtualClock>::clone(clock),
        ..Backends::default()
    }
}

fn instance(key: &str, grants: &Grants, backends: &Backends) -> Host {
    let identity = Identity {
        instance: key.into(),
        ..guest()
    };
    let mut host = Host::new(
        identity,
        Tape::memory(),
        grants.clone(),
        backends.clone(),
        Limits::default(),
    );
    // Its guest said that nothing is to go.
    host.foreseen = Some(0);
    host
}

/// The only instance, with these limits, and its Engine.
fn alone(calls_per_minute: Option<u32>, destroy_max: Option<u32>, destroy_percent: Option<u8>) -> (Arc<Engine>, Host) {
    let engine = engine();
    let grants = limited(calls_per_minute, destroy_max, destroy_percent);
    let host = instance("default/a", &grants, &backends(&engine, &Arc::default()));
    (engine, host)
}

/// A machine whose clock is set while time passes.
struct Machine {
    wall_ms: AtomicU64,
    passed: VirtualClock,
}

impl Clock for Machine {
    fn now_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn steady_ms(&self) -> u64 {
        self.passed.now_ms()
    }

    fn sleep_ms(&self, duration_ms: u64) -> Sleep<'_> {
        self.passed.sleep_ms(duration_ms)
    }
}

#[tokio::test]
async fn a_clock_that_is_set_moves_neither_a_quota_nor_a_timer() {
    const DAY_MS: u64 = 86_400_000;
    for set_to_ms in [11 * DAY_MS, 9 * DAY_MS] {
        let machine = Arc::new(Machine {
            wall_ms: AtomicU64::new(10 * DAY_MS),
            passed: VirtualClock::new(10 * DAY_MS),
        });
        let clock: Arc<dyn Clock> = Arc::<Machine>::clone(&machine);
        let backends = Backends {
            clock,
            ..backends(&engine(), &Arc::default())
        };
        let mut host = instance("default/a", &limited(Some(1), None, None), &backends);
        host.load_balancer("lb-1".into()).await.unwrap().unwrap();
        let timer = host.schedule(60_000).await.unwrap();
        machine.wall_ms.store(set_to_ms, Ordering::SeqCst);
        machine.passed.advance_ms(59_999);
        host.load_balancer("lb-1".into()).await.unwrap().unwrap_err();
        assert_eq!(host.timers.take_due(machine.steady_ms()), None, "{set_to_ms}");
        machine.passed.advance_ms(1);
        host.load_balancer("lb-1".into()).await.unwrap().unwrap();
        let due = host.timers.take_due(machine.steady_ms()).map(|(_, timer)| timer);
        assert_eq!(due, Some(timer), "{set_to_ms}");
    }
}

const TOO_OFTEN: &str = "`lbaas` was asked 3 times within a minute, the limit `calls_per_minute`";

#[tokio::test]
async fn all_instances_of_a_guest_share_its_calls_per_minute() {
    let (engine, clock) = (engine(), Arc::new(VirtualClock::new(1_000_000)));
    let backends = backends(&engine, &clock);
    let grants = limited(Some(3), None, None);
    let mut first = instance("default/a", &grants, &backends);
    let mut second = instance("default/b", &grants, &backends);
    first.load_balancer("lb-1".into()).await.unwrap().unwrap();
    clock.advance_ms(30_000);
    second.list_tagged("t".into()).await.unwrap().unwrap();
    second.get(refs(&["b1", "n1", "s1"])).await.unwrap();
    engine.asked();

    // Each kind of request is refused, in each of its entries, and none is sent.
    let denied = super::denied::<()>(TOO_OFTEN);
    assert_eq!(first.load_balancer("lb-1".into()).await.unwrap().map(|_| ()), denied);
    assert_eq!(first.list_tagged("t".into()).await.unwrap().map(|_| ()), denied);
    assert_eq!(short(&second.get(refs(&["b1", "n1"])).await.unwrap()), [TOO_OFTEN; 2]);
    let created = first.create(vec![backend("new", "lb-1")], vec![]).await.unwrap();
    assert_eq!(short(&created), [TOO_OFTEN]);
    assert_eq!(reset(&mut first, &["b1"]).await, [TOO_OFTEN]);
    assert_eq!(destroy(&mut first, &["n1", "s1"]).await, [TOO_OFTEN; 2]);
    assert_eq!(engine.asked(), [""; 0]);
    let refused = |call| testing::refusals(&first, call);
    assert_eq!(
        (refused("api.get"), refused("api.destroy"), refused("api.reset")),
        (Some(2.0), Some(2.0), Some(1.0))
    );

    // The window slides: the first request is a minute old, the others are not.
    clock.advance_ms(30_000);
    first.load_balancer("lb-1".into()).await.unwrap().unwrap();
    assert_eq!(second.load_balancer("lb-1".into()).await.unwrap().map(|_| ()), denied);
    clock.advance_ms(30_000);
    second.load_balancer("lb-1".into()).await.unwrap().unwrap();
}

#[tokio::test]
async fn each_capability_counts_by_itself_and_refuses_in_its_own_words() {
    let (_engine, mut host) = alone(Some(1), None, None);
    // Neither has a backend here: the first request gets as far as that.
    let unavailable = host.restore().await.unwrap().unwrap_err();
    assert_eq!(unavailable.kind(), "unavailable");
    let what = "`checkpoint` was asked once within a minute, the limit `calls_per_minute`";
    assert_eq!(
        host.append("e".into()).await.unwrap(),
        Err(checkpoint::Error::AccessDenied(what.into()))
    );
    assert!(
        host.list_running()
            .await
            .unwrap()
            .unwrap_err()
            .contains("no container runtime")
    );
    assert_eq!(
        host.list_running().await.unwrap().unwrap_err(),
        "access denied: `cri` was asked once within a minute, the limit `calls_per_minute`"
    );
    host.load_balancer("lb-1".into()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_batch_above_destroy_max_is_refused_whole_and_nothing_is_sent() {
    let (engine, mut host) = alone(None, Some(3), None);
    assert_eq!(destroy(&mut host, &["n1", "n2"]).await, ["ok", "ok"]);
    engine.asked();
    let above = "destroying 4 objects in one call is above `destroy_max` of 3";
    // Within a call, an object counts only once.
    assert_eq!(destroy(&mut host, &["s1", "n1", "s2"]).await, [above; 3]);
    assert_eq!(engine.asked(), [""; 0], "not even asked whose they are");
    assert_eq!(destroy(&mut host, &["s1"]).await, ["ok"]);
    // The number also applies if the key is to be removed.
    host.removing = true;
    assert_eq!(destroy(&mut host, &["s2"]).await, [above]);
    host.begin_unrecorded_call();
    assert_eq!(destroy(&mut host, &["s2"]).await, ["ok"], "a call of its own");
    assert_eq!(host.meter.effects.destroyed, 4);
}

#[tokio::test]
async fn a_limit_refuses_a_call_before_the_first_of_too_many_goes() {
    let (engine, mut host) = alone(None, Some(3), None);
    host.foreseen = None;
    let log = Arc::new(KeptLog::default());
    host.backends.log = Arc::<KeptLog>::clone(&log);
    host.begin_unrecorded_call();
    assert_eq!(destroy(&mut host, &["n1"]).await, [COUNTS_FIRST]);
    host.log_line(Level::Warn, "not destroyed", &[]);
    host.begin_unrecorded_call();
    host.log_line(Level::Warn, "the next call", &[]);
    let levels: Vec<Level> = log.lines().into_iter().map(|(level, _)| level).collect();
    assert_eq!(levels, [Level::Debug, Level::Warn], "the host repeats the first call");
    let quotas = Arc::clone(&host.backends.quotas);
    assert_eq!(quotas.holdings.take_uncounted("default/a"), Some(Uncounted::Key));
    host.foreseen = Some(4);
    let above = "destroying 4 objects in one call is above `destroy_max` of 3";
    assert_eq!(destroy(&mut host, &["n1"]).await, [above]);
    assert!(!engine.asked().iter().any(|asked| asked.starts_with("destroy")));
}

#[tokio::test]
async fn a_percentage_is_of_what_the_call_has_seen_unless_all_is_to_go() {
    let (engine, mut host) = alone(None, None, Some(25));
    let unseen = "destroying 1 of the 0 objects that the call has seen is above `destroy_percent` of 25";
    assert_eq!(destroy(&mut host, &["n1"]).await, [unseen]);
    host.list_tagged("t".into()).await.unwrap().unwrap();
    host.get(refs(&["n1", "b1"])).await.unwrap();
    assert_eq!(destroy(&mut host, &["n1", "n2"]).await, ["ok", "ok"]);
    engine.asked();
    let above = "destroying 3 of the 8 objects that the call has seen is above `destroy_percent` of 25";
    assert_eq!(destroy(&mut host, &["s1"]).await, [above]);
    assert_eq!(engine.asked(), [""; 0]);
    // Its own creations do not count as found: neither when it creates them nor when it lists them.
    let made = host.create((0..4).map(|n| backend(&format!("b{n}"), "lb-1")).collect(), vec![]);
    let made = made.await.unwrap().into_iter().map(|made| {
        let made = made.unwrap();
        ObjectRef {
            kind: made.spec.kind(),
            identifier: made.identifier,
        }
    });
    let made: Vec<ObjectRef> = made.collect();
    host.get(made.clone()).await.unwrap();
    engine.asked();
    assert_eq!(destroy(&mut host, &["s1"]).await, [above]);
    assert_eq!(engine.asked(), [""; 0]);
    // It may also destroy its own creations.
    assert_eq!(host.destroy(made).await.unwrap().len(), 4);
    assert_eq!(engine.asked().len(), 1);

    host.begin_unrecorded_call();
    host.removing = true;
    assert_eq!(destroy(&mut host, &["s2", "f2", "b2"]).await, ["ok"; 3]);
    host.begin_unrecorded_call();
    host.removing = false;
    assert_eq!(destroy(&mut host, &["f1"]).await, [unseen]);
}

#[tokio::test]
async fn both_limits_hold_where_both_are_given() {
    let (engine, clock) = (engine(), Arc::new(VirtualClock::new(0)));
    let backends = backends(&engine, &clock);
    for (max, percent, limit) in [(1, 100, "destroy_max"), (100, 20, "destroy_percent")] {
        let mut host = instance("default/a", &limited(None, Some(max), Some(percent)), &backends);
        host.list_tagged("t".into()).await.unwrap().unwrap();
        let answers = destroy(&mut host, &["n1", "n2"]).await;
        assert!(answers.iter().all(|answer| answer.contains(limit)), "{answers:?}");
    }
    assert!(!engine.asked().iter().any(|asked| asked.starts_with("destroy")));
}

#[tokio::test]
async fn quotas_are_recorded_and_a_replay_has_none() {
    async fn asks(host: &mut Host) -> String {
        let listed = host.list_tagged("t".into()).await.unwrap();
        let many = host.destroy(refs(&["n1", "n2", "s1"])).await.unwrap();
        let few = host.destroy(refs(&["n1"])).await.unwrap();
        let often = host.load_balancer("lb-1".into()).await.unwrap();
        format!("{listed:?} {many:?} {few:?} {often:?}")
    }
    let (_engine, mut recording) = alone(Some(3), Some(2), None);
    let expected = asks(&mut recording).await;
    assert!(
        expected.contains("`destroy_max` of 2") && expected.contains(TOO_OFTEN),
        "{expected}"
    );
    let folder = tempfile::tempdir().unwrap();
    let backends = Backends {
        audit: Some(Arc::new(Audit::open(folder.path()).unwrap())),
        ..Backends::default()
    };
    let tape = Tape::replay(segment(recording.tape.take_entries()), "sha256:1");
    // With limits that would refuse everything: a replay repeats what happened, not what is allowed.
    let grants = limited(Some(1), Some(0), Some(1));
    let mut replaying = Host::new(guest(), tape, grants, backends, Limits::default());
    assert_eq!(asks(&mut replaying).await, expected);
    assert!(replaying.tape.replay_outcome().unwrap().is_identical());
    assert_eq!(replaying.meter.effects, recording.meter.effects);
    drop(replaying);
    assert_eq!(audit::verify(folder.path()).unwrap().lines, 0);
}

fn lines(folder: &std::path::Path) -> Vec<Line> {
    let mut lines = Vec::new();
    assert!(audit::walk(folder, |line| lines.push(line)).unwrap().is_whole());
    lines
}

#[tokio::test]
async fn the_first_refusal_per_call_and_scope_is_audited_with_its_entry() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine();
    let backends = Backends {
        audit: Some(Arc::new(Audit::open(folder.path()).unwrap())),
        ..backends(&engine, &Arc::new(VirtualClock::new(7)))
    };
    let journals = tempfile::tempdir().unwrap();
    let journal = testing::journal(journals.path(), &Files::default(), "lbaas");
    let grants = super::grants(&["lb-1"], &["lb-1"]);
    let mut host = Host::new(
        guest(),
        Tape::record(journal),
        grants,
        backends.clone(),
        Limits::default(),
    );
    for _ in 0..2 {
        testing::begin(&mut host, 7, "reconciliation.reconcile");
        for load_balancer in ["lb-2", "lb-2", "lb-3"] {
            host.load_balancer(load_balancer.into()).await.unwrap().unwrap_err();
        }
        host.get(refs(&["b2", "f2"])).await.unwrap();
        host.tape.end_call(&Ending::result("").unwrap()).unwrap();
    }
    backends.audit.as_ref().unwrap().flush().unwrap();
    let got: Vec<String> = lines(folder.path())
        .into_iter()
        .map(|line| {
            format!(
                "{} {} {} {} {}",
                line.decision, line.call, line.scope, line.outcome, line.digest
            )
        })
        .collect();
    let expected = |n: u64, call: &str, scope: &str| {
        format!("lbaas/default/web#{n} {call} {scope} access denied: no grant to read load balancer `{scope}` sha256:1")
    };
    let of_call = |n: u64| {
        [
            expected(n, "api.load-balancer", "lb-2"),
            expected(n, "api.load-balancer", "lb-3"),
            expected(n, "api.get", "lb-2"),
        ]
    };
    // A call, four requests, a result: the second call is entry 7.
    assert_eq!(got, [of_call(1), of_call(7)].concat());
}

#[tokio::test]
async fn a_guest_that_guesses_fills_no_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let backends = Backends {
        audit: Some(Arc::new(Audit::open(folder.path()).unwrap())),
        ..backends(&engine(), &Arc::new(VirtualClock::new(7)))
    };
    let mut host = instance("default/web", &super::grants(&["lb-1"], &[]), &backends);
    for n in 0..AUDITED_PER_CALL_MAX * 2 {
        host.load_balancer(format!("guess-{n}")).await.unwrap().unwrap_err();
    }
    backends.audit.as_ref().unwrap().flush().unwrap();
    let lines = lines(folder.path());
    assert_eq!(lines.len(), AUDITED_PER_CALL_MAX + 1);
    let last = lines.last().unwrap();
    assert_eq!(
        (last.scope.as_str(), last.decision.as_str()),
        ("*", "lbaas/default/web")
    );
    assert_eq!(
        last.outcome,
        "access denied: after 100 refusals, further ones of this decision are only counted"
    );
}
