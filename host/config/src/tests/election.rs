//! `[election]`: its defaults, and the text of every error.

use std::time::Duration;

use trueup_election::Times;

use super::super::election::{Election, LEASE_NAME_DEFAULT};
use super::super::{Document, Section};
use super::refused_with;
use toml::de::DeTable;

/// The result of a section with these lines under a Kubernetes source.
fn read(lines: &str) -> (Option<Election>, Vec<String>) {
    read_with(lines, true)
}

fn read_with(lines: &str, has_kubernetes: bool) -> (Option<Election>, Vec<String>) {
    let environment = std::collections::BTreeMap::new();
    let text = format!("[election]\n{lines}");
    let document = Document::new(std::path::Path::new("trueup.toml"), &text, &environment);
    let table = DeTable::parse(&text).unwrap();
    let mut root = Section::outermost(&document, table.get_ref());
    let election = Election::read(root.section("election"), has_kubernetes);
    (election, document.problems(&[]))
}

#[track_caller]
fn refused(lines: &str, said: &[&str]) {
    assert_eq!(read(lines).1, said, "of:\n{lines}");
}

#[test]
fn under_a_kubernetes_source_it_is_on_by_default() {
    let (election, problems) = read("");
    assert_eq!(problems, Vec::<String>::new());
    let expected = Election {
        namespace: None,
        name: LEASE_NAME_DEFAULT.to_owned(),
        identity: None,
        times: Times::default(),
    };
    assert_eq!(election, Some(expected));
    assert_eq!(read("enabled = false"), (None, vec![]));
}

#[test]
fn everything_can_be_set() {
    let (election, problems) = read(
        r#"
enabled = true
namespace = "trueup-system"
name = "trueup.west"
identity = "host-1"
lease_duration_ms = 3000
renew_deadline_ms = 2000
retry_period_ms = 200
"#,
    );
    assert_eq!(problems, Vec::<String>::new());
    let expected = Election {
        namespace: Some("trueup-system".to_owned()),
        name: "trueup.west".to_owned(),
        identity: Some("host-1".to_owned()),
        times: Times {
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(200),
        },
    };
    assert_eq!(election, Some(expected));
}

#[test]
fn without_a_kubernetes_source_there_is_nothing_to_elect_by() {
    let said = "trueup.toml:1: [election] goes with `[source] kubernetes` alone: a host that reads elsewhere is alone";
    assert_eq!(read_with("enabled = false", false), (None, vec![said.to_owned()]));
    let said = "trueup.toml:11: [election] goes with `[source] kubernetes` alone: a host that reads elsewhere is alone";
    refused_with("", "[election]\n", &[said]);
}

#[test]
fn what_kubernetes_does_not_take_is_refused_here() {
    refused(
        "namespace = \"Trueup\"\nname = \"-trueup\"\nidentity = \"host 1\"",
        &[
            "trueup.toml:2: election.namespace: was \"Trueup\", must be 1 to 63 lower-case letters, digits or `-`, \
             with a letter or digit at both ends",
            "trueup.toml:3: election.name: was \"-trueup\", must be 1 to 253 lower-case letters, digits, `-` or `.`, \
             with a letter or digit at both ends",
            "trueup.toml:4: election.identity: was \"host 1\", must be 1 to 253 characters without blanks, \
             which no other host has",
        ],
    );
    refused(
        "lease_name = \"trueup\"",
        &[
            "trueup.toml:2: unknown key `lease_name` in [election] (known: enabled, identity, \
             lease_duration_ms, name, namespace, renew_deadline_ms, retry_period_ms)",
        ],
    );
}

#[test]
fn times_that_don_t_fit_each_other_are_refused() {
    refused(
        "lease_duration_ms = 999",
        &["trueup.toml:2: election.lease_duration_ms: was 999, must be a whole number from 1000 to 3600000"],
    );
    refused(
        "renew_deadline_ms = 13500",
        &[
            "trueup.toml:2: election.renew_deadline_ms: was 13500, must be below nine tenths of `lease_duration_ms`, \
           13500: a host stops to lead before its lease is over",
        ],
    );
    refused(
        "renew_deadline_ms = 2400",
        &[
            "trueup.toml:1: election.retry_period_ms: was 2000, must be below five sixths of `renew_deadline_ms`, 2000: \
           a renewal needs time to succeed",
        ],
    );
    assert_eq!(read("renew_deadline_ms = 13499").1, Vec::<String>::new());
    assert_eq!(read("renew_deadline_ms = 2401").1, Vec::<String>::new());
}

#[test]
fn a_request_that_may_outlast_the_lease_is_said_and_not_refused() {
    let election = read("").0.unwrap();
    let key = "backend.lbaas.request_timeout_ms";
    assert_eq!(election.cuts_requests(key, Duration::from_millis(3499)), None);
    assert_eq!(
        election.cuts_requests(key, Duration::from_secs(30)).unwrap(),
        "backend.lbaas.request_timeout_ms is 30000 ms: when the lease can't be renewed, a request is cut 3500 ms after \
         this host stopped to lead, so that no other host acts at the same time"
    );
}
