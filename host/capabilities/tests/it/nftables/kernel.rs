//! The real nft: whole transactions, its own messages, and that it sees the same tables as the grant check.

use needs::needs;
use serde_json::{Value, json};
use trueup_capabilities::nftables::Api as _;
use trueup_capabilities::nftables::scope::tables;

use super::{Namespace, add_chain, add_table, transaction};

#[needs(netns, nft, root)]
#[tokio::test]
async fn a_transaction_is_applied_whole_or_not_at_all() {
    let namespace = Namespace::new();
    let nft = namespace.nft();
    let fine = transaction(&[add_table("a"), add_chain("a", "one")]);
    assert_eq!(nft.apply(&fine).await, Ok(()));
    assert_eq!(namespace.tables(), ["ip a"]);

    for (second, said) in [
        // The kernel refuses it,
        (add_chain("nowhere", "one"), "No such file or directory"),
        // and nft.
        (
            json!({"frob": {"chain": {"family": "ip", "table": "a", "name": "two"}}}),
            "index 1",
        ),
    ] {
        let error = nft.apply(&transaction(&[add_table("b"), second])).await.unwrap_err();
        assert!(
            error.starts_with("`nft` refused the transaction: ") && error.contains(said),
            "{error}"
        );
        assert!(!error.contains('\n') && !error.contains("{\""), "{error}");
        assert_eq!(namespace.tables(), ["ip a"]);
    }
}

/// For a pipe, nft 1.0.6 would report success.
#[needs(netns, nft, root)]
#[tokio::test]
async fn what_nft_can_not_read_is_an_error() {
    let namespace = Namespace::new();
    let nft = namespace.nft();
    for text in [
        "",
        "{\"nftables\":",
        "{\"nftables\":[]} x",
        "{\"nftables\":[{\"add\":{\"table\":{\"family\":\"ip\",\"name\":\"a\\u0000b\"}}}]}",
        "{\"nftables\":[{\"add\":{\"table\":{\"family\":\"ip\",\"name\":\"a\",\"comment\":99999999999999999999}}}]}",
    ] {
        // Empty text is also empty in nft's other language, so the result depends on which check comes first.
        if !text.is_empty() {
            let error = nft.apply(text).await.unwrap_err();
            assert!(error.starts_with("`nft` refused the transaction: "), "{text}: {error}");
        }
        assert!(tables(text).is_err(), "{text}");
    }
    assert_eq!(namespace.tables(), [""; 0]);
}

