//! How the backend handles a runtime's answers, or their absence.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message as _;
use tokio::net::UnixListener;
use tokio::sync::Barrier;
use trueup_capabilities::cri::Runtime as _;
use trueup_capabilities::cri::remote::Remote;

use super::grpc::{Reply, Server};
use super::messages::{
    LinuxStatus, ListPodSandboxResponse, Metadata, Namespace, NamespaceOption, Network, PodIp, PodSandbox,
    PodSandboxStatus, PodSandboxStatusRequest, PodSandboxStatusResponse,
};
use super::{LIST, NOT_FOUND, STATUS, remote};

/// The maximum size of a message.
const MESSAGE_MAX_BYTES: usize = 16 * 1024 * 1024;

fn metadata(name: &str) -> Option<Metadata> {
    Some(Metadata {
        name: name.to_owned(),
        uid: format!("uid of {name}"),
        namespace: "default".to_owned(),
        attempt: 0,
    })
}

/// An answer to `ListPodSandbox` with these. `nameless` has no name in it.
fn list(ids: &[&str]) -> Vec<u8> {
    let item = |id: &&str| PodSandbox {
        id: (*id).to_owned(),
        metadata: metadata(&format!("listed {id}")).filter(|_| *id != "nameless"),
        state: 0,
        created_at: 1,
    };
    let items = ids.iter().map(item).collect();
    ListPodSandboxResponse { items }.encode_to_vec()
}

/// The status of a running sandbox with a network of its own and these addresses.
fn running(id: &str, ip: &str, additional: &[&str]) -> PodSandboxStatus {
    let options = Some(NamespaceOption { network: 0 });
    let namespaces = Some(Namespace { options });
    PodSandboxStatus {
        id: id.to_owned(),
        metadata: metadata(&format!("pod {id}")),
        state: 0,
        created_at: 1,
        network: Some(Network {
            ip: ip.to_owned(),
            additional_ips: additional.iter().map(|ip| PodIp { ip: (*ip).to_owned() }).collect(),
        }),
        linux: Some(LinuxStatus { namespaces }),
    }
}

fn status(status: PodSandboxStatus) -> Reply {
    let status = Some(status);
    Reply::Message(PodSandboxStatusResponse { status }.encode_to_vec())
}

fn refusal(code: u32, message: &str) -> Reply {
    Reply::Refusal((code, message.to_owned()))
}

/// A runtime that lists these ids in this order, with a scripted answer for each.
fn runtime(ids: &'static [&'static str], of: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |path, message| {
        let reply = match path.as_str() {
            LIST => Reply::Message(list(ids)),
            STATUS => of(&asked_for(&message)),
            _ => panic!("asked {path}"),
        };
        Box::pin(std::future::ready(reply))
    })
}

fn asked_for(message: &[u8]) -> String {
    PodSandboxStatusRequest::decode(message).unwrap().pod_sandbox_id
}

/// The backend's answer in short: `ID IP NAMESPACE/NAME`.
async fn answered(remote: &Remote) -> Result<Vec<String>, String> {
    let sandboxes = remote.list_running().await?;
    let shown = sandboxes
        .iter()
        .map(|sandbox| format!("{} {} {}/{}", sandbox.id, sandbox.ip, sandbox.namespace, sandbox.name));
    Ok(shown.collect())
}

/// The error for a runtime that does this to each `ListPodSandbox`, without the socket in backticks.
async fn error_of_list(reply: impl Fn() -> Reply + Send + Sync + 'static) -> String {
    let server = Server::start(move |path, _| {
        assert_eq!(path, LIST);
        Box::pin(std::future::ready(reply()))
    });
    let error = answered(&remote(server.socket())).await.unwrap_err();
    without(&error, server.socket())
}

fn without(error: &str, socket: &Path) -> String {
    let socket = format!("`{}`", socket.display());
    assert!(error.contains(&socket), "{error} does not name {socket}");
    assert!(!error.contains('\n'), "{error}");
    error.replace(&socket, "SOCKET")
}

