//! Which sandboxes count, where the socket is searched, and what is sent and reported; without a runtime.

use prost::Message as _;

use super::super::messages::{
    LinuxPodSandboxStatus, Namespace, NamespaceOption, PodIp, PodSandboxMetadata, PodSandboxNetworkStatus,
};
use super::*;

fn metadata(namespace: &str, name: &str) -> Option<PodSandboxMetadata> {
    Some(PodSandboxMetadata {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
    })
}

fn listed() -> PodSandbox {
    PodSandbox {
        id: "c1".to_owned(),
        metadata: metadata("listed", "web"),
    }
}

fn linux(network: i32) -> Option<LinuxPodSandboxStatus> {
    let options = Some(NamespaceOption { network });
    let namespaces = Some(Namespace { options });
    Some(LinuxPodSandboxStatus { namespaces })
}

fn network(ip: &str, additional: &[&str]) -> Option<PodSandboxNetworkStatus> {
    Some(PodSandboxNetworkStatus {
        ip: ip.to_owned(),
        additional_ips: additional.iter().map(|ip| PodIp { ip: (*ip).to_owned() }).collect(),
    })
}

fn ready(network: Option<PodSandboxNetworkStatus>) -> PodSandboxStatus {
    PodSandboxStatus {
        metadata: metadata("default", "web-0"),
        state: 0,
        network,
        linux: linux(0),
    }
}

/// The addresses that a status gives.
fn ips(status: PodSandboxStatus) -> Vec<String> {
    addresses(&listed(), status)
        .into_iter()
        .map(|sandbox| sandbox.ip)
        .collect()
}

#[test]
fn a_record_has_the_listed_id_and_the_names_of_the_status() {
    let records = addresses(&listed(), ready(network("10.0.0.1", &[])));
    let expected = Sandbox {
        id: "c1".to_owned(),
        ip: "10.0.0.1".to_owned(),
        namespace: "default".to_owned(),
        name: "web-0".to_owned(),
    };
    assert_eq!(records, [expected]);
}

#[test]
fn names_that_the_status_lacks_are_those_of_the_list() {
    let status = PodSandboxStatus {
        metadata: None,
        ..ready(network("10.0.0.1", &[]))
    };
    let records = addresses(&listed(), status.clone());
    assert_eq!((&*records[0].namespace, &*records[0].name), ("listed", "web"));

    let nameless = PodSandbox {
        metadata: None,
        ..listed()
    };
    let records = addresses(&nameless, status);
    assert_eq!((&*records[0].namespace, &*records[0].name), ("", ""));
}

#[test]
fn the_main_address_comes_first_and_the_others_in_the_runtimes_order() {
    let status = ready(network("10.0.0.9", &["fd00::2", "10.0.0.1"]));
    assert_eq!(ips(status), ["10.0.0.9", "fd00::2", "10.0.0.1"]);
}

#[test]
fn empty_addresses_are_left_out() {
    assert_eq!(
        ips(ready(network("", &["10.0.0.1", "", "10.0.0.2"]))),
        ["10.0.0.1", "10.0.0.2"]
    );
    assert_eq!(ips(ready(network("", &[]))), [""; 0]);
    assert_eq!(ips(ready(None)), [""; 0]);
}

#[test]
fn only_ready_sandboxes_count() {
    // 2 is a future state.
    for (state, count) in [(0, 1), (1, 0), (2, 0), (-1, 0)] {
        let status = PodSandboxStatus {
            state,
            ..ready(network("10.0.0.1", &[]))
        };
        assert_eq!(ips(status).len(), count, "state {state}");
    }
}

#[test]
fn only_sandboxes_with_a_network_of_their_own_count() {
    // POD, CONTAINER, NODE, TARGET, and a future mode.
    for (mode, count) in [(0, 1), (1, 0), (2, 0), (3, 0), (4, 0)] {
        let status = PodSandboxStatus {
            linux: linux(mode),
            ..ready(network("10.0.0.1", &[]))
        };
        assert_eq!(ips(status).len(), count, "mode {mode}");
    }
}

