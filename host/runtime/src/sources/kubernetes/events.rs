//! Says at a Service what was done for it and what went wrong, where `kubectl describe` shows it.
//!
//! For people: nothing depends on an event, so none is waited for, and one that can't be written is dropped. The same
//! words about the same Service are one event that is counted up, at most once in [`REPEAT`].
//!
//! ```text
//! Events -> queue (bounded) -> one task -> events.k8s.io/v1
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use trueup_capabilities::fence::Fence;

use super::Kubernetes;
use crate::guests::lbaas::adapter::Key;

/// Who reports, as in rules of access and in `kubectl get events`.
const CONTROLLER: &str = "trueup.dev/trueup";

/// So many events wait to be written; more are dropped. Ten thousand Services that fail at once are no news each.
const QUEUE_MAX: usize = 1_000;

/// At most so many a second are written, as a pause between two: events must not crowd out what matters.
const PAUSE: Duration = Duration::from_millis(20);

/// The same words about one Service are not written again sooner.
const REPEAT: Duration = Duration::from_secs(60);

/// One event takes at most this long.
const WRITE: Duration = Duration::from_secs(5);

/// At the end what still waits may take this long.
const FLUSH: Duration = Duration::from_secs(5);

/// So many series are remembered; where there are more, all begin anew.
const SERIES_MAX: usize = 4_096;

/// What the API server takes as a note, in bytes.
const NOTE_BYTES_MAX: usize = 1_024;

/// What is said at a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) key: Key,
    /// Something is wrong.
    pub(crate) warning: bool,
    /// CamelCase, as Kubernetes' own controllers have them.
    pub(crate) reason: &'static str,
    /// What was to be done; CamelCase.
    pub(crate) action: &'static str,
    /// One line.
    pub(crate) note: String,
}

enum Asked {
    Write(Said),
    Flush(oneshot::Sender<()>),
}

/// Where to say something. Ends with its last clone.
#[derive(Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<Asked>,
}

/// The same words about one Service.
struct Series {
    uid: Option<String>,
    note: String,
    recorder: Recorder,
    written: Instant,
}

impl Events {
    /// Must be called within a tokio runtime with time.
    pub(crate) fn new(cluster: Kubernetes, fence: Fence) -> Self {
        let (queue, asked) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(write_all(cluster, fence, asked));
        Self { queue }
    }

    /// Says it, unless too much waits already.
    pub(crate) fn say(&self, said: Said) {
        if let Err(error) = self.queue.try_send(Asked::Write(said)) {
            tracing::debug!("an event is dropped: {error}");
        }
    }

    /// Waits until what was said so far is written, within limits.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        let flushing = async {
            if self.queue.send(Asked::Flush(done)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        if timeout(FLUSH, flushing).await.is_err() {
            tracing::debug!("events are left unwritten");
        }
    }
}

async fn write_all(cluster: Kubernetes, fence: Fence, mut asked: mpsc::Receiver<Asked>) {
    let mut all = BTreeMap::new();
    while let Some(asked) = asked.recv().await {
        match asked {
            Asked::Flush(done) => {
                let _ = done.send(());
            }
            Asked::Write(said) if fence.may_act() => {
                if let Some(writing) = write(&cluster, &mut all, said) {
                    match timeout(WRITE, writing).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::debug!("an event is not written: {error}"),
                        Err(_) => tracing::debug!("an event is not written within {} s", WRITE.as_secs()),
                    }
                    sleep(PAUSE).await;
                }
            }
            Asked::Write(_) => {}
        }
    }
}

/// Writes it, unless it was written just now, or the Service is not there.
fn write(
    cluster: &Kubernetes,
    all: &mut BTreeMap<(Key, &'static str), Series>,
    said: Said,
) -> Option<impl Future<Output = kube::Result<()>> + use<>> {
    let Said {
        key,
        warning,
        reason,
        action,
        note,
    } = said;
    let service = cluster.service(&key.namespace, &key.name)?;
    let uid = service.metadata.uid.clone();
    let note = cut(&note).to_owned();
    let now = Instant::now();
    if all.len() >= SERIES_MAX {
        all.clear();
    }
    let (namespace, name) = (key.namespace.clone(), key.name.clone());
    let recorder = match all.get_mut(&(key.clone(), reason)) {
        // The recorder counts up by reason, and keeps the words of the first: other words are another series.
        Some(series) if series.uid == uid && series.note == note => {
            if now.duration_since(series.written) < REPEAT {
                return None;
            }
            series.written = now;
            series.recorder.clone()
        }
        _ => {
            let reporter = Reporter::from(CONTROLLER);
            let recorder = Recorder::new(cluster.client(), reporter);
            let series = Series {
                uid: uid.clone(),
                note: note.clone(),
                recorder: recorder.clone(),
                written: now,
            };
            all.insert((key, reason), series);
            recorder
        }
    };
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Service".to_owned()),
        namespace: Some(namespace),
        name: Some(name),
        uid,
        ..ObjectReference::default()
    };
    let event = Event {
        type_: if warning { EventType::Warning } else { EventType::Normal },
        reason: reason.to_owned(),
        note: Some(note),
        action: action.to_owned(),
        secondary: None,
    };
    Some(async move { recorder.publish(&event, &about).await })
}

/// As much of a note as the API server takes.
fn cut(note: &str) -> &str {
    let mut end = note.len().min(NOTE_BYTES_MAX);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_where_a_letter_ends() {
        assert_eq!(cut("short"), "short");
        let long = "ü".repeat(NOTE_BYTES_MAX);
        assert_eq!(cut(&long).len(), NOTE_BYTES_MAX);
        let odd = format!("a{long}");
        assert_eq!(cut(&odd).len(), NOTE_BYTES_MAX - 1);
    }
}
