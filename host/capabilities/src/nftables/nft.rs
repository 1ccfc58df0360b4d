//! The kernel's packet filter: each transaction is one process of `nft`, in the host's network namespace or a named one.
//!
//! One after another: nothing is handed to nft before the transaction before it has ended, also where another process began
//! that: nft holds a file locked as long as it runs, whatever becomes of the host that started it. Knows nothing of who may
//! touch what.
//!
//! ```text
//! transaction -> memory file -> lock -> [nsenter --net=NAMESPACE] nft -j -f - -> exit status, first words on stderr
//! ```
//!
//! The transaction is handed over as a file in memory and not through a pipe. nft opens its input, and where that is no
//! JSON to it opens it once more to read it as its other language: of a pipe nothing is left by then, and nft 1.0.6 says
//! that all is well without having done anything. Nor need anybody write while somebody else reads: a transaction of
//! 10,000 services is some 70 MB.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use trueup_journal::regular;

use rustix::fs::{MemfdFlags, memfd_create};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Api;
use crate::Answer;

/// How long nft may take for one transaction where nothing is configured. One change among 10,000 services takes well
/// below a second, a resync of as many with ten endpoints each two minutes (docs/nftables.md): one that is killed each time
/// never comes to an end.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The program where nothing is configured.
pub const PROGRAM: &str = "nft";

/// Enters a namespace, of util-linux. Unlike `ip netns exec` it mounts nothing.
const NSENTER: &str = "nsenter";

/// Where programs are looked for where the host was given no `PATH`: nft is in one of the `sbin`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// nft names what it refused in a line or two; what is more is cut off.
const STDERR_BYTES_MAX: u64 = 16 * 1024;

/// So much of nft's words a guest is told: a line of a log.
const REASON_CHARS_MAX: usize = 500;

/// What nsenter exits with where the program is not there: its manual, EXIT STATUS, as shells do.
const NOT_FOUND: i32 = 127;

/// How often a lock is asked for that another process holds. It is seldom so, and nft itself takes longer.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

const NOT_KNOWN: &str = "whether the kernel took the transaction is not known, so a resync must come next";

/// How nft is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The program: a name that is found in `PATH`, or a path.
    pub program: PathBuf,
    /// The file of the network namespace, such as `/run/netns/node-a`. None: the host's own.
    pub namespace: Option<PathBuf>,
    /// A file that nft holds locked (`flock(2)`) as long as it runs, made where it is not there: the transactions of a host that
    /// was killed, and of the one that follows it, go one after another. None: those of this process alone do.
    pub lock: Option<PathBuf>,
    /// How long one transaction may take, and wait for the one before it. Not the guest's time.
    pub timeout: Duration,
}

impl Default for Settings {
    /// `nft` in the host's own namespace, with five minutes for each transaction, and no lock.
    fn default() -> Self {
        Self {
            program: PathBuf::from(PROGRAM),
            namespace: None,
            lock: None,
            timeout: TIMEOUT,
        }
    }
}

/// The packet filter of one network namespace.
///
/// A transaction that nft refuses changes nothing. Where nft is killed, for taking too long or by somebody else, the kernel
/// may have taken the transaction or not: the error says that. A guest answers such an error to its caller as any other,
/// and keeps what was acknowledged; the host then knows it as out of step, and calls its `resync`, whose transaction adds,
/// deletes and adds its tables, and so does not depend on what is there.
#[derive(Debug)]
pub struct Nft {
    settings: Settings,
    /// Held by the transaction that is applied: who asked first in this process is next. Other processes have the lock alone.
    turn: Arc<Mutex<()>>,
}

impl Nft {
    /// Starts nothing yet.
    pub fn new(settings: Settings) -> Self {
        let turn = turn_of(settings.namespace.as_deref());
        Self { settings, turn }
    }
}

/// One transaction after the other for each namespace, whoever made the [`Nft`]: one that a caller left to its end must not
/// come after those of whoever follows.
fn turn_of(namespace: Option<&Path>) -> Arc<Mutex<()>> {
    type Turns = BTreeMap<Option<PathBuf>, Arc<Mutex<()>>>;
    static TURNS: std::sync::Mutex<Turns> = std::sync::Mutex::new(BTreeMap::new());
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(turns.entry(namespace.map(Path::to_owned)).or_default())
}

