//! A watch: the events of the requested objects, one JSON object in each line, until it ends.
//!
//! ```text
//! [what is there] -> [bookmark: that was all] -> changes, bookmarks ... -> end of its time | cut | 410
//! ```

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Shared;
use super::failure::Failure;
use super::kinds::Kind;
use super::read::{self, Wanted};
use super::select::Selector;
use super::store::{Change, Happened};
use super::view::View;

/// How long a watch lasts by default; a real server takes between 30 and 60 minutes.
const LASTS: Duration = Duration::from_secs(1800);

/// A real server sends a bookmark about once a minute; tests don't last that long.
pub(super) const BOOKMARKS_EVERY: Duration = Duration::from_secs(5);

/// How many changes one piece holds, so that a watch that is far behind does not lock the store for long.
const CHANGES_AT_ONCE: usize = 500;

/// The options of a watch.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub kind: &'static Kind,
    /// Where, which, and from which version.
    pub wanted: Wanted,
    pub view: View,
    pub bookmarks: bool,
    /// `sendInitialEvents`, if it was given.
    pub initial: Option<bool>,
    /// How long, in seconds.
    pub timeout_s: Option<u64>,
}

/// Starts a watch; its body ends with the watch.
pub(super) fn begin(shared: &Arc<Shared>, watched: Watched) -> Result<Body, Failure> {
    let (bookmarks_every, gone_as_status) = {
        let controls = shared.controls();
        if watched.initial.is_some() {
            check_initial(&watched, controls.no_streaming_lists)?;
        }
        (
            controls.bookmarks_every.unwrap_or(BOOKMARKS_EVERY),
            controls.gone_as_status,
        )
    };
    let mut watch = Watch {
        newest: shared.newest.subscribe(),
        cuts: shared.cut_watches.subscribe(),
        shared: Arc::clone(shared),
        position: read::read_version(&watched.wanted.version)?,
        lines: VecDeque::new(),
        told: false,
        columns_told: false,
        ended: false,
        ends: Instant::now() + watched.timeout_s.map_or(LASTS, Duration::from_secs),
        bookmarks_every,
        next_bookmark: Instant::now() + bookmarks_every,
        watched,
    };
    watch.start(gone_as_status)?;
    Ok(Body::from_stream(stream::unfold(watch, Watch::next)))
}

fn check_initial(watched: &Watched, not_understood: bool) -> Result<(), Failure> {
    let forbidden = |field: &str, why: &str| {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: Forbidden: {why}");
        Err(Failure::unprocessable(message))
    };
    if not_understood {
        let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return forbidden("sendInitialEvents", why);
    }
    if watched.wanted.version_match != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return forbidden("resourceVersionMatch", why);
    }
    Ok(())
}

struct Watch {
    shared: Arc<Shared>,
    watched: Watched,
    /// Changes up to this version are sent.
    position: u64,
    /// The pending lines.
    lines: VecDeque<Bytes>,
    /// Whether it has looked at changes already.
    told: bool,
    /// Whether it has sent an object, and with it the columns of a table.
    columns_told: bool,
    ended: bool,
    ends: Instant,
    bookmarks_every: Duration,
    next_bookmark: Instant,
    newest: watch::Receiver<u64>,
    cuts: watch::Receiver<u64>,
}

