//! The real binary, called as a runtime calls it, against a small host that the test runs.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails where it stands"
)]

#[path = "plugin/call.rs"]
mod call;
#[path = "plugin/fake_host.rs"]
mod fake_host;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::thread;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use serde_json::{Value, json};

use call::{Node, call, call_with, end, environment, spawn};
use fake_host::{FakeHost, Reply};

const COMMANDS: [&str; 5] = ["ADD", "DEL", "CHECK", "STATUS", "GC"];
const ALLOCATION: &str = r#"{"v":1,"ok":{"ip":"10.0.0.5","deviceNumber":1}}"#;
/// `printf 'net\0c1\0eth0' | sha256sum`
const RELEASE: &str = "26026bd18b7cde682ae8b772c36d68c0d0a8a3725660b2ab706459f2e3a4d588.json";
const RELEASE_TEXT: &str = r#"{"v":1,"instance":null,"networkName":"net","containerID":"c1","ifName":"eth0"}"#;

#[test]
fn version_is_answered_without_a_host() {
    let expected = "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n";
    for stdin in ["", "{}", r#"{"cniVersion":"0.1.0"}"#] {
        let ended = call_with(&[("CNI_COMMAND", "VERSION".into())], stdin.as_bytes());
        assert_eq!(
            (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
            (0, expected, "")
        );
    }
    assert_eq!(call_with(&environment("VERSION"), b"no JSON").error().0, 6);
}

#[test]
fn add_prints_the_result_of_each_version_and_asks_once() {
    let node = Node::new();
    let host = FakeHost::start(
        &node.socket(),
        [
            Reply::line(ALLOCATION),
            Reply::line(ALLOCATION),
            Reply::line(ALLOCATION),
        ],
    );
    let ipam = json!({"prefixLength": 24, "gateway": "10.0.0.1", "routes": [{"dst": "0.0.0.0/0", "mtu": 1400}]});
    let rest = r#""dns":{"nameservers":["10.0.0.53"]},"trueup":{"deviceNumber":1}"#;
    let ip = r#""address":"10.0.0.5/24","gateway":"10.0.0.1""#;
    for (version, ip, route) in [
        ("0.4.0", format!(r#""version":"4",{ip}"#), r#""dst":"0.0.0.0/0""#),
        ("1.0.0", ip.to_owned(), r#""dst":"0.0.0.0/0""#),
        ("1.1.0", ip.to_owned(), r#""dst":"0.0.0.0/0","mtu":1400"#),
    ] {
        let dns = json!({"dns": {"nameservers": ["10.0.0.53"]}});
        let ended = call("ADD", &node.configuration(version, dns, ipam.clone()));
        let expected = format!("{{\"cniVersion\":\"{version}\",\"ips\":[{{{ip}}}],\"routes\":[{{{route}}}],{rest}}}\n");
        assert_eq!((ended.code, ended.stdout, ended.stderr), (0, expected, String::new()));
    }
    let request = r#"{"v":1,"command":"ADD","instance":null,"network":"net","containerId":"c1","ifName":"eth0"}"#;
    assert_eq!(host.requests(), [request; 3]);
}

#[test]
fn the_other_commands_print_nothing() {
    let node = Node::new();
    let done = || Reply::line(r#"{"v":1,"ok":{}}"#);
    let host = FakeHost::start(&node.socket(), [done(), Reply::line(ALLOCATION), done(), done()]);
    for (command, more) in [
        ("DEL", json!({})),
        ("CHECK", json!({"prevResult": {"ips": [{"address": "10.0.0.5/32"}]}})),
        ("STATUS", json!({})),
        (
            "GC",
            json!({"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "eth1"}]}),
        ),
    ] {
        let ipam = json!({"instance": "pods", "gcMigrated": true});
        let ended = call(command, &node.configuration("1.1.0", more, ipam));
        assert!(ended.is_silent(), "{command}: {ended:?}");
    }
    assert_eq!(
        host.requests(),
        [
            r#"{"v":1,"command":"DEL","instance":"pods","network":"net","containerId":"c1","ifName":"eth0"}"#,
            r#"{"v":1,"command":"CHECK","instance":"pods","network":"net","containerId":"c1","ifName":"eth0"}"#,
            r#"{"v":1,"command":"STATUS","instance":"pods"}"#,
            r#"{"v":1,"command":"GC","instance":"pods","network":"net","valid":[["c1","eth0"],["c2","eth1"]],"gcMigrated":true}"#,
        ]
    );
}

#[test]
fn what_the_host_refuses_is_told_to_the_caller_word_for_word() {
    let node = Node::new();
    let refusal = r#"{"v":1,"error":{"code":11,"msg":"no address is free","details":"net/c1/eth0"}}"#;
    let _host = FakeHost::start(&node.socket(), [Reply::line(refusal)]);
    let ended = node.call("ADD", json!({}));
    assert_eq!(ended.error(), (11, "no address is free".to_owned()));
    assert_eq!(
        ended.stdout,
        "{\"cniVersion\":\"1.0.0\",\"code\":11,\"msg\":\"no address is free\",\"details\":\"net/c1/eth0\"}\n"
    );
    assert_eq!(
        ended.stderr,
        "trueup-cni: ADD: no address is free (net/c1/eth0; code 11)\n"
    );
    assert!(node.spooled().is_empty());
}

#[test]
fn del_succeeds_for_what_is_gone_and_fails_when_the_host_cannot_store() {
    let node = Node::new();
    let refusal = |code| Reply::line(&format!(r#"{{"v":1,"error":{{"code":{code},"msg":"so it is"}}}}"#));
    let _host = FakeHost::start(&node.socket(), [refusal(3), refusal(11)]);
    let configuration = node.configuration_for("DEL", json!({}));
    assert!(call("DEL", &configuration).is_silent());
    assert_eq!(call("DEL", &configuration).error().0, 11);
    assert!(
        node.spooled().is_empty(),
        "the host has answered: the caller repeats it"
    );
}

#[test]
fn check_says_that_there_is_no_address_or_another() {
    let node = Node::new();
    let none = r#"{"v":1,"error":{"code":3,"msg":"the container has no address","details":"net/c1/eth0"}}"#;
    let other = r#"{"v":1,"ok":{"ip":"10.0.0.6","deviceNumber":1}}"#;
    let _host = FakeHost::start(&node.socket(), [Reply::line(none), Reply::line(other)]);
    let configuration = node.configuration_for("CHECK", json!({}));
    assert_eq!(call("CHECK", &configuration).error().0, 3);
    assert_eq!(
        call("CHECK", &configuration).error(),
        (
            101,
            "the container's address is 10.0.0.6, which is not among `prevResult.ips`".to_owned()
        )
    );
}

/// Each command without an answer. Afterwards the spool holds DEL's release, whole, and nothing else.
fn check_unanswered(node: &Node, code: u64, said: &str, ipam: &Value) {
    for command in COMMANDS {
        let ended = node.call(command, ipam.clone());
        let expected = match command {
            "DEL" => {
                assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "{ended:?}");
                assert!(ended.stderr.contains(said), "{said}: {ended:?}");
                assert!(
                    ended.stderr.contains(&format!(
                        "; the release waits in the spool `{}`",
                        node.spool().display()
                    )),
                    "{ended:?}"
                );
                assert_eq!(node.spooled(), [RELEASE]);
                assert_eq!(fs::read_to_string(node.spool().join(RELEASE)).unwrap(), RELEASE_TEXT);
                fs::remove_dir_all(node.spool()).unwrap();
                continue;
            }
            "STATUS" => 50,
            _ => code,
        };
        let (code, msg) = ended.error();
        assert_eq!(code, expected, "{command}: {ended:?}");
        assert!(msg.contains(said), "{command}: {said}: {msg}");
        assert!(node.spooled().is_empty(), "{command}");
    }
    let mut no_spool = node.configuration_for("DEL", ipam.clone());
    no_spool["ipam"]["spoolDir"] = Value::Null;
    assert_eq!(call("DEL", &no_spool).error().0, 11);
}

/// The same with a host that gives every connection this reply.
fn check_reply(code: u64, said: &str, reply: impl Fn() -> Reply) {
    let node = Node::new();
    let _host = FakeHost::start(&node.socket(), (0..=COMMANDS.len()).map(|_| reply()));
    check_unanswered(&node, code, said, &json!({}));
}

#[test]
fn a_socket_that_is_missing_says_so() {
    let node = Node::new();
    let said = format!(
        "the host is down: connecting to the host at `{}`: No such file",
        node.socket().display()
    );
    check_unanswered(&node, 11, &said, &json!({}));
    // A file in place of a folder counts as missing.
    fs::write(node.path().join("file"), "").unwrap();
    let ipam = json!({"socket": node.path().join("file/cni.sock")});
    check_unanswered(&node, 11, "Not a directory", &ipam);
}

#[test]
fn a_socket_without_a_listener_says_so() {
    let node = Node::new();
    drop(UnixListener::bind(node.socket()).unwrap());
    assert!(node.socket().exists());
    check_unanswered(&node, 11, "Connection refused", &json!({}));
}

#[test]
fn the_plugin_waits_for_a_silent_host_as_long_as_configured() {
    // Long enough for the question to arrive on a machine that stalls.
    let check = |command: &str, reply: Reply| {
        let node = Node::new();
        let host = FakeHost::start(&node.socket(), [reply]);
        let ended = node.call(command, json!({"timeoutMs": 2000}));
        assert!(ended.stderr.contains("did not answer within 2000 ms"), "{ended:?}");
        match command {
            "DEL" => assert_eq!((ended.code, node.spooled()), (0, vec![RELEASE.to_owned()])),
            "STATUS" => assert_eq!(ended.error().0, 50),
            _ => assert_eq!(ended.error().0, 11),
        }
        assert_eq!(host.requests().len(), 1);
    };
    thread::scope(|scope| {
        for command in COMMANDS {
            scope.spawn(move || check(command, Reply::Silence));
            scope.spawn(move || check(command, Reply::Drip));
        }
    });
}

#[test]
fn a_host_that_accepts_no_connection_is_given_up_in_time_too() {
    let node = Node::new();
    let address = SocketAddrUnix::new(node.socket()).unwrap();
    let stuck = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
    let listener = stuck();
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    // Fill the backlog, so that a connection waits.
    let waiting: Vec<_> = (0..)
        .map(|_| stuck())
        .take_while(|socket| connect(socket, &address).is_ok())
        .collect();
    assert!(!waiting.is_empty());
    check_unanswered(&node, 11, "did not answer within 50 ms", &json!({"timeoutMs": 50}));
}

/// The configuration of a GC with 10000 attachments.
fn gc_of_many(node: &Node, ipam: Value) -> Value {
    let one = |pod| json!({"containerID": format!("{pod:064}"), "ifname": "eth0"});
    let mut configuration = node.configuration_for("GC", ipam);
    configuration["cni.dev/valid-attachments"] = (0..10_000).map(one).collect();
    configuration
}

#[test]
fn a_host_that_stops_reading_is_given_up_in_time_too() {
    let node = Node::new();
    // The kernel accepts, and no process reads: a long request fills the kernel's buffer.
    let _listener = UnixListener::bind(node.socket()).unwrap();
    let ended = call("GC", &gc_of_many(&node, json!({"timeoutMs": 100})));
    assert_eq!(ended.error().0, 11);
    assert!(ended.stderr.contains("did not answer within 100 ms"), "{ended:?}");
}

#[test]
fn a_long_request_arrives_whole() {
    let node = Node::new();
    let host = FakeHost::start(&node.socket(), [Reply::line(r#"{"v":1,"ok":{}}"#)]);
    assert!(call("GC", &gc_of_many(&node, json!({}))).is_silent());
    let request: Value = serde_json::from_str(&host.requests()[0]).unwrap();
    assert_eq!(request["valid"].as_array().unwrap().len(), 10_000);
    assert_eq!(request["valid"][9_999], json!([format!("{:064}", 9_999), "eth0"]));
}

#[test]
fn a_host_that_hangs_up_is_a_host_that_is_down() {
    check_reply(11, "hung up before its answer", || Reply::HangUp);
    check_reply(11, "hung up before its answer", || Reply::Bytes(Vec::new()));
    check_reply(11, "hung up in the middle of its answer", || {
        Reply::Bytes(br#"{"v":1,"#.to_vec())
    });
}

#[test]
fn an_answer_whose_lines_end_alone_is_missing_counts() {
    let node = Node::new();
    let _host = FakeHost::start(&node.socket(), [Reply::Bytes(ALLOCATION.into())]);
    assert_eq!(node.call("ADD", json!({})).code, 0);
}

#[test]
fn an_answer_that_is_none_is_an_error_of_decoding() {
    let no_answer = "the host's answer is not understood: ";
    check_reply(6, no_answer, || Reply::line("hello"));
    check_reply(6, no_answer, || Reply::Bytes(b"\0\xff\xfe\n".to_vec()));
    check_reply(6, no_answer, || Reply::line(r#"{"v":1}"#));
    check_reply(6, "the host's answer is longer than 1048576 bytes", || {
        Reply::Bytes(vec![b'a'; 2 << 20])
    });
    check_reply(5, "the host answered in version 2 of the protocol", || {
        Reply::line(r#"{"v":2}"#)
    });
}

#[test]
fn an_answer_of_a_mebibyte_is_read() {
    let node = Node::new();
    let mut answer = ALLOCATION.as_bytes().to_vec();
    answer.resize(1 << 20, b' ');
    answer.push(b'\n');
    let _host = FakeHost::start(&node.socket(), [Reply::Bytes(answer)]);
    assert_eq!(node.call("ADD", json!({})).code, 0);
}

#[test]
fn a_host_that_answers_and_hangs_up_before_it_was_asked_is_heard() {
    let node = Node::new();
    let refusal = r#"{"v":1,"error":{"code":5,"msg":"user 1000 may not ask"}}"#;
    let _host = FakeHost::start(&node.socket(), [Reply::Unasked(format!("{refusal}\n").into_bytes())]);
    let ended = node.call("STATUS", json!({}));
    assert_eq!(ended.error(), (5, "user 1000 may not ask".to_owned()));
}

#[test]
fn a_release_is_kept_with_closed_doors() {
    let node = Node::new();
    let spool = node.path().join("var/lib/spool");
    let configuration = node.configuration_for("DEL", json!({"spoolDir": spool, "instance": "pods"}));
    for _ in 0..2 {
        assert_eq!(call("DEL", &configuration).code, 0, "it can be repeated");
    }
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&spool), 0o700);
    assert_eq!(mode(&spool.join(RELEASE)), 0o600);
    let text = fs::read_to_string(spool.join(RELEASE)).unwrap();
    assert_eq!(text, RELEASE_TEXT.replace("null", r#""pods""#));
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn a_release_that_can_not_be_kept_is_the_callers_again() {
    let node = Node::new();
    fs::write(node.spool(), "a file in its place").unwrap();
    let (code, msg) = node.call("DEL", json!({})).error();
    assert_eq!(code, 11);
    assert!(
        msg.contains("the host is down") && msg.contains("the release could not be kept"),
        "{msg}"
    );
}

#[test]
fn many_releases_of_one_key_at_once_leave_one_whole_file() {
    let node = Node::new();
    let configuration = node.configuration_for("DEL", json!({})).to_string();
    let children: Vec<_> = (0..20)
        .map(|_| {
            let mut child = spawn(&environment("DEL"), Stdio::piped());
            child.stdin.take().unwrap().write_all(configuration.as_bytes()).unwrap();
            child
        })
        .collect();
    for child in children {
        assert_eq!(end(child).code, 0);
    }
    assert_eq!(node.spooled(), [RELEASE]);
    assert_eq!(fs::read_to_string(node.spool().join(RELEASE)).unwrap(), RELEASE_TEXT);
}

#[test]
fn add_takes_a_waiting_release_back_before_it_asks() {
    let node = Node::new();
    let spool = node.spool();
    assert_eq!(node.call("DEL", json!({})).code, 0);
    assert_eq!(node.spooled(), [RELEASE]);
    let other = spool.join(RELEASE.replace('2', "3"));
    fs::write(&other, "another container's").unwrap();
    let look = Box::new(move || assert!(!spool.join(RELEASE).exists(), "the host could still work it off"));
    let host = FakeHost::start(&node.socket(), [Reply::After(look, format!("{ALLOCATION}\n").into())]);
    assert_eq!(node.call("ADD", json!({})).code, 0);
    assert_eq!(host.requests().len(), 1);
    assert!(other.exists());
}

#[test]
fn add_does_not_ask_while_a_release_of_its_key_can_not_be_taken_back() {
    let node = Node::new();
    let host = FakeHost::start(&node.socket(), [Reply::line(ALLOCATION)]);
    fs::create_dir_all(node.spool().join(RELEASE)).unwrap();
    let (code, msg) = node.call("ADD", json!({})).error();
    assert_eq!(code, 5);
    assert!(
        msg.starts_with("a waiting release of this container could not be taken back: removing"),
        "{msg}"
    );
    assert!(host.requests().is_empty());
    // Without a spool there is nothing to take back.
    assert_eq!(node.call("ADD", json!({"spoolDir": null})).code, 0);
}

#[test]
fn wrong_input_is_refused_without_a_call() {
    let node = Node::new();
    let host = FakeHost::start(&node.socket(), []);
    let good = node.configuration_for("ADD", json!({})).to_string();
    let set = |name: &'static str, value: Option<OsString>| {
        let mut variables = environment("ADD");
        variables.retain(|(other, _)| *other != name);
        variables.extend(value.map(|value| (name, value)));
        variables
    };
    let bytes = || Some(OsString::from_vec(vec![b'c', 0xff]));
    for (variables, name) in [
        (set("CNI_COMMAND", None), "CNI_COMMAND"),
        (set("CNI_COMMAND", Some("UPDATE".into())), "CNI_COMMAND"),
        (set("CNI_COMMAND", bytes()), "CNI_COMMAND"),
        (set("CNI_CONTAINERID", None), "CNI_CONTAINERID"),
        (set("CNI_CONTAINERID", bytes()), "CNI_CONTAINERID"),
        (set("CNI_IFNAME", Some("a/b".into())), "CNI_IFNAME"),
        (set("CNI_IFNAME", bytes()), "CNI_IFNAME"),
        (set("CNI_NETNS", None), "CNI_NETNS"),
        (Vec::new(), "CNI_COMMAND"),
    ] {
        let ended = call_with(&variables, good.as_bytes());
        let (code, msg) = ended.error();
        assert_eq!(code, 4, "{ended:?}");
        assert!(msg.starts_with(&format!("`{name}`")), "{ended:?}");
        assert!(
            ended.stdout.contains(r#""cniVersion":"1.0.0""#),
            "the caller's version: {ended:?}"
        );
    }
    for (stdin, code) in [
        (String::new(), 6),
        ("{".to_owned(), 6),
        ("[]".to_owned(), 6),
        ("[".repeat(1 << 20), 6),
        (format!("{good}{}", " ".repeat(3 << 20)), 6),
        ("{}".to_owned(), 1),
        (good.replace("1.0.0", "0.3.1"), 1),
        (r#"{"cniVersion":"1.0.0"}"#.to_owned(), 7),
        (good.replace(r#""trueup-cni""#, "5"), 7),
    ] {
        let ended = call_with(&environment("ADD"), stdin.as_bytes());
        assert_eq!(ended.error().0, code, "{ended:?}");
    }
    assert!(host.requests().is_empty());
}

#[test]
fn a_netns_and_arguments_of_any_bytes_are_no_obstacle() {
    let node = Node::new();
    let _host = FakeHost::start(&node.socket(), [Reply::line(ALLOCATION)]);
    let mut variables = environment("ADD");
    variables.retain(|(name, _)| *name != "CNI_NETNS");
    for name in ["CNI_NETNS", "CNI_ARGS"] {
        variables.push((name, OsString::from_vec(vec![b'/', 0xff, b'\n'])));
    }
    let configuration = node.configuration_for("ADD", json!({})).to_string();
    assert_eq!(call_with(&variables, configuration.as_bytes()).code, 0);
    // The host hangs up on the next connection; the log line stays one line.
    assert_eq!(call_with(&variables, configuration.as_bytes()).error().0, 11);
}

#[test]
fn a_result_that_can_not_be_printed_is_no_success() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = spawn(&environment("VERSION"), full.into());
    drop(child.stdin.take());
    let ended = end(child);
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .stderr
            .starts_with("trueup-cni: VERSION: writing the result to stdout: "),
        "{ended:?}"
    );
    // A pipe whose reader has gone away.
    let (reader, writer) = UnixStream::pair().unwrap();
    drop(reader);
    let mut child = spawn(&environment("VERSION"), Stdio::from(std::os::fd::OwnedFd::from(writer)));
    drop(child.stdin.take());
    assert_eq!(end(child).code, 1);
}
