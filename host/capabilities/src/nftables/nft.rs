//! The kernel's packet filter: each transaction is one process of `nft`, in the host's network namespace or a named
//! one.
//!
//! Transactions are serialized: nft gets the next one only after the previous one has ended, even if another process
//! started that one. nft holds a locked file as long as it runs, whatever happens to the host that started it. Knows
//! nothing of grants.
//!
//! ```text
//! transaction -> memory file -> lock -> [nsenter --net=NAMESPACE] nft -j -f - -> exit status, first words on stderr
//! ```
//!
//! The transaction is passed as a file in memory and not through a pipe. nft opens its input, and if the input is not
//! JSON, opens it again to read it as its other language. A pipe is empty by then, and nft 1.0.6 reports success
//! without having done anything. Also, no writer has to run while nft reads: a transaction of 10,000 services is some
//! 70 MB.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use trueup_base::regular;

use rustix::fs::{MemfdFlags, memfd_create};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Api;
use async_trait::async_trait;

/// The default timeout for one transaction of nft. One change among 10,000 services takes well below a second, a resync
/// of as many with ten endpoints each two minutes (docs/nftables.md). If each attempt is killed, it never completes.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The default program.
pub const PROGRAM: &str = "nft";

/// Enters a namespace; part of util-linux. Unlike `ip netns exec` it mounts nothing.
const NSENTER: &str = "nsenter";

/// The search path if the host has no `PATH`: nft is in one of the `sbin`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// nft reports an error in a line or two; anything longer is cut off.
const STDERR_BYTES_MAX: u64 = 16 * 1024;

/// The maximum length of nft's error for the guest: a line of a log.
const REASON_CHARS_MAX: usize = 500;

/// The exit status of nsenter if the program does not exist: its manual, EXIT STATUS, as shells do.
const NOT_FOUND: i32 = 127;

/// The pause between tries for a lock that another process holds. This is rare, and nft itself takes longer.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

const NOT_KNOWN: &str = "whether the kernel took the transaction is not known, so a resync must come next";

/// How to start nft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The program: a name to search in `PATH`, or a path.
    pub program: PathBuf,
    /// The file of the network namespace, such as `/run/netns/node-a`. `None` for the host's own.
    pub namespace: Option<PathBuf>,
    /// A file that nft holds locked (`flock(2)`) as long as it runs; created if it is missing. It serializes the
    /// transactions of a killed host and its successor. If `None`, only those of this process are serialized.
    pub lock: Option<PathBuf>,
    /// The timeout for one transaction, and for waiting for the previous one. Does not count as the guest's time.
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
/// A transaction that nft refuses changes nothing. If nft is killed, by the timeout or by another process, the kernel
/// may or may not have applied the transaction; the error says that. A guest returns such an error to its caller as any
/// other, and keeps the acknowledged state. The host then considers it out of step and calls its `resync`, whose
/// transaction adds, deletes and adds its tables, and so does not depend on the existing state.
#[derive(Debug)]
pub struct Nft {
    settings: Settings,
    /// Held while a transaction is applied: first come, first served within this process. Other processes only see the
    /// lock.
    turn: Arc<Mutex<()>>,
}

impl Nft {
    /// Starts nothing yet.
    pub fn new(settings: Settings) -> Self {
        type Turns = BTreeMap<Option<PathBuf>, Arc<Mutex<()>>>;
        /// Serializes transactions for each namespace across all [`Nft`] values: a transaction whose caller has left
        /// must not come after later ones.
        static TURNS: parking_lot::Mutex<Turns> = parking_lot::Mutex::new(BTreeMap::new());
        let turn = Arc::clone(TURNS.lock().entry(settings.namespace.clone()).or_default());
        Self { settings, turn }
    }