impl Watch {
    /// Sends the existing objects, if requested.
    fn start(&mut self, gone_as_status: bool) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        let store = shared.store();
        let from_now = self.position == 0;
        if self.watched.initial == Some(true) && self.position > store.version() {
            return Err(Failure::too_new(self.position, store.version()));
        }
        if !from_now && self.watched.initial != Some(true) {
            let forgotten = self.position < store.forgotten();
            return if forgotten && gone_as_status {
                Err(Failure::too_old(self.position, store.forgotten()))
            } else {
                Ok(())
            };
        }
        self.position = store.version();
        if self.watched.initial == Some(false) {
            return Ok(());
        }
        let wanted = &self.watched.wanted;
        let there = store.list(self.watched.kind, wanted.namespace.as_deref());
        let there: Vec<Arc<Value>> = there
            .filter(|(_, object)| wanted.selector.has(object))
            .map(|(_, object)| Arc::clone(object))
            .collect();
        drop(store);
        for object in there {
            self.tell("ADDED", &object);
        }
        if self.watched.initial == Some(true) && self.watched.bookmarks {
            self.bookmark(true);
        }
        Ok(())
    }

    /// The next piece of the body.
    async fn next(mut self) -> Option<(Result<Bytes, io::Error>, Self)> {
        loop {
            if !self.lines.is_empty() {
                let piece: Vec<u8> = self.lines.drain(..).flatten().collect();
                return Some((Ok(Bytes::from(piece)), self));
            }
            if self.ended {
                return None;
            }
            self.newest.borrow_and_update();
            self.tell_changes();
            if !self.lines.is_empty() || self.ended {
                continue;
            }
            tokio::select! {
                biased;
                _ = self.cuts.changed() => {
                    let error = io::Error::from(io::ErrorKind::ConnectionReset);
                    self.ended = true;
                    return Some((Err(error), self));
                }
                () = tokio::time::sleep_until(self.ends) => {
                    if self.watched.bookmarks {
                        self.bookmark(false);
                    }
                    self.ended = true;
                }
                changed = self.newest.changed() => self.ended = changed.is_err(),
                () = tokio::time::sleep_until(self.next_bookmark), if self.watched.bookmarks => self.bookmark(false),
            }
        }
    }

    fn tell_changes(&mut self) {
        let shared = Arc::clone(&self.shared);
        let store = shared.store();
        let Some(changes) = store.changes_after(self.position) else {
            let failure = if self.told {
                Failure::expired("The resourceVersion for the provided watch is too old.")
            } else {
                Failure::too_old(self.position, store.forgotten())
            };
            self.line(&json!({ "type": "ERROR", "object": failure.status() }));
            self.ended = true;
            return;
        };
        let (mut last, mut for_this) = (self.position, Vec::new());
        for change in changes.take(CHANGES_AT_ONCE) {
            last = change.version;
            if self.is_about(change) {
                for_this.push(Change::clone(change));
            }
        }
        drop(store);
        self.told = true;
        for change in for_this {
            self.position = change.version;
            self.tell_change(&change);
        }
        self.position = last;
        if self.lines.is_empty() && *self.newest.borrow() > self.position {
            // None of these were for this watch, and there are more.
            self.newest.mark_changed();
        }
    }

    fn is_about(&self, change: &Change) -> bool {
        let namespace = self.watched.wanted.namespace.as_ref();
        change.key.is(self.watched.kind) && namespace.is_none_or(|namespace| *namespace == change.key.namespace)
    }

    fn tell_change(&mut self, change: &Change) {
        let wanted = &self.watched.wanted;
        let has = |selector: &Selector, object: &Value| selector.has(object);
        let was = change
            .before
            .as_ref()
            .is_some_and(|before| has(&wanted.selector, before));
        let is = change.happened != Happened::Deleted && has(&wanted.selector, &change.object);
        match (was, is) {
            (false, false) => {}
            (false, true) => self.tell("ADDED", &change.object),
            (true, true) => self.tell("MODIFIED", &change.object),
            (true, false) => self.tell("DELETED", &change.object),
        }
    }

    fn tell(&mut self, what: &str, object: &Value) {
        let first = !std::mem::replace(&mut self.columns_told, true);
        let shown = self
            .watched
            .view
            .one(self.watched.kind, object, Timestamp::now(), first);
        self.line(&json!({ "type": what, "object": shown }));
    }

    fn bookmark(&mut self, initial: bool) {
        let kind = self.watched.kind;
        let mut meta = json!({ "resourceVersion": self.position.to_string(), "creationTimestamp": null });
        if initial {
            meta["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = json!({ "kind": kind.kind, "apiVersion": kind.api_version(), "metadata": meta });
        self.line(&json!({ "type": "BOOKMARK", "object": object }));
        self.next_bookmark = Instant::now() + self.bookmarks_every;
    }

    fn line(&mut self, event: &Value) {
        let mut line = event.to_string().into_bytes();
        line.push(b'\n');
        self.lines.push_back(Bytes::from(line));
    }
}
