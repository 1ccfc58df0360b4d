//! How often a property is tried: for the native tests of several guests.

use proptest::prelude::ProptestConfig;

/// At least this many cases; `PROPTEST_CASES` sets more.
pub(crate) fn at_least(cases: u32, max_shrink_iters: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig {
        cases: asked.cases.max(cases),
        failure_persistence: None,
        max_shrink_iters,
        ..asked
    }
}
