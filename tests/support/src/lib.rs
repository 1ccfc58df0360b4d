//! The shared parts of the tests of the whole system: a copy of an example in its own folder, the real binary run on
//! it, and a simulated Engine in its own process.
//!
//! Asserts nothing about trueup except that it starts; each test file states what it must do.

#![expect(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "written for tests, which fail where they find something wrong"
)]

pub mod api_server;
pub mod etcd;
pub mod kills;
pub mod network;
pub mod plugins;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub use running::{Running, SETTLE};

/// The token of every site, which every Engine accepts. Long enough to appear nowhere by chance.
pub const TOKEN: &str = "a-token-that-must-be-seen-nowhere-3141592653";

/// On a machine with other work, a process may take long for quick work.
const PATIENCE: Duration = Duration::from_secs(120);

/// The binary that cargo builds for these tests: beside the folder of the running test.
pub static TRUEUP: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap();
    folder.join("trueup")
});

/// The binary, in an environment without any of trueup's variables.
pub fn program() -> Command {
    starter(&*TRUEUP)
}

/// A program that starts the binary, without any of trueup's variables: `tools/test` sets some, and the binary refuses
/// those that it does not know.
pub fn starter(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"TRUEUP_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the binary to its end.
pub fn trueup<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    ran(program().args(args))
}

/// Runs a command to its end.
pub fn ran(command: &mut Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the tool `openssl` in a folder, with arguments that have blanks between them.
#[track_caller]
pub fn openssl(folder: &Path, args: &str) {
    let output = Command::new("openssl")
        .args(args.split(' '))
        .current_dir(folder)
        .output();
    let output = output.unwrap_or_else(|error| panic!("`openssl`: {error}: `apt-get install openssl`"));
    assert!(
        output.status.success(),
        "`openssl {args}`: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program's exit status and output. `{}` shows all of it, for the messages of assertions.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Returns itself after checking the exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    pub fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }

    /// The first line of stdout that begins with this text. Without one the test fails.
    #[track_caller]
    pub fn line(&self, beginning: &str) -> &str {
        let line = self.stdout.lines().find(|line| line.starts_with(beginning));
        line.unwrap_or_else(|| panic!("no line begins with `{beginning}`: {self}"))
    }

    /// The lines of stderr that contain this text.
    pub fn said(&self, text: &str) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.contains(text)).collect()
    }

    /// The single JSON document on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("stdout is no JSON: {error}\n{self}"))
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr } = self;
        write!(f, "exit code {code:?}\n--- stdout\n{stdout}--- stderr\n{stderr}---")
    }
}

/// A copy of an example, or a configuration of the test; removed with this value.
pub struct Site {
    folder: TempDir,
}

impl Site {
    /// As it ships, except for the port: several tests run at once.
    pub fn quickstart() -> Self {
        let site = Self::copied();
        site.edit("trueup.toml", "url = \"http://127.0.0.1:9480\"\n", "");
        site.edit("trueup.toml", "listen = \"127.0.0.1:9480\"", "listen = \"127.0.0.1:0\"");
        site
    }

    /// With an Engine in another process, a guest that looks again soon, and a host that retries soon.
    pub fn against(engine: &Engine) -> Self {
        let site = Self::copied();
        let config = fs::read_to_string(site.path("trueup.toml")).unwrap();
        let (before, _) = config.split_once("\n[sim.lbaas]").unwrap();
        fs::write(
            site.path("trueup.toml"),
            format!("{before}\n[run]\nbackoff_initial_ms = 10\n"),
        )
        .unwrap();
        site.edit("trueup.toml", "http://127.0.0.1:9480", engine.url());
        site.edit("trueup.toml", "backoff_initial_ms = 200", "backoff_initial_ms = 20");
        site
    }

    /// With exactly this configuration.
    pub fn of(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let site = Self { folder };
        fs::write(site.path("trueup.toml"), config).unwrap();
        site
    }

    /// The example that gives pods their addresses, as it ships.
    pub fn ipam() -> Self {
        Self::copy("ipam", &[""])
    }

    /// The example with Services on a node, as it ships.
    pub fn services() -> Self {
        Self::example("services")
    }

    /// An example with manifests, as it ships.
    pub fn example(name: &str) -> Self {
        Self::copy(name, &["", "manifests"])
    }

