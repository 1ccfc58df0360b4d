//! What starts operations and reports their ends, as the loop sees it; what each instance has
//! started, and what its state says of that.
//!
//! An operation outlives the call that started it, and the process too. This module polls nothing: ends come in
//! through a channel, and the backend keeps them until the guest knows of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use trueup_base::fence::Fence;
use trueup_capabilities::async_trait;
use trueup_capabilities::metrics::Registry;
use trueup_capabilities::neg::{Api, Endpoint, Error, NegRef, RequestId};
use trueup_work::status::Migration;

pub(crate) use trueup_capabilities::neg::compute::Ended;

/// Starts operations. Knows, over restarts too, those of whose end the guest does not know yet.
#[async_trait]
pub(crate) trait Operations: Send + Sync {
    /// The API for one instance.
    fn api(&self, instance: &str) -> Arc<dyn Api>;
    /// An instance has started an operation.
    async fn started(&self, _instance: &str, _operation: u64) {}
    /// Whether the end of this operation is still to come, or has come and the guest does not know of it yet.
    fn is_pending(&self, instance: &str, operation: u64) -> bool;
    /// The guest knows of the operation's end and has it in its state. The backend need not keep it.
    async fn acknowledged(&self, instance: &str, operation: u64);
}

/// The error for an operation that a guest's state has in flight but the backend does not know, in the backend's
/// words.
pub(crate) const NOT_FOUND: &str = "operation not found";

/// An operation that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Started {
    /// Whether it attaches. Otherwise it detaches.
    pub(crate) attaches: bool,
    /// The number of endpoints.
    pub(crate) endpoints: usize,
}

/// What an instance has started in this process and of whose end the guest does not know yet, by number.
pub(crate) type InFlight = Arc<Mutex<BTreeMap<u64, Started>>>;

/// The NEG of a sync that the backend did not know, of which a guest speaks that reports its first error: the first
/// one that was to be changed, or else the last one that was read, with which a sync ends if that is an error. Also
/// whether it was to be changed.
pub(crate) type Unknown = Mutex<Option<(NegRef, bool)>>;

/// The API of one instance. It refuses requests once others may have acted, and notes the operations it starts and the
/// NEGs that the backend does not know.
pub(crate) struct Noted {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) operations: Arc<dyn Operations>,
    pub(crate) instance: String,
    /// The fence of the epoch of the decision.
    pub(crate) fence: Fence,
    pub(crate) in_flight: InFlight,
    pub(crate) unknown: Unknown,
}

impl Noted {
    fn check(&self) -> Result<(), Error> {
        if self.fence.may_act() {
            return Ok(());
        }
        Err(Error::Unavailable(
            "nothing is asked: this host does not act now, or what was decided is of an earlier term".to_owned(),
        ))
    }
}

/// The answer to a question about `neg`, which is noted if the backend does not know it.
fn noted<T>(unknown: &Unknown, neg: &NegRef, was_to_change: bool, answer: Result<T, Error>) -> Result<T, Error> {
    if let Err(Error::NotFound) = &answer {
        let mut unknown = unknown.lock();
        if !matches!(&*unknown, Some((_, true))) {
            *unknown = Some((neg.clone(), was_to_change));
        }
    }
    answer
}

#[async_trait]
impl Api for Noted {
    async fn ensure(&self, neg: &NegRef, subnet: &str, request: RequestId) -> Result<bool, Error> {
        self.check()?;
        noted(&self.unknown, neg, true, self.api.ensure(neg, subnet, request).await)
    }

    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        self.check()?;
        noted(&self.unknown, neg, false, self.api.list_endpoints(neg).await)
    }

    async fn change(&self, attaches: bool, neg: &NegRef, endpoints: &[Endpoint], id: RequestId) -> Result<u64, Error> {
        self.check()?;
        let answer = self.api.change(attaches, neg, endpoints, id).await;
        let operation = noted(&self.unknown, neg, true, answer)?;
        let started = Started {
            attaches,
            endpoints: endpoints.len(),
        };
        self.in_flight.lock().insert(operation, started);
        self.operations.started(&self.instance, operation).await;
        Ok(operation)
    }
}

/// The guest's gauge of endpoints that are still to change their stack.
const MIGRATION_ENDPOINTS: &str = "trueup_neg_migration_endpoints";

/// What a guest's state says: what is in flight, and whether a migration is paused. The state is the guest's own; this
/// is the format of the built-in guest. A guest with another format works all the same, but shows less.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    paused: bool,
    /// Whether an operator set the error state.
    pub(super) in_error_state: bool,
    wait_ends_ms: Option<u64>,
    /// By number.
    pub(super) operations: Vec<InState>,
}

/// An operation in flight, as a guest's state has it.
#[derive(Debug, Deserialize)]
pub(super) struct InState {
    pub(super) operation: u64,
    #[serde(default)]
    does: String,
    #[serde(default)]
    pub(super) zone: String,
    #[serde(default)]
    pub(super) subnet: String,
    #[serde(default)]
    migration: bool,
    #[serde(default)]
    pub(super) endpoints: Vec<(String, String, String, String)>,
}

impl InState {
    pub(super) fn started(&self) -> Started {
        Started {
            attaches: self.does == "attach",
            endpoints: self.endpoints.len(),
        }
    }

