//! Reads a guest's state: what is in flight, and whether a migration is paused.
//!
//! The state is the guest's own; this module reads the format of the built-in guest. A guest with another format
//! works all the same, but shows less.

use serde::Deserialize;
use trueup_capabilities::metrics::Registry;
use trueup_work::status::Migration;

use super::operations::Started;

/// The guest's gauge of endpoints that are still to change their stack.
const MIGRATION_ENDPOINTS: &str = "trueup_neg_migration_endpoints";

/// A guest's state, as the built-in guest writes it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    paused: bool,
    /// Whether an operator set the error state.
    pub(super) in_error_state: bool,
    wait_ends_ms: Option<u64>,
    /// By number.
    pub(super) operations: Vec<Operation>,
}

/// An operation in flight.
#[derive(Debug, Deserialize)]
pub(super) struct Operation {
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

impl Operation {
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
        let committed: u64 = ["dual", "ipv4", "ipv6"]
            .iter()
            .map(|kind| {
                let series = format!("trueup_neg_committed_endpoints{{type=\"{kind}\"}}");
                counted(metrics, instance, &series)
            })
            .sum();
        let detaching = self.operations.iter().filter(|operation| operation.migration);
        Some(Migration {
            migrating,
            of: committed.saturating_add(migrating),
            detaching_at: detaching.map(Operation::at).collect(),
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
