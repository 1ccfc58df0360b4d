//! Unknown state changes nothing.

use trueup_base::clock::VirtualClock;
use trueup_capabilities::holdings::ApproveAbove;
use trueup_capabilities::quota::Quotas;

use super::*;

fn objects() -> [Object; 4] {
    [
        service("web", json!({"clusterIP": "10.96.0.1"})),
        slice("web-1", http(80), json!([endpoint("10.1.1.1", "p", "ready")])),
        pod("p", "10.1.1.1", json!({})),
        node("node-a", "10.0.0.1"),
    ]
}

fn incomplete(changes: impl IntoIterator<Item = Changed>) -> Batch {
    Batch {
        complete: false,
        ..look(changes)
    }
}

/// A complete look while these objects cannot be read.
fn without(changes: impl IntoIterator<Item = Changed>, unreadable: impl IntoIterator<Item = ObjectRef>) -> Batch {
    Batch {
        unreadable: Arc::new(unreadable.into_iter().collect()),
        ..look(changes)
    }
}

#[test]
fn before_a_complete_look_nothing_is_told() {
    let mut all = cluster();
    let told = all.take_in(&incomplete(objects().map(is)));
    assert_eq!((told.events, told.nodes, all.is_complete()), (vec![], vec![], false));
    let one = is(service("api", json!({})));
    let told = all.take_in(&look([one]));
    assert_eq!((told.events, all.is_complete()), (vec![], true));
    assert_eq!(all.services().len(), 2);
}

#[test]
fn what_goes_while_something_is_hidden_stands_until_it_is_known() {
    let mut all = with(objects());
    let more = is(pod("q", "10.1.1.2", json!({})));
    let changes = objects().iter().map(gone).chain([more]).collect::<Vec<_>>();
    let told = all.take_in(&incomplete(changes));
    assert_eq!(
        (short(&told.events), told.nodes),
        (vec!["pod q".to_owned()], vec![]),
        "what comes is told all the same"
    );
    assert!(all.is_complete());
    // One of them returns.
    let told = all.take_in(&incomplete([is(objects()[0].clone())]));
    assert_eq!(told, Changes::default());
    let told = all.take_in(&look([]));
    assert_eq!(short(&told.events), ["-endpoints web", "-pod p"]);
    assert_eq!(told.nodes, [Change::KubeNodeDeleted("node-a".to_owned())]);
}

#[test]
fn an_object_that_cannot_be_read_any_more_stands_until_it_can_or_is_gone() {
    for is_gone in [false, true] {
        let mut all = with(objects());
        let slice = reference(Kind::EndpointSlice, "web-1");
        let told = all.take_in(&without([gone(&objects()[1])], [slice.clone()]));
        assert_eq!(told, Changes::default(), "it was made anew, and is there");
        let other = reference(Kind::EndpointSlice, "other");
        assert_eq!(all.take_in(&without([], [slice, other])), Changes::default());
        let told = if is_gone {
            // The source also reports the deletion of an object that was never readable.
            all.take_in(&look([gone(&objects()[1])]))
        } else {
            all.take_in(&look([is(objects()[1].clone())]))
        };
        let expected: &[&str] = if is_gone { &["-endpoints web"] } else { &[] };
        assert_eq!(short(&told.events), expected);
    }
}

#[test]
fn a_source_that_holds_nothing_any_more_is_one_that_is_not_there() {
    let mut all = with(objects());
    let told = all.take_in(&look(objects().iter().map(gone)));
    let nothing = Changes {
        is_empty: true,
        ..Changes::default()
    };
    assert_eq!(told, nothing);
    assert_eq!(all.take_in(&look([])), nothing, "for as long as that is so");
    assert_eq!(all.services().len(), 1);
    let told = all.take_in(&look([is(objects()[3].clone())]));
    assert_eq!(short(&told.events), ["-service web", "-endpoints web", "-pod p"]);
    assert_eq!((told.nodes, told.is_empty), (vec![], false));
}

