//! Where the socket is searched, and what is reported; without a runtime.

use super::*;

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
fn a_status_is_said_in_one_line_with_name_and_number() {
    let said = |code, message: &str| status_text(&Status::new(code, message));
    assert_eq!(
        said(Code::Unavailable, "shutting\ndown"),
        "UNAVAILABLE (14): shutting down"
    );
    assert_eq!(said(Code::Internal, ""), "INTERNAL (13)");
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
    let settings = Remote::default();
    assert_eq!(
        (
            settings.socket,
            settings.connect_timeout.as_secs(),
            settings.call_timeout.as_secs()
        ),
        (None, 2, 10)
    );
}
