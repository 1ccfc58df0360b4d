//! Keeps one kind up to date: lists it, follows its changes, and restarts after an interruption.
//!
//! A watch never ends by itself and removes nothing on failure: while the API server is unavailable, the known objects
//! stay. `decode.rs` parses lists and events, and `store.rs` applies them.
//!
//! ```text
//!        +--- cut off: from the last version on ---+
//!        v                                         |
//! list -> watch -> events, bookmarks --------------+
//!   ^                                              |
//!   +---- version too old, line not understood ----+
//! ```
//!
//! *Unreliable versions*: an API server that was restored or rebuilt counts versions from a lower number. It may then
//! reject our version with any message, return lower versions, or stay silent until it catches up. Each of these, and
//! repeated failures of any kind, lead to a list.
//!
//! *Why not kube's own watcher*: it reads a list completely or not at all, so one unreadable object hides all others.
//! It keeps requesting a version for which the API server answers 410 without opening the watch. And it does not report
//! its position.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::{Instant, sleep, timeout_at};
use trueup_base::clock::{Clock as _, SystemClock};

use super::client::{Cluster, Failed, Purpose};
use super::decode::{self, Received};
use super::list::list;
use super::store::{Scope, Store};

/// The pause after the first failure, in ms: a short failure is over within a second.
const PAUSE_MS_MIN: u64 = 800;

/// The maximum pause, in ms: after an outage, the watch resumes within half a minute.
const PAUSE_MS_MAX: u64 = 30_000;

/// The requested duration of a watch, in s, plus up to half as much, so that watches that begin together do not end
/// together. This is also how long a silently lost connection may stay undetected.
const WATCH_SECONDS: u32 = 60;

/// The host cuts a watch that is this much overdue.
const OVERDUE: Duration = Duration::from_secs(10);

/// A watch that ends sooner without an event counts as a failure: otherwise the host would loop with an API server that
/// cuts each watch at once.
const SHORT: Duration = Duration::from_secs(1);

/// After such short watches, the pause is at most the one after this many failures: an API server that opens watches is
/// available.
const SHORT_FAILURES_MAX: u32 = 1;

/// A watch that the API server ends with an error counts as a failure unless it lasted this long: otherwise an API
/// server that sends one event before each error would cause a loop of lists. This is the longest pause, so that lists
/// are no more frequent than after failures.
const LASTED: Duration = Duration::from_millis(PAUSE_MS_MAX);

/// After this many consecutive failures, and again after as many, the kind is listed. Half a minute of pauses has
/// passed by then, and the requested version may be the problem.
const FAILURES_BEFORE_LIST: u32 = 5;

/// After this many consecutive full-length watches without any event or bookmark, the kind is listed. Bookmarks arrive
/// about once a minute. An API server that is behind the requested version stays silent until it passes it.
const SILENT_BEFORE_LIST: u32 = 5;

/// A longer line is an error. etcd permits objects up to 1.5 MiB.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// How one watch ended.
#[derive(Debug, Default)]
struct Ended {
    /// Continue from this version. `None`: list again.
    from: Option<String>,
    failed: Option<Failed>,
    /// Whether the API server opened it.
    opened: bool,
    /// Whether it delivered anything.
    received: bool,
    /// Whether it advanced the version.
    advanced: bool,
    lasted: Duration,
}

/// The history of lists and watches, as far as it determines the next step.
#[derive(Debug, Default)]
struct History {
    /// Consecutive failures. A successful list in between does not reset them.
    failures: u32,
    /// Consecutive full-length watches without any event.
    silent: u32,
}

/// What to do after a watch.
#[derive(Debug, PartialEq, Eq)]
struct Next {
    /// Pause as after this many failures. `None`: no pause.
    pause: Option<u32>,
    /// List, even if the version is still usable.
    list: bool,
}

impl History {
    /// Counts a failure. Returns the number of earlier ones.
    fn fail(&mut self) -> u32 {
        let before = self.failures;
        self.failures = self.failures.saturating_add(1);
        before
    }