#[test]
fn a_missing_message_means_a_network_of_its_own() {
    let no_options = Some(LinuxPodSandboxStatus {
        namespaces: Some(Namespace { options: None }),
    });
    let no_namespaces = Some(LinuxPodSandboxStatus { namespaces: None });
    for linux in [None, no_namespaces, no_options] {
        let status = PodSandboxStatus {
            linux,
            ..ready(network("10.0.0.1", &[]))
        };
        assert_eq!(ips(status), ["10.0.0.1"]);
    }
}

#[test]
fn an_empty_status_has_no_address() {
    assert_eq!(ips(PodSandboxStatus::default()), [""; 0]);
}

#[test]
fn the_configured_socket_is_used_whether_it_exists_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let default = folder.path().join("default.sock");
    std::fs::write(&default, "").unwrap();
    let configured = folder.path().join("configured.sock");
    let chosen = chosen_socket(Some(&configured), &[default]).unwrap();
    assert_eq!(*chosen, *configured);
}

#[test]
fn the_first_default_that_exists_is_used_and_looked_for_anew_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let defaults = ["one.sock", "two.sock", "three.sock"].map(|name| folder.path().join(name));
    let chosen = || chosen_socket(None, &defaults).map(|socket| socket.to_path_buf());
    assert!(chosen().is_err());
    for n in [2, 1, 0] {
        std::fs::write(&defaults[n], "").unwrap();
        assert_eq!(chosen().unwrap(), defaults[n]);
    }
    std::fs::remove_file(&defaults[0]).unwrap();
    assert_eq!(chosen().unwrap(), defaults[1]);
}

#[test]
fn where_no_default_exists_the_error_names_them_all() {
    let folder = tempfile::tempdir().unwrap();
    let defaults = SOCKETS_DEFAULT.map(|socket| folder.path().join(socket.trim_start_matches('/')));
    let error = chosen_socket(None, &defaults).unwrap_err().to_string();
    let root = folder.path().display();
    assert_eq!(
        error,
        format!(
            "found no container runtime's socket: none of `{root}/run/containerd/containerd.sock`, \
             `{root}/var/run/crio/crio.sock`, `{root}/run/cri-dockerd.sock` exists; start the runtime, or set `socket` \
             in `[backend.cri]`"
        )
    );
}

#[test]
fn the_filter_is_sent_although_all_in_it_is_default() {
    let request = ListPodSandboxRequest {
        filter: Some(PodSandboxFilter {
            state: Some(PodSandboxStateValue { state: 0 }),
        }),
    };
    assert_eq!(request.encode_to_vec(), [0x0a, 0x02, 0x12, 0x00]);
}

#[test]
fn a_status_is_said_in_one_line_with_name_and_number() {
    let said = |code, message: &str| StatusText(&Status::new(code, message)).to_string();
    assert_eq!(
        said(Code::Unavailable, "shutting\ndown"),
        "UNAVAILABLE (14): shutting down"
    );
    assert_eq!(said(Code::Internal, ""), "INTERNAL (13)");
    assert_eq!(
        said(Code::Unimplemented, "unknown service runtime.v1.RuntimeService"),
        "UNIMPLEMENTED (12): unknown service runtime.v1.RuntimeService: the runtime lacks CRI v1; update it, or enable \
         its CRI plugin"
    );
}

#[test]
fn codes_are_named_as_grpc_names_them() {
    let names: Vec<String> = (0..17).map(|code| name(Code::from_i32(code))).collect();
    let expected = "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS \
                    PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED \
                    INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn by_default_the_socket_is_searched_and_timeouts_are_2_and_10_seconds() {
    let settings = Settings::default();
    assert_eq!(
        (
            settings.socket,
            settings.connect_timeout.as_secs(),
            settings.call_timeout.as_secs()
        ),
        (None, 2, 10)
    );
}
