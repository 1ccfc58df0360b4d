//! What a Lease says about the leader, read from and written into the API's object.
//!
//! Decides nothing. Gives unusual values that others may have written (no holder, no time, a negative one) a defined
//! meaning. Leaves fields that trueup does not know as they are.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

/// The duration, in seconds, of a Lease that its holder gives back, as in client-go. A Lease without holder and with
/// a longer one was not given back by its holder.
pub(super) const RELEASED_SECONDS: i32 = 1;

/// The leader, since when, and for how long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// `None` if there is no holder.
    pub holder: Option<String>,
    /// `None` if it is missing or invalid.
    pub lease_duration: Option<Duration>,
    /// By the holder's wall clock. Only for display.
    pub acquired: Option<Timestamp>,
    /// By the holder's wall clock. For display, and to distinguish renewals.
    pub renewed: Option<Timestamp>,
    /// How often a different holder took it.
    pub transitions: i32,
}

impl Record {
    /// Reads a Lease.
    pub fn of(lease: &Lease) -> Self {
        let Some(spec) = &lease.spec else {
            return Self::default();
        };
        let seconds = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            holder: spec.holder_identity.clone().filter(|holder| !holder.is_empty()),
            lease_duration: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default().max(0),
        }
    }

    /// How long after this was first written its writer may act. `usual` applies to a holder that does not say.
    pub(super) fn holds_for(&self, usual: Duration) -> Duration {
        let released = Duration::from_secs(RELEASED_SECONDS.unsigned_abs().into());
        match (&self.holder, self.lease_duration) {
            (Some(_), said) => said.unwrap_or(usual),
            // A third party removed the holder's name, which the holder may not have noticed.
            (None, Some(said)) if said > released => said,
            (None, _) => Duration::ZERO,
        }
    }

    /// Writes this into a Lease, and leaves everything else in it as it is.
    pub(super) fn put_into(&self, lease: &mut Lease) {
        let seconds = self.lease_duration.map(|duration| duration.as_secs());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        // The empty name rather than none, as client-go writes it.
        spec.holder_identity = Some(self.holder.clone().unwrap_or_default());
        spec.lease_duration_seconds = seconds.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX));
        spec.acquire_time = self.acquired.map(MicroTime);
        spec.renew_time = self.renewed.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);
    }
}

/// Rounds to the API's precision of microseconds, so that a time reads back as it was written.
pub(super) fn kept(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const USUAL: Duration = Duration::from_secs(15);

    fn lease(spec: serde_json::Value) -> Lease {
        serde_json::from_value(json!({ "metadata": { "name": "trueup" }, "spec": spec })).unwrap()
    }

    #[test]
    fn a_lease_of_client_go_is_read_as_it_is_meant() {
        let record = Record::of(&lease(json!({
            "holderIdentity": "a_1", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "2026-11-21T20:00:00.000001Z", "renewTime": "2026-11-21T20:00:02.000002Z",
        })));
        assert_eq!(record.holder.as_deref(), Some("a_1"));
        assert_eq!(record.holds_for(USUAL), Duration::from_secs(15));
        assert_eq!(record.acquired.unwrap().to_string(), "2026-11-21T20:00:00.000001Z");
        assert_eq!(record.renewed.unwrap().to_string(), "2026-11-21T20:00:02.000002Z");
        assert_eq!(record.transitions, 3);
    }

    #[test]
    fn what_makes_no_sense_is_taken_for_what_is_safe() {
        let holds_for = |spec| Record::of(&lease(spec)).holds_for(USUAL).as_secs();
        assert_eq!(holds_for(json!({})), 0, "no host ever held it");
        assert_eq!(holds_for(json!({ "holderIdentity": "" })), 0);
        assert_eq!(
            holds_for(json!({ "holderIdentity": "", "leaseDurationSeconds": 1 })),
            0,
            "given back"
        );
        assert_eq!(
            holds_for(json!({ "holderIdentity": "", "leaseDurationSeconds": 20 })),
            20,
            "taken away"
        );
        assert_eq!(holds_for(json!({ "holderIdentity": "a" })), 15);
        assert_eq!(
            holds_for(json!({ "holderIdentity": "a", "leaseDurationSeconds": 0 })),
            15
        );
        assert_eq!(
            holds_for(json!({ "holderIdentity": "a", "leaseDurationSeconds": -7 })),
            15
        );
        assert_eq!(Record::of(&lease(json!({ "leaseTransitions": -7 }))).transitions, 0);
        assert_eq!(Record::of(&Lease::default()), Record::default());
    }

    #[test]
    fn what_others_keep_in_the_lease_stays_there() {
        let mut others: Lease = serde_json::from_value(json!({
            "metadata": { "name": "trueup", "resourceVersion": "7", "labels": { "team": "net" } },
            "spec": { "holderIdentity": "a", "preferredHolder": "b", "strategy": "OldestEmulationVersion" },
        }))
        .unwrap();
        let time = kept("2026-11-21T20:00:00.123456789Z".parse().unwrap());
        let record = Record {
            holder: None,
            lease_duration: Some(Duration::from_secs(1)),
            acquired: Some(time),
            renewed: Some(time),
            transitions: 2,
        };
        record.put_into(&mut others);
        let written = serde_json::to_value(&others).unwrap();
        let spec = json!({
            "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 2,
            "acquireTime": "2026-11-21T20:00:00.123456Z", "renewTime": "2026-11-21T20:00:00.123456Z",
            "preferredHolder": "b", "strategy": "OldestEmulationVersion",
        });
        assert_eq!(written["spec"], spec);
        assert_eq!(written["metadata"]["labels"]["team"], "net");
        assert_eq!(written["metadata"]["resourceVersion"], "7");
        assert_eq!(
            Record::of(&serde_json::from_value(written).unwrap()),
            record,
            "read as written"
        );
    }
}