    fn after(&mut self, ended: &Ended) -> Next {
        let is_refused = ended.from.is_none() || ended.failed.as_ref().is_some_and(|failed| failed.code.is_some());
        let has_lasted = ended.lasted >= if is_refused { LASTED } else { SHORT };
        let was_of_use = has_lasted || (ended.advanced && !is_refused);
        if !ended.opened || !was_of_use {
            let is_short = ended.opened && !is_refused;
            let most = if is_short { SHORT_FAILURES_MAX } else { u32::MAX };
            return Next {
                pause: Some(self.fail().min(most)),
                list: self.failures.is_multiple_of(FAILURES_BEFORE_LIST),
            };
        }
        self.failures = 0;
        if ended.received {
            self.silent = 0;
        } else if ended.lasted >= LASTED {
            self.silent += 1;
        }
        let list = self.silent >= SILENT_BEFORE_LIST;
        if list {
            self.silent = 0;
        }
        Next { pause: None, list }
    }
}

/// One watch.
pub(super) struct Watch {
    pub(super) cluster: Cluster,
    pub(super) store: Arc<Store>,
    pub(super) scope: Scope,
    pub(super) chance: ChaCha8Rng,
}

impl Watch {
    /// Watches until dropped.
    pub(super) async fn run(mut self) -> Infallible {
        let mut from = None;
        let mut history = History::default();
        loop {
            let version = match from.take() {
                Some(version) => version,
                None => match list(&self.cluster, &self.scope).await {
                    Ok((objects, version)) => {
                        self.store.room().await;
                        self.store.replace(&self.scope, objects);
                        self.received(&version, |status| status.lists += 1);
                        version
                    }
                    Err(failed) => {
                        self.failed(&failed, history.failures);
                        self.pause(history.fail()).await;
                        continue;
                    }
                },
            };
            let ended = self.follow(version).await;
            self.store.note(&self.scope, |status| {
                status.watching = false;
                status.restarts += 1;
            });
            if let Some(failed) = &ended.failed {
                self.failed(failed, history.failures);
            }
            let next = history.after(&ended);
            if let Some(failures) = next.pause {
                self.pause(failures).await;
            }
            from = ended.from.filter(|_| !next.list);
        }
    }

