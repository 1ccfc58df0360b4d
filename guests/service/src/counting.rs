//! Counts of this thread, for tests of the cost: each since a test last took it.

use std::cell::Cell;
use std::thread::LocalKey;

thread_local! {
    /// Combined services.
    pub(crate) static COMBINED: Cell<u64> = const { Cell::new(0) };
    /// Comparisons of ids: every index uses ids.
    pub(crate) static COMPARISONS: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn count(counter: &'static LocalKey<Cell<u64>>) {
    counter.set(counter.get() + 1);
}
