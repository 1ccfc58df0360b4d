//! Keeps one kind known: lists it, follows what changes, and begins again wherever it was cut off.
//!
//! Never ends by itself, and takes nothing back: while the API server is away, what is known stands. What a list or an
//! event means is `decode.rs`, what is made of it `store.rs`.
//!
//! ```text
//!        +--- cut off: from the last version on ---+
//!        v                                         |
//! list -> watch -> events, bookmarks --------------+
//!   ^                                              |
//!   +---- version too old, line not understood ----+
//! ```
//!
//! *Why not kube's own watcher*: it reads a list whole or not at all, so that one object which it can't read hides all
//! others; it goes on asking for a version that the API server answers 410 for without opening the watch; and it does not
//! say where it stands.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::{Instant, sleep, timeout_at};
use trueup_capabilities::clock::{Clock as _, SystemClock};

use super::client::{Cluster, Failed};
use super::decode::{self, Page, Read, Said};
use super::store::{Scope, Store};
use crate::sources::Kind;

/// The pause after the first failure, in ms: what fails for a moment is back within a second.
const PAUSE_MS_MIN: u64 = 800;

/// No pause is longer, in ms: an API server that comes back is heard again within half a minute.
const PAUSE_MS_MAX: u64 = 30_000;

/// A watch is asked to last this long, in s, and up to half as much longer, so that those that begin together do not end
/// together. It is also how long a connection that was lost without a word goes unnoticed.
const WATCH_SECONDS: u32 = 60;

/// A watch that has not ended so long after it should have is cut off.
const OVERDUE: Duration = Duration::from_secs(10);

/// A watch that ends sooner, and brought nothing, counts as a failure: an API server that cuts each at once is not asked
/// in a circle.
const SHORT: Duration = Duration::from_secs(1);

/// After watches that ended so soon the pause is no longer than after so many failures: an API server that opens watches
/// is there.
const SHORT_FAILURES_MAX: u32 = 1;

/// A longer line is no event. etcd takes objects up to 1.5 MiB.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// So often a list is read page by page, before all of it is asked for at once: the second time, pages come soon after one
/// another, since nothing else was waited for.
const PAGED_TRIES: u32 = 2;

/// How one watch ended.
struct Ended {
    /// Go on from here; none: list again.
    from: Option<String>,
    failed: Option<Failed>,
    /// The API server opened it.
    opened: bool,
    /// It brought something, or lasted.
    was_of_use: bool,
}

/// One watch.
pub(super) struct Watch {
    pub(super) cluster: Cluster,
    pub(super) store: Arc<Store>,
    pub(super) scope: Scope,
    pub(super) chance: ChaCha8Rng,
}

