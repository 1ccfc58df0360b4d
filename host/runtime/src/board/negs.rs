//! What is known of NEGs: what is in flight, and migrations in progress.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::neg::Migration;

/// So many migrations are shown; beyond these, a number says more than a list.
const MIGRATIONS_SHOWN_MAX: usize = 100;

/// What a job found out about the NEGs of its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NegAt {
    /// Operations in flight.
    pub(crate) operations: usize,
    /// Endpoints in them.
    pub(crate) endpoints: usize,
    /// Endpoints in attachments that ended well since the job before.
    pub(crate) attached: u64,
    /// The same of detachments.
    pub(crate) detached: u64,
    /// A migration in progress; none: there is none.
    pub(crate) migration: Option<Migration>,
}

/// NEGs at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegsShown {
    /// Operations in flight.
    pub operations: usize,
    /// Endpoints in them.
    pub endpoints: usize,
    /// Endpoints in attachments that ended well since the host's start.
    pub attached: u64,
    /// The same of detachments.
    pub detached: u64,
    /// Keys whose endpoints change their stack, in order; the first 100.
    pub migrations: Vec<MigrationShown>,
    /// How many of these there are.
    pub migration_count: usize,
}

/// A migration in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationShown {
    /// `namespace/name/port`.
    pub key: String,
    /// How far it is.
    #[serde(flatten)]
    pub migration: Migration,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Negs {
    /// Keys with something in flight or to show.
    by_key: BTreeMap<String, NegAt>,
    attached: u64,
    detached: u64,
}

impl Negs {
    pub(super) fn at(&mut self, key: &str, at: NegAt) {
        self.attached = self.attached.saturating_add(at.attached);
        self.detached = self.detached.saturating_add(at.detached);
        if at.operations == 0 && at.migration.is_none() {
            self.by_key.remove(key);
        } else {
            self.by_key.insert(key.to_owned(), at);
        }
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.by_key.remove(key);
    }

    pub(super) fn show(&self) -> NegsShown {
        let migrations = self.by_key.iter().filter_map(|(key, at)| {
            Some(MigrationShown {
                key: key.clone(),
                migration: at.migration.clone()?,
            })
        });
        NegsShown {
            operations: self.by_key.values().map(|at| at.operations).sum(),
            endpoints: self.by_key.values().map(|at| at.endpoints).sum(),
            attached: self.attached,
            detached: self.detached,
            migration_count: self.by_key.values().filter(|at| at.migration.is_some()).count(),
            migrations: migrations.take(MIGRATIONS_SHOWN_MAX).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rests_takes_no_room_and_what_migrates_is_shown() {
        let mut negs = Negs::default();
        let migrating = NegAt {
            operations: 1,
            endpoints: 60,
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
        negs.at("shop/web/80", NegAt::default());
        negs.at("shop/x/1", migrating);
        negs.forget("shop/x/1");
        assert_eq!((negs.show().migration_count, negs.show().attached), (0, 17));
        assert!(negs.by_key.is_empty());
    }
}
