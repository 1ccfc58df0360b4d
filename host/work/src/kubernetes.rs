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

use kube::Resource as _;
use kube::runtime::events::{Event, EventType, Recorder};
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
            Asked::Flush(done) => _ = done.send(()),
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
    let service = cluster.service(&said.key.namespace, &said.key.name)?;
    let uid = service.metadata.uid.clone();
    let mut note = said.note;
    // The API server takes no longer note.
    note.truncate(note.floor_char_boundary(NOTE_BYTES_MAX));
    let now = Instant::now();
    if all.len() >= SERIES_MAX {
        all.clear();
    }
    let event = (said.key, said.reason);
    // The recorder counts by reason and keeps the first text: a different text is a different series.
    let is_same = |series: &&mut Series| series.uid == uid && series.note == note;
    let recorder = match all.get_mut(&event).filter(is_same) {
        Some(series) if now.duration_since(series.written) < REPEAT => return None,
        Some(series) => {
            series.written = now;
            series.recorder.clone()
        }
        None => {
            let recorder = Recorder::new(cluster.client(), CONTROLLER.into());
            let series = Series {
                uid,
                note: note.clone(),
                recorder: recorder.clone(),
                written: now,
            };
            all.insert(event, series);
            recorder
        }
    };
    let about = service.object_ref(&());
    let event = Event {
        type_: match said.warning {
            true => EventType::Warning,
            false => EventType::Normal,
        },
        reason: said.reason.to_owned(),
        note: Some(note),
        action: said.action.to_owned(),
        secondary: None,
    };
    Some(async move { recorder.publish(&event, &about).await })
}
