//! The guest's instance: called, and moved to another version.
//!
//! Knows the guest's exports and its recording. `actor.rs` decides when to begin it again, and what to call.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trueup_capabilities::Backends;
use trueup_instance::Instances;
use trueup_work::lifecycle::active::{Active, Commit};
use trueup_work::lifecycle::failure::Failure;
use trueup_work::slot::{CallContext, InstanceSlot};
use trueup_work::status::pods::Stats;

use super::protocol::ShownGuest;
use super::read_from_store;
use crate::ipam::guest::{Nothing, PodIpInfo, Stats as Counts};

/// The timeout of a call that sleeps. Pods, versions and a stop wait behind it, and CNI plugins wait for 10 s. The
/// first reading asks the container runtime up to six times.
const CALL_MAX: Duration = Duration::from_secs(60);

/// One instance of the guest, or its place while there is none.
pub(super) struct Datastore {
    pub(super) slot: InstanceSlot,
    was_read: bool,
    /// The pod that the current request is about.
    pod: Option<String>,
}

impl Datastore {
    pub(super) fn new(active: Arc<Active>, key: &str, backends: Backends) -> Self {
        Self {
            slot: InstanceSlot::new(active, key, backends),
            was_read: false,
            pod: None,
        }
    }

    /// The next calls are about this pod, `namespace/name`: recording and traces name it, and the guest does not get
    /// it.
    pub(super) fn about(&mut self, pod: Option<String>) {
        self.pod = pod;
    }

    /// The guest, for display.
    pub(super) fn guest(&self) -> ShownGuest {
        let guest = &self.slot.instances().program.guest;
        ShownGuest {
            name: guest.name.clone(),
            version: guest.version.clone(),
            digest: guest.digest.to_string(),
        }
    }

    /// How long an address rests after its release, from the guest's settings.
    pub(super) fn cooling_period_ms(&self) -> u64 {
        /// The guest's own default: section 3 of its specification.
        const DEFAULT: u64 = 30_000;
        let version = self.slot.instances();
        let set = version.settings.get("cooling_period_ms");
        set.and_then(serde_json::Value::as_u64).unwrap_or(DEFAULT)
    }

    /// The store was read: later instances read it too, whatever phase they were set to. Otherwise phase 1 would ask
    /// the container runtime again, which does not know yet what was just assigned, and still knows what was just
    /// freed.
    pub(super) fn was_read(&mut self) {
        self.was_read = true;
        // A candidate beside it gets the same settings.
        self.slot.go_on_as(reads_store(&self.slot.instances()));
    }

    /// The number of the last entry of its recording.
    pub(super) fn last_entry(&self) -> u64 {
        self.slot.last_entry().unwrap_or_default()
    }

    /// Call between calls: syncs the recording if it is due, and continues in a new segment if the old one is long
    /// enough. If that fails, the instance is gone.
    pub(super) async fn rest(&mut self) -> Result<(), Failure> {
        self.slot.tick();
        self.slot.rotate().await
    }

    /// Calls an export. It must give an answer of this type.
    pub(super) async fn ask<R: DeserializeOwned>(&mut self, call: &str, args: &impl Serialize) -> Result<R, Failure> {
        let cause = self.pod.as_ref().map(|pod| format!("request of pod {pod}"));
        let about = CallContext {
            cause: cause.as_deref().unwrap_or("request"),
            by: None,
            object: self.pod.clone(),
            sleeps_max: Some(CALL_MAX),
        };
        self.slot.call(call, args, about).await
    }

    /// Makes another version active, and moves the instance's state to it. If the instance gives no state and the
    /// store was read, the version becomes active without an instance: the caller must begin it from the store.
    ///
    /// # Errors
    /// Why it is not active. Then nothing changed, unless the instance is gone.
    pub(super) async fn hand_over(&mut self, next: Arc<Instances>, commit: Commit) -> Result<(), String> {
        let next = if self.was_read { reads_store(&next) } else { next };
        self.slot.hand_over(next, commit, self.was_read).await
    }

    pub(super) async fn allocated(&mut self) -> Result<Vec<PodIpInfo>, Failure> {
        self.ask("datastore.allocated-ips", &Nothing {}).await
    }

    /// The current counts.
    pub(super) async fn stats(&mut self) -> Result<Stats, Failure> {
        let Counts { total, assigned } = self.ask("datastore.get-stats", &Nothing {}).await?;
        let enis: u32 = self.ask("datastore.get-enis", &Nothing {}).await?;
        let allocated = self.allocated().await?.len();
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Stats {
            enis: count(enis),
            addresses: count(total),
            assigned: count(assigned),
            held: allocated.saturating_sub(count(assigned)),
            free: count(total).saturating_sub(count(assigned)),
            resting: 0,
        })
    }
}

/// The same version with the phase in which it reads the store.
fn reads_store(version: &Instances) -> Arc<Instances> {
    let mut version = version.clone();
    read_from_store(&mut version.settings);
    Arc::new(version)
}
