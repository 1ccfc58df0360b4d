//! Which tables are found in a transaction, and which transactions are refused because they name none.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn transaction(commands: &[Value]) -> String {
    json!({ "nftables": commands }).to_string()
}

fn scopes(text: &str) -> Vec<String> {
    tables(text).unwrap().into_iter().collect()
}

#[track_caller]
fn no_table(commands: &str, said: &str) {
    let text = format!("{{\"nftables\":[{commands}]}}");
    assert_eq!(tables(&text), Err(Unclear::NoTable(said.to_owned())), "{commands}");
}

#[track_caller]
fn not_json(text: &str, said: &str) {
    let Err(Unclear::NotJson(why)) = tables(text) else {
        panic!("{text}: {:?}", tables(text));
    };
    assert!(why.contains(said) && !why.contains('\n'), "{why}");
    assert!(why.chars().count() <= ERROR_CHARS_MAX + "...".len(), "{why}");
}

#[test]
fn every_table_that_a_command_touches_is_found() {
    let commands = [
        json!({"metainfo": {"json_schema_version": 1, "version": "1.0.6"}}),
        json!({"add": {"table": {"family": "ip", "name": "a"}}}),
        json!({"delete": {"table": {"name": "a", "family": "ip"}}}),
        json!({"add": {"chain": {"family": "ip6", "table": "b", "name": "c", "prio": -100}}}),
        json!({"add": {"rule": {"expr": [{"goto": {"target": "x"}}], "family": "inet", "table": "d", "chain": "c", "comment": "ip e"}}}),
        json!({"delete": {"rule": {"family": "ip", "table": "f", "chain": "c", "handle": 7}}}),
        json!({"flush": {"meter": {"family": "bridge", "table": "g", "name": "m"}}}),
        json!({"add": {"ct helper": {"family": "ip", "table": "h", "name": "ftp", "type": "ftp", "protocol": "tcp"}}}),
        json!({"add": {"element": {"family": "netdev", "table": "i", "name": "a", "elem": [["x", {"drop": null}]]}}}),
    ];
    let found = scopes(&transaction(&commands));
    let expected = ["bridge g", "inet d", "ip a", "ip f", "ip h", "ip6 b", "netdev i"];
    assert_eq!(found, expected);
    assert_eq!(scopes(&transaction(&[])), [""; 0]);
    // A key means the same, however it is escaped.
    let escaped = r#"{"nftables":[{"a\u0064d":{"t\u0061ble":{"f\u0061mily":"ip","n\u0061me":"\u0061"}}}]}"#;
    assert_eq!(scopes(escaped), ["ip a"]);
}

