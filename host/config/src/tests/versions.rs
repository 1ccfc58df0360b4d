//! `[guests.NAME]`: what a candidate must prove, and what happens to an input on which a guest fails.

use super::*;

const USE: &str = "use = \"builtin:lbaas@1\"";

/// The file with these keys of the guest.
fn with(keys: &str) -> String {
    LEAST.replacen(USE, &format!("{USE}\n{keys}"), 1)
}

#[track_caller]
fn guest(keys: &str) -> Guest {
    let config = load(&with(keys), &[]).unwrap_or_else(|error| panic!("{error}"));
    lbaas(&config).guest.clone()
}

/// The keys begin on line 6.
#[track_caller]
fn guest_refused(keys: &str, said: &[&str]) {
    refused(&with(keys), said);
}

fn builtin(version: u32) -> Reference {
    Reference::Builtin {
        name: "lbaas".to_owned(),
        version: version.to_string(),
    }
}

#[test]
fn by_default_the_gate_is_identical_and_failures_are_retried() {
    let guest = guest("");
    let proof = Proof {
        gate: Mode::Identical,
        gate_calls: 100,
        accepted_differences: None,
        self_test: None,
        afresh: false,
    };
    assert_eq!(guest.proof, proof);
    let failure = FailurePolicy {
        on_failure: OnFailure::Retry,
        quarantine_after: 5,
        cycles_max: 3,
    };
    assert_eq!(guest.failure, failure);
}

#[test]
fn every_key_about_versions_is_read() {
    for (word, mode) in [
        ("identical", Mode::Identical),
        ("strict", Mode::Strict),
        ("report", Mode::Report),
        ("off", Mode::Off),
    ] {
        assert_eq!(guest(&format!("gate = \"{word}\"")).proof.gate, mode);
    }
    assert!(guest("afresh = true").proof.afresh);
    for calls in [1, 100_000] {
        assert_eq!(guest(&format!("gate_calls = {calls}")).proof.gate_calls, calls);
    }
    let config = load(
        &with("accepted_differences = \"accepted.toml\"\nself_test = \"/etc/trueup/self-test\""),
        &[],
    )
    .unwrap();
    let proof = &lbaas(&config).guest.proof;
    let folder = config.file.parent().unwrap();
    assert_eq!(proof.accepted_differences, Some(folder.join("accepted.toml")));
    assert_eq!(proof.self_test, Some(PathBuf::from("/etc/trueup/self-test")));

    let failure = |keys: &str| guest(keys).failure;
    assert_eq!(failure("on_failure = \"retry\"").on_failure, OnFailure::Retry);
    assert_eq!(failure("on_failure = \"hold\"").on_failure, OnFailure::Hold);
    let fall_back = "on_failure = \"fall-back\"\nfall_back = \"builtin:lbaas@2\"";
    assert_eq!(failure(fall_back).on_failure, OnFailure::FallBack(builtin(2)));
    assert_eq!(
        guest(fall_back).references().cloned().collect::<Vec<_>>(),
        [builtin(1), builtin(2)],
        "it is pinned and verified as the other"
    );
    for count in [1, 1_000] {
        assert_eq!(failure(&format!("quarantine_after = {count}")).quarantine_after, count);
    }
    for count in [2, 1_000] {
        assert_eq!(failure(&format!("cycles_max = {count}")).cycles_max, count);
    }
}

#[test]
fn every_mistake_about_versions_is_one_line() {
    const GATE: &str = "must be \"identical\" or \"strict\" or \"report\" or \"off\"";
    for (wrong, shown) in [("\"on\"", "\"on\""), ("\"Off\"", "\"Off\""), ("true", "true")] {
        guest_refused(
            &format!("gate = {wrong}"),
            &[&format!("trueup.toml:6: guests.lbaas.gate: was {shown}, {GATE}")],
        );
    }
    for wrong in ["0", "100001", "-1", "\"100\"", "1.5"] {
        guest_refused(
            &format!("gate_calls = {wrong}"),
            &[&format!(
                "trueup.toml:6: guests.lbaas.gate_calls: was {wrong}, must be a whole number from 1 to 100000"
            )],
        );
    }
    for key in ["accepted_differences", "self_test"] {
        for wrong in ["\"\"", "7", "[\"a\"]"] {
            guest_refused(
                &format!("{key} = {wrong}"),
                &[&format!(
                    "trueup.toml:6: guests.lbaas.{key}: was {wrong}, must be a path"
                )],
            );
        }
    }
    for wrong in ["\"give-up\"", "3"] {
        guest_refused(
            &format!("on_failure = {wrong}"),
            &[&format!(
                "trueup.toml:6: guests.lbaas.on_failure: was {wrong}, must be \"retry\" or \"hold\" or \"fall-back\""
            )],
        );
    }
    for wrong in ["0", "1001", "\"5\""] {
        guest_refused(
            &format!("quarantine_after = {wrong}"),
            &[&format!(
                "trueup.toml:6: guests.lbaas.quarantine_after: was {wrong}, must be a whole number from 1 to 1000"
            )],
        );
    }
    for wrong in ["1", "1001", "false"] {
        guest_refused(
            &format!("cycles_max = {wrong}"),
            &[&format!(
                "trueup.toml:6: guests.lbaas.cycles_max: was {wrong}, must be a whole number from 2 to 1000"
            )],
        );
    }
    guest_refused(
        "on_fail = \"hold\"",
        &[
            "trueup.toml:6: unknown key `on_fail` in [guests.lbaas]; did you mean `on_failure`? \
           (known: accepted_differences, afresh, approve_above, approve_above_percent, cycles_max, fall_back, gate, gate_calls, grants, limits, on_failure, quarantine_after, \
           self_test, settings, use, verify)",
        ],
    );
}

#[test]
fn fall_back_goes_with_its_policy_and_names_a_guest() {
    guest_refused(
        "on_failure = \"fall-back\"",
        &[
            "trueup.toml:4: guests.lbaas.fall_back: is missing, must name the guest to fall back to, such as `builtin:lbaas@1`",
        ],
    );
    for policy in ["", "on_failure = \"retry\"\n", "on_failure = \"hold\"\n"] {
        let line = 6 + policy.lines().count();
        guest_refused(
            &format!("{policy}fall_back = \"builtin:lbaas@1\""),
            &[&format!(
                "trueup.toml:{line}: guests.lbaas.fall_back: is used with `on_failure = \"fall-back\"` alone"
            )],
        );
    }
    for (wrong, must) in [
        ("1", "must name a guest, such as `builtin:lbaas@1`"),
        (
            "\"lbaas@1\"",
            "must say what it is: `builtin:lbaas@1`, or `file:lbaas@1`",
        ),
        (
            "\"builtin:lbaas@0\"",
            "must be `builtin:NAME@VERSION`, the version a whole number from 1",
        ),
        ("\"file:\"", "must be `file:PATH`"),
    ] {
        guest_refused(
            &format!("on_failure = \"fall-back\"\nfall_back = {wrong}"),
            &[&format!("trueup.toml:7: guests.lbaas.fall_back: was {wrong}, {must}")],
        );
    }
}