impl Api for Nft {
    fn apply<'a>(&'a self, ruleset: &'a str) -> Answer<'a, Result<(), String>> {
        Box::pin(async move {
            let settings = &self.settings;
            let until = Instant::now() + settings.timeout;
            let not_ended = |_| {
                let waited = settings.timeout.as_millis();
                format!("another transaction of nftables has not ended within {waited} ms; nothing was applied")
            };
            let turn = timeout_at(until, Arc::clone(&self.turn).lock_owned());
            let turn = turn.await.map_err(not_ended)?;
            let lock = match &settings.lock {
                Some(path) => Some(timeout_at(until, lock(path)).await.map_err(not_ended)??),
                None => None,
            };
            let run = Run::start(settings, ruleset, lock)?;
            // As a task: a caller who goes away in the middle leaves it to its end, and the next one waits for that.
            let ended = tokio::spawn(run.end(settings.timeout, turn)).await;
            ended.unwrap_or_else(|_| Err(format!("the host ends: {NOT_KNOWN}")))
        })
    }
}

/// The file, locked; made where it is not there. Who has it open holds the lock: whoever made it, and whom it is handed to.
async fn lock(path: &Path) -> Result<File, String> {
    let failed = |error: io::Error| format!("locking `{}`: {error}", path.display());
    let mut options = File::options();
    // Nobody else can hold it, and so stop the packet filter.
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = regular::open_own(&mut options, path).map_err(failed)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => sleep(LOCK_PAUSE).await,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

/// A process of nft that runs.
struct Run {
    child: Child,
    stderr: File,
    /// What is started, for error texts.
    program: String,
}

impl Run {
    /// The process has the `lock` from then on, in the place of its stdout, where it says nothing.
    fn start(settings: &Settings, ruleset: &str, lock: Option<File>) -> Result<Self, String> {
        let failed = |error: io::Error| format!("handing a transaction to nft: {error}");
        let stdin = memory_file(ruleset).map_err(failed)?;
        let stderr = memory_file("").map_err(failed)?;
        let program = settings.program.display().to_string();
        let mut command = command(settings)?;
        command
            .args(["-j", "-f", "-"])
            .stdin(Stdio::from(stdin))
            .stdout(lock.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::from(stderr.try_clone().map_err(failed)?))
            .kill_on_drop(true)
            // A Ctrl-C is meant for the host, which ends in order.
            .process_group(0);
        let child = command.spawn().map_err(|error| not_started(settings, &error))?;
        Ok(Self { child, stderr, program })
    }

    /// Waits for it, and keeps the turn until it is gone.
    async fn end(mut self, patience: Duration, turn: OwnedMutexGuard<()>) -> Result<(), String> {
        let program = &self.program;
        match timeout(patience, self.child.wait()).await {
            Ok(Ok(status)) => answer(program, status, &mut self.stderr),
            Ok(Err(error)) => Err(format!("waiting for `{program}`: {error}: {NOT_KNOWN}")),
            Err(_) => {
                let text = format!(
                    "`{program}` took longer than {} ms, the `timeout_ms` of [backend.nftables], and was killed: {NOT_KNOWN}",
                    patience.as_millis()
                );
                let mut child = self.child;
                // In the middle of a transaction the kernel ends it first, and that may take its time.
                tokio::spawn(async move {
                    let killed = child.kill().await;
                    drop(turn);
                    if let Err(error) = killed {
                        tracing::warn!("killing a process of nft: {error}");
                    }
                });
                Err(text)
            }
        }
    }
}

/// What runs nft, without its arguments. Its environment is the search path and the language of its errors.
fn command(settings: &Settings) -> Result<Command, String> {
    let mut command = match &settings.namespace {
        None => Command::new(&settings.program),
        Some(namespace) => {
            if !namespace.try_exists().unwrap_or(true) {
                return Err(format!(
                    "the network namespace `{}` is not there: ip netns add {}",
                    namespace.display(),
                    namespace.file_name().map(Path::new).unwrap_or(namespace).display()
                ));
            }
            let mut net = OsString::from("--net=");
            net.push(namespace);
            let mut command = Command::new(NSENTER);
            command.arg(net).arg("--").arg(&settings.program);
            command
        }
    };
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH.into());
    command
        .env_clear()
        .env("PATH", path)
        .env("LC_ALL", "C")
        .env("LANG", "C");
    Ok(command)
}

