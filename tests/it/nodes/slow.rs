//! An idle host is alive, and so is one with a slow packet filter, which also ends in order. If it is killed, the work
//! that it started still comes before the next host's.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use super::manifests::Manifests;
use super::site::{Config, Host, wait_until};
use support::ran;

/// Longer than the 30 s of silence after which a loop counts as stuck.
const LONG: Duration = Duration::from_secs(33);

/// The host's answer.
fn answer(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let question = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The status line of the host's answer.
fn health(address: &str) -> String {
    answer(address, "/healthz")
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Whether the process with this id is still running.
fn runs(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// A host with one Service and this packet filter, not started yet.
fn host(packet_filter: &str) -> (Host, Manifests) {
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    manifests.put_service("web", 10, 0);
    manifests.put_endpoints("web", &["10.1.1.2"]);
    let host = Host::new(Config::new("node-a", &manifests).serving(&["nftables"]));
    host.site.edit("trueup.toml", "kind = \"simulated\"", packet_filter);
    host.site
        .edit("trueup.toml", "[run]\n", "[admin]\nlisten = \"127.0.0.1:0\"\n[run]\n");
    (host, manifests)
}

/// A program in place of nft.
fn script(folder: &Path, text: &str) -> String {
    let program = folder.join("slow-nft");
    fs::write(&program, format!("#!/bin/sh\ncd {} && {text}\n", folder.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    format!("kind = \"nft\"\nnft = \"{}\"", program.display())
}

fn address(host: &mut Host) -> String {
    host.wait_for("admin address: ");
    let stderr = host.stderr();
    let address = stderr
        .lines()
        .find_map(|line| line.split_once("admin address: http://"));
    address.unwrap().1.trim().to_owned()
}

#[test]
fn a_host_that_has_nothing_to_do_is_alive() {
    let (mut host, _manifests) = host("kind = \"simulated\"");
    host.start();
    let address = address(&mut host);
    host.wait_for("1 service rendered by nftables/node-a");
    std::thread::sleep(LONG);
    assert!(health(&address).ends_with("200 OK"), "{}", health(&address));
    host.terminate().exits(0);
}

#[test]
fn the_time_of_a_slow_packet_filter_is_measured_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (mut host, _manifests) = host(&script(folder.path(), "cat > /dev/null\nsleep 1"));
    host.start();
    let address = address(&mut host);
    host.wait_for("1 service rendered by nftables/node-a");
    let told = |words: &[&str]| ran(&mut host.site.command_of(words, &[])).exits(0);
    let line = told(&["reconcile", "nftables/node-a", "--config"]).stdout;
    let (_, after) = line.split_once(" true  in ").unwrap();
    let took_ms: u32 = after.trim_end().strip_suffix(" ms").unwrap().parse().unwrap();
    assert!(took_ms >= 1_000, "{line}");
    let metrics = answer(&address, "/metrics");
    let sum = |name: &str| -> f64 {
        let name = format!("{name}_sum{{guest=\"nftables\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
        value.unwrap().parse().unwrap()
    };
    let (jobs, calls) = (sum("trueup_decision_seconds"), sum("trueup_guest_call_seconds"));
    assert!(jobs >= 2.0 && (calls - jobs).abs() < 1.0, "{jobs} of {calls}");
    host.terminate().exits(0);
}

#[test]
fn a_slow_packet_filter_blocks_neither_the_host_nor_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let slow = script(folder.path(), &format!("echo $$ > {}\nexec sleep 900", pid.display()));
    let (mut host, _manifests) = host(&slow);
    host.start();
    let address = address(&mut host);
    let read = || fs::read_to_string(&pid).unwrap_or_default().trim().to_owned();
    wait_until("nft to run", || !read().is_empty());

    std::thread::sleep(LONG);
    assert!(runs(&read()), "it is still waited for");
    assert!(health(&address).ends_with("200 OK"), "{}", health(&address));

    let ended = host.terminate();
    assert!(
        ended.stderr.contains("a call about services did not end within 20 s"),
        "{ended}"
    );
    wait_until("nft to be gone", || !runs(&read()));
}

#[test]
fn what_a_killed_host_began_comes_to_its_end_before_the_next_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    let (log, go) = (folder.path().join("log"), folder.path().join("go"));
    let text = "echo begins >> log && while [ -e log ] && ! [ -e go ]; do sleep 0.1; done && echo ends >> log";
    let slow = script(folder.path(), text);
    let (mut host, _manifests) = host(&slow);
    host.start();
    let read = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("nft to run", || !read().is_empty());
    host.kill();

    host.start();
    address(&mut host);
    // Enough time to start, for a host that does not wait.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(read(), "begins\n", "the one before still runs");
    fs::write(&go, "").unwrap();
    host.wait_for("1 service rendered by nftables/node-a");
    host.terminate().exits(0);
    assert_eq!(read(), "begins\nends\nbegins\nends\n");
}

#[test]
fn a_swap_of_a_resyncing_renderer_delays_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (failed, pid) = (folder.path().join("failed"), folder.path().join("pid"));
    // It fails, and gets a resync beside the loop; then it is slow.
    let text = "if [ ! -e failed ]; then touch failed; exit 1; fi; echo $$ > pid; exec sleep 900";
    let slow = script(folder.path(), text);
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    manifests.put_service("web", 10, 0);
    manifests.put_endpoints("web", &["10.1.1.2"]);
    let mut host = Host::new(Config::new("node-a", &manifests).serving(&["nftables", "nat44"]));
    host.site.edit("trueup.toml", "kind = \"simulated\"", &slow);
    host.start();
    wait_until("nft to run again", || {
        failed.exists() && fs::read_to_string(&pid).is_ok_and(|pid| !pid.is_empty())
    });
    std::thread::scope(|scope| {
        let swapped = scope.spawn(|| {
            host.site
                .guest(&["swap", "nftables", "builtin:nftables@1", "--gate", "off"])
        });
        // Enough time to reach the loop.
        std::thread::sleep(Duration::from_secs(3));
        assert!(!swapped.is_finished(), "it waits for what runs");
        manifests.put_endpoints("web", &["10.1.1.3"]);
        wait_until("the change at the other renderer", || {
            let calls = host.calls("nat44");
            calls.iter().any(|call| call.name == "renderer.update-service")
        });
        host.ask_to_end();
        swapped.join().unwrap();
    });
    host.wait_for_end();
}
