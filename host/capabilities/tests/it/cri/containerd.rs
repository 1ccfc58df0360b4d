//! A containerd for one test: folders, network, mounts and processes separate from the machine's.
//!
//! It runs in new mount, network and process namespaces, with empty `/run` and `/var/lib`: bridge, network namespaces,
//! mounts, shims and sockets end with the first process in there, however the test ends. Control groups have no such
//! namespace; they are below one with the test's own name, which is removed at the end.
//!
//! ```text
//! test -> setpriv (dies with the test) -> unshare -> containerd (process 1) -> shims -> runc, pause
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use prost::Message;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::UnixStream;

use super::grpc;
use super::messages::{
    ImageSpec, ImageStatusRequest, ImageStatusResponse, LinuxConfig, Metadata, NamespaceOption, PodSandboxConfig,
    PodSandboxStatusRequest, RunPodSandboxRequest, RunPodSandboxResponse, SecurityContext,
};
use super::pause;

/// The network mode of a sandbox.
pub(crate) const POD: i32 = 0;
pub(crate) const NODE: i32 = 2;

/// The name of the network, and of the folder in which `host-local` records the addresses.
const NETWORK: &str = "trueup-cri";
/// The first three numbers of a sandbox's main and second address.
pub(crate) const SUBNETS: [&str; 2] = ["10.77.1", "10.77.2"];

/// The folder of Debian's `containernetworking-plugins`.
const PLUGINS: &str = "/usr/lib/cni";
/// Debian's `runc` may not be on the user's path.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A guard against hanging; every wait takes seconds at most.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running containerd. Dropping this value ends it and everything that it started or left behind.
pub(crate) struct Containerd {
    // Ends first: it uses the fields after it.
    process: Process,
    _cgroups: Cgroups,
    folder: TempDir,
    cgroup_parent: String,
}

