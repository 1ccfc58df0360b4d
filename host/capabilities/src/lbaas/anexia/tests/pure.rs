//! Tests without a server: bodies, states, `Retry-After`, settings and the token.

use std::time::SystemTime;

use tokio::time::Instant;
use trueup_base::http::limit::{RateLimit, end_of, left_ms, retry_after_ms};

use super::*;
use crate::lbaas::anexia::create::CreatedParents;
use crate::lbaas::anexia::{SettingsError, TokenAt, wire};
use crate::lbaas::{Backend, Bind, State};

#[test]
fn states_go_by_id_then_by_type() {
    let cases = [
        (json!({"id": "0", "text": "Updating", "type": 1}), State::Updating),
        (json!({"id": "1", "text": "Updated", "type": 1}), State::Ok),
        (json!({"id": "2", "title": "DeploymentError", "type": 0}), State::Failed),
        (
            json!({"id": "3", "title": "Deployed", "type": 1, "more": []}),
            State::Ok,
        ),
        (json!({"id": "4", "text": "NewlyCreated", "type": 2}), State::Pending),
        (json!({"id": "2", "type": 1}), State::Failed),
        (json!({"id": 3}), State::Ok),
        (json!({"id": "17", "type": 0}), State::Failed),
        (json!({"id": "17", "type": 1}), State::Ok),
        (json!({"id": "17", "type": 2}), State::Pending),
        (json!({"id": "17", "type": "2"}), State::Pending),
        (json!({"id": "17", "type": 3}), State::Failed),
        (json!({"id": "17"}), State::Failed),
        (json!("3"), State::Ok),
        (json!("4"), State::Pending),
        (json!("17"), State::Failed),
        (Value::Null, State::Pending),
    ];
    for (state, expected) in cases {
        assert_eq!(wire::state(Some(&state)), expected, "{state}");
    }
    assert_eq!(wire::state(None), State::Pending);
}

#[test]
fn references_may_be_null_and_fields_absent() {
    for reference in [
        json!({"identifier": "f", "name": "n"}),
        Value::Null,
        json!({"identifier": null}),
        json!("f"),
    ] {
        let expected = if reference.to_string().contains("\"f\"") {
            "f"
        } else {
            ""
        };
        let object = wire::object(
            Kind::Bind,
            &json!({"identifier": "x", "port": 65535, "frontend": reference}),
        )
        .unwrap();
        let expected = Bind {
            name: String::new(),
            frontend: expected.to_owned(),
            address: String::new(),
            port: 65535,
        };
        assert_eq!((object.spec, object.state), (Spec::Bind(expected), State::Pending));
    }
}

