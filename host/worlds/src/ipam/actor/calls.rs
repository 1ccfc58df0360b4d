//! Calls of the guest.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trueup_instance::Instances;
use trueup_work::lifecycle::failure::Failure;
use trueup_work::slot::CallContext;
use trueup_work::status::pods::Stats;

use super::Actor;
use crate::ipam::guest::{Nothing, PodIpInfo, Stats as Counts};
use crate::ipam::{PHASE, READS_STORE};

/// The timeout of a call that sleeps. Pods, versions and a stop wait behind it, and CNI plugins wait for 10 s. The
/// first reading asks the container runtime up to six times.
const CALL_MAX: Duration = Duration::from_secs(60);

impl Actor {
    /// How long an address rests after its release, from the guest's settings.
    pub(super) fn cooling_period_ms(&self) -> u64 {
        /// The guest's own default: section 3 of its specification.
        const DEFAULT: u64 = 30_000;
        let version = self.slot.instances();
        let set = version.settings.get("cooling_period_ms");
        set.and_then(serde_json::Value::as_u64).unwrap_or(DEFAULT)
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
pub(super) fn reads_store(version: &Instances) -> Arc<Instances> {
    let mut version = version.clone();
    if let Some(settings) = version.settings.as_object_mut() {
        settings.insert(PHASE.to_owned(), READS_STORE.into());
    }
    Arc::new(version)
}
