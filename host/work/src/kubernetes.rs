//! Reports actions and errors as events of a Service, which `kubectl describe` shows.
//!
//! Events are for people only: the host waits for none, and drops those it cannot write. Repetitions for the same
//! Service become one event with a counter, updated at most once in `REPEAT`.
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
use trueup_base::fence::Fence;
use trueup_sources::kubernetes::Kubernetes;

use crate::objects::Id;

/// The reporter, as in access rules and in `kubectl get events`.
const CONTROLLER: &str = "trueup.dev/trueup";

/// The maximum number of queued events; more are dropped. If ten thousand Services fail at once, single events do not
/// help.
const QUEUE_MAX: usize = 1_000;

/// The pause between two writes, which limits their rate: events must not delay important requests.
const PAUSE: Duration = Duration::from_millis(20);

/// The minimum interval of repetitions for one Service.
const REPEAT: Duration = Duration::from_secs(60);

/// The timeout for writing one event.
const WRITE: Duration = Duration::from_secs(5);

/// The timeout for the remaining events at the end.
const FLUSH: Duration = Duration::from_secs(5);

/// The maximum number of known series. Beyond it, all start anew.
const SERIES_MAX: usize = 4_096;

/// The API server's limit for a note, in bytes.
const NOTE_BYTES_MAX: usize = 1_024;

/// An event of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEvent {
    /// The Service.
    pub key: Id,
    /// Whether something is wrong.
    pub warning: bool,
    /// CamelCase, like the reasons of Kubernetes' own controllers.
    pub reason: &'static str,
    /// The intended action; CamelCase.
    pub action: &'static str,
    /// One line.
    pub note: String,
}

enum Asked {
    Write(ObjectEvent),
    Flush(oneshot::Sender<()>),
}

/// The queue of events. Closes when its last clone is dropped.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Asked>,
}

/// Repetitions for one Service.
struct Series {
    uid: Option<String>,
    note: String,
    recorder: Recorder,
    written: Instant,
}

impl Events {
    /// Requires a tokio runtime with time.
    pub fn new(cluster: Kubernetes, fence: Fence) -> Self {
        let (queue, asked) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(write_all(cluster, fence, asked));
        Self { queue }
    }

    /// Queues an event, unless the queue is full.
    pub fn say(&self, said: ObjectEvent) {
        if let Err(error) = self.queue.try_send(Asked::Write(said)) {
            tracing::debug!("an event is dropped: {error}");
        }
    }

    /// Waits until the queued events are written, within limits.
    pub async fn flush(&self) {
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

/// Writes an event, unless it was written recently or the Service does not exist.
fn write(
    cluster: &Kubernetes,
    all: &mut BTreeMap<(Id, &'static str), Series>,
    said: ObjectEvent,
) -> Option<impl Future<Output = kube::Result<()>> + use<>> {
    let ObjectEvent {
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
        // The recorder counts by reason and keeps the first text: a different text is a different series.
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

/// The note, cut to the API server's limit.
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