#[test]
fn commands_that_name_no_table_or_are_not_known_are_refused() {
    for (command, said) in [
        (r#"{"flush":{"ruleset":null}}"#, "command 0, `flush ruleset`"),
        (
            r#"{"flush":{"ruleset":{"family":"ip","table":"a"}}}"#,
            "command 0, `flush ruleset`",
        ),
        (r#"{"list":{"table":{"family":"ip","name":"a"}}}"#, "command 0, `list`"),
        (
            r#"{"reset":{"counters":{"family":"ip","table":"a"}}}"#,
            "command 0, `reset`",
        ),
        (r#"{"table":{"family":"ip","name":"a"}}"#, "command 0, `table`"),
        (r#"{"include":"/etc/nftables.conf"}"#, "command 0, `include`"),
        (r#"{"Add":{"table":{"family":"ip","name":"a"}}}"#, "command 0, `Add`"),
        ("{}", "command 0"),
        (r#"{"add":{}}"#, "command 0, `add `"),
        (
            r#"{"metainfo":{}},{"add":{"table":{"name":"a"}}}"#,
            "command 1, `add table` without `family`",
        ),
        (
            r#"{"add":{"rule":{"family":"ip","name":"a"}}}"#,
            "command 0, `add rule` without `table`",
        ),
        (
            r#"{"add":{"table":{"family":"ip","table":"a"}}}"#,
            "command 0, `add table` without `name`",
        ),
        (
            r#"{"add":{"rule":{"family":"ip","table":7}}}"#,
            "command 0, `add rule` with a `table` that is no text",
        ),
        (
            r#"{"add":{"rule":{"family":["ip"],"table":"a"}}}"#,
            "command 0, `add rule` with a `family` that is no text",
        ),
        (
            r#"{"add":{"rule":{"family":"IP","table":"a"}}}"#,
            "command 0, `add rule` of the unknown family `IP`",
        ),
        (
            r#"{"add":{"rule":{"family":"ip a","table":"b"}}}"#,
            "command 0, `add rule` of the unknown family `ip a`",
        ),
        (
            r#"{"delete":{"table":{"family":"ip","name":""}}}"#,
            "command 0, `delete table` with an empty `name`",
        ),
        (
            r#"{"delete":{"table":{"family":"ip","handle":1}}}"#,
            "command 0, `delete table` by its handle",
        ),
        (
            r#"{"delete":{"table":{"family":"ip","name":"a","handle":1}}}"#,
            "command 0, `delete table` by its handle",
        ),
        (r#"{"a\nb":{}}"#, "command 0, `a b`"),
    ] {
        no_table(command, said);
    }
    let long = "x".repeat(256);
    no_table(
        &json!({"add": {"chain": {"family": "ip", "table": long}}}).to_string(),
        "command 0, `add chain` with a `table` of 256 bytes, above the kernel's 255",
    );
    let shown = "x".repeat(SHOWN_CHARS_MAX);
    no_table(&json!({ long: {} }).to_string(), &format!("command 0, `{shown}...`"));
}

#[test]
fn what_is_given_twice_is_refused_where_nft_would_take_the_last() {
    for (command, said) in [
        (
            r#"{"add":{"table":{"family":"ip","name":"a","name":"b"}}}"#,
            "`add table` with `name` twice",
        ),
        (
            r#"{"add":{"table":{"family":"ip","name":"a","n\u0061me":"b"}}}"#,
            "`add table` with `name` twice",
        ),
        (
            r#"{"add":{"rule":{"family":"ip","table":"a","family":"ip6"}}}"#,
            "`add rule` with `family` twice",
        ),
        (
            r#"{"add":{"rule":{"table":"b","family":"ip","table":"a","table":"c"}}}"#,
            "`add rule` with `table` twice",
        ),
        (
            r#"{"add":{"table":{"family":"ip","name":"a"}},"add":{"table":{"family":"ip","name":"b"}}}"#,
            "`add` and more in one object",
        ),
        (
            r#"{"metainfo":{},"flush":{"ruleset":null}}"#,
            "`metainfo` and more in one object",
        ),
        (
            r#"{"add":{"table":{"family":"ip","name":"a"},"chain":{"family":"ip","table":"b","name":"c"}}}"#,
            "`add table` and more in one object",
        ),
    ] {
        no_table(command, &format!("command 0, {said}"));
    }
    let command = r#"{"add":{"table":{"family":"ip","name":"a"}}}"#;
    not_json(
        &format!(r#"{{"nftables":[],"nftables":[{command}]}}"#),
        "a member after `nftables`",
    );
    not_json(&format!(r#"{{"x":1,"nftables":[{command}]}}"#), "`nftables` is missing");
}

#[test]
fn what_nft_does_not_read_as_json_is_not_handed_to_it() {
    let with =
        |value: &str| format!(r#"{{"nftables":[{{"add":{{"rule":{{"family":"ip","table":"a","expr":{value}}}}}}}]}}"#);
    assert_eq!(
        scopes(&with(r#"[1,-1,true,false,null,"x",{"y":[9223372036854775807]}]"#)),
        ["ip a"]
    );
    for (text, said) in [
        ("", "EOF"),
        ("add table ip a\n", "expected value"),
        ("[]", "an object with the member `nftables` alone"),
        ("{}", "`nftables` is missing"),
        (r#"{"nftables":{}}"#, "a sequence"),
        (r#"{"nftables":["flush ruleset"]}"#, "a command"),
        (r#"{"nftables":[{"add":null}]}"#, "what to add"),
        (r#"{"nftables":[{"add":{"table":null}}]}"#, "its family and table"),
        (r#"{"nftables":[]} flush ruleset"#, "trailing characters"),
        (&with(r#""a\u0000b""#), "NUL"),
        (&with(r#"{"a\u0000b":1}"#), "NUL"),
        (&with(r#""\ud800""#), "hex escape"),
        (&with("9223372036854775808"), "64 bits"),
        (&with("99999999999999999999"), "64 bits"),
        (&with("1.5"), "64 bits"),
        (&with("1e999"), "out of range"),
        (
            &with(&format!("{}{}", "[".repeat(200), "]".repeat(200))),
            "recursion limit",
        ),
        (
            &format!(r#"{{"nftables":["{}"]}}"#, "x\\n".repeat(1000)),
            "invalid type: string",
        ),
    ] {
        not_json(text, said);
    }
}

/// A known command about a table, with its members in either order.
fn command_on(family: &'static str, table: &'static str) -> impl Strategy<Value = String> {
    let forms = (0..VERBS.len(), 0..KINDS.len(), any::<bool>(), any::<bool>());
    forms.prop_map(move |(verb, kind, table_first, more)| {
        let (verb, kind) = (VERBS[verb], KINDS[kind]);
        let key = if kind == "table" { "name" } else { "table" };
        let (table, family) = (json!({key: table}).to_string(), json!({ "family": family }).to_string());
        let (table, family) = (table.trim_matches(['{', '}']), family.trim_matches(['{', '}']));
        let members = if table_first { [table, family] } else { [family, table] };
        let more = if more {
            r#","chain":"c","expr":[{"goto":{"target":"ip other"}}]"#
        } else {
            ""
        };
        format!(r#"{{"{verb}":{{"{kind}":{{{}{more}}}}}}}"#, members.join(","))
    })
}

const GRANTED: [(&str, &str); 2] = [("ip", "trueup"), ("ip6", "trueup")];

const OUTSIDE: [(&str, &str); 6] = [
    ("inet", "trueup"),
    ("ip", "trueup2"),
    ("ip", "true"),
    ("ip", "trueup "),
    ("ip", "TRUEUP"),
    ("ip6", "filter"),
];

fn granted() -> impl Strategy<Value = String> {
    (0..GRANTED.len()).prop_flat_map(|at| command_on(GRANTED[at].0, GRANTED[at].1))
}

fn outside() -> impl Strategy<Value = String> {
    let of_no_table = Just(r#"{"flush":{"ruleset":null}}"#.to_owned());
    let elsewhere = (0..OUTSIDE.len()).prop_flat_map(|at| command_on(OUTSIDE[at].0, OUTSIDE[at].1));
    prop_oneof![1 => of_no_table, 9 => elsewhere]
}

fn is_granted(commands: &[String]) -> bool {
    let text = format!(r#"{{"nftables":[{}]}}"#, commands.join(","));
    let granted = |table: &String| GRANTED.map(|(family, name)| format!("{family} {name}")).contains(table);
    tables(&text).is_ok_and(|tables| tables.iter().all(granted))
}

proptest! {
    #[test]
    fn one_command_outside_the_granted_tables_is_found_wherever_it_stands(
        mut commands in proptest::collection::vec(granted(), 0..20),
        stray in outside(),
        at in any::<proptest::sample::Index>(),
    ) {
        prop_assert!(is_granted(&commands));
        commands.insert(at.index(commands.len() + 1), stray);
        prop_assert!(!is_granted(&commands));
    }
}
