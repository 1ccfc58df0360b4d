//! Variables over the file.

use super::*;

#[test]
fn variables_come_before_the_file() {
    let text = format!("seed = 2\n{LEAST}token_file = \"token\"\n");
    let environment = [
        ("TRUEUP_SEED", "3"),
        ("TRUEUP_STATE_DIR", "elsewhere"),
        ("TRUEUP_ADAPTER_LBAAS_CLUSTER", "c2"),
        ("TRUEUP_BACKEND_LBAAS_URL", "https://engine.example"),
        ("TRUEUP_BACKEND_LBAAS_TOKEN_ENV", "TRUEUP_MY_TOKEN"),
        ("TRUEUP_JOURNAL_SYNC", "fsync"),
        ("TRUEUP_GUESTS_LBAAS_LIMITS_CPU_MS", "77"),
        // Variables that are read elsewhere, or not ours, are left alone.
        ("TRUEUP_MY_TOKEN", "secret"),
        ("TRUEUP_LBAAS_TOKEN", "secret"),
        ("TRUEUP_LOG", "debug"),
        ("HOME", "/root"),
    ];
    let config = load(&text, &environment).unwrap();
    assert_eq!(config.seed, 3);
    assert_eq!(
        config.state_dir,
        config.file.parent().unwrap().join("elsewhere"),
        "as if it stood in the file"
    );
    assert_eq!(lbaas(&config).adapter.cluster, "c2");
    assert_eq!(anexia(&config).settings(None).url, "https://engine.example");
    assert_eq!(
        anexia(&config).settings(None).token,
        TokenAt::Variable("TRUEUP_MY_TOKEN".to_owned()),
        "not the file's file"
    );
    assert_eq!(config.journal.options.sync, Sync::Fsync);
    assert_eq!(lbaas(&config).guest.limits.cpu_ms, 77);
}

#[test]
fn a_variable_may_choose_the_simulation_over_what_the_file_says() {
    let text = format!("{LEAST}url = \"http://127.0.0.1:9480\"\n[sim.lbaas]\nlisten = \"127.0.0.1:9480\"\n");
    let config = load(&text, &[("TRUEUP_BACKEND_LBAAS_KIND", "simulated")]).unwrap();
    assert_eq!(lbaas(&config).backend, LbaasBackend::Simulated);
    assert!(lbaas(&config).sim.is_none(), "nothing would ask it");
}

#[test]
fn a_simulated_server_runs_only_where_the_backend_asks_it() {
    let text = format!("{LEAST}url = \"http://127.0.0.1:9480\"\n[sim.lbaas]\nlisten = \"127.0.0.1:9480\"\n");
    let elsewhere = [("TRUEUP_BACKEND_LBAAS_URL", "http://127.0.0.1:9880")];
    let config = load(&text, &elsewhere).unwrap();
    assert_eq!(anexia(&config).settings(None).url, "http://127.0.0.1:9880");
    assert!(lbaas(&config).sim.is_none(), "the backend does not ask it");
    let moved = [("TRUEUP_SIM_LBAAS_LISTEN", "127.0.0.1:9780")];
    let refused = load(&text, &moved).unwrap_err();
    assert!(
        refused.contains("was 127.0.0.1:9780, must be where `backend.lbaas.url` is, http://127.0.0.1:9480"),
        "{refused}"
    );
    let both = [moved[0], ("TRUEUP_BACKEND_LBAAS_URL", "http://127.0.0.1:9780")];
    let sim = lbaas(&load(&text, &both).unwrap()).sim.clone();
    assert_eq!(sim.unwrap().listen, "127.0.0.1:9780".parse().unwrap());
}

#[test]
fn variables_are_named_where_they_are_wrong() {
    for (name, value, said) in [
        (
            "TRUEUP_SEED",
            "one",
            "TRUEUP_SEED: was \"one\", must be a whole number from 0 to 18446744073709551615",
        ),
        (
            "TRUEUP_RUN_WORKERS",
            "0",
            "TRUEUP_RUN_WORKERS: was \"0\", must be a whole number from 1 to 256",
        ),
        (
            "TRUEUP_ADAPTER_LBAAS_CLUSTR",
            "secret",
            "TRUEUP_ADAPTER_LBAAS_CLUSTR: unknown variable; did you mean `TRUEUP_ADAPTER_LBAAS_CLUSTER`? \
             (`TRUEUP_A_B` sets the key `b` in [a])",
        ),
        (
            // The prefix, which all variables share, makes no other one similar.
            "TRUEUP_FOLDER",
            "examples/quickstart",
            "TRUEUP_FOLDER: unknown variable (`TRUEUP_A_B` sets the key `b` in [a])",
        ),
        (
            "TRUEUP_ADAPTER_LBAAS_ADDRESSES",
            "203.0.113.10",
            "TRUEUP_ADAPTER_LBAAS_ADDRESSES: `adapter.lbaas.addresses` is a list or a table, which the file alone can set",
        ),
        (
            "TRUEUP_GUESTS_LBAAS_SETTINGS_MAX_ROUNDS",
            "3",
            "TRUEUP_GUESTS_LBAAS_SETTINGS_MAX_ROUNDS: `guests.lbaas.settings` is a list or a table, \
             which the file alone can set",
        ),
    ] {
        assert_eq!(load(LEAST, &[(name, value)]).expect_err(name), said);
    }
}