    fn copied() -> Self {
        let site = Self::example("quickstart");
        fs::write(site.path("token"), TOKEN).unwrap();
        site
    }

    fn copy(example: &str, folders: &[&str]) -> Self {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples")
            .join(example);
        let folder = tempfile::tempdir().unwrap();
        for files in folders {
            fs::create_dir_all(folder.path().join(files)).unwrap();
            for entry in fs::read_dir(shipped.join(files)).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_file() {
                    fs::copy(entry.path(), folder.path().join(files).join(entry.file_name())).unwrap();
                }
            }
        }
        Self { folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn state_dir(&self) -> PathBuf {
        self.path(".trueup")
    }

    /// Replaces a text that a file contains exactly once.
    #[track_caller]
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(file)).unwrap();
        assert_eq!(
            text.matches(from).count(),
            1,
            "`{from}` must stand once in {file}:\n{text}"
        );
        fs::write(self.path(file), text.replacen(from, to, 1)).unwrap();
    }

    /// Writes a whole manifest atomically, like an editor.
    pub fn put_manifest(&self, name: &str, text: &str) {
        let draft = self.path("draft");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, self.path("manifests").join(name)).unwrap();
    }

    pub fn remove_manifest(&self, name: &str) {
        fs::remove_file(self.path("manifests").join(name)).unwrap();
    }

    /// A command that takes the configuration, `run` or `plan`, with its other arguments.
    pub fn command(&self, command: &str, args: &[&str]) -> Command {
        self.command_of(&[command], args)
    }

    /// The same for one of several words, such as `ipam show`.
    pub fn command_of(&self, words: &[&str], args: &[&str]) -> Command {
        let mut program = program();
        program.args(words).arg(self.folder()).args(args);
        program
    }

    pub fn run_once(&self) -> Ran {
        ran(&mut self.command("run", &["--once"]))
    }

    /// Runs once; everything succeeds, and the last line is this one.
    #[track_caller]
    pub fn converges(&self, last_line: &str) -> Ran {
        let ran = self.run_once().exits(0);
        assert_eq!(ran.last_line(), last_line, "{ran}");
        ran
    }

    pub fn plan(&self) -> Ran {
        ran(&mut self.command("plan", &[]))
    }

    /// Every file of the state folder but compiled code, with its contents.
    pub fn state(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let cache = self.state_dir().join("cache");
        let kept = files_under(&self.state_dir()).into_iter();
        let kept = kept.filter(|file| !file.starts_with(&cache));
        kept.map(|file| (file.clone(), fs::read(file).unwrap())).collect()
    }

    /// A command about the guests of the host that runs here: `swap lbaas lbaas@2`.
    pub fn guest(&self, args: &[&str]) -> Ran {
        ran(&mut self.guest_command(args))
    }

    /// The same, not run yet.
    pub fn guest_command(&self, args: &[&str]) -> Command {
        let mut program = program();
        program.arg("guest").args(args).arg("--config").arg(self.folder());
        program
    }

    /// Every version of a guest that was active, the oldest first.
    #[track_caller]
    pub fn history(&self, guest: &str) -> Vec<Value> {
        let history = self.guest(&["history", guest, "--output", "json"]).exits(0).json();
        history.as_array().unwrap().clone()
    }

    /// The recordings, in order of their keys.
    pub fn journals(&self) -> Vec<PathBuf> {
        let files = files_under(&self.state_dir().join("journals"));
        files
            .into_iter()
            .filter(|file| file.extension().is_some_and(|extension| extension == "jsonl"))
            .collect()
    }

    /// Starts a command that runs until it is stopped.
    pub fn start(&self, command: &str, args: &[&str]) -> Started {
        Started::of(&mut self.command(command, args))
    }
}

