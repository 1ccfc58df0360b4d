//! Which requests reach a backend, with which request id, and what the guest gets if none does.

use std::sync::{Arc, Mutex};

use trueup_base::clock::VirtualClock;
use trueup_journal::{Ending, Files, Tape};

use super::*;
use crate::bindings::neg::api::Host as _;
use crate::grants::{Grant, Grants};
use crate::meter::Limits;
use crate::neg::order::tests::{endpoint, neg};
use crate::{Backends, Identity, testing};
use async_trait::async_trait;

/// Answers everything, and records each request: the call, the NEG and the request id.
#[derive(Default)]
struct Asked(Mutex<Vec<(&'static str, String, Option<RequestId>)>>);

impl Asked {
    fn take(&self) -> Vec<(&'static str, String, Option<RequestId>)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn ids(&self) -> Vec<RequestId> {
        self.take().into_iter().map(|(_, _, id)| id.unwrap()).collect()
    }

    fn asked<T>(&self, call: &'static str, neg: &NegRef, id: Option<RequestId>, answer: T) -> Result<T, Error> {
        let scope = neg_scope(&neg.name, &neg.zone);
        self.0.lock().unwrap().push((call, scope, id));
        Ok(answer)
    }
}

#[async_trait]
impl Api for Asked {
    async fn ensure(&self, neg: &NegRef, _: &str, id: RequestId) -> Result<bool, Error> {
        self.asked("ensure", neg, Some(id), true)
    }

    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        self.asked("list", neg, None, Vec::new())
    }

    async fn change(&self, attaches: bool, neg: &NegRef, _: &[Endpoint], id: RequestId) -> Result<u64, Error> {
        let (call, number) = if attaches { ("attach", 7) } else { ("detach", 8) };
        self.asked(call, neg, Some(id), number)
    }
}

fn grants(read: &[&str], write: &[&str]) -> Grants {
    testing::grants(NEG, read, write)
}

fn host_of(instance: &str, tape: Tape, grants: Grants) -> (Host, Arc<Asked>) {
    let asked = Arc::<Asked>::default();
    let identity = Identity {
        guest: "neg".to_owned(),
        instance: instance.to_owned(),
        ..Identity::default()
    };
    let api: Arc<dyn Api> = Arc::<Asked>::clone(&asked);
    let backends = Backends {
        neg: Some(api),
        clock: Arc::new(VirtualClock::new(7)),
        ..Backends::default()
    };
    (Host::new(identity, tape, grants, backends, Limits::default()), asked)
}

fn host(grants: Grants) -> (Host, Arc<Asked>) {
    host_of("default/web:80", Tape::memory(), grants)
}

fn endpoints(count: usize) -> Vec<Endpoint> {
    let endpoint = |n: usize| endpoint(&format!("10.0.{}.{}", n / 256, n % 256), "", "80", "n1");
    (0..count).map(endpoint).collect()
}

fn begin(host: &mut Host, at_ms: u64) {
    testing::begin(host, at_ms, "syncer.sync");
}

fn denied<T>(what: &str) -> Result<T, Error> {
    Err(Error::AccessDenied(what.to_owned()))
}

#[tokio::test]
async fn another_name_zone_or_access_is_refused_without_a_request() {
    let (mut host, asked) = host(grants(&["web@z1"], &["web@z2", "w*@z3"]));
    assert_eq!(host.list_endpoints(neg("web", "z1")).await.unwrap(), Ok(vec![]));
    assert_eq!(
        host.list_endpoints(neg("web", "z2")).await.unwrap(),
        denied("no grant to read NEG `web` in zone `z2`")
    );
    assert_eq!(
        host.list_endpoints(neg("api", "z1")).await.unwrap(),
        denied("no grant to read NEG `api` in zone `z1`")
    );
    let refused = "no grant to write NEG `web` in zone `z1`";
    assert_eq!(
        host.ensure(neg("web", "z1"), "s1".into()).await.unwrap(),
        denied(refused)
    );
    assert_eq!(
        host.attach(neg("web", "z1"), endpoints(1)).await.unwrap(),
        denied(refused)
    );
    assert_eq!(
        host.detach(neg("web", "z1"), endpoints(1)).await.unwrap(),
        denied(refused)
    );
    assert_eq!(host.attach(neg("web", "z2"), endpoints(1)).await.unwrap(), Ok(7));
    assert_eq!(host.detach(neg("worker", "z3"), endpoints(1)).await.unwrap(), Ok(8));
    let reached: Vec<String> = asked
        .take()
        .into_iter()
        .map(|(call, neg, _)| format!("{call} {neg}"))
        .collect();
    assert_eq!(reached, ["list web@z1", "attach web@z2", "detach worker@z3"]);
    let calls = ["api.list-endpoints", "api.ensure", "api.attach", "api.detach"];
    let counted = calls.map(|call| testing::refusals(&host, call));
    assert_eq!(counted, [Some(2.0), Some(1.0), Some(1.0), Some(1.0)]);
}

#[tokio::test]
async fn requests_above_the_quota_and_oversized_operations_are_not_sent() {
    let one = Grant {
        write: ["*".to_owned()].into(),
        calls_per_minute: Some(2),
        ..Grant::default()
    };
    let (mut host, asked) = host(Grants::new([(NEG.to_owned(), one)].into()));
    let web = || neg("web", "z1");
    let most = ENDPOINTS_PER_OPERATION_MAX;
    assert_eq!(host.attach(web(), endpoints(most)).await.unwrap(), Ok(7));
    let above = "501 endpoints in one operation, which takes at most 500; split them";
    assert_eq!(
        host.detach(web(), endpoints(most + 1)).await.unwrap(),
        Err(Error::Refused((400, above.to_owned())))
    );
    assert_eq!(
        host.attach(web(), endpoints(1)).await.unwrap(),
        denied("`neg` was asked 2 times within a minute, the limit `calls_per_minute`")
    );
    assert_eq!(asked.take().len(), 1);
}

#[tokio::test]
async fn without_a_backend_it_is_unavailable() {
    let (mut host, _) = host(Grants::everything());
    host.backends.neg = None;
    let answer = host.list_endpoints(neg("web", "z1")).await.unwrap();
    let text = "this host has no backend for neg; configure `[backend.neg]`";
    assert_eq!(answer, Err(Error::Unavailable(text.to_owned())));
}

/// The ids of one call at that time: of an `ensure`, of two equal attachments and of a detachment.
async fn ids(instance: &str, at_ms: u64) -> Vec<RequestId> {
    let (mut host, asked) = host_of(instance, Tape::memory(), Grants::everything());
    begin(&mut host, at_ms);
    let web = || neg("web", "z1");
    host.ensure(web(), "s1".into()).await.unwrap().unwrap();
    for _ in 0..2 {
        host.attach(web(), endpoints(2)).await.unwrap().unwrap();
    }
    host.detach(web(), endpoints(2)).await.unwrap().unwrap();
    asked.ids()
}

#[tokio::test]
async fn a_repeated_call_has_the_same_ids_and_any_other_place_its_own() {
    let first = ids("default/web:80", 1_000).await;
    assert_eq!(first, ids("default/web:80", 1_000).await, "run again by another host");
    let mut all = first;
    all.extend(ids("default/web:80", 1_001).await);
    all.extend(ids("default/web:81", 1_000).await);
    let different: std::collections::BTreeSet<&RequestId> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (12, 12), "{all:?}");
}

