//! What subscribers receive, without a cluster.

use serde_json::json;

use super::*;
use crate::kubernetes::decode;
use crate::kubernetes::settings::NEEDED;

fn scope(kind: Kind) -> Scope {
    Scope { kind, namespace: None }
}

fn services() -> Scope {
    scope(Kind::Service)
}

fn read(name: &str, version: u32, port: u16) -> Read {
    let service = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("u-{name}"), "resourceVersion": version.to_string()},
        "spec": {"ports": [{"port": port}]},
    });
    decode::read(Kind::Service, &serde_json::value::to_raw_value(&service).unwrap()).unwrap()
}

fn broken(name: &str) -> Read {
    let service = json!({"metadata": {"name": name, "namespace": "default"}, "spec": 7});
    decode::read(Kind::Service, &serde_json::value::to_raw_value(&service).unwrap()).unwrap()
}

fn reference(name: &str) -> ObjectRef {
    read(name, 1, 1).reference
}

/// The content of a batch: names, with a `-` before those that are gone.
fn said(batch: &Option<Batch>) -> Vec<String> {
    let name = |change: &Change| match change.now {
        Some(_) => change.reference.name.clone(),
        None => format!("-{}", change.reference.name),
    };
    batch.iter().flat_map(|batch| &batch.changes).map(name).collect()
}

/// A store whose subscriber has taken the Service `a`.
fn with_a() -> (Arc<Store>, u64) {
    let store = Store::new([services()], &NEEDED);
    let (number, _) = store.subscribe();
    store.replace(&services(), vec![read("a", 1, 80)]);
    store.take(number);
    (store, number)
}

#[test]
fn the_first_batch_waits_for_everything_and_holds_everything() {
    let store = Store::new([services(), scope(Kind::Node)], &NEEDED);
    let (early, _) = store.subscribe();
    store.replace(&services(), vec![read("a", 1, 80), read("b", 1, 80)]);
    assert_eq!(store.take(early), None, "nodes are not known yet");
    assert!(!store.is_synced());
    store.replace(&scope(Kind::Node), Vec::new());
    let first = store.take(early);
    assert!(first.as_ref().unwrap().complete);
    assert_eq!(said(&first), ["a", "b"]);
    assert_eq!(store.take(early), None);

    let (late, _) = store.subscribe();
    assert_eq!(
        said(&store.take(late)),
        ["a", "b"],
        "one that comes later is told everything, too"
    );
}

#[test]
fn an_optional_kind_that_cannot_be_listed_is_a_problem_and_stops_nothing() {
    let (slices, pods) = (scope(Kind::EndpointSlice), scope(Kind::Pod));
    let store = Store::new([services(), slices.clone(), pods.clone()], &NEEDED);
    let (number, _) = store.subscribe();
    store.replace(&services(), vec![read("a", 1, 80)]);
    assert!(store.is_synced(), "others that never answer are not waited for");
    let first = store.take(number).unwrap();
    assert!(first.complete && first.problems.is_empty(), "{first:?}");

    for _ in 0..2 {
        store.note(&slices, |status| {
            status.last_error = Some("list endpointslices: no".to_owned())
        });
    }
    let batch = store.take(number).unwrap();
    assert!(batch.complete && batch.changes.is_empty());
    let said: Vec<String> = batch.new_problems.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["the cluster: list endpointslices: no; going on without them"]);
    assert!(!batch.problems[0].hides_objects);
    store.note(&slices, |status| status.errors += 1);
    assert_eq!(store.take(number), None, "the same is said once");

    store.replace(&pods, Vec::new());
    store.take(number);
    store.replace(&slices, Vec::new());
    assert_eq!(store.take(number).unwrap().problems, [], "it is over");
    store.note(&services(), |status| status.last_error = Some("cut".to_owned()));
    assert_eq!(store.take(number), None);
}

#[test]
fn a_kind_that_the_configuration_needs_is_waited_for() {
    let slices = scope(Kind::EndpointSlice);
    let needed = [Kind::Service, Kind::EndpointSlice];
    let store = Store::new([services(), slices.clone(), scope(Kind::Pod)], &needed);
    let (number, _) = store.subscribe();
    store.replace(&services(), vec![read("a", 1, 80)]);
    store.note(&slices, |status| {
        status.last_error = Some("list endpointslices: no".to_owned())
    });
    assert!(!store.is_synced());
    assert_eq!(store.take(number), None, "without slices nothing can be said of NEGs");
    store.replace(&slices, Vec::new());
    let first = store.take(number).unwrap();
    assert!(first.complete && first.problems.is_empty(), "{first:?}");
}

#[test]
fn an_empty_cluster_is_told_once() {
    let store = Store::new([services()], &NEEDED);
    let (number, _) = store.subscribe();
    store.replace(&services(), Vec::new());
    assert_eq!(
        store.take(number),
        Some(Batch {
            complete: true,
            ..Batch::default()
        })
    );
    assert_eq!(store.take(number), None);
}

#[test]
fn changes_of_one_object_are_one_and_a_list_brings_what_differs() {
    let store = Store::new([services()], &NEEDED);
    let (number, _) = store.subscribe();
    store.replace(&services(), vec![read("a", 1, 80), read("b", 1, 80), read("c", 1, 80)]);
    store.take(number);
    for version in 2..100 {
        store.put(&services(), read("a", version, 81));
    }
    store.put(&services(), read("new", 100, 80));
    store.remove(&services(), &reference("new"));
    store.remove(&services(), &reference("b"));
    assert_eq!(said(&store.take(number)), ["a", "-b", "-new"]);

    store.replace(
        &services(),
        vec![read("a", 99, 81), read("c", 200, 82), read("d", 201, 80)],
    );
    assert_eq!(said(&store.take(number)), ["c", "d"], "a is as it was");
    store.replace(&services(), vec![read("d", 201, 80)]);
    assert_eq!(said(&store.take(number)), ["-a", "-c"], "a deletion that no watch saw");
}

