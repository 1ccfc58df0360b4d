//! Runs CNI IPAM plugins like a main plugin: a process for each command, with its configuration on stdin.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wait4::Wait4 as _;

/// The folder of Debian's `containernetworking-plugins`.
const PLUGINS: &str = "/usr/lib/cni";

/// One plugin and its network.
pub struct Plugin {
    binary: PathBuf,
    configuration: String,
}

/// The argument with which this program is its own launcher, see [`Plugin::resident`].
const LAUNCH: &str = "--launch";

/// If this process only launches a plugin, does so and prints the plugin's memory.
///
/// # Errors
/// If the plugin fails.
pub fn launch() -> anyhow::Result<bool> {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_none_or(|first| first != LAUNCH) {
        return Ok(false);
    }
    let binary = args.next().context("no plugin to launch")?;
    let mut child = Command::new(binary).stdout(Stdio::null()).spawn()?;
    let used = child.wait4()?;
    ensure!(used.status.success(), "the plugin: {}", used.status);
    println!("{}", used.rusage.maxrss);
    Ok(true)
}

impl Plugin {
    /// The `trueup-cni` built beside this program, for the host that listens on `socket`.
    ///
    /// # Errors
    /// If it is not built.
    pub fn trueup(socket: &Path) -> anyhow::Result<Self> {
        let folder = std::env::current_exe()?;
        // TARGET/PROFILE/deps/pods-HASH
        let folder = folder
            .ancestors()
            .nth(2)
            .context("this program is in no target folder")?;
        let binary = folder.join("trueup-cni");
        ensure!(
            binary.exists(),
            "`{}` is not built: run `cargo build -p trueup-cni` with the same profile",
            binary.display()
        );
        Ok(Self::new(
            binary,
            &json!({ "type": "trueup-cni", "socket": socket, "spoolDir": null }),
        ))
    }

    /// Debian's `host-local`, with its state in `folder`; `None` if it is not installed.
    #[must_use]
    pub fn host_local(folder: &Path) -> Option<Self> {
        let binary = Path::new(PLUGINS).join("host-local");
        let ipam = json!({
            "type": "host-local", "dataDir": folder.join("host-local"), "ranges": [[{ "subnet": "10.200.0.0/16" }]],
        });
        binary.exists().then(|| Self::new(binary, &ipam))
    }

    fn new(binary: PathBuf, ipam: &Value) -> Self {
        let configuration = json!({ "cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": ipam });
        Self {
            binary,
            configuration: configuration.to_string(),
        }
    }

    /// Runs one command for a container to its end, and returns how long the process took.
    ///
    /// # Errors
    /// If it fails.
    pub fn run(&self, command: &str, container: &str) -> anyhow::Result<Duration> {
        let mut process = Command::new(&self.binary);
        let began = Instant::now();
        self.end(process.stdout(Stdio::null()), command, container)?;
        Ok(began.elapsed())
    }

    /// The same, but returns the peak memory in bytes. A new process counts its parent's memory at its creation as its
    /// own, so a small launcher is in between: the result is never below the launcher's memory.
    ///
    /// # Errors
    /// If it fails.
    pub fn resident(&self, command: &str, container: &str) -> anyhow::Result<u64> {
        let mut process = Command::new(std::env::current_exe()?);
        process.arg(LAUNCH).arg(&self.binary).stdout(Stdio::piped());
        let said = self.end(&mut process, command, container)?;
        Ok(String::from_utf8(said)?.trim().parse()?)
    }

    fn end(&self, process: &mut Command, command: &str, container: &str) -> anyhow::Result<Vec<u8>> {
        process
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", container)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", "/proc/self/ns/net")
            .env("CNI_PATH", PLUGINS)
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = process.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(self.configuration.as_bytes())?;
        }
        let ended = child.wait_with_output()?;
        ensure!(
            ended.status.success(),
            "{command} of `{}`: {}",
            self.binary.display(),
            ended.status
        );
        Ok(ended.stdout)
    }
}