/// All files below a folder, in order; empty if there is no such folder.
pub fn files_under(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_under(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

/// A running program. Dropping the value kills it, and in a test that fails prints its output.
pub struct Started {
    child: Child,
    said: TempDir,
}

impl Started {
    /// Starts a program that runs until it is stopped.
    pub fn of(command: &mut Command) -> Self {
        Self::printing_to(command, |file| file.into())
    }

    /// The same with another stdout than this file.
    pub fn printing_to(command: &mut Command, stdout: impl FnOnce(File) -> Stdio) -> Self {
        let said = tempfile::tempdir().unwrap();
        let file = |name| File::create(said.path().join(name)).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(stdout(file("stdout")))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        Self { child, said }
    }

    pub fn stdout(&self) -> String {
        fs::read_to_string(self.said.path().join("stdout")).unwrap()
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.said.path().join("stderr")).unwrap()
    }

    /// Waits until stdout contains this text.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until_said("stdout", text, Self::stdout);
    }

    /// Waits until stderr contains this text.
    #[track_caller]
    pub fn wait_for_warning(&mut self, text: &str) {
        self.wait_until_said("stderr", text, Self::stderr);
    }

    #[track_caller]
    fn wait_until_said(&mut self, place: &str, text: &str, said: fn(&Self) -> String) {
        wait_until(&format!("`{text}` on {place}"), || {
            assert!(
                self.ended().is_none(),
                "it ended:\n{}\n{}",
                self.stdout(),
                self.stderr()
            );
            said(self).contains(text)
        });
    }

    /// Its exit status, once it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Asks it to end with SIGTERM, like the system at a shutdown; returns its result and how long that took.
    pub fn terminate(mut self) -> (Ran, Duration) {
        let began = Instant::now();
        self.signal(Signal::TERM);
        let mut code = None;
        wait_until("the program's end", || {
            code = self.ended();
            code.is_some()
        });
        let ran = Ran {
            code: code.and_then(|status| status.code()),
            stdout: self.stdout(),
            stderr: self.stderr(),
        };
        (ran, began.elapsed())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it at once, like `kill -9`.
    pub fn kill(mut self) {
        self.end();
    }

    /// The same; returns its output so far.
    pub fn killed(mut self) -> String {
        self.end();
        self.stdout() + &self.stderr()
    }

    fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let ended = self.child.try_wait();
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
        if std::thread::panicking() {
            println!("a program of this test (its exit status, if it ended by itself: {ended:?}) printed:");
            // A panic in here would end all tests.
            for name in ["stdout", "stderr"] {
                let said = fs::read(self.said.path().join(name)).unwrap_or_default();
                println!("{}", String::from_utf8_lossy(&said));
            }
        }
    }
}

/// Checks repeatedly until it holds.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited {} s for {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A resource of the Engine: fields by name, references as identifiers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Object {
    pub kind: String,
    pub identifier: String,
    pub fields: BTreeMap<String, Value>,
    pub tags: BTreeSet<String>,
    pub state: String,
}

impl Object {
    /// A field as text, whatever its type; empty if there is none.
    pub fn field(&self, name: &str) -> String {
        match self.fields.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }

    pub fn name(&self) -> String {
        self.field("name")
    }
}

/// The Engine's objects, in order: each with its parent's name, its tags and its state (`3` is deployed).
pub fn described(objects: &[Object]) -> Vec<String> {
    let names: BTreeMap<&str, String> = objects
        .iter()
        .map(|object| (object.identifier.as_str(), object.name()))
        .collect();
    let describe = |object: &Object| {
        let field = |name: &str| object.field(name);
        let parent = |name: &str| {
            let parent = object.field(name);
            names
                .get(parent.as_str())
                .map_or_else(|| format!("nothing ({parent})"), Clone::clone)
        };
        let fields = match object.kind.as_str() {
            "backend" => format!(
                "on {} {} {}",
                field("load_balancer"),
                field("mode"),
                field("health_check")
            ),
            "frontend" => {
                format!(
                    "on {} {} to {}",
                    field("load_balancer"),
                    field("mode"),
                    parent("default_backend")
                )
            }
            "bind" => format!("{} {} of {}", field("address"), field("port"), parent("frontend")),
            "server" => format!(
                "{} {} {} in {}",
                field("ip"),
                field("port"),
                field("check"),
                parent("backend")
            ),
            other => panic!("an object of kind {other}"),
        };
        format!(
            "{} {} {fields} {:?} {}",
            object.kind,
            object.name(),
            Vec::from_iter(&object.tags),
            object.state
        )
    };
    let mut all: Vec<String> = objects.iter().map(describe).collect();
    all.sort();
    all
}

/// The state of an object that could not be deployed.
pub const FAILED: &str = "2";

/// A command that serves, in its own process; dropping the value ends it.
pub struct Serving(Child);