    /// Follows the changes from a version until the watch ends.
    async fn follow(&mut self, mut version: String) -> Ended {
        let chance = self.chance.next_u32();
        let seconds = WATCH_SECONDS + chance % (WATCH_SECONDS / 2 + 1);
        let mut lines = match self.cluster.watch(&self.scope, &version, seconds).await {
            Ok(lines) => lines,
            Err(failed) => {
                return Ended {
                    from: (!is_about_version(&failed)).then_some(version),
                    failed: Some(failed),
                    ..Ended::default()
                };
            }
        };
        self.store.note(&self.scope, |status| status.watching = true);
        let began = Instant::now();
        let until = began + Duration::from_secs(u64::from(seconds)) + OVERDUE;
        let (mut received, mut advanced) = (false, false);
        let (from, failed) = loop {
            // A slow subscriber delays this watch, and thereby the API server.
            self.store.room().await;
            let line = match timeout_at(until.max(Instant::now() + OVERDUE), next_line(&mut lines)).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => break (Some(version), None),
                Ok(Err(cause)) => break (Some(version), Some(self.broken(&cause))),
                Err(_) => break (Some(version), Some(self.broken("it did not end when it should have"))),
            };
            match self.take_in(&line) {
                Ok(next) => {
                    received = true;
                    let Some(next) = next else { continue };
                    if is_before(&next, &version) {
                        let went = format!("it went back from version {version} to {next}");
                        let cause = format!("{went}: it was restored or built anew");
                        break (None, Some(self.broken(&cause)));
                    }
                    advanced |= next != version;
                    version = next;
                }
                Err(failed) if failed.code.is_some() && !is_about_version(&failed) => {
                    break (Some(version), Some(failed));
                }
                Err(failed) => break (None, Some(failed)),
            }
        };
        Ended {
            from,
            failed,
            opened: true,
            received,
            advanced,
            lasted: began.elapsed(),
        }
    }

    /// Processes one line. Returns the version up to which everything is known then. An error without a code means that
    /// the line is invalid.
    fn take_in(&self, line: &[u8]) -> Result<Option<String>, Failed> {
        let received = decode::line(self.scope.kind, line).map_err(|cause| self.broken(&cause))?;
        let version = match received {
            Received::Is(read) => {
                let version = read.version.clone();
                self.store.put(&self.scope, read);
                version
            }
            Received::Gone { reference, version } => {
                self.store.remove(&self.scope, &reference);
                version
            }
            Received::Bookmark(version) => {
                self.received(&version, |_| {});
                return Ok(Some(version));
            }
            Received::Error(status) => {
                return Err(Failed {
                    code: Some(status.code),
                    ..self.broken(&format!("{} ({})", status.message, status.code))
                });
            }
        };
        if let Some(version) = &version {
            self.received(version, |status| status.events += 1);
        }
        Ok(version)
    }

    fn received(&self, version: &str, change: impl FnOnce(&mut super::settings::WatchStatus)) {
        self.store.note(&self.scope, |status| {
            status.last_event_at_ms = Some(SystemClock.now_ms());
            status.resource_version = Some(version.to_owned());
            change(status);
        });
    }

    fn broken(&self, cause: &str) -> Failed {
        self.cluster.failed(&Purpose::new("watch", &self.scope), cause)
    }

    /// Logs an error, but only the first in a row: from then on the known state may be stale.
    fn failed(&self, failed: &Failed, failures: u32) {
        if failures == 0 && !failed.is_expired() {
            tracing::warn!("{}; what is known stands, trying again", failed.text);
        } else {
            tracing::debug!(failures, "{}", failed.text);
        }
        self.store.note(&self.scope, |status| {
            status.errors += 1;
            status.last_error = Some(failed.text.clone());
            status.last_error_at_ms = Some(SystemClock.now_ms());
        });
    }

    async fn pause(&mut self, failures: u32) {
        let chance = self.chance.next_u64();
        sleep(Duration::from_millis(pause_ms(failures, chance))).await;
    }
}

/// Whether the API server's answer to a watch may be caused by the requested version. This excludes denied access, too
/// many requests, and errors of the API server itself, unless they name the version: it answers 504 for one that is too
/// large.
fn is_about_version(failed: &Failed) -> bool {
    match failed.code {
        None | Some(401 | 403 | 429) => false,
        Some(504) => failed.text.to_ascii_lowercase().contains("resource version"),
        Some(code) => !(500..600).contains(&code),
    }
}

/// Whether a version is lower than another. Non-numeric versions are not compared.
fn is_before(version: &str, other: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    let both = number(version).zip(number(other));
    both.is_some_and(|(version, other)| version < other)
}

/// The next complete line. `None` at the end; an incomplete line there means a lost connection.
async fn next_line(lines: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        read.map_err(|error| error.to_string())?;
        if line.last() != Some(&b'\n') {
            let is_end = u64::try_from(line.len()).unwrap_or(u64::MAX) < LINE_BYTES_MAX;
            let too_long = || format!("a line of more than {LINE_BYTES_MAX} bytes");
            return if is_end { Ok(None) } else { Err(too_long()) };
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(line));
        }
    }
}

/// The pause after this many consecutive failures: it doubles each time, plus up to half as much at random.
fn pause_ms(failures: u32, chance: u64) -> u64 {
    let most_ms = PAUSE_MS_MAX / 3 * 2;
    let base_ms = PAUSE_MS_MIN.saturating_mul(1 << failures.min(16)).min(most_ms);
    base_ms + chance % (base_ms / 2 + 1)
}

#[cfg(test)]
mod tests;