impl Watch {
    /// Watches until it is dropped.
    pub(super) async fn run(mut self) -> Infallible {
        let mut from = None;
        let mut failures = 0;
        loop {
            let version = match from.take() {
                Some(version) => version,
                None => match list(&self.cluster, &self.scope).await {
                    Ok((objects, version)) => {
                        self.store.room().await;
                        self.store.replace(&self.scope, objects);
                        self.heard(&version, |status| status.lists += 1);
                        version
                    }
                    Err(failed) => {
                        self.failed(&failed, failures);
                        self.pause(&mut failures).await;
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
                self.failed(failed, failures);
            }
            if ended.was_of_use {
                failures = 0;
            } else {
                if ended.opened {
                    failures = failures.min(SHORT_FAILURES_MAX);
                }
                self.pause(&mut failures).await;
            }
            from = ended.from;
        }
    }

    /// Follows from a version on, to the end of the watch.
    async fn follow(&mut self, mut version: String) -> Ended {
        let chance = self.chance.next_u32();
        let seconds = WATCH_SECONDS + chance % (WATCH_SECONDS / 2 + 1);
        let opened = self.cluster.watch(&self.scope, &version, seconds).await;
        let mut lines = match opened {
            Ok(lines) => lines,
            Err(failed) => {
                return Ended {
                    from: (!failed.is_expired()).then_some(version),
                    // That it expired is the API server's way of saying "list again".
                    failed: Some(failed),
                    opened: false,
                    was_of_use: false,
                };
            }
        };
        self.store.note(&self.scope, |status| status.watching = true);
        let began = Instant::now();
        let until = began + Duration::from_secs(u64::from(seconds)) + OVERDUE;
        let mut heard = false;
        let (from, failed) = loop {
            // Whoever takes nothing keeps us waiting, and we the API server.
            self.store.room().await;
            let line = match timeout_at(until.max(Instant::now() + OVERDUE), next_line(&mut lines)).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => break (Some(version), None),
                Ok(Err(cause)) => break (Some(version), Some(self.broken(&cause))),
                Err(_) => break (Some(version), Some(self.broken("it did not end when it should have"))),
            };
            match self.take_in(&line) {
                Ok(next) => {
                    heard = true;
                    if let Some(next) = next {
                        version = next;
                    }
                }
                Err(failed) if failed.code.is_some() && !failed.is_expired() => break (Some(version), Some(failed)),
                Err(failed) => break (None, Some(failed)),
            }
        };
        Ended {
            from,
            failed,
            opened: true,
            was_of_use: heard || began.elapsed() >= SHORT,
        }
    }

    /// Takes in one line; answers the version up to which everything is known then. An error without a code is a line
    /// that is not understood.
    fn take_in(&self, line: &[u8]) -> Result<Option<String>, Failed> {
        let said = decode::line(self.scope.kind, line).map_err(|cause| self.broken(&cause))?;
        let version = match said {
            Said::Is(read) => {
                let version = read.version.clone();
                self.store.put(&self.scope, read);
                version
            }
            Said::Gone { reference, version } => {
                self.store.remove(&self.scope, &reference);
                version
            }
            Said::Bookmark(version) => {
                self.heard(&version, |_| {});
                return Ok(Some(version));
            }
            Said::Error(status) => {
                let mut failed = self.broken(&format!("{} ({})", status.message, status.code));
                failed.code = Some(status.code);
                return Err(failed);
            }
        };
        if let Some(version) = &version {
            self.heard(version, |status| status.events += 1);
        }
        Ok(version)
    }

    fn heard(&self, version: &str, change: impl FnOnce(&mut super::status::ScopeStatus)) {
        self.store.note(&self.scope, |status| {
            status.last_event_at_ms = Some(SystemClock.now_ms());
            status.resource_version = Some(version.to_owned());
            change(status);
        });
    }

    fn broken(&self, cause: &str) -> Failed {
        let on = self.scope.namespace.as_deref();
        let on = on
            .map(|namespace| format!(" in namespace {namespace}"))
            .unwrap_or_default();
        Failed {
            text: crate::text::line(&format!(
                "watch {}{on} at the API server {}: {cause}",
                self.scope.kind.resource(),
                self.cluster.server()
            )),
            code: None,
        }
    }

    /// Says what went wrong: the first time in a row, for then what is known may be old.
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

    async fn pause(&mut self, failures: &mut u32) {
        let chance = self.chance.next_u64();
        sleep(Duration::from_millis(pause_ms(*failures, chance))).await;
        *failures = failures.saturating_add(1);
    }
}

/// Lists a scope, page by page; answers its objects and the version that they are of.
///
/// # Errors
/// Where a page can't be had, or an item does not say who it is: then it is not known what is gone.
pub(super) async fn list(cluster: &Cluster, scope: &Scope) -> Result<(Vec<Read>, String), Failed> {
    let mut listing = Listing::default();
    loop {
        let page = match cluster.page(scope, listing.next.as_deref(), listing.whole()).await {
            Ok(page) => page,
            Err(failed) => {
                listing = listing.after(failed)?;
                continue;
            }
        };
        let taken = listing.take(scope.kind, &page).map_err(|cause| Failed {
            text: crate::text::line(&format!(
                "list {} at the API server {}: its answer is not understood: {cause}",
                scope.kind.resource(),
                cluster.server()
            )),
            code: None,
        })?;
        if let Some(version) = taken {
            return Ok((listing.objects, version));
        }
    }
}

/// A list as far as it was read.
#[derive(Debug, Default)]
struct Listing {
    objects: Vec<Read>,
    /// Where the next page begins; none: at the front.
    next: Option<String>,
    /// So often it grew older than the API server remembers, page by page.
    expired: u32,
}

impl Listing {
    /// All of it at once is to be asked for.
    fn whole(&self) -> bool {
        self.expired >= PAGED_TRIES
    }

