//! The packet filter: the real nft in a network namespace per test, and fake programs for rare behaviour of nft.
mod kernel;
mod process;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use trueup_capabilities::nftables::nft::{Nft, Settings};

/// Longer than nft takes for anything here, on any machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A network namespace for one test, which ends with this value. It is isolated from the machine's own rules.
struct Namespace {
    holder: Child,
}

impl Namespace {
    /// For tests that need `root`, `netns` and `nft`.
    #[track_caller]
    fn new() -> Self {
        // Ends with its stdin, even if the test itself is killed.
        let holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let holder = holder.unwrap_or_else(|error| panic!("`unshare`: {error}: apt-get install util-linux"));
        let mut namespace = Self { holder };
        let mut line = String::new();
        let stdout = namespace.holder.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the namespace could not be made");
        namespace
    }

    fn file(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    fn nft(&self) -> Nft {
        Nft::new(Settings {
            namespace: Some(self.file()),
            timeout: PATIENCE,
            ..Settings::default()
        })
    }

    /// Its content according to `nft -j list ...`, without the head.
    #[track_caller]
    fn list(&self, what: &str) -> Vec<Value> {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.file().display()))
            .args(["nft", "-j", "list"]);
        let output = command.args(what.split(' ')).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut listing: Value = serde_json::from_slice(&output.stdout).unwrap();
        let Value::Array(mut objects) = listing["nftables"].take() else {
            panic!("{listing}")
        };
        objects.retain(|object| object.get("metainfo").is_none());
        objects
    }

    /// Its tables, as scopes name them.
    #[track_caller]
    fn tables(&self) -> Vec<String> {
        let scope = |object: &Value| {
            format!(
                "{} {}",
                text(&object["table"]["family"]),
                text(&object["table"]["name"])
            )
        };
        self.list("tables").iter().map(scope).collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        _ = self.holder.kill();
        _ = self.holder.wait();
    }
}

#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn transaction(commands: &[Value]) -> String {
    json!({ "nftables": commands }).to_string()
}

fn add_table(name: &str) -> Value {
    json!({"add": {"table": {"family": "ip", "name": name}}})
}

fn add_chain(table: &str, name: &str) -> Value {
    json!({"add": {"chain": {"family": "ip", "table": table, "name": name}}})
}
