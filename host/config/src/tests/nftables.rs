//! `[backend.nftables]`, and the grants of the guests that use it.

use std::time::Duration;

use trueup_capabilities::grants::NFTABLES;

use super::*;

fn nftables(more: &str) -> Result<NftablesBackend, String> {
    load(&format!("{LEAST}{more}"), &[]).map(|config| config.nftables)
}

#[test]
fn without_a_section_it_is_the_hosts_own_kernel() {
    for more in ["", "[backend.nftables]\n", "[backend.nftables]\nkind = \"nft\"\n"] {
        assert_eq!(
            nftables(more),
            Ok(NftablesBackend::Nft(NftablesProgram::default())),
            "{more}"
        );
    }
    let default = NftablesProgram::default();
    assert_eq!((default.namespace, default.program.as_path()), (None, Path::new("nft")));
    assert_eq!(default.timeout, Duration::from_secs(300));
    let simulated = nftables("[backend.nftables]\nkind = \"simulated\"\n");
    assert_eq!(simulated, Ok(NftablesBackend::Simulated));
}

#[test]
fn a_namespace_a_program_and_a_timeout_may_be_named() {
    let all = "[backend.nftables]\nnamespace = \"node-a\"\nnft = \"/opt/nft\"\ntimeout_ms = 60000\n";
    let expected = NftablesProgram {
        namespace: Some("node-a".to_owned()),
        program: "/opt/nft".into(),
        timeout: Duration::from_secs(60),
    };
    assert_eq!(nftables(all), Ok(NftablesBackend::Nft(expected)));
    let Ok(NftablesBackend::Nft(beside)) = nftables("[backend.nftables]\nnft = \"bin/nft\"\n") else {
        panic!("the kernel")
    };
    assert!(beside.program.is_absolute() && beside.program.ends_with("bin/nft"));
    let variables = [("TRUEUP_BACKEND_NFTABLES_KIND", "simulated")];
    let config = load(&format!("{LEAST}{all}"), &variables).unwrap();
    assert_eq!(config.nftables, NftablesBackend::Simulated);
}

#[test]
fn what_can_not_be_meant_is_refused() {
    for (more, said) in [
        ("kind = \"iptables\"\n", "must be \"nft\" or \"simulated\""),
        ("namespace = \"\"\n", "must be the name of a network namespace"),
        (
            "namespace = \"/run/netns/a\"\n",
            "must be the name of a network namespace",
        ),
        ("namespace = \"..\"\n", "must be the name of a network namespace"),
        ("nft = \"\"\n", "must be a program's name or path"),
        ("timeout_ms = 99\n", "must be a whole number from 100 to 3600000"),
        ("timeout_ms = 3600001\n", "must be a whole number from 100 to 3600000"),
        (
            "kind = \"simulated\"\nnamespace = \"a\"\n",
            "backend.nftables.namespace: goes with `kind = \"nft\"` alone",
        ),
        ("netns = \"a\"\n", "unknown key `netns` in [backend.nftables]"),
    ] {
        let error = nftables(&format!("[backend.nftables]\n{more}")).unwrap_err();
        assert!(error.contains(said), "{more}: {error}");
    }
}

#[test]
fn a_grant_of_nftables_names_tables_with_their_family() {
    let granted = |scope: &str| {
        let grant = format!("[guests.lbaas.grants.nftables]\nwrite = [\"{scope}\"]\n");
        load(&format!("{LEAST}{grant}"), &[])
    };
    for scope in ["ip trueup", "*"] {
        let config = granted(scope).unwrap();
        let guest = config.world::<Lbaas>().unwrap().guest.clone();
        let allowed = guest.grants.allow(NFTABLES, Access::Write, "ip trueup");
        assert!(allowed, "{scope}");
    }
    for scope in ["trueup", "ip *", "ipv4 trueup"] {
        let error = granted(scope).unwrap_err();
        let said = "must be a table as \"FAMILY TABLE\", such as \"ip trueup\", or \"*\" for everything";
        assert!(error.contains(said), "{error}");
    }
}
