//! The active version of a guest, what watches it, and what a plan keeps of its calls. The loop, its jobs and the
//! manager share it.
//!
//! A call that has begun ends on the version it began with. The next call looks here.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot};
use trueup_capabilities::meter::Usage;
use trueup_capabilities::planned::{Orphan, Planned};
use trueup_capabilities::quota::Quotas;
use trueup_capabilities::reading::Write;
use trueup_capabilities::{Backends, questions};
use trueup_instance::dispatch::Answer;
use trueup_instance::{Instance, Instances};
use trueup_journal::{Entry, Event, Journal};

use crate::shadow::Shadow;
use crate::status::Calls;

/// A key that the operator wants to be worked on now, and where the answer goes: it is at the front of the queue, or
/// why not, in one line.
pub type UrgentKey = (String, oneshot::Sender<Result<(), String>>);

/// The active version of one guest, and its shadow.
pub struct Active {
    instances: RwLock<Arc<Instances>>,
    /// The candidate that is compared with it, or `None`.
    pub(crate) shadow: RwLock<Option<Arc<Shadow>>>,
    /// The results of its calls, including those of earlier versions.
    pub calls: Calls,
    /// What its instances hold. Each new instance of the guest shares it.
    pub usage: Arc<Usage>,
    /// How often it asked and what it holds. Each new instance shares it.
    pub quotas: Arc<Quotas>,
    /// Notified when the operator approves what waits in [`Active::quotas`].
    pub approved: Notify,
    /// Where keys go that the operator wants to be worked on now. Empty if no loop takes them.
    urgent: OnceLock<mpsc::UnboundedSender<UrgentKey>>,
    /// In a plan: what keeps its calls. Its instances are then not recorded.
    pub plan: Option<PlannedCalls>,
}

impl Active {
    /// Instances of this version, which may write.
    pub fn new(instances: Arc<Instances>) -> Arc<Self> {
        Self::of(instances, false)
    }

    /// With `plans`, for a process that writes neither the state folder nor to backends.
    pub(crate) fn of(instances: Arc<Instances>, plans: bool) -> Arc<Self> {
        Arc::new(Self {
            instances: RwLock::new(instances),
            shadow: RwLock::default(),
            calls: Calls::default(),
            usage: Arc::default(),
            quotas: Arc::default(),
            approved: Notify::new(),
            urgent: OnceLock::new(),
            plan: plans.then(PlannedCalls::default),
        })
    }

    /// The version for the next call.
    pub fn instances(&self) -> Arc<Instances> {
        Arc::clone(&self.instances.read())
    }

    /// Where the keys arrive that the operator wants to be worked on now. One loop works on several guests if each
    /// sends to it.
    pub fn send_urgent_to(&self, urgent: &mpsc::UnboundedSender<UrgentKey>) {
        // A guest has one loop, so no other is there.
        let _ = self.urgent.set(urgent.clone());
    }

    /// Puts a key at the front of the queue of its loop.
    ///
    /// # Errors
    /// Why not, in one line.
    pub(crate) async fn queue_first(&self, key: &str) -> Result<(), String> {
        let Some(urgent) = self.urgent.get() else {
            return Err("it has no queue of keys: the host gives it every change at once".to_owned());
        };
        let (reply, replied) = oneshot::channel();
        // If the loop has ended, it drops the reply too.
        let _ = urgent.send((key.to_owned(), reply));
        let replied = replied.await;
        replied.unwrap_or_else(|_| Err("the host stops: nothing was asked".to_owned()))
    }

    /// Makes another version the active one.
    pub(crate) fn set(&self, instances: Arc<Instances>) {
        *self.instances.write() = instances;
    }

    /// Calls an instance, counts the call, and tells the shadow if there is one. The shadow does not see a call whose
    /// future is dropped. `at_ms`: when the call begins, in milliseconds since 1970.
    pub(crate) async fn call(
        &self,
        at_ms: u64,
        key: &str,
        instance: &mut Instance,
        call: &str,
        args: &RawValue,
    ) -> Answer {
        let counted = self.calls.begin();
        // The shadow reads the call in its recording.
        let n = instance.host().tape.journal().map(Journal::next_n);
        let begun = Instant::now();
        let answer = instance.call_at(at_ms, call, args).await;
        let shadow = self.shadow.read().clone();
        if let Some(shadow) = shadow {
            shadow.observe(key, &instance.program.guest.digest, n, begun.elapsed());
        }
        counted.end(answer.is_ok());
        answer
    }
}

/// Makes a version the active one for the next start too. Called when nothing can refuse it any more.
pub type Commit = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// A version that is to become the active one. It passed every check that can run beside the active one.
pub struct Handover {
    /// What the instances of the new version share.
    pub instances: Arc<Instances>,
    /// Makes it the active one for the next start too.
    pub commit: Commit,
    /// Whether it became the active one, or why not.
    pub reply: oneshot::Sender<Result<(), String>>,
}

/// The plan of one guest: what it keeps of the calls of its instances, in place of their recordings.
#[derive(Default)]
pub struct PlannedCalls {
    by_key: Mutex<BTreeMap<String, OfKey>>,
}

#[derive(Default)]
struct OfKey {
    backends: Option<Planned>,
    entries: Vec<Entry>,
}

impl PlannedCalls {
    /// The backends of a plan in place of the real ones.
    pub(crate) fn backends(&self, key: &str, real: Backends) -> Backends {
        let planned = Planned::new(real);
        let backends = planned.backends.clone();
        self.by_key.lock().entry(key.to_owned()).or_default().backends = Some(planned);
        backends
    }

    /// Takes what an instance asked since the last time.
    pub(crate) fn keep(&self, key: &str, instance: &mut Instance) {
        let entries = instance.host_mut().tape.take_entries();
        let mut by_key = self.by_key.lock();
        by_key.entry(key.to_owned()).or_default().entries.extend(entries);
    }

    /// Leaves out the questions `name` of an instance if its calls `are_done` already.
    pub fn leave_out(&self, name: &str, key: &str, are_done: impl Fn(&[Entry]) -> bool) {
        let is_asked = |entry: &Entry| matches!(&entry.event, Event::Ask(ask) if ask.name == name);
        if let Some(of) = self.by_key.lock().get_mut(key)
            && are_done(&of.entries)
        {
            of.entries.retain(|entry| !is_asked(entry));
        }
    }

    /// What the calls of an instance would do: their writes, in order, and the objects that a run marks first. They are
    /// then forgotten.
    pub fn take(&self, key: &str) -> (Vec<Write>, Vec<Orphan>) {
        let OfKey { backends, entries } = self.by_key.lock().remove(key).unwrap_or_default();
        let unmarked = backends.map(|backends| backends.unmarked());
        (questions::planned(&entries), unmarked.unwrap_or_default())
    }
}