#[tokio::test]
async fn the_ids_of_one_host_count_anew_in_each_call() {
    let (mut host, asked) = host(Grants::everything());
    begin(&mut host, 1_000);
    host.attach(neg("web", "z1"), endpoints(1)).await.unwrap().unwrap();
    host.tape.end_call(&Ending::result("").unwrap()).unwrap();
    begin(&mut host, 2_000);
    host.list_endpoints(neg("web", "z1")).await.unwrap().unwrap();
    host.attach(neg("web", "z1"), endpoints(1)).await.unwrap().unwrap();
    host.tape.end_call(&Ending::result("").unwrap()).unwrap();
    host.begin_unrecorded_call();
    host.attach(neg("web", "z1"), endpoints(1)).await.unwrap().unwrap();
    let ids: Vec<RequestId> = asked.take().into_iter().filter_map(|(_, _, id)| id).collect();

    // The second call again, by a host that knows nothing of the first.
    let (mut again, asked_again) = host_of("default/web:80", Tape::memory(), Grants::everything());
    begin(&mut again, 2_000);
    again.list_endpoints(neg("web", "z1")).await.unwrap().unwrap();
    again.attach(neg("web", "z1"), endpoints(1)).await.unwrap().unwrap();
    let (_, _, id) = asked_again.take().pop().unwrap();
    assert_eq!(id, Some(ids[1]));
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
}

#[tokio::test]
async fn nothing_is_changed_where_the_journal_can_not_be_brought_to_the_disk() {
    // Room for one open file: the second journal causes the first one's to be closed, and a deleted file can't be
    // opened again.
    let files = Files::new(1);
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tape = Tape::record(testing::journal(folder.path(), &files, "neg"));
    let (mut host, asked) = host_of("default/web:80", tape, grants(&[], &["web@z1"]));
    begin(&mut host, 1_000);
    drop(testing::journal(other.path(), &files, "neg"));
    for file in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let error = host.attach(neg("web", "z1"), endpoints(1)).await.unwrap_err();
    assert!(
        matches!(error.downcast_ref::<Stop>(), Some(Stop::Tape(TapeError::Journal(_)))),
        "{error:?}"
    );
    assert_eq!(asked.take().len(), 0);
}