#[test]
fn what_the_contract_cannot_say_is_an_error_that_names_resource_and_field() {
    let cases = [
        (
            Kind::Frontend,
            json!({"identifier": "x", "mode": "udp"}),
            "frontend `x`: mode: was \"udp\", must be `tcp` or `http`",
        ),
        (
            Kind::Backend,
            json!({"identifier": "x"}),
            "backend `x`: missing field `mode`",
        ),
        (
            Kind::Bind,
            json!({"identifier": "x", "port": 65536}),
            "bind `x`: port: invalid value: integer `65536`, expected u16",
        ),
        (
            Kind::Server,
            json!({"identifier": "x", "port": -1}),
            "server `x`: port: invalid value: integer `-1`, expected u16",
        ),
        (
            Kind::Server,
            json!({"identifier": "x", "name": 7, "port": 1}),
            "server `x`: name: invalid type: integer `7`, expected a string",
        ),
        (
            Kind::Server,
            json!({"name": "x"}),
            "server: the answer holds no `identifier`",
        ),
    ];
    for (kind, answer, expected) in cases {
        let error = wire::object(kind, &answer).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn empty_checks_are_left_out() {
    let Spec::Backend(with) = backend("b") else {
        panic!("it is one")
    };
    let without = wire::creation(&Spec::Backend(Backend {
        health_check: String::new(),
        ..with
    }));
    assert_eq!(without, json!({"name": "b", "mode": "tcp", "load_balancer": "lb"}));
    let existing = json!({
        "name": "s", "ip": "10.0.0.1", "port": 1, "check": "", "backend": {"identifier": "b"}, "weight": 3,
        "state": {"id": "2"},
    });
    let expected = json!({"identifier": "s1", "state": "0", "name": "s", "ip": "10.0.0.1", "port": 1, "backend": "b"});
    assert_eq!(wire::reset(Kind::Server, "s1", &existing), expected);
    let existing = json!({
        "name": "b", "mode": "http", "load_balancer": {"identifier": "lb"}, "health_check": "h", "server_timeout": 500,
    });
    let expected = json!({
        "identifier": "b1", "state": "0", "name": "b", "mode": "http", "load_balancer": "lb", "health_check": "h",
        "server_timeout": 500,
    });
    assert_eq!(wire::reset(Kind::Backend, "b1", &existing), expected);
    let existing = json!({
        "name": "f", "mode": "tcp", "load_balancer": {"identifier": "lb"}, "default_backend": null,
        "client_timeout": "5s",
    });
    let expected = json!({
        "identifier": "f1", "state": "0", "name": "f", "mode": "tcp", "load_balancer": "lb", "client_timeout": "5s",
    });
    assert_eq!(wire::reset(Kind::Frontend, "f1", &existing), expected);
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let received = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:00 GMT").unwrap();
    let cases = [
        (None, Some(date), None),
        (Some("0"), None, Some(0)),
        (Some(" 120 "), Some(date), Some(120_000)),
        (Some("Sun, 06 Nov 1994 08:49:47 GMT"), Some(date), Some(10_000)),
        (Some("Sun, 06 Nov 1994 08:49:47 GMT"), None, Some(47_000)),
        (Some("Sun, 06 Nov 1994 08:49:47 GMT"), Some("nonsense"), Some(47_000)),
        (Some("Sun, 06 Nov 1994 08:00:00 GMT"), Some(date), Some(0)),
        (Some("99999999999999999999999"), None, Some(u64::MAX)),
        (Some("soon"), Some(date), None),
        (Some("-1"), Some(date), None),
        (Some(""), Some(date), None),
    ];
    for (retry_after, date, expected) in cases {
        assert_eq!(
            retry_after_ms(retry_after, date, received),
            expected,
            "{retry_after:?} {date:?}"
        );
    }
    assert!(SystemTime::now() > received);
}

#[test]
fn the_latest_end_of_a_limit_counts_until_it_is_over() {
    let limit = RateLimit::default();
    let begin = Instant::now();
    assert_eq!(limit.until(begin), None);
    limit.extend(Some(end_of(5_000, begin)));
    limit.extend(Some(end_of(1_000, begin)));
    let later = begin + Duration::from_micros(1_000_500);
    assert_eq!(
        limit.until(later).map(|until| left_ms(until, later)),
        Some(4_000),
        "a begun millisecond counts in full"
    );
    let over = begin + Duration::from_secs(5);
    assert_eq!((limit.until(over), left_ms(begin, over)), (None, 0));
    // An endless limit becomes a year instead of an overflow.
    limit.extend(Some(end_of(u64::MAX, over)));
    assert!(limit.until(over).is_some());
}

#[test]
fn only_so_many_parents_are_remembered() {
    let parents = CreatedParents::default();
    for n in 0..50_001 {
        parents.insert(0, &format!("{n:05}"));
    }
    assert!(!parents.contains(0, "00000") && parents.contains(0, "00001") && parents.contains(0, "50000"));
}

#[test]
fn parents_are_remembered_for_one_epoch() {
    let parents = CreatedParents::default();
    parents.insert(1, "a");
    assert!(parents.contains(1, "a") && !parents.contains(0, "a") && !parents.contains(2, "a"));
    parents.insert(2, "b");
    assert!(parents.contains(2, "b") && !parents.contains(2, "a"));
    // A late caller must not bring an entry back.
    parents.insert(1, "c");
    assert!(parents.contains(2, "b") && !parents.contains(1, "c") && !parents.contains(2, "c"));
    parents.remove("b");
    assert!(!parents.contains(2, "b"));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refusal = |settings: Settings| {
        let metrics: Arc<dyn RequestMetrics> = Arc::new(Counted::default());
        Anexia::new(
            settings,
            token::new("t", "the test").unwrap(),
            metrics,
            Fence::open(),
            None,
        )
        .err()
        .map(|error: SettingsError| error.to_string())
    };
    let url = |url: &str| at(url);
    assert_eq!(refusal(url("http://localhost:1")), None);
    assert_eq!(refusal(url("engine")).unwrap(), "url: relative URL without a base");
    assert_eq!(
        refusal(url("ftp://engine")).unwrap(),
        "url: must begin with `http://` or `https://`"
    );
    assert!(
        refusal(url("http://u:pw@engine")).is_some_and(|error| error.contains("no password") && !error.contains("pw"))
    );
    assert_eq!(
        refusal(url("http://engine/?a=b")).unwrap(),
        "url: must hold no query and no fragment"
    );
    let openly = refusal(url("http://192.0.2.1")).unwrap();
    assert!(
        openly.starts_with("url: must begin with `https://`: ") && openly.contains("`allow_http = true`"),
        "{openly}"
    );
    let wanted = Settings {
        allow_http: true,
        ..url("http://192.0.2.1")
    };
    assert_eq!(refusal(wanted), None);
}

#[test]
fn the_token_comes_from_one_place_and_shows_itself_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let from_file = || token::read(&TokenAt::File(path.clone()));
    let missing = from_file().unwrap_err();
    let text = "No such file or directory (os error 2)";
    assert_eq!(
        missing.to_string(),
        format!(
            "can't read the Engine's token from the file `{}`: {text}",
            path.display()
        )
    );
    std::fs::write(&path, " \n").unwrap();
    assert_eq!(
        from_file().unwrap_err().to_string(),
        format!("the Engine's token in the file `{}` is empty", path.display())
    );
    std::fs::write(&path, format!("\n{TOKEN}\n")).unwrap();
    let token = from_file().unwrap();
    assert_eq!(token.header().to_str().unwrap(), format!("Token {TOKEN}"));
    assert_eq!(format!("{token:?} {:?}", token.header()), "*** Sensitive");
    let quoted = token::new("a\"b\\c", "the test").unwrap();
    assert_eq!(
        quoted.scrub("a\"b\\c and {\"t\":\"a\\\"b\\\\c\"}".to_owned()),
        "*** and {\"t\":\"***\"}"
    );
    let bad = token::new("two words", "the test").unwrap_err();
    assert!(!format!("{bad} {bad:?}").contains("words"));
    // A variable that every cargo test has.
    let variable = TokenAt::Variable("CARGO_PKG_NAME".to_owned());
    assert_eq!(
        token::read(&variable).unwrap().header().to_str().unwrap(),
        "Token trueup-capabilities"
    );
    let unset = TokenAt::Variable("TRUEUP_TEST_UNSET".to_owned());
    let error = token::read(&unset).unwrap_err().to_string();
    assert!(
        error.contains("`TRUEUP_TEST_UNSET` does not hold the Engine's token"),
        "{error}"
    );
}