impl Containerd {
    /// Starts it and imports the pause image.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let image = pause::build(at);
        write_settings(at);
        let cgroup_parent = format!("/trueup-cri-test-{}", std::process::id());
        let cgroups = Cgroups {
            name: cgroup_parent.trim_start_matches('/').to_owned(),
        };
        let process = Process::start(at);
        let mut started = Self {
            process,
            _cgroups: cgroups,
            folder,
            cgroup_parent,
        };
        started.wait_for_cri().await;
        let mut import = command("ctr");
        import.arg("--address").arg(started.socket());
        ran(import.args(["--namespace", "k8s.io", "images", "import"]).arg(image));
        started.wait_for_image().await;
        started
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("containerd.sock")
    }

    /// Starts a sandbox and returns its id.
    pub(crate) async fn run(&self, namespace: &str, name: &str, network: i32) -> String {
        let metadata = Metadata {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            namespace: namespace.to_owned(),
            attempt: 0,
        };
        let linux = LinuxConfig {
            cgroup_parent: self.cgroup_parent.clone(),
            security_context: Some(SecurityContext {
                namespace_options: Some(NamespaceOption { network }),
            }),
        };
        let config = PodSandboxConfig {
            metadata: Some(metadata),
            linux: Some(linux),
        };
        let request = RunPodSandboxRequest { config: Some(config) };
        match call(&self.socket(), "RuntimeService/RunPodSandbox", &request).await {
            Ok(answer) => {
                let RunPodSandboxResponse { pod_sandbox_id } = answer;
                pod_sandbox_id
            }
            Err(refusal) => panic!("containerd started no sandbox: {refusal:?}\n{}", self.process.log()),
        }
    }

    /// The address of each sandbox according to the network's own plugin: (id, address), main addresses first.
    pub(crate) fn given(&self) -> Vec<(String, String)> {
        let mut given = Vec::new();
        for entry in fs::read_dir(self.folder.path().join("addresses").join(NETWORK)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if SUBNETS.iter().any(|subnet| name.starts_with(&format!("{subnet}."))) {
                let holder = fs::read_to_string(entry.path()).unwrap();
                given.push((holder.lines().next().unwrap().to_owned(), name));
            }
        }
        given.sort();
        given
    }

    async fn wait_for_cri(&mut self) {
        let socket = self.socket();
        let started = Instant::now();
        // Before it listens there is no answer, and before its plugins are ready it refuses.
        while UnixStream::connect(&socket).await.is_err() || self.has_image(&socket).await.is_err() {
            self.process.check(started, "answers over CRI");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The CRI plugin learns of an imported image a moment later.
    async fn wait_for_image(&mut self) {
        let socket = self.socket();
        let started = Instant::now();
        while !self.has_image(&socket).await.unwrap() {
            self.process.check(started, "knows the image");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn has_image(&self, socket: &Path) -> Result<bool, grpc::Refusal> {
        let image = Some(ImageSpec {
            image: pause::IMAGE.to_owned(),
        });
        let answer = call(socket, "ImageService/ImageStatus", &ImageStatusRequest { image }).await?;
        let ImageStatusResponse { image } = answer;
        Ok(image.is_some())
    }
}

/// Stops a sandbox; the runtime still knows it.
pub(crate) async fn stop(socket: &Path, id: &str) {
    told(socket, "RuntimeService/StopPodSandbox", id).await;
}

/// Removes a stopped sandbox.
pub(crate) async fn remove(socket: &Path, id: &str) {
    told(socket, "RuntimeService/RemovePodSandbox", id).await;
}

async fn told(socket: &Path, method: &str, id: &str) {
    let request = PodSandboxStatusRequest {
        pod_sandbox_id: id.to_owned(),
    };
    let () = call(socket, method, &request).await.unwrap();
}

async fn call<A: Message + Default>(socket: &Path, method: &str, request: &impl Message) -> Result<A, grpc::Refusal> {
    let answer = grpc::call(socket, &format!("/runtime.v1.{method}"), &request.encode_to_vec()).await?;
    Ok(A::decode(&*answer).unwrap())
}

fn write_settings(at: &Path) {
    let path = |name: &str| at.join(name).display().to_string();
    // Besides folders: `restrict_oom_score_adj` in case the machine does not allow protecting sandboxes from its OOM
    // killer, `native` because it needs nothing of the file system. The disabled plugin writes to `/opt`.
    let settings = format!(
        r#"version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{PLUGINS}"
conf_dir = "{networks}"
"#,
        root = path("root"),
        state = path("state"),
        socket = path("containerd.sock"),
        image = pause::IMAGE,
        networks = path("networks"),
    );
    fs::write(at.join("containerd.toml"), settings).unwrap();

    let ranges: Vec<_> = SUBNETS
        .iter()
        .map(|subnet| json!([{"subnet": format!("{subnet}.0/24")}]))
        .collect();
    let network = json!({
        "cniVersion": "0.4.0",
        "name": NETWORK,
        "plugins": [{
            "type": "bridge",
            "bridge": "trueup0",
            "ipam": {"type": "host-local", "dataDir": path("addresses"), "ranges": ranges},
        }],
    });
    fs::DirBuilder::new().mode(0o700).create(at.join("networks")).unwrap();
    fs::write(at.join("networks/10-trueup.conflist"), network.to_string()).unwrap();
}

/// containerd with all that it started.
struct Process {
    unshare: Child,
    log: PathBuf,
}

impl Process {
    fn start(at: &Path) -> Self {
        let log = at.join("containerd.log");
        let output = fs::File::create(&log).unwrap();
        let script = "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && ip link set lo up && \
                      exec containerd --config \"$1\"";
        let mut starting = command("setpriv");
        starting
            .args(["--pdeathsig", "KILL", "--"])
            .args([
                "unshare",
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["sh", "-c", script, "sh"])
            .arg(at.join("containerd.toml"));
        let errors = output.try_clone().unwrap();
        let unshare = starting
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap();
        Self { unshare, log }
    }

    /// Fails if it ended or takes too long.
    fn check(&mut self, started: Instant, awaited: &str) {
        let ended = self.unshare.try_wait().unwrap();
        assert!(ended.is_none(), "containerd ended: {ended:?}\n{}", self.log());
        let waited = started.elapsed();
        assert!(
            waited < PATIENCE,
            "waited {waited:?} until containerd {awaited}\n{}",
            self.log()
        );
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Process 1 of the namespace, by its number outside. `None` before it is started.
    fn first(&self) -> Option<u32> {
        let unshare = self.unshare.id();
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // With process 1 the kernel ends all others of the namespace, and only then notifies `unshare`. A wait for
        // `unshare` is therefore a wait for all of them.
        let first = self
            .first()
            .and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        let killed = first.is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
        if !killed {
            let _ = self.unshare.kill();
        }
        let _ = self.unshare.wait();
    }
}

/// The control groups of the sandboxes: below this name, in each hierarchy.
struct Cgroups {
    name: String,
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let started = Instant::now();
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(root)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        for folder in hierarchies.chain([root.to_owned()]).map(|at| at.join(&self.name)) {
            // A group stays busy for a moment after its last process.
            while folder.exists() && started.elapsed() < PATIENCE && remove_groups(&folder).is_err() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Removes a group and those below it, including their files.
fn remove_groups(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_groups(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", PATH);
    command
}

/// Runs a program to its end; panics with its output if it fails.
pub(crate) fn ran(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("can't start {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