#[test]
fn another_version_of_the_same_is_no_change_and_the_newest_is_kept() {
    let (store, number) = with_a();
    store.put(&services(), read("a", 2, 80));
    assert_eq!(store.take(number), None);
    let kept = store.service("default", "a").unwrap();
    assert_eq!(kept.metadata.resource_version.as_deref(), Some("2"));
}

fn service_of(read: Read) -> Service {
    let Ok(Object::Service(service)) = read.object else {
        panic!("{:?}", read.object)
    };
    Service::clone(&service)
}

#[test]
fn what_we_wrote_is_known_and_no_news() {
    let (store, number) = with_a();
    let mut written = service_of(read("a", 2, 80));
    written.metadata.finalizers = Some(vec!["ours".to_owned()]);
    written.status = Some(k8s_openapi::api::core::v1::ServiceStatus::default());
    store.wrote(Some("7"), Arc::new(written.clone()));
    let version = || store.service("default", "a").unwrap().metadata.resource_version.clone();
    assert_eq!(version().as_deref(), Some("1"), "the watch was quicker");
    store.wrote(Some("1"), Arc::new(written.clone()));
    assert_eq!((version().as_deref(), store.take(number)), (Some("2"), None));
    let echo = Read {
        object: Ok(Object::Service(Arc::new(written.clone()))),
        ..read("a", 2, 80)
    };
    store.put(&services(), echo);
    assert_eq!(store.take(number), None, "its echo");
    written.metadata.uid = Some("another".to_owned());
    store.wrote(Some("2"), Arc::new(written));
    assert_eq!(
        store.service("default", "a").unwrap().metadata.uid.as_deref(),
        Some("u-a")
    );
}

#[test]
fn what_a_webhook_made_of_a_write_of_ours_is_a_change() {
    let (store, number) = with_a();
    let mut before = 1;
    let mut is_told = |change: &dyn Fn(&mut Service)| {
        let mut written = service_of(read("a", before + 1, 80));
        change(&mut written);
        store.wrote(Some(&before.to_string()), Arc::new(written));
        before += 1;
        said(&store.take(number)) == ["a"]
    };
    assert!(!is_told(&|_| {}));
    assert!(is_told(&|service| {
        service.metadata.annotations = Some([("pool".to_owned(), "b".to_owned())].into());
    }));
    assert!(is_told(&|_| {}), "it is taken away again");
    assert!(is_told(
        &|service| service.metadata.labels = Some([("tier".to_owned(), "b".to_owned())].into())
    ));
    assert!(is_told(&|service| {
        service.metadata.labels = Some([("tier".to_owned(), "b".to_owned())].into());
        service.spec.get_or_insert_default().load_balancer_class = Some("another".to_owned());
    }));
}

#[test]
fn an_unreadable_object_hides_no_other_and_keeps_its_known_version() {
    let store = Store::new([services()], &NEEDED);
    let (number, _) = store.subscribe();
    store.replace(&services(), vec![read("a", 1, 80), broken("b")]);
    let batch = store.take(number).unwrap();
    assert_eq!(said(&Some(batch.clone())), ["a"]);
    assert_eq!(*batch.unreadable, [reference("b")].into());
    assert_eq!((batch.problems.len(), &batch.problems), (1, &batch.new_problems));
    assert!(
        batch.problems[0]
            .to_string()
            .starts_with("Service default/b: can't be read: "),
        "{:?}",
        batch.problems
    );

    store.put(&services(), broken("a"));
    let batch = store.take(number).unwrap();
    assert_eq!(
        (batch.changes.len(), batch.unreadable.len(), batch.new_problems.len()),
        (0, 2, 1)
    );
    assert!(store.service("default", "a").is_some());

    store.put(&services(), read("b", 5, 80));
    let batch = store.take(number).unwrap();
    assert_eq!(
        (said(&Some(batch.clone())), batch.problems.len()),
        (vec!["b".to_owned()], 1)
    );
    store.remove(&services(), &reference("a"));
    let batch = store.take(number).unwrap();
    assert_eq!(said(&Some(batch.clone())), ["-a"]);
    assert_eq!((batch.problems, batch.unreadable.len()), (vec![], 0));
}

#[tokio::test]
async fn watches_wait_for_a_subscriber_that_takes_nothing_until_it_is_gone() {
    let store = Store::new([services(), scope(Kind::Node)], &NEEDED);
    let (number, _) = store.subscribe();
    store.room().await;
    let full = (0..PENDING_MAX).map(|number| ObjectRef {
        kind: Kind::Service,
        namespace: "default".to_owned(),
        name: number.to_string(),
    });
    store
        .state
        .lock()
        .subscribers
        .get_mut(&number)
        .unwrap()
        .pending
        .extend(full);
    store.replace(&services(), Vec::new());
    // Nothing can be taken before the required lists are complete, so waiting here would never end.
    store.room().await;
    store.replace(&scope(Kind::Node), Vec::new());
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.room().await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    store.unsubscribe(number);
    waiting.await.unwrap();
}
