//! `[guests.NAME]`: which guest decides, the required signatures, and its grants.

use super::*;

#[test]
fn a_scope_of_negs_has_a_name_and_a_zone() {
    let with = |scopes: &str| format!("use = \"builtin:lbaas@1\"\ngrants = {{ neg = {{ write = [{scopes}] }} }}");
    refused_with(
        "use = \"builtin:lbaas@1\"",
        &with("\"web\""),
        &[
            "trueup.toml:6: guests.lbaas.grants.neg.write[0]: was \"web\", must be \"NAME@ZONE\" where `*` may end either, or \
           \"*\" for everything",
        ],
    );
    let text = LEAST.replace("use = \"builtin:lbaas@1\"", &with("\"web@z1\", \"t-*@*\""));
    let config = load(&text, &[]).unwrap();
    let grants = &lbaas(&config).guest.grants;
    assert!(grants.allow_neg(Access::Write, "web", "z1") && grants.allow_neg(Access::Write, "t-9", "z2"));
    assert!(!grants.allow_neg(Access::Write, "web", "z2") && !grants.allow_neg(Access::Read, "web", "z1"));
}

#[test]
fn quotas_stand_in_the_grant_that_they_limit() {
    let with = |grants: &str| {
        LEAST.replace(
            "use = \"builtin:lbaas@1\"",
            &format!("use = \"builtin:lbaas@1\"\n{grants}"),
        )
    };
    let config = load(
        &with(
            "grants.lbaas = { read = [\"*\"], calls_per_minute = 600, destroy_max = 0, destroy_percent = 100 }\n\
             grants.cri = { calls_per_minute = 1 }",
        ),
        &[],
    )
    .unwrap();
    let grants = &lbaas(&config).guest.grants;
    let quotas = |capability| {
        let grant = grants.grant(capability).unwrap();
        (grant.calls_per_minute, grant.destroy_max, grant.destroy_percent)
    };
    assert_eq!(quotas("lbaas"), (Some(600), Some(0), Some(100)));
    assert_eq!(quotas("cri"), (Some(1), None, None));
    refused_with(
        "use = \"builtin:lbaas@1\"",
        "use = \"builtin:lbaas@1\"\ngrants.lbaas = { calls_per_minute = 0, destroy_max = -1, destroy_percent = 101 }\n\
         grants.checkpoint = { destroy_max = 1 }\ngrants.cri = { destroy = 1 }",
        &[
            "trueup.toml:6: guests.lbaas.grants.lbaas.calls_per_minute: was 0, must be a whole number from 1 to 1000000",
            "trueup.toml:6: guests.lbaas.grants.lbaas.destroy_max: was -1, must be a whole number from 0 to 1000000",
            "trueup.toml:6: guests.lbaas.grants.lbaas.destroy_percent: was 101, must be a whole number from 1 to 100",
            "trueup.toml:7: guests.lbaas.grants.checkpoint.destroy_max: is a limit of lbaas alone: checkpoint has none",
            "trueup.toml:8: unknown key `destroy` in [guests.lbaas.grants.cri] (known: calls_per_minute, read, write)",
        ],
    );
}

#[test]
fn a_guest_says_what_it_is() {
    let all = "must be `builtin:NAME@VERSION`, `file:PATH` or `oci:HOST/REPO:TAG`";
    for (given, reason) in [
        (
            "oci:registry.example/lbaas",
            "must be `oci:HOST/REPO:TAG` or `oci:HOST/REPO@sha256:DIGEST`: it has neither tag nor digest".to_owned(),
        ),
        (
            "builtin:lbaas@0",
            "must be `builtin:NAME@VERSION`, the version a whole number from 1".to_owned(),
        ),
        (
            "builtin:",
            "must be `builtin:NAME@VERSION`, the version a whole number from 1".to_owned(),
        ),
        ("file:", "must be `file:PATH`".to_owned()),
        (
            "guests/lbaas.wasm",
            "must say what it is: `file:guests/lbaas.wasm`".to_owned(),
        ),
        (
            "lbaas@2",
            "must say what it is: `builtin:lbaas@2`, or `file:lbaas@2`".to_owned(),
        ),
        ("http://guests.example", all.to_owned()),
        ("", all.to_owned()),
    ] {
        let said = format!("trueup.toml:5: guests.lbaas.use: was \"{given}\", {reason}");
        refused_with("use = \"builtin:lbaas@1\"", &format!("use = \"{given}\""), &[&said]);
    }
    refused_with(
        "use = \"builtin:lbaas@1\"",
        "",
        &[&format!("trueup.toml:4: guests.lbaas.use: is missing, {all}")],
    );

    let parse = |text| {
        Reference::configured(text, Path::new("/etc/trueup"))
            .unwrap()
            .to_string()
    };
    assert_eq!(
        parse("builtin:lbaas"),
        "builtin:lbaas@1",
        "a bare name is version 1 for ever"
    );
    assert_eq!(parse("builtin:lbaas@2"), "builtin:lbaas@2");
    assert_eq!(parse("file:lbaas.wasm"), "file:/etc/trueup/lbaas.wasm");
    assert_eq!(parse("file:/opt/lbaas.wasm"), "file:/opt/lbaas.wasm");
    assert_eq!(parse("file:guests@2"), "file:/etc/trueup/guests@2");
    assert_eq!(parse("oci:localhost:5000/lbaas:2"), "oci:localhost:5000/lbaas:2");
}

#[test]
fn who_verifies_names_keys() {
    let with = |verify: &str| format!("use = \"builtin:lbaas@1\"\nverify = {verify}");
    let config = load(
        &LEAST.replace("use = \"builtin:lbaas@1\"", &with("{ keys = [\"a.pub\", \"/b.pub\"] }")),
        &[],
    )
    .unwrap();
    let folder = config.file.parent().unwrap();
    assert_eq!(
        lbaas(&config).guest.verify.keys,
        [folder.join("a.pub"), PathBuf::from("/b.pub")]
    );
    for (verify, said) in [
        (
            "{}",
            "guests.lbaas.verify.keys: is missing, must hold at least one public key",
        ),
        (
            "{ keys = [] }",
            "guests.lbaas.verify.keys: was [], must hold at least one public key",
        ),
        (
            "{ keys = [\"\"] }",
            "guests.lbaas.verify.keys[0]: was \"\", must be the file of a public key",
        ),
    ] {
        refused_with(
            "use = \"builtin:lbaas@1\"",
            &with(verify),
            &[&format!("trueup.toml:6: {said}")],
        );
    }
}