    /// Its zone and subnet, such as `zone-a/default`.
    pub(super) fn at(&self) -> String {
        format!("{}/{}", self.zone, self.subnet)
    }
}

impl State {
    /// Reads a snapshot. `None` if the guest uses another format.
    pub(super) fn read(snapshot: &str) -> Option<Self> {
        serde_json::from_str(snapshot).ok()
    }

    /// The progress of its migration, with the guest's counts. `None` if none is in progress.
    pub(super) fn migration(&self, metrics: &Registry, instance: &str) -> Option<Migration> {
        let migrating = counted(metrics, instance, MIGRATION_ENDPOINTS);
        if migrating == 0 && !self.paused {
            return None;
        }
        let committed = ["dual", "ipv4", "ipv6"].map(|kind| {
            let series = format!("trueup_neg_committed_endpoints{{type=\"{kind}\"}}");
            counted(metrics, instance, &series)
        });
        let detaching = self.operations.iter().filter(|operation| operation.migration);
        Some(Migration {
            migrating,
            of: committed.iter().sum::<u64>().saturating_add(migrating),
            detaching_at: detaching.map(InState::at).collect(),
            paused: self.paused,
            paused_until_ms: self.wait_ends_ms,
        })
    }
}

/// The value of a guest's gauge.
fn counted(metrics: &Registry, instance: &str, series: &str) -> u64 {
    let value = metrics.gauge_of(instance, series).unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of endpoints; what is none is shown as 0 or as many as there can be"
    )]
    let count = value as u64;
    count
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trueup_capabilities::bindings::host::metrics::Label;
    use trueup_capabilities::metrics::{Line, Origin};

    use super::*;
    use crate::neg::guest;
    use crate::neg::turn::describe;

    #[test]
    fn an_unknown_neg_is_named_with_its_zone() {
        let neg = |zone: &str| NegRef {
            name: "web".to_owned(),
            zone: zone.to_owned(),
        };
        let unknown = Unknown::default();
        let says = || {
            let unknown = unknown.lock();
            describe(
                &guest::Error::Api(Error::NotFound),
                unknown.as_ref().map(|(neg, _)| neg),
            )
        };
        let not_found = |zone: &str, was_to_change: bool| {
            noted(&unknown, &neg(zone), was_to_change, Err::<(), _>(Error::NotFound)).unwrap_err();
        };
        noted(&unknown, &neg("a"), true, Ok(())).unwrap();
        assert_eq!(says(), "Compute Engine does not know the NEG, or not any more");
        for zone in ["b", "c"] {
            not_found(zone, false);
            let text = format!("Compute Engine does not know NEG `web` in zone `{zone}`, or not any more");
            assert_eq!(says(), text, "the last one that was read ended the sync");
        }
        for (zone, was_to_change) in [("d", true), ("e", true), ("f", false)] {
            not_found(zone, was_to_change);
            assert!(says().contains("zone `d`"), "the guest reports its first error");
        }
    }

    const INSTANCE: &str = "shop/web/80";

    fn gauge(metrics: &Registry, instance: &str, name: &str, kind: Option<&str>, value: f64) {
        let origin = Origin::Guest { guest: "neg", instance };
        let labels: Vec<Label> = kind
            .map(|kind| Label {
                key: "type".to_owned(),
                value: kind.to_owned(),
            })
            .into_iter()
            .collect();
        assert!(metrics.take(origin, name, &labels, Line::GaugeSet(value)));
    }

    #[test]
    fn what_is_in_flight_and_until_when_it_is_paused_is_read_off_the_state() {
        let snapshot = r#"{"version":1,"paused":true,"wait_ends_ms":99,"operations":[
            {"operation":7,"does":"detach","zone":"a","subnet":"s","migration":true,"endpoints":[["","","",""],["","","",""]]},
            {"operation":9,"does":"attach","zone":"b","subnet":"s","migration":false,"endpoints":[["","","",""]]}]}"#;
        let state = State::read(snapshot).unwrap();
        let detaching = Started {
            attaches: false,
            endpoints: 2,
        };
        assert_eq!(state.operations[0].started(), detaching);
        assert_eq!(state.operations[1].at(), "b/s");

        let metrics = Registry::default();
        gauge(&metrics, INSTANCE, "trueup_neg_migration_endpoints", None, 40.0);
        gauge(&metrics, "shop/other/80", "trueup_neg_migration_endpoints", None, 1.0);
        gauge(&metrics, INSTANCE, "trueup_neg_committed_endpoints", Some("dual"), 50.0);
        gauge(&metrics, INSTANCE, "trueup_neg_committed_endpoints", Some("ipv4"), 10.0);
        let migration = state.migration(&metrics, INSTANCE).unwrap();
        assert_eq!((migration.migrating, migration.of), (40, 100));
        assert_eq!(migration.detaching_at, BTreeSet::from(["a/s".to_owned()]));
        assert_eq!((migration.paused, migration.paused_until_ms), (true, Some(99)));
    }

    #[test]
    fn nothing_migrates_where_nothing_is_paused_and_nothing_is_left() {
        let state = State::read(r#"{"version":2}"#).unwrap();
        assert_eq!(state.migration(&Registry::default(), INSTANCE), None);
        assert!(State::read("another guest's").is_none());
    }
}
