//! One call of the real binary.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Far longer than any call takes: a plugin that hangs fails the test, not the whole run.
const CALL_MAX: Duration = Duration::from_secs(60);

/// A folder with a socket and a spool, and the configuration that names them.
pub(crate) struct Node {
    dir: TempDir,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Code and message of the error, which is all of stdout; a line on stderr says the same.
    pub(crate) fn error(&self) -> (u64, String) {
        assert_eq!(self.code, 1, "{self:?}");
        let error: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert!(error["cniVersion"].is_string(), "{self:?}");
        let msg = error["msg"].as_str().unwrap();
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.contains(msg), "{self:?}");
        (error["code"].as_u64().unwrap(), msg.to_owned())
    }

    /// Success without output.
    pub(crate) fn is_silent(&self) -> bool {
        self.code == 0 && self.stdout.is_empty() && self.stderr.is_empty()
    }
}

impl Node {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("cni.sock")
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.path().join("spool")
    }

    /// The names of the files in the spool.
    pub(crate) fn spooled(&self) -> Vec<String> {
        let Ok(entries) = self.spool().read_dir() else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// A configuration with this node's paths, with `more` at the top and `ipam` in `ipam`.
    pub(crate) fn configuration(&self, version: &str, more: Value, ipam: Value) -> Value {
        let mut all = json!({
            "cniVersion": version, "name": "net", "type": "bridge",
            "ipam": {"type": "trueup-cni", "socket": self.socket(), "spoolDir": self.spool()}
        });
        merge(&mut all, more);
        merge(&mut all["ipam"], ipam);
        all
    }

    /// The shortest configuration for a command.
    pub(crate) fn configuration_for(&self, command: &str, ipam: Value) -> Value {
        let more = json!({"prevResult": {"ips": [{"address": "10.0.0.5/32"}]}, "cni.dev/valid-attachments": []});
        let version = if matches!(command, "STATUS" | "GC") {
            "1.1.0"
        } else {
            "1.0.0"
        };
        self.configuration(version, more, ipam)
    }

    /// Calls the plugin with that configuration.
    pub(crate) fn call(&self, command: &str, ipam: Value) -> Ended {
        call(command, &self.configuration_for(command, ipam))
    }
}

fn merge(into: &mut Value, more: Value) {
    let Value::Object(more) = more else {
        panic!("{more} is no object")
    };
    into.as_object_mut().unwrap().extend(more);
}

/// The variables of container `c1`, interface `eth0`.
pub(crate) fn environment(command: &str) -> Vec<(&'static str, OsString)> {
    vec![
        ("CNI_COMMAND", command.into()),
        ("CNI_CONTAINERID", "c1".into()),
        ("CNI_IFNAME", "eth0".into()),
        ("CNI_NETNS", "/run/netns/none".into()),
        ("CNI_PATH", "/none".into()),
    ]
}

/// Calls the plugin with nothing in its environment but `variables`.
pub(crate) fn call_with(variables: &[(&str, OsString)], stdin: &[u8]) -> Ended {
    let mut child = spawn(variables, Stdio::piped());
    let mut pipe = child.stdin.take().unwrap();
    let stdin = stdin.to_owned();
    // The plugin stops reading a configuration that is too long: its caller then gets a broken pipe.
    let writer = thread::spawn(move || {
        let _ = pipe.write_all(&stdin);
    });
    let ended = end(child);
    writer.join().unwrap();
    ended
}

/// Calls the plugin for container `c1`, interface `eth0`.
pub(crate) fn call(command: &str, configuration: &Value) -> Ended {
    call_with(&environment(command), configuration.to_string().as_bytes())
}

/// Starts the plugin, whose stdin is a pipe.
pub(crate) fn spawn(variables: &[(&str, impl AsRef<OsStr>)], stdout: Stdio) -> Child {
    // The binary lies beside the folder of the running test. A shell does not pass the variable name
    // `CARGO_BIN_EXE_trueup-cni` on to rustc.
    let test = std::env::current_exe().unwrap();
    Command::new(test.ancestors().nth(2).unwrap().join("trueup-cni"))
        .env_clear()
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the plugin's end.
pub(crate) fn end(mut child: Child) -> Ended {
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > CALL_MAX {
            child.kill().unwrap();
            panic!("the plugin hangs");
        }
        thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), None);
    Ended {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
