//! The answers of the four functions.

use trueup_base::fence::machine_now;

use super::*;
use crate::neg::Error;

#[tokio::test]
async fn a_neg_is_made_once_and_then_compared() {
    let world = World::new(json!({})).await;
    assert_eq!(world.api().ensure(&web(), "s1", id(1)).await, Ok(true));
    assert_eq!(world.api().ensure(&web(), "s1", id(2)).await, Ok(false));
    let other = "NEG web in z-a has subnet s1, not s2".to_owned();
    assert_eq!(
        world.api().ensure(&web(), "s2", id(3)).await,
        Err(Error::Refused((409, other)))
    );
    let ledger = world.ledger().await;
    assert_eq!(ledger.len(), 1);
    assert_eq!(ledger[0]["request_id"], id(1).0.to_string());
}

#[tokio::test]
async fn a_neg_that_takes_a_while_is_waited_for_as_long_as_may_be() {
    let world = World::new(json!({"operation_ms": 50})).await;
    assert_eq!(world.api().ensure(&web(), "s1", id(1)).await, Ok(true));
    world
        .admin("PATCH", "/settings", json!({"operation_ms": 600_000}))
        .await;
    let short = Settings {
        ensure_timeout_ms: 30,
        ..settings(&world.server)
    };
    let (compute, _ends) = backend_with(short);
    let other = neg("other", "z-a");
    let error = compute.of("i").ensure(&other, "s1", id(2)).await.unwrap_err();
    assert_eq!(
        error,
        Error::Unavailable("NEG other in z-a was not there within 30 ms".to_owned())
    );
}

#[tokio::test]
async fn a_neg_that_somebody_else_makes_meanwhile_is_theirs() {
    let world = World::new(json!({})).await;
    let get = "*/networkEndpointGroups/web";
    world.given(&[]).await;
    world
        .fault(json!({"method": "GET", "path": get, "status": 404, "times": 1}))
        .await;
    assert_eq!(world.api().ensure(&web(), "s1", id(1)).await, Ok(false));
    world
        .fault(json!({"method": "GET", "path": get, "status": 404, "times": 2}))
        .await;
    let error = world.api().ensure(&web(), "s1", id(1)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(text) if text.contains("already exists")));
}

#[tokio::test]
async fn an_insertion_that_fails_is_told() {
    let world = World::new(json!({})).await;
    world.fault(json!({"fail_next": 1, "code": "C", "message": "m"})).await;
    let error = world.api().ensure(&web(), "s1", id(1)).await;
    assert_eq!(error, Err(Error::Unavailable("C: m".to_owned())));
}

#[tokio::test]
async fn lists_hold_all_pages_canonical_and_in_the_guests_order() {
    let world = World::new(json!({"ipv6_long": true})).await;
    // Descending: the server's order is that of arrival.
    let mut endpoints: Vec<_> = (0..1_200).rev().map(endpoint).collect();
    let dual = Endpoint {
        ipv6: "2001:db8::1".to_owned(),
        ..endpoint(2_000)
    };
    endpoints.push(dual);
    world.given(&endpoints).await;
    endpoints.sort();
    assert_eq!(world.api().list_endpoints(&web()).await, Ok(endpoints));
    let requests = world.admin("GET", "/requests", Value::Null).await;
    assert_eq!(requests["requests"]["networkEndpointGroups.listNetworkEndpoints"], 3);
    let none = neg("none", "z-a");
    assert_eq!(world.api().list_endpoints(&none).await, Err(Error::NotFound));
}

#[tokio::test]
async fn a_page_token_that_fails_starts_the_list_over_once() {
    let world = World::new(json!({})).await;
    world.given(&(0..600).map(endpoint).collect::<Vec<_>>()).await;
    let refused = |times| json!({"path": "*listNetworkEndpoints?*pageToken=*", "status": 400, "times": times});
    world.fault(refused(1)).await;
    assert_eq!(world.api().list_endpoints(&web()).await.unwrap().len(), 600);
    world.fault(refused(2)).await;
    let error = world.api().list_endpoints(&web()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(text) if text.contains("the next page was refused: HTTP 400")));
    assert_eq!(world.api().list_endpoints(&web()).await.unwrap().len(), 600);
}