#[test]
fn objects_of_which_nothing_is_told_show_that_the_source_is_there() {
    let foreign = pod("b", "10.1.1.2", json!({"spec": {"nodeName": "node-b"}}));
    let mut all = with(objects().into_iter().chain([foreign.clone()]));
    let told = all.take_in(&look(objects().iter().map(gone)));
    assert_eq!(short(&told.events), ["-service web", "-endpoints web", "-pod p"]);
    assert!(all.take_in(&look([gone(&foreign)])).is_empty);
    assert!(!all.take_in(&look([is(foreign)])).is_empty);
}

#[test]
fn an_empty_folder_at_the_start_is_one_that_is_not_there() {
    let mut all = cluster();
    let told = all.take_in(&look([]));
    assert!(told.is_empty && !all.is_complete());
    let told = all.take_in(&look([is(node("node-a", "10.20.0.2"))]));
    assert!(
        !told.is_empty && all.is_complete(),
        "a Node says that the folder is there"
    );
}

#[test]
fn a_cluster_whose_last_object_goes_while_it_is_watched_is_empty() {
    let mut all = Cluster::new("node-a", Interfaces::None, true);
    assert!(all.take_in(&look([])).is_empty, "at the start it may be another one");
    let web = service("web", json!({}));
    all.take_in(&look([is(web.clone())]));
    let told = all.take_in(&look([gone(&web)]));
    assert_eq!(
        (told.is_empty, told.events),
        (false, vec![Event::ServiceDeleted(id("web"))])
    );
}

/// A cluster of twenty Services in which large removals need an approval.
fn guarded(quotas: &Arc<Quotas>) -> (Cluster, Vec<Object>) {
    quotas
        .holdings
        .guard(ApproveAbove::default(), Arc::new(VirtualClock::new(0)));
    let services: Vec<Object> = (0..20)
        .map(|number| service(&format!("s{number}"), json!({})))
        .collect();
    let mut all = cluster();
    all.quotas = Some(Arc::clone(quotas));
    all.take_in(&look(services.iter().cloned().map(is)));
    (all, services)
}

#[test]
fn more_than_half_of_the_services_go_only_after_an_approval() {
    let quotas = Arc::new(Quotas::default());
    let (mut all, services) = guarded(&quotas);
    assert_eq!(
        all.take_in(&look(services[..10].iter().map(gone))).events.len(),
        10,
        "half"
    );
    let (mut all, services) = guarded(&quotas);
    assert_eq!(all.take_in(&look(services[..11].iter().map(gone))).events, []);
    assert_eq!(all.services().len(), 20);
    assert_eq!(quotas.holdings.waiting().unwrap().objects, 11);
    assert_eq!(
        all.take_in(&look([is(services[0].clone())])).events.len(),
        10,
        "less is to go now"
    );
    assert_eq!(quotas.holdings.waiting(), None);

    let (mut all, services) = guarded(&quotas);
    all.take_in(&look(
        services.iter().map(gone).chain([is(node("node-a", "10.20.0.2"))]),
    ));
    assert_eq!(all.services().len(), 20);
    quotas.holdings.approve().unwrap();
    assert_eq!(all.take_in(&look([])).events.len(), 20);
}

/// The next process, whose first look shows five of the twenty Services.
fn after_a_restart(mut all: Cluster) -> (Cluster, Arc<Quotas>) {
    let quotas = Arc::new(Quotas::default());
    let (_, services) = guarded(&quotas);
    let next = Arc::new(Quotas::default());
    next.holdings
        .guard(ApproveAbove::default(), Arc::new(VirtualClock::new(0)));
    next.holdings.restore(quotas.holdings.changed().unwrap());
    all.quotas = Some(Arc::clone(&next));
    all.take_in(&look(services[..5].iter().cloned().map(is)));
    (all, next)
}

#[test]
fn services_deleted_in_a_cluster_while_no_process_runs_are_forgotten() {
    let (all, next) = after_a_restart(Cluster::new("node-a", Interfaces::None, true));
    assert!(all.is_complete());
    assert_eq!(next.holdings.without(|_| false).len(), 5);
}

#[test]
fn services_that_go_while_no_process_runs_wait_as_well() {
    let (mut all, next) = after_a_restart(cluster());
    assert!(!all.is_complete(), "nothing is rendered anew");
    next.holdings.approve().unwrap();
    all.take_in(&look([]));
    assert!(all.is_complete());
}
