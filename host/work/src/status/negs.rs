//! What the host knows of NEGs: operations in flight, and migrations in progress.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The maximum number of migrations shown, of keys in their error state, and of operations in flight, those in flight
/// the longest. Beyond it, the count is more useful than a list.
const SHOWN_MAX: usize = 100;

/// The progress of a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// Endpoints that are still to change their stack, as of the last sync.
    pub migrating: u64,
    /// The number of existing desired endpoints, including these.
    pub of: u64,
    /// Zones and subnets of its detachments in flight, such as `zone-a/default`.
    pub detaching_at: BTreeSet<String>,
    /// Whether it is paused: nothing more is detached for it now.
    pub paused: bool,
    /// When the pause ends, in milliseconds since 1970. `None` if it lasts until what is in flight has ended.
    pub paused_until_ms: Option<u64>,
}

/// What a job observed about the NEGs of its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NegAt {
    /// Operations in flight, by number. `since_ms` counts only if no earlier job saw the operation.
    pub in_flight: Vec<OperationShown>,
    /// Endpoints in attachments that succeeded since the previous job.
    pub attached: u64,
    /// Endpoints in detachments that succeeded since the previous job.
    pub detached: u64,
    /// The migration in progress. `None` if there is none.
    pub migration: Option<Migration>,
    /// An operator put the key in its error state.
    pub in_error_state: bool,
}

/// NEGs at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegsShown {
    /// Operations in flight.
    pub operations: usize,
    /// Endpoints in them.
    pub endpoints: usize,
    /// Endpoints in attachments that succeeded since the host started.
    pub attached: u64,
    /// Endpoints in detachments that succeeded since the host started.
    pub detached: u64,
    /// Keys whose endpoints change their stack, sorted; the first 100.
    pub migrations: Vec<MigrationShown>,
    /// The number of such keys.
    pub migration_count: usize,
    /// Keys that an operator put in their error state (`trueup neg error-state`), sorted; the first 100.
    #[serde(default)]
    pub error_states: Vec<String>,
    /// The number of such keys.
    #[serde(default)]
    pub error_state_count: usize,
    /// Operations in flight, those in flight the longest; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<OperationShown>,
}

/// An operation that was started, and whose end the guest does not know yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationShown {
    /// `namespace/name/port`.
    pub key: String,
    /// Its number at Compute Engine.
    pub operation: u64,
    /// `attach` or `detach`.
    pub action: String,
    /// Zone and subnet, such as `zone-a/default`.
    pub at: String,
    /// The number of endpoints.
    pub endpoints: usize,
    /// When this process first saw it, in milliseconds since 1970.
    pub since_ms: u64,
}

/// A migration in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationShown {
    /// `namespace/name/port`.
    pub key: String,
    /// Its progress.
    #[serde(flatten)]
    pub migration: Migration,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Negs {
    /// Keys with operations in flight or something to show.
    by_key: BTreeMap<String, NegAt>,
    attached: u64,
    detached: u64,
}

impl Negs {
    /// Takes in what a job observed. A key with nothing to show takes no room.
    pub(super) fn at(&mut self, key: &str, mut at: NegAt) {
        self.attached = self.attached.saturating_add(at.attached);
        self.detached = self.detached.saturating_add(at.detached);
        let before = self.by_key.remove(key).unwrap_or_default();
        if at.in_flight.is_empty() && at.migration.is_none() && !at.in_error_state {
            return;
        }
        for operation in &mut at.in_flight {
            let mut earlier = before.in_flight.iter();
            if let Some(seen) = earlier.find(|seen| seen.operation == operation.operation) {
                operation.since_ms = seen.since_ms;
            }
        }
        self.by_key.insert(key.to_owned(), at);
    }

    pub(super) fn show(&self) -> NegsShown {
        let migrations = self.by_key.iter().filter_map(|(key, at)| {
            let key = key.clone();
            let migration = at.migration.clone()?;
            Some(MigrationShown { key, migration })
        });
        let in_error_state = self.by_key.iter().filter(|(_, at)| at.in_error_state);
        let keys = in_error_state.clone().map(|(key, _)| key.clone());
        let mut in_flight: Vec<OperationShown> = self.by_key.values().flat_map(|at| at.in_flight.clone()).collect();
        let endpoints = in_flight.iter().map(|operation| operation.endpoints).sum();
        let operations = in_flight.len();
        // Operations that began at the same time stay sorted by key and number.
        in_flight.sort_by_key(|operation| operation.since_ms);
        in_flight.truncate(SHOWN_MAX);
        NegsShown {
            operations,
            endpoints,
            attached: self.attached,
            detached: self.detached,
            migration_count: self.by_key.values().filter(|at| at.migration.is_some()).count(),
            migrations: migrations.take(SHOWN_MAX).collect(),
            error_state_count: in_error_state.clone().count(),
            error_states: keys.take(SHOWN_MAX).collect(),
            in_flight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rests_takes_no_room_and_what_migrates_is_shown() {
        let mut negs = Negs::default();
        let operation = |operation, since_ms| OperationShown {
            operation,
            action: "detach".to_owned(),
            endpoints: 60,
            at: "a/s".to_owned(),
            since_ms,
            ..OperationShown::default()
        };
        let migrating = NegAt {
            in_flight: vec![operation(7, 10)],
            attached: 5,
            migration: Some(Migration {
                migrating: 540,
                of: 600,
                ..Migration::default()
            }),
            ..NegAt::default()
        };
        negs.at("shop/web/80", migrating.clone());
        negs.at(
            "shop/api/443",
            NegAt {
                attached: 7,
                ..NegAt::default()
            },
        );
        let shown = negs.show();
        assert_eq!((shown.operations, shown.endpoints, shown.attached), (1, 60, 12));
        assert_eq!(
            (shown.migration_count, shown.migrations[0].migration.migrating),
            (1, 540)
        );
        assert_eq!(shown.migrations[0].key, "shop/web/80");
        let more = NegAt {
            in_flight: vec![operation(7, 12), operation(8, 12)],
            ..NegAt::default()
        };
        negs.at("shop/web/80", more);
        let since: Vec<(u64, u64)> = negs
            .show()
            .in_flight
            .iter()
            .map(|it| (it.operation, it.since_ms))
            .collect();
        assert_eq!(since, [(7, 10), (8, 12)]);
        assert_eq!(negs.show().endpoints, 120);
        let in_error_state = NegAt {
            in_error_state: true,
            ..NegAt::default()
        };
        negs.at("shop/api/443", in_error_state);
        assert_eq!(
            (negs.show().error_state_count, &*negs.show().error_states),
            (1, &["shop/api/443".to_owned()][..])
        );
        negs.at("shop/api/443", NegAt::default());
        negs.at("shop/web/80", NegAt::default());
        negs.at("shop/x/1", migrating);
        negs.at("shop/x/1", NegAt::default());
        assert_eq!((negs.show().migration_count, negs.show().attached), (0, 17));
        assert!(negs.by_key.is_empty());
    }
}