#[tokio::test]
async fn sandboxes_come_by_id_with_their_addresses_in_the_runtimes_order() {
    let server = runtime(&["c", "a", "b"], |id| {
        status(match id {
            "a" => running(id, "10.0.0.7", &["fd00::7", "10.0.0.1"]),
            "b" => running(id, "", &["10.0.0.2", ""]),
            _ => running(id, "10.0.0.3", &[]),
        })
    });
    let expected = [
        "a 10.0.0.7 default/pod a",
        "a fd00::7 default/pod a",
        "a 10.0.0.1 default/pod a",
        "b 10.0.0.2 default/pod b",
        "c 10.0.0.3 default/pod c",
    ];
    let remote = remote(server.socket());
    assert_eq!(answered(&remote).await.unwrap(), expected);
    // Calls share no state, and nothing is lost.
    assert_eq!(answered(&remote).await.unwrap(), expected);
}

#[tokio::test]
async fn only_ready_sandboxes_are_asked_for_and_each_for_its_status_once() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let server = Server::start(move |path, message| {
        kept.lock().unwrap().push((path.clone(), message));
        let reply = match path.as_str() {
            // Twice the same, which no runtime should return.
            LIST => Reply::Message(list(&["a", "a"])),
            _ => status(running("a", "10.0.0.1", &[])),
        };
        Box::pin(std::future::ready(reply))
    });
    assert_eq!(
        answered(&remote(server.socket())).await.unwrap(),
        ["a 10.0.0.1 default/pod a"]
    );
    let filter = vec![0x0a, 0x02, 0x12, 0x00];
    let expected = [(LIST.to_owned(), filter), (STATUS.to_owned(), vec![0x0a, 0x01, b'a'])];
    assert_eq!(*asked.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_runtime_without_sandboxes_has_none() {
    let server = runtime(&[], |_| panic!("nothing to ask for"));
    assert_eq!(answered(&remote(server.socket())).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_sandbox_that_ended_after_it_was_listed_is_passed_over() {
    let server = runtime(&["gone", "not ready", "of a future state", "a", "b"], |id| {
        let in_state = |state| {
            status(PodSandboxStatus {
                state,
                ..running(id, "10.0.0.1", &[])
            })
        };
        match id {
            "gone" => refusal(NOT_FOUND, "an error occurred when try to find sandbox: not found"),
            "not ready" => in_state(1),
            "of a future state" => in_state(2),
            _ => in_state(0),
        }
    });
    let expected = ["a 10.0.0.1 default/pod a", "b 10.0.0.1 default/pod b"];
    assert_eq!(answered(&remote(server.socket())).await.unwrap(), expected);
}

#[tokio::test]
async fn sandboxes_with_a_foreign_network_are_omitted_missing_is_default() {
    let ids = &[
        "container",
        "empty",
        "future",
        "host",
        "no mode",
        "own",
        "target",
        "unknown",
    ];
    let server = runtime(ids, |id| {
        let mode = |network| Some(NamespaceOption { network });
        let options = match id {
            "own" => mode(0),
            "container" => mode(1),
            "host" => mode(2),
            "target" => mode(3),
            "future" => mode(4),
            "empty" => return Reply::Message(Vec::new()), // Not even a status.
            _ => None,
        };
        let namespaces = Some(Namespace { options }).filter(|_| id != "unknown");
        status(PodSandboxStatus {
            linux: Some(LinuxStatus { namespaces }),
            ..running(id, "10.0.0.1", &[])
        })
    });
    let expected = ["no mode", "own", "unknown"].map(|id| format!("{id} 10.0.0.1 default/pod {id}"));
    assert_eq!(answered(&remote(server.socket())).await.unwrap(), expected);
}

#[tokio::test]
async fn what_a_status_lacks_is_taken_from_the_list_or_the_default() {
    let server = runtime(&["nameless", "web"], |id| {
        status(PodSandboxStatus {
            linux: None,
            metadata: None,
            ..running(id, "10.0.0.1", &[])
        })
    });
    let expected = ["nameless 10.0.0.1 /", "web 10.0.0.1 default/listed web"];
    assert_eq!(answered(&remote(server.socket())).await.unwrap(), expected);
}

#[tokio::test]
async fn eight_statuses_are_asked_for_at_a_time() {
    // Each answer waits for eight requests: with fewer at a time, none would ever be answered.
    let eight = Arc::new(Barrier::new(8));
    let under_way = Arc::new(Mutex::new((0, 0)));
    let counted = Arc::clone(&under_way);
    let ids: Vec<String> = (0..32).map(|n| format!("{n:02}")).collect();
    let server = Server::start(move |path, message| {
        if path == LIST {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            return Box::pin(std::future::ready(Reply::Message(list(&ids))));
        }
        let (eight, counted) = (Arc::clone(&eight), Arc::clone(&counted));
        Box::pin(async move {
            {
                let (now, most) = &mut *counted.lock().unwrap();
                *now += 1;
                *most = (*now).max(*most);
            }
            eight.wait().await;
            counted.lock().unwrap().0 -= 1;
            status(running(&asked_for(&message), "10.0.0.1", &[]))
        })
    });
    let remote = remote(server.socket());
    let sandboxes = remote.list_running().await.unwrap();
    let ids: Vec<String> = sandboxes.into_iter().map(|sandbox| sandbox.id).collect();
    assert_eq!(ids, (0..32).map(|n| format!("{n:02}")).collect::<Vec<_>>());
    assert_eq!(*under_way.lock().unwrap(), (0, 8));
}

#[tokio::test]
async fn other_errors_fail_the_call_and_name_socket_method_code_and_message() {
    let codes = BTreeMap::from([
        (2, "UNKNOWN"),
        (7, "PERMISSION_DENIED"),
        (8, "RESOURCE_EXHAUSTED"),
        (13, "INTERNAL"),
        (14, "UNAVAILABLE"),
    ]);
    for (code, name) in codes {
        let server = runtime(&["a", "b"], move |id| match id {
            "b" => refusal(code, "it's \"broken\": 100 %"),
            _ => status(running(id, "10.0.0.1", &[])),
        });
        let error = answered(&remote(server.socket())).await.unwrap_err();
        assert_eq!(
            without(&error, server.socket()),
            format!("`{STATUS}` of sandbox `b` on SOCKET failed: {name} ({code}): it's \"broken\": 100 %")
        );
        let error = error_of_list(move || refusal(code, "it is broken")).await;
        assert_eq!(
            error,
            format!("`{LIST}` on SOCKET failed: {name} ({code}): it is broken")
        );
    }
}

#[tokio::test]
async fn a_list_that_is_not_found_is_no_empty_list() {
    let error = error_of_list(|| refusal(NOT_FOUND, "no such thing")).await;
    assert_eq!(
        error,
        format!("`{LIST}` on SOCKET failed: NOT_FOUND (5): no such thing")
    );
}

#[tokio::test]
async fn a_runtime_without_cri_v1_is_told_as_such() {
    let error = error_of_list(|| refusal(12, "unknown service runtime.v1.RuntimeService")).await;
    assert_eq!(
        error,
        format!(
            "`{LIST}` on SOCKET failed: UNIMPLEMENTED (12): unknown service runtime.v1.RuntimeService: the runtime \
             lacks CRI v1; update it, or enable its CRI plugin"
        )
    );
}

#[tokio::test]
async fn an_answer_that_is_no_message_fails_the_call() {
    let error = error_of_list(|| Reply::Message(vec![0xff, 0xff])).await;
    let expected = format!("`{LIST}` on SOCKET failed: INTERNAL (13): failed to decode Protobuf message: ");
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn an_answer_of_16_mib_is_read_and_a_longer_one_refused() {
    let padded = |bytes: usize| {
        // The unknown field 15: its key, its length in four bytes, and the rest.
        let listed = list(&["a"]);
        let padding = bytes - listed.len() - 5;
        let mut message = vec![0x7a];
        prost::encode_length_delimiter(padding, &mut message).unwrap();
        message.resize(5 + padding, 0);
        message.extend(listed);
        assert_eq!(message.len(), bytes);
        message
    };
    let server = Server::start(move |path, _| {
        let reply = match path.as_str() {
            LIST => Reply::Message(padded(MESSAGE_MAX_BYTES)),
            _ => status(running("a", "10.0.0.1", &[])),
        };
        Box::pin(std::future::ready(reply))
    });
    assert_eq!(
        answered(&remote(server.socket())).await.unwrap(),
        ["a 10.0.0.1 default/pod a"]
    );

    let error = error_of_list(move || Reply::Message(padded(MESSAGE_MAX_BYTES + 1))).await;
    let expected = format!("`{LIST}` on SOCKET failed: OUT_OF_RANGE (11): ");
    assert!(error.starts_with(&expected), "{error}");
    assert!(error.contains("16777217"), "{error}");
}

/// A runtime with one sandbox that answers this method in its own way.
fn answering(method: &'static str, reply: fn() -> Reply) -> Server {
    Server::start(move |path, _| {
        let reply = if path == method {
            reply()
        } else {
            Reply::Message(list(&["a"]))
        };
        Box::pin(std::future::ready(reply))
    })
}

#[tokio::test]
async fn a_runtime_that_breaks_off_fails_the_call() {
    for method in [LIST, STATUS] {
        let server = answering(method, || Reply::Break);
        let error = answered(&remote(server.socket())).await.unwrap_err();
        let error = without(&error, server.socket());
        let of = if method == STATUS { " of sandbox `a`" } else { "" };
        assert!(
            error.starts_with(&format!("`{method}`{of} on SOCKET failed: ")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_runtime_that_hangs_ends_the_call_in_time() {
    let check = async |method: &'static str, of: &str| {
        let server = answering(method, || Reply::Silence);
        let error = impatient(server.socket()).await;
        let expected =
            format!("`{method}`{of} on SOCKET failed: DEADLINE_EXCEEDED (4): the whole call took longer than 2500 ms");
        assert_eq!(error, expected);
    };
    tokio::join!(check(LIST, ""), check(STATUS, " of sandbox `a`"));
}

#[tokio::test]
async fn a_runtime_that_accepts_nothing_ends_the_call_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("runtime.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let error = impatient(&socket).await;
    let expected = format!("`{LIST}` on SOCKET failed: DEADLINE_EXCEEDED (4): the whole call took longer than 2500 ms");
    assert_eq!(error, expected);
}

/// The error of a backend that waits at most 2500 ms in all: long enough for what precedes the wait, on a machine that
/// stalls.
async fn impatient(socket: &Path) -> String {
    let remote = Remote {
        socket: Some(socket.to_owned()),
        connect_timeout: Duration::from_millis(2500),
        call_timeout: Duration::from_millis(2500),
    };
    without(&answered(&remote).await.unwrap_err(), socket)
}

#[tokio::test]
async fn an_absent_socket_and_one_without_a_listener_are_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("runtime.sock");
    let remote = remote(&socket);
    let cases = [
        ("No such file or directory (os error 2)", false),
        ("Connection refused (os error 111)", true),
    ];
    for (reason, bind) in cases {
        if bind {
            drop(UnixListener::bind(&socket).unwrap());
        }
        let error = answered(&remote).await.unwrap_err();
        let expected = format!(
            "can't connect to the container runtime at SOCKET: {reason}; start the runtime, or correct `socket` in \
             `[backend.cri]`"
        );
        assert_eq!(without(&error, &socket), expected);
    }
}

#[tokio::test]
async fn what_listens_but_speaks_no_grpc_is_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("web.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let web = tokio::spawn(async move { axum::serve(listener, axum::Router::new()).await });
    let error = answered(&remote(&socket)).await.unwrap_err();
    web.abort();
    let error = without(&error, &socket);
    assert!(error.starts_with(&format!("`{LIST}` on SOCKET failed: ")), "{error}");
}
