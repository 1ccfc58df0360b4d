//! A watch of etcd that survives disconnects: it resumes after the last reported revision.
//!
//! ```text
//! begin: is what comes after the last revision still there? -> stream -> revisions -> (cut) -> begin, elsewhere
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, EventType, GetOptions, WatchOptions, WatchResponse, WatchStream};
use tokio::time::{sleep, timeout_at};

use super::connection::{Connection, Failure, Link};
use super::{first, stored, unsigned};
use crate::etcd::{Changes, Error, Event, Watch, WatchEnd};
use async_trait::async_trait;

/// The first pause before a broken stream is opened again; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause: it delays the changes that come meanwhile.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The maximum message size; above it the prefix is listed again. For a watch that is behind, etcd puts up to a
/// thousand revisions into one message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// One watch.
pub(super) struct Stream {
    connection: Arc<Connection>,
    prefix: Vec<u8>,
    /// Everything up to this revision was reported, or is waiting in `heard`.
    after: u64,
    heard: VecDeque<Changes>,
    open: Option<(Link, WatchStream)>,
    pause: Duration,
}

/// Why there is no stream.
enum Stopped {
    /// It can be opened again.
    Broken(String),
    Ended(WatchEnd),
}

impl Stream {
    pub(super) fn new(connection: Arc<Connection>, prefix: &str, after: u64) -> Self {
        Self {
            connection,
            prefix: prefix.as_bytes().to_vec(),
            after,
            heard: VecDeque::new(),
            open: None,
            pause: PAUSE_MIN,
        }
    }

    /// Waits for etcd's next message.
    async fn hear(&mut self) -> Result<(), Stopped> {
        let (_, stream) = match &mut self.open {
            Some(open) => open,
            none => none.insert(begin(&self.connection, &self.prefix, self.after).await?),
        };
        let response = stream.message().await;
        let response = response.map_err(|error| stopped(Failure::of(&error), self.after))?;
        let response = response.ok_or_else(|| Stopped::Broken("the stream ended".to_owned()))?;
        if response.canceled() {
            let after = self.after;
            return Err(match response.cancel_reason() {
                _ if response.compact_revision() > 0 => Stopped::Ended(WatchEnd::Compacted { after }),
                reason if reason.contains("permission denied") => {
                    Stopped::Ended(WatchEnd::Failed(Error::AccessDenied(reason.to_owned())))
                }
                reason => Stopped::Broken(format!("etcd ended it: {reason}")),
            });
        }
        // A successful start alone does not reset the pause: a stream that breaks right after each start waits longer
        // and longer.
        if !response.created() {
            self.pause = PAUSE_MIN;
        }
        self.take(&response);
        Ok(())
    }

    /// Queues the message's changes, one revision after the other.
    fn take(&mut self, response: &WatchResponse) {
        for event in response.events() {
            let Some(found) = event.kv() else { continue };
            let revision = unsigned(found.mod_revision());
            if revision <= self.after {
                continue;
            }
            let event = match event.event_type() {
                EventType::Put => Event::Put(stored(found.clone())),
                EventType::Delete => Event::Deleted(found.key().to_vec()),
            };
            match self.heard.back_mut() {
                Some(changes) if changes.revision == revision => changes.events.push(event),
                _ => self.heard.push_back(Changes {
                    revision,
                    events: vec![event],
                }),
            }
        }
        if let Some(last) = self.heard.back() {
            self.after = last.revision;
        } else if !response.created() {
            // From time to time etcd reports that nothing changed here up to this revision. So compactions do not leave
            // a rarely changing watch behind. The answer to its creation has the store's position, not the watch's.
            let revision = response.header().map_or(0, |header| unsigned(header.revision()));
            self.after = self.after.max(revision);
        }
    }

    /// Waits before opening the stream again, at the next member.
    async fn broken(&mut self, text: &str) {
        if let Some((link, _)) = self.open.take() {
            self.connection.give_up(&link).await;
        }
        if self.pause == PAUSE_MIN {
            let prefix = String::from_utf8_lossy(&self.prefix);
            tracing::warn!(
                "etcd: the watch of `{prefix}` is cut ({text}); it goes on after revision {}",
                self.after
            );
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        sleep(pause).await;
    }
}

/// Opens a stream of the changes after a revision.
async fn begin(connection: &Connection, prefix: &[u8], after: u64) -> Result<(Link, WatchStream), Stopped> {
    check(connection, prefix, after).await?;
    let until = connection.deadline();
    let link = connection.link(until).await;
    let link = link.map_err(|failed| stopped(failed.failure, after))?;
    let next = i64::try_from(after.saturating_add(1)).unwrap_or(i64::MAX);
    let options = WatchOptions::new().with_prefix().with_progress_notify();
    let options = options.with_start_revision(next);
    let mut client = link.client.watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
    let failure = match timeout_at(until, client.watch(prefix, Some(options))).await {
        Ok(Ok(stream)) => return Ok((link, stream)),
        Ok(Err(error)) => Failure::of(&error),
        Err(_) => Failure::Lost("no stream in time".to_owned()),
    };
    if failure.is_connection() {
        connection.give_up(&link).await;
    }
    Err(stopped(failure, after))
}

/// Checks that the store still has that revision. etcd would start a watch at the very revision of its compaction and
/// leave out what was deleted in it. It would also start one at a revision that a recreated store has not reached yet.
async fn check(connection: &Connection, prefix: &[u8], after: u64) -> Result<(), Stopped> {
    let revision = i64::try_from(after).unwrap_or(i64::MAX);
    let ask = |mut client: Client| async move {
        let options = GetOptions::new().with_prefix().with_count_only();
        let options = options.with_revision(revision);
        client.get(first(prefix), Some(options)).await
    };
    let known = connection.read(ask).await;
    known.map(drop).map_err(|failed| stopped(failed.failure, after))
}

fn stopped(failure: Failure, after: u64) -> Stopped {
    match failure {
        Failure::NotSent(text) | Failure::Lost(text) => Stopped::Broken(text),
        Failure::Compacted | Failure::TooLong => Stopped::Ended(WatchEnd::Compacted { after }),
        Failure::Refused(error @ Error::AccessDenied(_)) => Stopped::Ended(WatchEnd::Failed(error)),
        Failure::Refused(error) => Stopped::Broken(format!("etcd refused it: {error:?}")),
    }
}

#[async_trait]
impl Watch for Stream {
    async fn next(&mut self) -> Result<Changes, WatchEnd> {
        loop {
            if let Some(changes) = self.heard.pop_front() {
                return Ok(changes);
            }
            match self.hear().await {
                Ok(()) => {}
                Err(Stopped::Ended(end)) => return Err(end),
                Err(Stopped::Broken(text)) => self.broken(&text).await,
            }
        }
    }
}
