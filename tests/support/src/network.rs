//! A node's network for one test, in namespaces of its own: the machine sees nothing of it, and the test neither sees
//! nor changes the machine's network.
//!
//! ```text
//! the machine | the node: its links, bridge and routes, its /run | a pod | a pod | ...
//! ```
//!
//! The node's namespaces are those of one process. They end with it, and with them everything in them. The process ends
//! when its stdin closes, which happens even if the test itself is killed.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::plugins::ended;
use super::{Ran, wait_until};

/// The node's process: mounts the node's own `/run`, where `ip netns` and plugins leave their files, and then waits for
/// the end of its stdin.
const NODE: &str = "mount -t tmpfs node /run && mkdir /run/netns && ip link set lo up && echo ready && exec cat";

/// A node's network; dropping the value removes it.
pub struct Network {
    node: Child,
}

impl Network {
    /// For tests that need `root` and `netns`.
    #[track_caller]
    pub fn start() -> Self {
        let node = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "sh", "-c", NODE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Create the value first, so that a failed start also ends the process.
        let mut network = Self { node };
        let mut line = String::new();
        let stdout = network.node.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the node's namespaces could not be made");
        network
    }

    /// A program to run in the node's namespaces.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.node.id().to_string(), "--mount", "--net", "--"]);
        command.arg(program);
        command
    }

    /// Creates an empty namespace for each of these pods.
    #[track_caller]
    pub fn add_pods<'p>(&self, pods: impl IntoIterator<Item = &'p str>) {
        let mut batch = self.command("ip");
        let mut child = batch.args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let lines: String = pods.into_iter().map(|pod| format!("netns add {pod}\n")).collect();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{lines}");
    }

    /// A pod's namespace, as the node sees it.
    pub fn namespace(pod: &str) -> PathBuf {
        Path::new("/run/netns").join(pod)
    }

    /// Waits until a pod reaches an address: answers may come late on a machine with other work.
    #[track_caller]
    pub fn ping(&self, pod: &str, address: Ipv4Addr) {
        let once = format!("netns exec {pod} ping -n -q -c 1 -W 2 {address}");
        wait_until(&format!("{pod} to reach {address}"), || {
            ended(self.command("ip").args(once.split(' ')), "").code == Some(0)
        });
    }

    /// The IPv4 addresses of a pod's interface, each with its prefix length; empty if there is no such interface.
    #[track_caller]
    pub fn addresses_of(&self, pod: &str, interface: &str) -> Vec<String> {
        let links = self.ip(&format!("netns exec {pod} ip -json -4 address show"));
        let of_interface = links.into_iter().filter(|link| link["ifname"] == interface);
        let addresses = of_interface.flat_map(|link| link["addr_info"].as_array().unwrap().clone());
        addresses
            .map(|address| format!("{}/{}", address["local"].as_str().unwrap(), address["prefixlen"]))
            .collect()
    }

    /// How many interfaces the node has on this bridge.
    #[track_caller]
    pub fn links_on(&self, bridge: &str) -> usize {
        self.ip(&format!("-json link show master {bridge}")).len()
    }

    /// The output of `ip`.
    #[track_caller]
    fn ip(&self, args: &str) -> Vec<Value> {
        let ran: Ran = ended(self.command("ip").args(args.split(' ')), "").exits(0);
        // For an empty list it prints either `[]` or nothing.
        match ran.stdout.trim() {
            "" => Vec::new(),
            _ => serde_json::from_value(ran.json()).unwrap(),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.node.stdin.take());
        _ = self.node.kill();
        _ = self.node.wait();
    }
}

/// What `nft --json list` printed: a ruleset, a table or a chain.
pub struct Listing {
    /// The kind and the contents of each object.
    pub objects: Vec<(String, Value)>,
}

impl Listing {
    /// Empty if there is no such thing.
    #[track_caller]
    pub fn read(ran: &Ran) -> Self {
        if ran.code != Some(0) {
            assert!(ran.stderr.contains("No such file or directory"), "{ran}");
            return Self { objects: Vec::new() };
        }
        let objects = ran.json()["nftables"].as_array().unwrap().clone();
        let objects = objects.iter().flat_map(|object| object.as_object().unwrap().clone());
        let objects = objects.filter(|(kind, _)| kind != "metainfo").collect();
        Self { objects }
    }

    /// A number that changes with every new table, even one of the same name.
    pub fn table_handle(&self) -> Option<u64> {
        let (_, table) = self.objects.iter().find(|(kind, _)| kind == "table")?;
        table["handle"].as_u64()
    }

    /// A line for each object, without handles: chains, sets and their elements sorted, rules in the order of their
    /// chain.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, content) in &self.objects {
            let mut content = content.clone();
            content.as_object_mut().unwrap().remove("handle");
            if let Some(elements) = content.get_mut("elem").and_then(Value::as_array_mut) {
                elements.sort_by_key(Value::to_string);
            }
            let chain = content["chain"].as_str().unwrap_or_default().to_owned();
            // The stable sort keeps a chain's rules in order.
            let order = if kind == "rule" { chain } else { content.to_string() };
            lines.push((kind.clone(), order, content));
        }
        lines.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        lines
            .into_iter()
            .map(|(kind, _, content)| format!("{kind} {content}"))
            .collect()
    }
}