/// A file that only its descriptor leads to, at its beginning.
fn memory_file(content: &str) -> io::Result<File> {
    const NAME: &CStr = c"trueup-nftables";
    // Where `vm.memfd_noexec` is 2 it must be said that nobody runs it; kernels before 6.3 don't know the word.
    let made = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
    let mut file = File::from(made.or_else(|_| memfd_create(NAME, MemfdFlags::CLOEXEC))?);
    file.write_all(content.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

fn not_started(settings: &Settings, error: &io::Error) -> String {
    let (program, package) = match settings.namespace {
        None => (settings.program.as_os_str(), "nftables"),
        Some(_) => (OsStr::new(NSENTER), "util-linux"),
    };
    match error.kind() {
        io::ErrorKind::NotFound => not_there(program, package),
        _ => format!("starting `{}`: {error}", program.display()),
    }
}

fn not_there(program: &OsStr, package: &str) -> String {
    if Path::new(program).components().count() > 1 {
        return format!("`{}` is not there", program.display());
    }
    format!("`{}` is not there: apt-get install {package}", program.display())
}

fn answer(program: &str, status: ExitStatus, stderr: &mut File) -> Result<(), String> {
    if status.success() {
        return Ok(());
    }
    if let Some(signal) = status.signal() {
        return Err(format!("`{program}` was ended by signal {signal}: {NOT_KNOWN}"));
    }
    let mut said = Vec::new();
    // What can't be read is as if it had said nothing: that it failed is known.
    _ = stderr
        .rewind()
        .and_then(|()| stderr.take(STDERR_BYTES_MAX).read_to_end(&mut said));
    let said = String::from_utf8_lossy(&said);
    if status.code() == Some(NOT_FOUND) && said.starts_with(NSENTER) {
        return Err(not_there(program.as_ref(), "nftables"));
    }
    Err(match reason(&said) {
        Some(reason) => format!("`{program}` refused the transaction: {reason}"),
        None => format!("`{program}` failed with {status} and said nothing"),
    })
}

/// What it was that failed, in nft's words, on one line.
fn reason(stderr: &str) -> Option<String> {
    /// `internal:0:0-0: Error: TEXT`, a line for what is wrong and one for where.
    const ERROR: &str = "Error: ";
    let errors: Vec<&str> = stderr
        .lines()
        .filter_map(|line| Some(line.split_once(ERROR)?.1))
        .collect();
    let text = match errors.as_slice() {
        [] => stderr.lines().find(|line| !line.trim().is_empty())?.to_owned(),
        errors => errors.join("; "),
    };
    let mut reason: String = text.trim().chars().take(REASON_CHARS_MAX).collect();
    reason = reason.replace(char::is_control, " ");
    if text.contains("Operation not permitted") {
        reason.push_str(" (the host needs CAP_NET_ADMIN, and for a namespace that is not its own CAP_SYS_ADMIN)");
    }
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_too_long_for_the_one_before_is_told_that_nothing_was_applied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nftables.lock");
        let nft = Nft::new(Settings {
            program: "no-such-nft".into(),
            lock: Some(path.clone()),
            timeout: Duration::from_millis(10),
            ..Settings::default()
        });
        let said = "another transaction of nftables has not ended within 10 ms; nothing was applied";
        let turn = nft.turn.lock().await;
        assert_eq!(nft.apply("").await, Err(said.to_owned()));
        drop(turn);
        // Another process has no part in the turns.
        let others = lock(&path).await.unwrap();
        assert_eq!(nft.apply("").await, Err(said.to_owned()));
        drop(others);
        let error = nft.apply("").await.unwrap_err();
        assert!(error.contains("is not there"), "{error}");
    }

    #[test]
    fn what_nft_says_becomes_one_line() {
        for (said, expected) in [
            (
                "internal:0:0-0: Error: Could not process rule: File exists\n\n\n",
                "Could not process rule: File exists",
            ),
            (
                "internal:0:0-0: Error: Unknown object passed to add command.\n\ninternal:0:0-0: Error: Parsing command array at index 1 failed.\n",
                "Unknown object passed to add command.; Parsing command array at index 1 failed.",
            ),
            (
                "/dev/stdin:1:1-1: Error: syntax error, unexpected '{'\n{\"nftables\":\n^\n",
                "syntax error, unexpected '{'",
            ),
            ("\nnsenter: cannot open x\tnow\n", "nsenter: cannot open x now"),
            (
                "netlink: Error: cache initialization failed: Operation not permitted\n",
                "cache initialization failed: Operation not permitted (the host needs CAP_NET_ADMIN, and for a namespace that is not its own CAP_SYS_ADMIN)",
            ),
        ] {
            assert_eq!(reason(said).as_deref(), Some(expected));
        }
        assert_eq!(reason(" \n"), None);
        assert_eq!(reason(&"x".repeat(10_000)).unwrap().len(), REASON_CHARS_MAX);
    }
}
