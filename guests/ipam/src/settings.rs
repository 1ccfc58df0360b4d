//! The operator's settings and their defaults.

use trueup_guest::settings::Given;

use crate::addresses::Cooling;

/// The guest's settings, each within its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Whether a reading looks for earlier allocations in the store: `checkpoint_migration_phase` 2 and 3. They differ
    /// in who else writes, not in what this guest does. In phase 1 it asks the container runtime, and replaces what is
    /// stored.
    pub(crate) reads_store: bool,
    /// `compact_after`: entries after which the next change writes a whole checkpoint
    pub(crate) compact_after: u64,
    /// `cooling_period_ms`
    pub(crate) cooling: Cooling,
    /// `min_eni_lifetime_ms`
    pub(crate) min_eni_lifetime_ms: u64,
    /// `unknown_allocations`: whether a reading keeps an allocation whose address no ENI has, until its ENI comes or
    /// its pod ends. Else it presumes it stale.
    pub(crate) holds_unknown: bool,
}

const DAY_MS: u64 = 86_400_000;

impl Settings {
    /// Parses the JSON object of `lifecycle.init`.
    ///
    /// # Errors
    /// The first unknown name, else the first wrong value by name.
    pub(crate) fn read(config: &str) -> Result<Self, String> {
        let mut given = Given::read(config).map_err(|_| "config: not a JSON object")?;
        // By name, as errors are reported in this order. The default times are those of the AWS VPC CNI's node agent.
        let settings = Self {
            reads_store: given.whole("checkpoint_migration_phase", 1..=3).unwrap_or(1_u64) > 1,
            compact_after: given.whole("compact_after", 0..=1_000_000).unwrap_or(1000),
            cooling: Cooling::of_ms(given.whole("cooling_period_ms", 0..=DAY_MS).unwrap_or(30_000)),
            min_eni_lifetime_ms: given.whole("min_eni_lifetime_ms", 0..=DAY_MS).unwrap_or(60_000),
            holds_unknown: given
                .word("unknown_allocations", &[("drop", false), ("hold", true)])
                .unwrap_or(false),
        };
        given.end_in_words(settings, "; known: ", |was, must_be| format!("{was} is not {must_be}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Settings = Settings {
        reads_store: false,
        compact_after: 1000,
        cooling: Cooling::of_ms(30_000),
        min_eni_lifetime_ms: 60_000,
        holds_unknown: false,
    };

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(Settings::read("{}"), Ok(DEFAULT));
    }

    #[test]
    fn everything_can_be_set() {
        let config = r#"{"checkpoint_migration_phase": 3, "compact_after": 0, "cooling_period_ms": 86400000,
            "min_eni_lifetime_ms": 0, "unknown_allocations": "hold"}"#;
        let expected = Settings {
            reads_store: true,
            compact_after: 0,
            cooling: Cooling::of_ms(86_400_000),
            min_eni_lifetime_ms: 0,
            holds_unknown: true,
        };
        assert_eq!(Settings::read(config), Ok(expected));
        let phase =
            |n: u64| Settings::read(&format!(r#"{{"checkpoint_migration_phase": {n}}}"#)).map(|s| s.reads_store);
        assert_eq!([phase(1), phase(2), phase(3)], [Ok(false), Ok(true), Ok(true)]);
        assert_eq!(Settings::read(r#"{"unknown_allocations": "drop"}"#), Ok(DEFAULT));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let known = "known: checkpoint_migration_phase, compact_after, cooling_period_ms, min_eni_lifetime_ms, \
                     unknown_allocations";
        for (config, error) in [
            ("", "config: not a JSON object"),
            ("[]", "config: not a JSON object"),
            ("null", "config: not a JSON object"),
            ("{", "config: not a JSON object"),
            (
                r#"{"cooling_period": 1}"#,
                &format!("cooling_period: unknown setting; {known}"),
            ),
            // Unknown names come before wrong values, whatever their order by name.
            (
                r#"{"b": 1, "compact_after": -1, "aa": 1, "zz": 1}"#,
                &format!("aa: unknown setting; {known}"),
            ),
            (
                r#"{"compact_after": -1, "zz": 1}"#,
                &format!("zz: unknown setting; {known}"),
            ),
            (
                r#"{"checkpoint_migration_phase": 0}"#,
                "checkpoint_migration_phase: 0 is not a whole number from 1 to 3",
            ),
            (
                r#"{"compact_after": 1000001}"#,
                "compact_after: 1000001 is not a whole number from 0 to 1000000",
            ),
            (
                r#"{"cooling_period_ms": 30000.0}"#,
                "cooling_period_ms: 30000.0 is not a whole number from 0 to 86400000",
            ),
            (
                r#"{"cooling_period_ms": "30000"}"#,
                r#"cooling_period_ms: "30000" is not a whole number from 0 to 86400000"#,
            ),
            (
                r#"{"min_eni_lifetime_ms": true}"#,
                "min_eni_lifetime_ms: true is not a whole number from 0 to 86400000",
            ),
            (
                r#"{"min_eni_lifetime_ms": null, "unknown_allocations": 1}"#,
                "min_eni_lifetime_ms: null is not a whole number from 0 to 86400000",
            ),
            (
                r#"{"unknown_allocations": ["hold", 1]}"#,
                r#"unknown_allocations: ["hold",1] is not "drop" or "hold""#,
            ),
        ] {
            assert_eq!(Settings::read(config), Err(error.to_owned()), "{config}");
        }
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Settings::read(&deep), Err("config: not a JSON object".to_owned()));
    }
}