impl Serving {
    /// Starts the command. Returns its first line on stdout, which has its address, without the line's end.
    pub fn start<A: AsRef<OsStr>>(command: &[&str], args: &[A]) -> (Self, String) {
        let mut child = program()
            .args(command)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        (Self(child), line.trim_end().to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself; then the test reports why.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// `trueup sim ...` in its own process; dropping the value ends it.
pub struct Simulation {
    _serving: Serving,
    url: String,
}

impl Simulation {
    /// `of` is the simulated server: `lbaas` or `compute`.
    pub fn start(of: &str, args: &[&str]) -> Self {
        let command = ["sim", of, "--listen", "127.0.0.1:0", "--token", TOKEN];
        let (serving, line) = Serving::start(&command, args);
        let url = line.strip_prefix("listening on ");
        Self {
            url: url.unwrap_or_else(|| panic!("`{line}` is no address")).to_owned(),
            _serving: serving,
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn get(&self, path: &str) -> Value {
        serde_json::from_slice(&self.answer(HTTP.client.get(self.address(path)))).unwrap()
    }

    pub fn put(&self, path: &str, body: &Value) {
        self.answer(HTTP.client.put(self.address(path)).json(body));
    }

    pub fn post(&self, path: &str, body: &Value) {
        self.answer(HTTP.client.post(self.address(path)).json(body));
    }

    pub fn patch(&self, path: &str, body: &Value) {
        self.answer(HTTP.client.patch(self.address(path)).json(body));
    }

    pub fn delete(&self, path: &str) {
        self.answer(HTTP.client.delete(self.address(path)));
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn answer(&self, request: reqwest::RequestBuilder) -> Vec<u8> {
        HTTP.runtime.block_on(async {
            let answer = request.send().await.unwrap().error_for_status().unwrap();
            answer.bytes().await.unwrap().to_vec()
        })
    }
}

/// A simulated Engine; dropping the value ends it.
pub struct Engine(Simulation);

impl Engine {
    pub fn start(args: &[&str]) -> Self {
        Self(Simulation::start("lbaas", args))
    }

    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// All existing objects except load balancers, by kind and identifier.
    pub fn objects(&self) -> Vec<Object> {
        serde_json::from_value(self.state()["objects"].take()).unwrap()
    }

    /// The objects of one Service of the quickstart: `web.default`.
    pub fn objects_of(&self, service: &str) -> Vec<Object> {
        let suffix = format!(".{service}.quickstart");
        self.objects()
            .into_iter()
            .filter(|object| object.name().ends_with(&suffix))
            .collect()
    }

    /// How many requests of each kind came so far: `POST /api/LBaaS/v1/backend.json`.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        serde_json::from_value(self.0.get("/requests")["requests"].take()).unwrap()
    }

    /// Those of them that are not reads.
    pub fn writes(&self) -> BTreeMap<String, u64> {
        self.requests()
            .into_iter()
            .filter(|(request, _)| !request.starts_with("GET "))
            .collect()
    }

    /// Injects a fault.
    pub fn fault(&self, fault: &Value) {
        self.0.post("/faults", fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.0.delete("/faults");
    }

    /// All that it holds.
    pub fn state(&self) -> Value {
        self.0.get("/state")
    }

    /// Replaces all that it holds. Only while no other client changes anything.
    pub fn put_state(&self, state: &Value) {
        self.0.put("/state", state);
    }

    /// Marks the one matching object as failed, as if its deployment had failed. Only while no other client changes
    /// anything.
    pub fn fail_one(&self, fits: impl Fn(&Object) -> bool) {
        let mut state = self.state();
        let objects = state["objects"].as_array_mut().unwrap().iter_mut();
        let mut fitting = objects.filter(|object| fits(&serde_json::from_value((**object).clone()).unwrap()));
        let object = fitting.next().unwrap();
        assert!(fitting.next().is_none(), "more than one object fits");
        object["state"] = FAILED.into();
        self.put_state(&state);
    }
}

/// An HTTP client for tests that are not async.
struct Http {
    runtime: Runtime,
    client: reqwest::Client,
}

static HTTP: LazyLock<Http> = LazyLock::new(|| {
    // The tests use only plain HTTP, but the client requires a TLS provider. Ignore the error: there may already be
    // one.
    _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    Http {
        runtime: Runtime::new().unwrap(),
        client,
    }
});