/// Texts that two parsers may read differently: whatever nft makes of them, it touches no table that was not found.
#[needs(netns, nft, root)]
#[tokio::test]
async fn nft_touches_no_table_that_is_not_found_in_its_transaction() {
    let table = r#"{"family":"ip","name":"a"}"#;
    let texts = [
        format!(r#"{{"nftables":[{{"add":{{"table":{table}}}}}]}}"#),
        // Escapes in keys and names.
        r#"{"nftables":[{"\u0061dd":{"t\u0061ble":{"f\u0061mily":"\u0069p","n\u0061me":"\u0061\u00e4\ud83d\ude00"}}}]}"#.to_owned(),
        // Duplicate members.
        r#"{"nftables":[{"add":{"table":{"family":"ip","name":"a","name":"b"}}}]}"#.to_owned(),
        r#"{"nftables":[{"add":{"table":{"family":"ip","name":"a","n\u0061me":"b"}}}]}"#.to_owned(),
        r#"{"nftables":[{"add":{"table":{"family":"ip","family":"ip6","name":"a"}}}]}"#.to_owned(),
        format!(r#"{{"nftables":[{{"add":{{"table":{table}}},"add":{{"table":{{"family":"ip","name":"b"}}}}}}]}}"#),
        format!(r#"{{"nftables":[{{"add":{{"table":{table},"table":{{"family":"ip","name":"b"}}}}}}]}}"#),
        format!(r#"{{"nftables":[{{"add":{{"table":{table}}}}}],"nftables":[{{"add":{{"table":{{"family":"ip","name":"b"}}}}}}]}}"#),
        // Commands without a verb, with several, or in another case.
        format!(r#"{{"nftables":[{{"table":{table}}}]}}"#),
        format!(r#"{{"nftables":[{{"metainfo":{{}},"add":{{"table":{table}}}}}]}}"#),
        format!(r#"{{"nftables":[{{"add":{{"table":{table}}},"flush":{{"ruleset":null}}}}]}}"#),
        format!(r#"{{"nftables":[{{"ADD":{{"table":{table}}}}}]}}"#),
        // Names that are more than a word in nft's other language.
        r#"{"nftables":[{"add":{"table":{"family":"ip","name":"a; add table ip b"}}}]}"#.to_owned(),
        r#"{"nftables":[{"add":{"table":{"family":"ip","name":"a\nadd table ip b\n"}}}]}"#.to_owned(),
        r#"{"nftables":[{"add":{"table":{"family":"ip a","name":"b"}}}]}"#.to_owned(),
        r#"{"nftables":[{"add":{"table":{"family":"IP","name":"b"}}}]}"#.to_owned(),
        // Its other language.
        "add table ip b\n".to_owned(),
        "{\"nftables\":[\n\"add table ip b\"\n,]}".to_owned(),
    ];
    let mut applied = 0;
    for text in texts {
        let namespace = Namespace::new();
        let found = tables(&text).unwrap_or_default();
        // Refused text never reaches nft. Here it does, to show that some refusals are necessary.
        let answer = namespace.nft().apply(&text).await;
        let touched = namespace.tables();
        if tables(&text).is_ok() {
            assert!(
                touched.iter().all(|table| found.contains(table)),
                "{text}: {touched:?}, not {found:?}"
            );
            applied += usize::from(answer.is_ok());
        }
    }
    assert_eq!(applied, 4);
}

#[needs(netns, nft, root)]
#[tokio::test]
async fn a_table_by_its_handle_is_not_surely_the_one_that_is_named() {
    let namespace = Namespace::new();
    let nft = namespace.nft();
    assert_eq!(nft.apply(&transaction(&[add_table("a"), add_table("b")])).await, Ok(()));
    let listed = namespace.list("tables");
    let handle = listed
        .iter()
        .map(|object| &object["table"])
        .find(|table| table["name"] == "b")
        .unwrap()["handle"]
        .clone();
    let by_handle = transaction(&[json!({"delete": {"table": {"family": "ip", "handle": handle}}})]);
    assert_eq!(nft.apply(&by_handle).await, Ok(()));
    assert_eq!(
        namespace.tables(),
        ["ip a"],
        "which it was, the transaction does not say"
    );
    assert!(tables(&by_handle).is_err());
}

/// A table with this many services of two endpoints each, in the form of the guest `nftables`.
fn large(services: usize) -> String {
    const TABLE: &str = "trueup";
    let table = json!({"family": "ip", "name": TABLE});
    let map = json!({"family": "ip", "table": TABLE, "name": "service-ips", "type": ["ipv4_addr", "inet_proto", "inet_service"], "map": "verdict"});
    let mut commands = vec![
        json!({"add": {"table": table}}),
        json!({"delete": {"table": table}}),
        json!({"add": {"table": table}}),
    ];
    commands.push(json!({"add": {"map": map}}));
    let rule = |chain: &str, expr: Value| json!({"add": {"rule": {"family": "ip", "table": TABLE, "chain": chain, "expr": expr}}});
    let saddr = json!({"payload": {"protocol": "ip", "field": "saddr"}});
    let mark =
        json!({"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"meta": {"key": "mark"}}, 16384]}}});
    let (mut rules, mut elements) = (Vec::new(), Vec::new());
    for number in 0..services {
        let name = format!("default/s{number}/http");
        let (high, low) = (number / 256, number % 256);
        let mut targets = Vec::new();
        for second in 0..2 {
            let ip = format!("10.{second}.{high}.{low}");
            let chain = format!("ep/{name}/{ip}/8080");
            commands.push(add_chain(TABLE, &chain));
            rules.push(rule(
                &chain,
                json!([{"match": {"op": "==", "left": saddr, "right": ip}}, mark]),
            ));
            let protocol = json!({"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}});
            rules.push(rule(&chain, json!([protocol, {"dnat": {"addr": ip, "port": 8080}}])));
            targets.push(json!([second, {"goto": {"target": chain}}]));
        }
        let chain = format!("svc/{name}");
        commands.push(add_chain(TABLE, &chain));
        let key = json!({"numgen": {"mode": "random", "mod": 2, "offset": 0}});
        rules.push(rule(&chain, json!([{"vmap": {"key": key, "data": {"set": targets}}}])));
        let cluster = format!("10.96.{high}.{low}");
        elements.push(json!([{"concat": [cluster, "tcp", 80]}, {"goto": {"target": chain}}]));
    }
    commands.append(&mut rules);
    commands
        .push(json!({"add": {"element": {"family": "ip", "table": TABLE, "name": "service-ips", "elem": elements}}}));
    transaction(&commands)
}

#[needs(netns, nft, root)]
#[tokio::test]
async fn a_ruleset_of_five_thousand_services_is_one_transaction() {
    const SERVICES: usize = 5_000;
    let namespace = Namespace::new();
    let text = large(SERVICES);
    let found: Vec<String> = tables(&text).unwrap().into_iter().collect();
    assert_eq!(found, ["ip trueup"]);
    assert_eq!(namespace.nft().apply(&text).await, Ok(()));
    assert_eq!(namespace.list("chains").len(), 3 * SERVICES);
}
