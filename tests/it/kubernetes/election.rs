//! Several campaigners, one Lease at the tests' API server: who leads, and how leadership changes hands.
//!
//! If something must happen at once, the times are hours, so that only a watch can cause it. If something must end by
//! its time, the times are short, and no test requires a speed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use trueup_base::fence::Fence;
use trueup_election::{Election, Role, Settings, Times};

use support::api_server::{ApiServer, Asked, Fault};

/// A guard against hanging, on a busy machine.
const GUARD: Duration = Duration::from_secs(120);

/// Nothing ends by its time with these.
const HOURS: Times = Times {
    lease_duration: Duration::from_secs(3600),
    renew_deadline: Duration::from_secs(1800),
    retry_period: Duration::from_secs(900),
};

/// Everything ends by its time with these.
const SHORT: Times = Times {
    lease_duration: Duration::from_secs(2),
    renew_deadline: Duration::from_millis(1200),
    retry_period: Duration::from_millis(100),
};

/// With these, even a slow machine answers each request in time.
const PATIENT: Times = Times {
    lease_duration: Duration::from_secs(60),
    renew_deadline: Duration::from_secs(30),
    retry_period: Duration::from_millis(100),
};

/// Starting it blocks, which a task must not do.
fn server() -> ApiServer {
    tokio::task::block_in_place(ApiServer::start)
}

struct Campaigner {
    election: Arc<Election>,
    fence: Fence,
    role: watch::Receiver<Role>,
    resign: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

fn election(server: &ApiServer, identity: &str, times: Times, fence: &Fence) -> Election {
    let mut config = kube::Config::new(server.url().parse().unwrap());
    // Like in the host: the election has its own retries.
    config.default_retry = false;
    let settings = Settings {
        namespace: "default".to_owned(),
        name: "trueup".to_owned(),
        identity: identity.to_owned(),
        times,
    };
    Election::new(kube::Client::try_from(config).unwrap(), settings, fence.clone(), 1)
}

impl Campaigner {
    fn start(server: &ApiServer, identity: &str, times: Times) -> Self {
        let fence = Fence::closed();
        let election = Arc::new(election(server, identity, times, &fence));
        let (told, role) = watch::channel(Role::Standby { holder: None });
        let (resign, resigned) = oneshot::channel();
        let task = tokio::spawn({
            let election = Arc::clone(&election);
            async move {
                let resigned = async {
                    if resigned.await.is_err() {
                        std::future::pending::<()>().await;
                    }
                };
                election.run(told, resigned).await;
            }
        });
        Self {
            election,
            fence,
            role,
            resign: Some(resign),
            task,
        }
    }

    async fn leads(&mut self) {
        self.stands("leading", Role::is_leading).await;
        assert!(self.election.status().leading);
    }

    async fn stands_by(&mut self) {
        self.stands("standby", |role| !role.is_leading()).await;
    }

    /// Waits until this one knows the holder of the Lease.
    async fn sees(&mut self, holder: &str) {
        let expected = Role::Standby {
            holder: Some(holder.to_owned()),
        };
        self.stands(holder, |role| *role == expected).await;
    }

    async fn stands(&mut self, what: &str, is_so: impl FnMut(&Role) -> bool) {
        let status = self.election.status();
        let waiting = self.role.wait_for(is_so);
        timeout(GUARD, waiting)
            .await
            .unwrap_or_else(|_| panic!("not {what}: {status:?}"))
            .unwrap();
    }

    /// A clean stop.
    async fn resigns(mut self) {
        self.resign.take().unwrap().send(()).unwrap();
        timeout(GUARD, self.task).await.unwrap().unwrap();
        assert!(!self.fence.may_act());
    }

    /// A process that dies, with all its pending work.
    async fn dies(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(GUARD, waiting)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

fn spec(server: &ApiServer) -> Value {
    server.get("leases", "default", "trueup").unwrap()["spec"].clone()
}

fn lease(spec: &Value) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "trueup", "namespace": "default" }, "spec": spec,
    })
}

