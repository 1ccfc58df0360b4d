//! What waits for one instance until a job takes it: ends of operations, a requested error state, and whether to sync
//! its NEGs.
//!
//! Pure. What a job did not get to goes back, without replacing what came meanwhile.

use std::collections::BTreeMap;

/// What waits for one instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inbox {
    /// Operations that ended, by number, and why they failed. `None` if they succeeded. The guest gets them in this
    /// order.
    pub(super) ends: BTreeMap<u64, Option<String>>,
    /// The error state that an operator requested. `None` if there is no request.
    pub(super) error_state: Option<bool>,
    /// Whether to compare its NEGs with the target.
    pub(super) sync: bool,
}

impl Inbox {
    /// Puts back what a job took and did not use. What came since is newer and stays.
    pub(super) fn put_back(&mut self, left: Self) {
        for (operation, failure) in left.ends {
            self.ends.entry(operation).or_insert(failure);
        }
        self.error_state = self.error_state.or(left.error_state);
        self.sync |= left.sync;
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_goes_back_and_what_is_newer_stays() {
        let left = Inbox {
            ends: [(1, None), (2, Some("old".to_owned()))].into(),
            error_state: Some(true),
            sync: true,
        };
        let mut inbox = Inbox {
            ends: [(2, Some("new".to_owned()))].into(),
            error_state: Some(false),
            sync: false,
        };
        assert!(!inbox.is_empty());
        inbox.put_back(left.clone());
        assert_eq!(inbox.ends, [(1, None), (2, Some("new".to_owned()))].into());
        assert_eq!((inbox.error_state, inbox.sync), (Some(false), true));
        let mut empty = Inbox::default();
        empty.put_back(left.clone());
        assert_eq!(empty, left);
    }
}
