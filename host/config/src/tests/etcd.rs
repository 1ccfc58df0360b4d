//! `[backend.etcd]`.

use super::*;

fn etcd(more: &str) -> Result<EtcdBackend, String> {
    load(&format!("{LEAST}{more}"), &[]).map(|config| config.etcd)
}

#[test]
fn without_a_section_it_is_a_file_in_the_state_folder() {
    for more in ["", "[backend.etcd]\n", "[backend.etcd]\nkind = \"embedded\"\n"] {
        let EtcdBackend::Embedded(path) = etcd(more).unwrap() else {
            panic!("{more}")
        };
        assert!(path.ends_with(".trueup/etcd.redb"), "{}", path.display());
    }
    let EtcdBackend::Embedded(path) = etcd("[backend.etcd]\npath = \"other.redb\"\n").unwrap() else {
        panic!("the host's own")
    };
    assert!(path.ends_with("other.redb") && path.is_absolute(), "{}", path.display());
    assert_eq!(
        etcd("[backend.etcd]\nkind = \"simulated\"\n"),
        Ok(EtcdBackend::Simulated)
    );
}

#[test]
fn a_cluster_has_endpoints_and_what_they_want_to_see() {
    let least = "[backend.etcd]\nkind = \"etcd\"\nendpoints = [\"http://10.0.0.1:2379/\", \"http://[fd00::1]:2379\"]\n";
    let EtcdBackend::Etcd(cluster) = etcd(least).unwrap() else {
        panic!("a cluster")
    };
    let expected = EtcdCluster {
        endpoints: ["http://10.0.0.1:2379", "http://[fd00::1]:2379"]
            .map(str::to_owned)
            .into(),
        user: None,
        ca_file: None,
        own: None,
        server_name: None,
        request_timeout: std::time::Duration::from_secs(8),
    };
    assert_eq!(cluster, expected);
    let all = "[backend.etcd]\nkind = \"etcd\"\nendpoints = [\"https://etcd-0:2379\"]\nuser = \"trueup\"\n\
               password_file = \"password\"\nca_file = \"ca.pem\"\ncert_file = \"own.pem\"\nkey_file = \"own.key\"\n\
               server_name = \"etcd\"\nrequest_timeout_ms = 500\n";
    let EtcdBackend::Etcd(cluster) = etcd(all).unwrap() else {
        panic!("a cluster")
    };
    let (user, password) = cluster.user.unwrap();
    assert_eq!(user, "trueup");
    assert!(password.is_absolute() && password.ends_with("password"));
    assert!(cluster.ca_file.unwrap().ends_with("ca.pem"));
    assert!(cluster.own.unwrap().1.ends_with("own.key"));
    assert_eq!(cluster.server_name.as_deref(), Some("etcd"));
    assert_eq!(cluster.request_timeout.as_millis(), 500);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let line = LEAST.lines().count() + 1;
    let at = |down: usize, text: &str| format!("trueup.toml:{}: {text}", line + down);
    for (more, said) in [
        (
            "[backend.etcd]\nkind = \"etcd\"\n",
            vec![at(
                0,
                "backend.etcd.endpoints: is missing, must hold the members' client URLs",
            )],
        ),
        (
            "[backend.etcd]\nkind = \"etcd\"\nendpoints = [\"10.0.0.1:2379\"]\n",
            vec![at(
                2,
                "backend.etcd.endpoints[0]: was \"10.0.0.1:2379\", must be `http://HOST:PORT` or `https://HOST:PORT`",
            )],
        ),
        (
            "[backend.etcd]\nkind = \"etcd\"\nendpoints = [\"http://a:1\", \"https://b:1\"]\n",
            vec![at(2, "backend.etcd.endpoints: are with TLS or without, not both")],
        ),
        (
            "[backend.etcd]\nkind = \"etcd\"\nendpoints = [\"http://a:1\"]\nca_file = \"ca.pem\"\n",
            vec![at(
                3,
                "backend.etcd.ca_file: goes with endpoints that begin with `https://`",
            )],
        ),
        (
            "[backend.etcd]\nkind = \"etcd\"\nendpoints = [\"http://a:1\"]\nuser = \"trueup\"\n",
            vec![at(3, "backend.etcd.user: goes with `password_file`: add it")],
        ),
        (
            "[backend.etcd]\nendpoints = [\"http://a:1\"]\n",
            vec![at(1, "backend.etcd.endpoints: goes with `kind = \"etcd\"` alone")],
        ),
        (
            "[backend.etcd]\nkind = \"simulated\"\npath = \"x\"\n",
            vec![at(2, "backend.etcd.path: goes with `kind = \"embedded\"` alone")],
        ),
    ] {
        let error = etcd(more).unwrap_err();
        assert_eq!(error.lines().collect::<Vec<_>>(), said, "{more}");
    }
    let error =
        etcd("[backend.etcd]\nkind = \"etcd\"\nendpoints = [\"http://a:1\"]\npassword = \"hunter2\"\n").unwrap_err();
    assert!(
        error.contains("does not stand here") && !error.contains("hunter2"),
        "{error}"
    );
}