    /// Has nft list the tables, which changes nothing and needs the same rights as a transaction.
    ///
    /// # Errors
    /// One line: why the packet filter can't be used.
    pub async fn look(&self) -> Result<(), String> {
        let run = Run::start(&self.settings, &["list", "tables"], "", None)?;
        let turn = Arc::clone(&self.turn).lock_owned().await;
        run.end(self.settings.timeout, turn).await
    }
}

#[async_trait]
impl Api for Nft {
    async fn apply(&self, ruleset: &str) -> Result<(), String> {
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
        let run = Run::start(settings, &["-j", "-f", "-"], ruleset, lock)?;
        // Runs as a task: if the caller leaves in the middle, the transaction completes, and the next one waits for
        // it.
        let ended = tokio::spawn(run.end(settings.timeout, turn)).await;
        ended.unwrap_or_else(|_| Err(format!("the host ends: {NOT_KNOWN}")))
    }
}

/// Opens and locks the file, creating it if it is missing. Every process that has it open holds the lock: this one, and
/// the one it is passed to.
async fn lock(path: &Path) -> Result<File, String> {
    let failed = |error: io::Error| format!("locking `{}`: {error}", path.display());
    let mut options = File::options();
    // So no other user can hold the lock and block the packet filter.
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

/// A running nft process.
struct Run {
    child: Child,
    stderr: File,
    /// The started program, for error texts.
    program: String,
}

impl Run {
    /// From then on the process holds the `lock`, in place of its stdout, to which it writes nothing.
    fn start(settings: &Settings, args: &[&str], ruleset: &str, lock: Option<File>) -> Result<Self, String> {
        let failed = |error: io::Error| format!("handing a transaction to nft: {error}");
        let stdin = memory_file(ruleset).map_err(failed)?;
        let stderr = memory_file("").map_err(failed)?;
        let program = settings.program.display().to_string();
        let mut command = command(settings)?;
        command
            .args(args)
            .stdin(Stdio::from(stdin))
            .stdout(lock.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::from(stderr.try_clone().map_err(failed)?))
            .kill_on_drop(true)
            // A Ctrl-C is meant for the host, which shuts down in order.
            .process_group(0);
        let child = command
            .spawn()
            .map_err(|error| match (error.kind(), &settings.namespace) {
                (io::ErrorKind::NotFound, None) => not_there(settings.program.as_os_str(), "nftables"),
                (io::ErrorKind::NotFound, Some(_)) => not_there(OsStr::new(NSENTER), "util-linux"),
                (_, None) => format!("starting `{program}`: {error}"),
                (_, Some(_)) => format!("starting `{NSENTER}`: {error}"),
            })?;
        Ok(Self { child, stderr, program })
    }

    /// Waits for the process, and keeps the turn until it is gone.
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
                // In the middle of a transaction the kernel completes it first, which may take time.
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

/// The command that runs nft, without its arguments. Its environment is the search path and the language of its errors.
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
    command.env_clear().env("PATH", path);
    command.env("LC_ALL", "C").env("LANG", "C");
    Ok(command)
}

/// A file without a name, positioned at its beginning.
fn memory_file(content: &str) -> io::Result<File> {
    const NAME: &CStr = c"trueup-nftables";
    // If `vm.memfd_noexec` is 2, the flag is required; kernels before 6.3 don't know it.
    let made = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
    let mut file = File::from(made.or_else(|_| memfd_create(NAME, MemfdFlags::CLOEXEC))?);
    file.write_all(content.as_bytes())?;
    file.rewind()?;
    Ok(file)
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
    // Unreadable output counts as empty: the failure itself is known.
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

/// The reason for the failure, in nft's words, on one line.
fn reason(stderr: &str) -> Option<String> {
    /// `internal:0:0-0: Error: TEXT`: one line for the error and one for its place.
    const ERROR: &str = "Error: ";
    let errors = stderr.lines().filter_map(|line| Some(line.split_once(ERROR)?.1));
    let errors: Vec<&str> = errors.collect();
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
        // Other processes do not take part in the turns.
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
