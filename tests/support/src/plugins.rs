//! CNI plugins, called like a container runtime does: `trueup-cni` as this workspace builds it, and Debian's `bridge`,
//! which calls it.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread;

use serde_json::Value;

use super::network::Network;
use super::{Ran, TRUEUP, wait_until};

/// The folder of Debian's `containernetworking-plugins`.
pub const PLUGINS: &str = "/usr/lib/cni";

/// The interface that every pod gets.
pub const INTERFACE: &str = "eth0";

/// The CNI IPAM plugin, built with the same profile as the tested host, beside it. A test only gets the paths of its
/// own package's binaries.
static TRUEUP_CNI: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = TRUEUP.parent().unwrap();
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        name => name,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--locked", "--package", "trueup-cni"])
        .args(["--profile", profile, "--target-dir"])
        .arg(folder.parent().unwrap())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .stdin(Stdio::null());
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder.join("trueup-cni")
});

/// The path of `trueup-cni`, which it builds once if it is missing.
pub fn trueup_cni() -> &'static Path {
    &TRUEUP_CNI
}

/// Calls `trueup-cni` itself, for a container of this name.
#[track_caller]
pub fn ask(command: &str, container: &str, configuration: &Value) -> Ran {
    called(&mut Command::new(trueup_cni()), command, container, configuration)
}

/// Calls Debian's `bridge` in a node's network, for the pod of this name.
#[track_caller]
pub fn bridge(network: &Network, command: &str, pod: &str, configuration: &Value) -> Ran {
    let plugin = Path::new(PLUGINS).join("bridge");
    called(&mut network.command(plugin), command, pod, configuration)
}

fn called(plugin: &mut Command, command: &str, container: &str, configuration: &Value) -> Ran {
    let plugins = std::env::join_paths([trueup_cni().parent().unwrap(), Path::new(PLUGINS)]).unwrap();
    plugin
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", container)
        .env("CNI_IFNAME", INTERFACE)
        .env("CNI_NETNS", Network::namespace(container))
        .env("CNI_PATH", plugins);
    ended(plugin, &configuration.to_string())
}

/// Runs a program to its end with this on its stdin. A program that hangs is killed and fails the test.
#[track_caller]
pub fn ended(command: &mut Command, stdin: &str) -> Ran {
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running { child };
    let (mut pipe, stdin) = (running.child.stdin.take().unwrap(), stdin.to_owned());
    // Ignore the error: a program that does not read all of it closes the pipe.
    let writer = thread::spawn(move || _ = pipe.write_all(stdin.as_bytes()));
    let mut status = None;
    wait_until(&format!("the end of {command:?}"), || {
        status = running.child.try_wait().unwrap();
        status.is_some()
    });
    writer.join().unwrap();
    // Plugins print less than a pipe holds.
    let mut said = (String::new(), String::new());
    running
        .child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said.0)
        .unwrap();
    running
        .child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said.1)
        .unwrap();
    Ran {
        code: status.and_then(|status| status.code()),
        stdout: said.0,
        stderr: said.1,
    }
}

/// A program that ends with this value.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has already ended, unless the test fails.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
