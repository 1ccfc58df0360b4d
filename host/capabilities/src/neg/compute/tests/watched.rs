//! How operations are watched to their end.

use super::*;
use crate::neg::compute::Operations;
use crate::neg::compute::operations::Started;

#[tokio::test]
async fn the_end_of_an_operation_is_told() {
    let mut world = World::with_neg(json!({"operation_ms": 50})).await;
    let attaching = world.api().change(true, &web(), &[endpoint(1)], id(1)).await.unwrap();
    let told = |operation, failure: Option<&str>| Ended {
        instance: "default/web".to_owned(),
        operation,
        failure: failure.map(ToOwned::to_owned),
    };
    assert_eq!(world.ended().await, told(attaching, None));
    assert_eq!(world.api().list_endpoints(&web()).await, Ok(vec![endpoint(1)]));

    world.fault(json!({"fail_next": 1, "code": "C", "message": "m"})).await;
    let failing = world.api().change(false, &web(), &[endpoint(1)], id(2)).await.unwrap();
    assert_eq!(world.ended().await, told(failing, Some("C: m")));
    assert_eq!(world.api().list_endpoints(&web()).await, Ok(vec![endpoint(1)]));

    let missing = world.api().change(false, &web(), &[endpoint(2)], id(3)).await.unwrap();
    let failure = world.ended().await.failure.unwrap();
    assert!(
        failure.starts_with("RESOURCE_NOT_FOUND: The network endpoint"),
        "{failure}"
    );
    assert_eq!(world.compute.under_way().len(), 3, "{missing}");
    for operation in [attaching, failing, missing] {
        world.compute.acknowledge("default/web", operation).await.unwrap();
    }
    assert_eq!(world.compute.under_way(), []);
}

#[tokio::test]
async fn errors_of_looking_end_nothing() {
    let mut world = World::with_neg(json!({"operation_ms": 200, "wait_ms": 20})).await;
    for fault in [
        json!({"path": "*/operations/*", "status": 503, "times": 2}),
        json!({"path": "*/operations/*", "close": "after", "times": 1}),
        json!({"path": "*/operations/*", "status": 429, "times": 1}),
        json!({"path": "*/operations/*", "status": 200 + 201, "times": 2}),
        json!({"path": "*/operations/*", "status": 502, "body": "<html>", "times": 1}),
    ] {
        world.fault(fault).await;
    }
    world.api().change(true, &web(), &[endpoint(1)], id(1)).await.unwrap();
    assert_eq!(world.ended().await.failure, None);
    assert_eq!(world.admin("GET", "/faults", Value::Null).await, json!([]));
}

#[tokio::test]
async fn an_operation_that_is_not_known_any_more_has_failed() {
    let mut world = World::with_neg(json!({})).await;
    // No caller sees it.
    world
        .fault(json!({"path": "*/operations/*", "status": 503, "times": 1}))
        .await;
    world.fault(json!({"path": "*/operations/*", "status": 404})).await;
    world.api().change(true, &web(), &[endpoint(1)], id(1)).await.unwrap();
    assert_eq!(world.ended().await.failure.as_deref(), Some("operation not found"));
}

#[tokio::test]
async fn an_operation_that_takes_too_long_has_failed() {
    let world = World::with_neg(json!({"operation_ms": 600_000, "wait_ms": 1})).await;
    let short = Settings {
        operation_timeout_ms: 50,
        ..settings(&world.server)
    };
    let (compute, mut ends) = backend_with(short);
    compute
        .of("i")
        .change(true, &web(), &[endpoint(1)], id(1))
        .await
        .unwrap();
    let ended = tokio::time::timeout(HANG, ends.recv()).await.unwrap().unwrap();
    assert_eq!(ended.failure.as_deref(), Some("timed out"));
}

#[tokio::test]
async fn a_clock_that_is_set_ends_no_operation_and_prolongs_none() {
    let world = World::with_neg(json!({"operation_ms": 300, "wait_ms": 1})).await;
    let watch = |timeout_ms, started: Vec<Started>| {
        let store = Operations::in_memory().unwrap();
        started.iter().for_each(|started| store.put(started).unwrap());
        let settings = Settings {
            operation_timeout_ms: timeout_ms,
            ..settings(&world.server)
        };
        Compute::new(
            settings,
            Credentials::fixed("t").unwrap(),
            Arc::new(store),
            Fence::open(),
        )
        .unwrap()
    };
    let operation = world.api().change(true, &web(), &[endpoint(1)], id(1)).await.unwrap();
    let started = |started_ms| Started {
        instance: "i".to_owned(),
        number: operation,
        zone: "z-a".to_owned(),
        neg: "web".to_owned(),
        request: id(1).0.to_string(),
        started_ms,
        end: None,
    };
    // The clock was set forward meanwhile. This process started the operation, so the clock does not matter.
    let (compute, mut ends) = watch(60_000, Vec::new());
    let shared = &compute.watch;
    shared.begin(started(0), &compute.tasks).await.unwrap();
    let ended = tokio::time::timeout(HANG, ends.recv()).await.unwrap().unwrap();
    assert_eq!(ended.failure, None);
    // The clock was set back before a restart: the operation gets its time once more, but not forever.
    world.fault(json!({"path": "*/operations/*", "status": 503})).await;
    let (_compute, mut ends) = watch(50, vec![started(u64::MAX)]);
    let ended = tokio::time::timeout(HANG, ends.recv()).await.unwrap().unwrap();
    assert_eq!(ended.failure.as_deref(), Some("timed out"));
}

#[tokio::test]
async fn a_restarted_host_polls_on_and_reports_ends_until_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("neg/operations.redb");
    let open = || Arc::new(Operations::open(&path).unwrap());
    let config = json!({"operation_ms": 200, "wait_ms": 1});
    let world = World::with(config, open(), Fence::open()).await;
    world.given(&[]).await;
    let operation = world.api().change(true, &web(), &[endpoint(1)], id(1)).await.unwrap();

    // Stopped abruptly before the end; the tasks release the file at their next step.
    let restart = async |world: World| {
        let World { server, compute, ends } = world;
        drop((compute, ends));
        let store = loop {
            match Operations::open(&path) {
                Ok(store) => break Arc::new(store),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let (compute, ends) = backend(&server, store, Fence::open());
        World { server, compute, ends }
    };
    let mut world = restart(world).await;
    let ended = world.ended().await;
    assert_eq!((ended.operation, ended.failure), (operation, None));

    // Stopped before the acknowledgement, and Compute Engine forgets the operation meanwhile.
    world.admin("DELETE", "/operations", Value::Null).await;
    let mut world = restart(world).await;
    assert_eq!(world.ended().await.failure, None);
    world.compute.acknowledge("default/web", operation).await.unwrap();
    let world = restart(world).await;
    assert_eq!(world.compute.under_way(), []);
}

#[tokio::test]
async fn looks_go_on_where_this_host_may_not_act_any_more() {
    let config = json!({"operation_ms": 100});
    let fence = Fence::open();
    let mut world = World::with(config, in_memory(), fence.clone()).await;
    world.given(&[]).await;
    let operation = world.api().change(true, &web(), &[endpoint(1)], id(1)).await.unwrap();
    fence.close();
    let ended = world.ended().await;
    assert_eq!((ended.operation, ended.failure), (operation, None));
}