    /// How to begin again after a page that could not be had.
    fn after(self, failed: Failed) -> Result<Self, Failed> {
        if failed.is_expired() && self.next.is_some() && !self.whole() {
            return Ok(Self {
                expired: self.expired + 1,
                ..Self::default()
            });
        }
        Err(failed)
    }

    /// Takes in a page; after the last one it answers the version that everything is of.
    fn take(&mut self, kind: Kind, page: &[u8]) -> Result<Option<String>, String> {
        let page: Page<'_> = serde_json::from_slice(page).map_err(|error| error.to_string())?;
        for item in page.items.unwrap_or_default() {
            self.objects.push(decode::read(kind, item)?);
        }
        self.next = page.metadata.next.filter(|next| !next.is_empty());
        if self.next.is_some() {
            return Ok(None);
        }
        let version = page.metadata.resource_version.filter(|version| !version.is_empty());
        version
            .map(Some)
            .ok_or_else(|| "a list without resourceVersion".to_owned())
    }
}

/// The next whole line; none at the end, where half a line is what a connection was cut off in.
async fn next_line(lines: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        read.map_err(|error| error.to_string())?;
        if line.last() != Some(&b'\n') {
            let is_end = u64::try_from(line.len()).unwrap_or(u64::MAX) < LINE_BYTES_MAX;
            return if is_end {
                Ok(None)
            } else {
                Err(format!("a line of more than {LINE_BYTES_MAX} bytes"))
            };
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(line));
        }
    }
}

/// How long to wait after so many failures in a row: twice as long each time, and up to half as much more by chance.
fn pause_ms(failures: u32, chance: u64) -> u64 {
    let most_ms = PAUSE_MS_MAX / 3 * 2;
    let base_ms = PAUSE_MS_MIN.saturating_mul(1 << failures.min(16)).min(most_ms);
    base_ms + chance % (base_ms / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_within_their_bounds() {
        for (failures, shortest, longest) in [
            (0, 800, 1_200),
            (1, 1_600, 2_400),
            (4, 12_800, 19_200),
            (5, 20_000, 30_000),
            (u32::MAX, 20_000, 30_000),
        ] {
            let all = [0, 1, 7_777, u64::MAX / 2, u64::MAX].map(|chance| pause_ms(failures, chance));
            assert!(
                all.iter().all(|pause_ms| (shortest..=longest).contains(pause_ms)),
                "{failures}: {all:?}"
            );
            assert_eq!(pause_ms(failures, 0), shortest);
            assert_eq!(pause_ms(failures, longest - shortest), longest);
        }
    }

    #[test]
    fn a_list_that_expires_is_paged_once_more_and_then_asked_for_at_once() {
        let expired = || failed(410);
        let page = |next: &str| {
            serde_json::json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": [{"metadata": {"name": "n1"}}]})
                .to_string()
        };
        let mut listing = Listing::default();
        for whole in [false, true] {
            assert_eq!(listing.take(Kind::Node, page("more").as_bytes()), Ok(None));
            listing = listing.after(expired()).unwrap();
            assert_eq!(
                (listing.whole(), listing.objects.len(), &listing.next),
                (whole, 0, &None)
            );
        }
        assert!(listing.after(expired()).is_err(), "it never ends otherwise");
        let mut listing = Listing::default();
        assert_eq!(listing.take(Kind::Node, page("").as_bytes()), Ok(Some("7".to_owned())));
        assert!(
            Listing::default().after(expired()).is_err(),
            "the first page has no version to be too old"
        );
        assert_eq!(listing.take(Kind::Node, page("more").as_bytes()), Ok(None));
        assert_eq!(listing.after(failed(500)).unwrap_err(), failed(500));
    }

    fn failed(code: u16) -> Failed {
        Failed {
            text: String::new(),
            code: Some(code),
        }
    }

    #[tokio::test]
    async fn lines_are_whole_or_not_there() {
        let mut lines: &[u8] = b"one\n\n \ntwo\nhal";
        assert_eq!(next_line(&mut lines).await.unwrap().as_deref(), Some(&b"one\n"[..]));
        assert_eq!(next_line(&mut lines).await.unwrap().as_deref(), Some(&b"two\n"[..]));
        assert_eq!(next_line(&mut lines).await.unwrap(), None);
    }
}