#[tokio::test]
async fn what_is_answered_is_mapped() {
    let world = World::with_neg(json!({})).await;
    let refused = |status, text: &str| Error::Refused((status, text.to_owned()));
    for (fault, error) in [
        (json!({"status": 404}), Error::NotFound),
        (json!({"status": 429}), Error::RateLimited(None)),
        (
            json!({"status": 429, "retry_after_s": 7}),
            Error::RateLimited(Some(7_000)),
        ),
        (
            json!({"status": 403, "reason": "rateLimitExceeded", "retry_after_s": 1}),
            Error::RateLimited(Some(1_000)),
        ),
        (
            json!({"status": 403, "reason": "userRateLimitExceeded"}),
            Error::RateLimited(None),
        ),
        (
            json!({"status": 403, "reason": "quotaExceeded", "message": "m"}),
            refused(403, "m"),
        ),
        (json!({"status": 403, "message": "no"}), refused(403, "no")),
        (
            json!({"status": 400, "reason": "resourceNotReady", "message": "m"}),
            refused(400, "m"),
        ),
        (json!({"status": 412, "message": "m"}), refused(412, "m")),
        (json!({"status": 401, "times": 2}), Error::Unauthorized),
    ] {
        let mut fault = fault;
        if fault.get("times").is_none() {
            fault["times"] = json!(1);
        }
        world.fault(fault.clone()).await;
        assert_eq!(world.api().list_endpoints(&web()).await, Err(error), "{fault}");
        assert_eq!(world.api().list_endpoints(&web()).await, Ok(vec![]), "after {fault}");
    }
    for fault in [
        json!({"status": 503, "times": 3}),
        json!({"status": 500, "times": 3, "body": "<html>secret-token</html>"}),
        json!({"close": "before", "times": 3}),
        json!({"close": "after", "times": 3}),
    ] {
        world.fault(fault.clone()).await;
        let error = world.api().list_endpoints(&web()).await.unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable(text) if !text.contains("secret-token")),
            "{fault}: {error:?}"
        );
        assert_eq!(world.api().list_endpoints(&web()).await, Ok(vec![]), "after {fault}");
    }
}

#[tokio::test]
async fn a_change_whose_answer_got_lost_happens_once() {
    let mut world = World::with_neg(json!({})).await;
    for (number, fault) in [
        (1, json!({"path": "*/attach*", "close": "after", "times": 1})),
        (
            2,
            json!({"path": "*/attach*", "status": 503, "when": "after", "times": 2}),
        ),
    ] {
        world.fault(fault).await;
        let endpoints = [endpoint(number)];
        let operation = world
            .api()
            .change(true, &web(), &endpoints, id(u128::from(number)))
            .await
            .unwrap();
        let ended = world.ended().await;
        assert_eq!((ended.operation, ended.failure), (operation, None));
        // Also if the whole call is repeated, as after a crash.
        assert_eq!(
            world
                .api()
                .change(true, &web(), &endpoints, id(u128::from(number)))
                .await,
            Ok(operation)
        );
    }
    let ledger = world.ledger().await;
    let repeats: Vec<_> = ledger
        .iter()
        .map(|operation| operation["repeats"].as_u64().unwrap())
        .collect();
    assert_eq!(repeats, [2, 3]);
}

#[tokio::test]
async fn changes_of_one_neg_arrive_in_the_order_in_which_they_were_asked_for() {
    let world = World::with_neg(json!({})).await;
    // The first needs three tries.
    world
        .fault(json!({"path": "*/attach*", "status": 503, "times": 2}))
        .await;
    let (api, neg) = (world.api(), web());
    let (first, second) = ([endpoint(1)], [endpoint(2)]);
    let (first, second) = tokio::join!(
        api.change(true, &neg, &first, id(1)),
        api.change(true, &neg, &second, id(2))
    );
    assert!(first.unwrap() < second.unwrap());
}

#[tokio::test]
async fn a_port_that_is_no_number_is_refused_without_a_request() {
    let world = World::new(json!({})).await;
    let bad = Endpoint {
        port: "http".to_owned(),
        ..endpoint(1)
    };
    let error = world.api().change(true, &web(), &[bad], id(1)).await.unwrap_err();
    assert!(matches!(error, Error::Refused((400, _))));
    assert_eq!(
        world.admin("GET", "/requests", Value::Null).await["requests"],
        json!({})
    );
}

#[tokio::test]
async fn a_host_that_may_not_act_asks_for_nothing() {
    let fence = Fence::closed();
    let world = World::with(json!({}), in_memory(), fence.clone()).await;
    let not_sent = |error| matches!(error, Error::Unavailable(text) if text.contains("does not hold the lease"));
    assert!(not_sent(world.api().ensure(&web(), "s1", id(1)).await.unwrap_err()));
    assert!(not_sent(
        world
            .api()
            .change(true, &web(), &[endpoint(1)], id(2))
            .await
            .unwrap_err()
    ));
    assert_eq!(
        world.admin("GET", "/requests", Value::Null).await["requests"],
        json!({})
    );

    let before = world.compute.of_this_epoch();
    fence.extend_to(machine_now() + HANG);
    assert_eq!(world.api().ensure(&web(), "s1", id(1)).await, Ok(true));
    assert!(not_sent(
        before
            .of("i")
            .change(true, &web(), &[endpoint(1)], id(3))
            .await
            .unwrap_err()
    ));
}

#[tokio::test]
async fn no_more_is_under_way_at_a_time_than_may_be() {
    let mut world = World::with_neg(json!({"operation_ms": 100, "latency_ms": 5})).await;
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..20 {
        let api = world.api();
        asked.spawn(async move {
            api.change(true, &web(), &[endpoint(number)], id(1 + u128::from(number)))
                .await
        });
    }
    assert!(asked.join_all().await.iter().all(Result::is_ok));
    for _ in 0..20 {
        assert_eq!(world.ended().await.failure, None);
    }
    let requests = world.admin("GET", "/requests", Value::Null).await;
    assert!(requests["requests_in_flight_max"].as_u64().unwrap() <= 4, "{requests}");
}