fn updates(asked: &Asked) -> bool {
    asked.is("update", "leases")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leads_and_its_clean_stop_hands_over_at_once() {
    let server = server();
    let mut one = Campaigner::start(&server, "one", HOURS);
    one.leads().await;
    let first = spec(&server);
    assert_eq!(first["holderIdentity"], "one");
    assert_eq!(first["leaseDurationSeconds"], 3600);
    assert_eq!(first["leaseTransitions"], 0);
    assert_eq!(first["acquireTime"], first["renewTime"]);
    let mut other = Campaigner::start(&server, "other", HOURS);
    other.sees("one").await;
    assert!(one.fence.may_act() && !other.fence.may_act());
    until("both watch", || server.watches() == 2).await;

    one.resigns().await;
    other.leads().await;
    assert!(other.fence.may_act());
    assert_eq!(spec(&server)["leaseTransitions"], 1);
    let changes = server.lease_changes("default", "trueup");
    let holders: Vec<_> = changes
        .iter()
        .map(|change| (change.holder.as_str(), change.duration_s))
        .collect();
    assert_eq!(holders, [("one", 3600), ("", 1), ("other", 3600)]);
    other.resigns().await;
    assert_eq!(spec(&server)["holderIdentity"], "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_succeeded_after_its_lease_and_not_before() {
    let server = server();
    let mut one = Campaigner::start(&server, "one", SHORT);
    one.leads().await;
    let mut other = Campaigner::start(&server, "other", SHORT);
    other.sees("one").await;
    one.dies().await;
    other.leads().await;
    let changes = server.lease_changes("default", "trueup");
    let taken = changes.iter().position(|change| change.holder == "other").unwrap();
    let pause = changes[taken].at - changes[taken - 1].at;
    assert!(pause >= SHORT.lease_duration, "taken {pause:?} after the last renewal");
    assert_eq!(changes[taken].transitions, 1);
    other.resigns().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_is_news_and_not_failure() {
    let server = server();
    let mut one = Campaigner::start(&server, "one", PATIENT);
    one.leads().await;
    let acquired = spec(&server)["acquireTime"].clone();
    let mut labelled = server.get("leases", "default", "trueup").unwrap();
    let is_conflict = |server: &ApiServer| server.requests().iter().any(|request| request.status == 409);
    until("a renewal meets another's write", || {
        labelled["metadata"]["labels"] = json!({ "team": "net" });
        labelled["metadata"]["resourceVersion"].take();
        labelled["spec"] = spec(&server);
        server.apply(labelled.clone()).unwrap();
        is_conflict(&server)
    })
    .await;
    let renewals = one.election.status().renewals;
    until("renewals after it", || one.election.status().renewals > renewals + 2).await;
    let status = one.election.status();
    assert_eq!((status.terms, status.failures, status.error), (1, 0, None));
    assert_eq!(spec(&server)["acquireTime"], acquired, "one term");
    let label = &server.get("leases", "default", "trueup").unwrap()["metadata"]["labels"]["team"];
    assert_eq!(label, "net", "what others wrote stays");
    one.resigns().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_can_not_renew_stops_to_lead_before_it_stops_to_act() {
    let server = server();
    // A second between the two, so that a slow machine sees both.
    let times = Times {
        lease_duration: Duration::from_secs(4),
        renew_deadline: Duration::from_secs(1),
        retry_period: Duration::from_millis(100),
    };
    let mut one = Campaigner::start(&server, "one", times);
    one.leads().await;
    server.go_away();
    one.stands_by().await;
    let before = spec(&server);
    let left = one.fence.left();
    assert!(
        left.is_some_and(|left| left <= times.left_when_given_up()),
        "what has begun may end: {left:?}"
    );
    assert!(
        one.election
            .status()
            .error
            .is_some_and(|error| error.starts_with("can't "))
    );
    timeout(GUARD, one.fence.over()).await.unwrap();
    assert_eq!(spec(&server)["renewTime"], before["renewTime"]);

    server.come_back();
    one.leads().await;
    assert!(one.fence.may_act());
    let status = one.election.status();
    assert_eq!((status.terms, status.transitions, status.error), (2, 0, None));
    one.resigns().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_renews_nothing_and_ends_nothing() {
    let server = server();
    let mut one = Campaigner::start(&server, "one", PATIENT);
    one.leads().await;
    server.fault(updates, Fault::AnswerLost, Some(1));
    until("a lost answer", || one.election.status().failures == 1).await;
    let renewals = one.election.status().renewals;
    until("renewals after it", || one.election.status().renewals > renewals + 2).await;
    let status = one.election.status();
    assert_eq!((status.terms, status.failures), (1, 1));
    let written = server.lease_changes("default", "trueup").len() as u64;
    assert!(
        written > status.renewals,
        "{written} writes, {} that count",
        status.renewals
    );
    one.resigns().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_hangs() {
    let server = server();
    let is_of_leases = |asked: &Asked| asked.resource == "leases";
    let fault = server.fault(is_of_leases, Fault::Late(Duration::from_secs(3600)), None);
    let mut one = Campaigner::start(&server, "one", SHORT);
    until("a request that was given up", || one.election.status().failures > 0).await;
    let error = "can't get lease `default/trueup`: no answer within 480 ms";
    assert_eq!(one.election.status().error.as_deref(), Some(error));
    server.heal(fault);
    one.leads().await;
    one.resigns().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_or_taken_lease_is_written_again_at_once() {
    let server = server();
    let mut one = Campaigner::start(&server, "one", HOURS);
    one.leads().await;
    let mut other = Campaigner::start(&server, "other", HOURS);
    other.sees("one").await;
    until("both watch", || server.watches() == 2).await;
    // The answer comes after the next change.
    let creates = |asked: &Asked| asked.is("create", "leases");
    server.fault(creates, Fault::AnsweredLate(Duration::from_millis(500)), Some(1));
    assert!(server.delete("leases", "default", "trueup").unwrap());
    until("the Lease is there again", || {
        server.get("leases", "default", "trueup").is_some()
    })
    .await;
    assert_eq!(spec(&server)["holderIdentity"], "one");

    let mut cleared = server.get("leases", "default", "trueup").unwrap();
    cleared["spec"]["holderIdentity"] = json!("");
    server.apply(cleared).unwrap();
    until("the holder is there again", || spec(&server)["holderIdentity"] == "one").await;
    assert_eq!(one.election.status().terms, 1);
    assert!(!other.fence.may_act());
    other.resigns().await;
    one.resigns().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_lease_was_given_to_another_by_hand_stops_at_once() {
    let server = server();
    let mut one = Campaigner::start(&server, "one", HOURS);
    one.leads().await;
    until("it watches", || server.watches() == 1).await;
    let mut given = server.get("leases", "default", "trueup").unwrap();
    given["spec"]["holderIdentity"] = json!("other");
    server.apply(given).unwrap();
    one.sees("other").await;
    assert!(!one.fence.may_act());
    one.resigns().await;
    assert_eq!(
        spec(&server)["holderIdentity"],
        "other",
        "what is not ours is not given back"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_in_the_lease_is_waited_out_or_overwritten() {
    for (garbage, transitions) in [
        (json!({}), 1),
        (json!({ "holderIdentity": "" }), 1),
        (json!({ "holderIdentity": "gone" }), 1),
        (
            json!({ "holderIdentity": "gone", "leaseTransitions": i32::MAX }),
            i32::MAX,
        ),
        (json!({ "holderIdentity": "one", "leaseDurationSeconds": 1 }), 0),
        (
            json!({ "leaseDurationSeconds": 1, "renewTime": "2999-12-31T23:59:59.999999Z" }),
            1,
        ),
    ] {
        let server = server();
        server.create(lease(&garbage)).unwrap();
        let mut one = Campaigner::start(&server, "one", SHORT);
        one.leads().await;
        let written = spec(&server);
        assert_eq!(written["holderIdentity"], "one", "of {garbage}");
        assert_eq!(written["leaseDurationSeconds"], 2, "of {garbage}");
        assert_eq!(written["leaseTransitions"], transitions, "of {garbage}");
        one.resigns().await;
    }
    let server = server();
    server
        .create(lease(
            &json!({ "holderIdentity": "gone", "leaseDurationSeconds": i32::MAX }),
        ))
        .unwrap();
    let mut one = Campaigner::start(&server, "one", SHORT);
    one.sees("gone").await;
    one.resigns().await;
    assert_eq!(spec(&server)["holderIdentity"], "gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_takes_what_is_free_or_dead_and_says_who_lives() {
    let server = server();
    let fence = Fence::closed();
    let one = election(&server, "one", SHORT, &fence);
    assert!(timeout(GUARD, one.try_once()).await.unwrap().unwrap().is_leading());
    assert!(fence.may_act());

    // It does not renew, like a dead process.
    let mut other = Campaigner::start(&server, "other", SHORT);
    other.leads().await;
    let held_by = Role::Standby {
        holder: Some("other".to_owned()),
    };
    let third = Fence::closed();
    let tried = election(&server, "third", SHORT, &third);
    assert_eq!(timeout(GUARD, tried.try_once()).await.unwrap(), Ok(held_by));
    assert!(!third.may_act());
    other.resigns().await;

    let fence = Fence::closed();
    let last = Arc::new(election(&server, "last", SHORT, &fence));
    assert!(timeout(GUARD, last.try_once()).await.unwrap().unwrap().is_leading());
    // It still leads.
    let (told, role) = watch::channel(last.role());
    assert!(role.borrow().is_leading());
    timeout(
        GUARD,
        last.run(told, async { until("renewals", || last.status().renewals > 2).await }),
    )
    .await
    .unwrap();
    assert_eq!(last.status().terms, 1);
    assert_eq!(spec(&server)["holderIdentity"], "");

    server.go_away();
    let error = timeout(GUARD, election(&server, "one", SHORT, &fence).try_once())
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.starts_with("can't get lease `default/trueup`: "), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_allowed_to_is_told_what_to_allow() {
    let server = server();
    server.fault(
        |asked| asked.resource == "leases",
        Fault::Refused {
            code: 403,
            retry_after_s: None,
        },
        None,
    );
    let error = timeout(GUARD, election(&server, "one", SHORT, &Fence::closed()).try_once())
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.starts_with("can't get lease `default/trueup`: "), "{error}");
    let hint = "(403); allow `get`, `create`, `update` and `watch` of `leases` in `coordination.k8s.io`";
    assert!(error.ends_with(hint), "{error}");
}

/// All faults at once, for the duration of some leases: cut connections, lost and late answers, killed hosts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_two_may_act_whatever_happens_to_requests_and_hosts() {
    let server = server();
    let times = Times {
        lease_duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(500),
        retry_period: Duration::from_millis(50),
    };
    let mut hosts: Vec<Campaigner> = Vec::new();
    for name in ["one", "two", "three"] {
        hosts.push(Campaigner::start(&server, name, times));
    }
    let fences: Arc<std::sync::Mutex<Vec<Fence>>> = Arc::default();
    let ended = Arc::new(AtomicBool::new(false));
    let judge = std::thread::spawn({
        let (fences, ended) = (Arc::clone(&fences), Arc::clone(&ended));
        move || {
            let mut looks = 0u64;
            while !ended.load(Ordering::Relaxed) {
                let fences = fences.lock().unwrap().clone();
                for (index, fence) in fences.iter().enumerate() {
                    for other in fences.iter().skip(index + 1) {
                        // Open before and after the other one was: open at that moment.
                        let both = fence.may_act() && other.may_act() && fence.may_act();
                        assert!(!both, "two may act");
                    }
                }
                looks += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            looks
        }
    });
    let track = |hosts: &[Campaigner]| {
        let mut known = fences.lock().unwrap();
        // Keep the fences of killed hosts: their pending work may still arrive.
        for host in hosts {
            known.push(host.fence.clone());
        }
    };
    track(&hosts);
    for round in 0..8 {
        until("somebody leads", || {
            hosts.iter().any(|host| host.role.borrow().is_leading())
        })
        .await;
        match round % 4 {
            0 => _ = server.fault(updates, Fault::AnswerLost, Some(3)),
            1 => server.cut_connections(),
            2 => _ = server.fault(updates, Fault::AnsweredLate(Duration::from_millis(700)), Some(2)),
            _ => {}
        }
        let mut leader = None;
        until("a host to leave", || {
            leader = hosts.iter().position(|host| host.role.borrow().is_leading());
            leader.is_some()
        })
        .await;
        let killed = hosts.remove(leader.unwrap());
        if round % 2 == 0 {
            killed.dies().await;
        } else {
            killed.resigns().await;
        }
        let next = Campaigner::start(&server, &format!("host-{round}"), times);
        track(std::slice::from_ref(&next));
        hosts.push(next);
    }
    ended.store(true, Ordering::Relaxed);
    let looks = judge.join().unwrap();
    assert!(looks > 100, "{looks} looks");
    let transitions = spec(&server)["leaseTransitions"].as_i64().unwrap();
    assert!(transitions >= 7, "{transitions} transitions");
    for host in hosts {
        host.resigns().await;
    }
}
