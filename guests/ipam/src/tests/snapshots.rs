//! The state as text: its spelling, what is accepted, what is refused.

use super::*;
use trueup_guest::Guest as _;

/// Everything that a snapshot can hold.
const WHOLE: &str = concat!(
    r#"{"version":"trueup-ipam/1","enis":["#,
    r#"{"id":"eni-0","device_number":-1,"is_primary":true,"is_trunk":false,"created_at_ms":0,"addresses":[]},"#,
    r#"{"id":"e\"1","device_number":1,"is_primary":false,"is_trunk":true,"created_at_ms":18446744073709551615,"addresses":["#,
    r#"{"address":"10.0.0.5","key":null,"unassigned_at_ms":null},"#,
    r#"{"address":"10.0.0.6","key":{"network_name":"net","container_id":"c1","if_name":"eth0"},"unassigned_at_ms":7}]}],"#,
    r#""resting":[{"ipv4":"10.0.0.9","at":5},{"ipv4":"10.0.7.5","at":6}],"#,
    r#""held":[{"key":{"network_name":"net","container_id":"c2","if_name":"eth0"},"ipv4":"10.0.7.5"}],"#,
    r#""store":{"in_step":true,"entries":3,"blocked":null}}"#
);

fn restored(text: &str) -> Result<(Datastore, Simulation), String> {
    let mut world = Simulation::default();
    let mut datastore = instance(&mut world, "{}");
    datastore.restore(&mut world, text)?;
    Ok((datastore, world))
}

#[test]
fn what_is_read_is_written_letter_by_letter() {
    for text in [
        WHOLE.to_owned(),
        WHOLE.replace(r#""blocked":null"#, r#""blocked":"checkpoint: \"x\"\n""#),
        WHOLE.replace(r#""in_step":true"#, r#""in_step":false"#),
        instance(&mut Simulation::default(), "{}").snapshot(),
    ] {
        let (datastore, _) = restored(&text).unwrap();
        assert_eq!(datastore.snapshot(), text);
    }
    assert_eq!(
        instance(&mut Simulation::default(), "{}").snapshot(),
        r#"{"version":"trueup-ipam/1","enis":[],"resting":[],"held":[],"store":{"in_step":false,"entries":0,"blocked":null}}"#
    );
}

#[test]
fn the_gauges_are_those_of_the_restored_state() {
    let (datastore, world) = restored(WHOLE).unwrap();
    let gauges = ["enis", "total_ips", "assigned_ips", "held_allocations"];
    assert_eq!(
        gauges.map(|name| world.record.metrics[&format!("trueup_ipam_{name}")]),
        [2.0, 2.0, 1.0, 1.0]
    );
    assert_eq!(datastore.find(key("c1")), assigned("10.0.0.6", 1).ok());
    assert_eq!(datastore.find(key("c2")), assigned("10.0.7.5", -1).ok());
}

#[test]
fn a_snapshot_without_held_holds_none_and_more_members_are_passed_over() {
    let at = WHOLE.find(r#""held""#).unwrap();
    let until = WHOLE.find(r#""store""#).unwrap();
    let text =
        format!("{}{}", &WHOLE[..at], &WHOLE[until..]).replace(r#""enis":["#, r#""later":[[1e999]], "enis" : ["#);
    let (datastore, _) = restored(&text).unwrap();
    assert_eq!(datastore.allocated_ips().len(), 1);
}

#[test]
fn what_this_guest_cannot_have_written_is_refused_and_nothing_changes() {
    let no = "state: not a snapshot of this guest";
    let without = |from: &str, to: &str| {
        assert!(WHOLE.contains(from), "{from}");
        WHOLE.replacen(from, to, 1)
    };
    let texts = vec![
        String::new(),
        "[]".to_owned(),
        "{}".to_owned(),
        r#"{"version":1}"#.to_owned(),
        r#"{"version":"trueup-ipam/1"}"#.to_owned(),
        "{\"a\":".repeat(100_000),
        WHOLE[..WHOLE.len() - 1].to_owned(),
        without(r#","blocked":null"#, ""),
        without(r#""key":null,"#, ""),
        without(r#","unassigned_at_ms":null"#, ""),
        without(r#""entries":3"#, r#""entries":-3"#),
        without(r#""in_step":true"#, r#""in_step":1"#),
        without(r#""device_number":1"#, r#""device_number":2147483648"#),
        without(r#""is_trunk":true,"#, ""),
        without(r#""resting""#, r#""rests""#),
        without(r#""held":["#, r#""held":[7,"#),
        without(r#""at":5"#, r#""at":5.5"#),
        without("10.0.0.5", "10.0.0.05"),
        // One address, key or interface twice, or half a key.
        without("10.0.0.5", "10.0.0.6"),
        without("10.0.0.9", "10.0.0.6"),
        without("10.0.0.9", "10.0.7.5"),
        without(r#""ipv4":"10.0.7.5"}],"store""#, r#""ipv4":"10.0.0.5"}],"store""#),
        without("c2", "c1"),
        without("eni-0", r#"e\"1"#),
        without(r#""if_name":"eth0""#, r#""if_name":"""#),
    ];
    let mut world = Simulation::default();
    let mut node = node(&mut world, "{}", &["10.0.0.1"]);
    let before = node.snapshot();
    for text in texts {
        let short: String = text.chars().take(900).collect();
        assert_eq!(node.restore(&mut world, &text), Err(no.to_owned()), "{short}");
        assert_eq!(node.snapshot(), before);
    }
    let later = without("trueup-ipam/1", "trueup-ipam/9");
    assert_eq!(
        node.restore(&mut world, &later).unwrap_err(),
        r#"state: unknown version "trueup-ipam/9"; this guest reads "trueup-ipam/1""#
    );
    assert_eq!(node.snapshot(), before);
}
