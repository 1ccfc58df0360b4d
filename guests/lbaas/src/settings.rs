//! The operator's settings and their defaults.

use trueup_guest::settings::Given;

/// The guest's version. Its versions differ only in a default, so they share one folder.
pub const VERSION: u32 = if cfg!(feature = "version-2") { 2 } else { 1 };

/// The guest's settings, each within its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `failed_objects`, which the API failed to deploy. True: ask the API to apply them once more; the next call sees
    /// the result. False: destroy them with all that refer to them; the next round builds them again.
    pub resets_failed: bool,
    /// `backoff_initial_ms`
    pub backoff_initial_ms: u64,
    /// `backoff_factor_percent`
    pub backoff_factor_percent: u64,
    /// `backoff_max_ms`
    pub backoff_max_ms: u64,
    /// `backoff_jitter_percent`
    pub backoff_jitter_percent: u64,
    /// `max_rounds`: bounds a call in which creating and failing would alternate for ever
    pub max_rounds: u64,
}

impl Settings {
    /// Parses the JSON object of `lifecycle.init`. The default backoff is that of Anexia's cloud controller manager.
    ///
    /// # Errors
    /// The first wrong setting by name: its value and the allowed values.
    pub fn read(config: &str) -> Result<Self, String> {
        let mut given = Given::read(config)?;
        let resets_failed = given.word("failed_objects", &[("destroy", false), ("reset", true)]);
        let mut whole = |name, range, default| given.whole(name, range).unwrap_or(default);
        let settings = Self {
            backoff_initial_ms: whole("backoff_initial_ms", 1..=3_600_000, 1000),
            backoff_factor_percent: whole("backoff_factor_percent", 100..=1000, 150),
            backoff_max_ms: whole("backoff_max_ms", 1..=86_400_000, 300_000),
            backoff_jitter_percent: whole("backoff_jitter_percent", 0..=1000, 150),
            max_rounds: whole("max_rounds", 1..=10_000, 20),
            resets_failed: resets_failed.unwrap_or(VERSION > 1),
        };
        given.end(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_set_is_the_default() {
        let expected = Settings {
            resets_failed: VERSION == 2,
            ..crate::tests::DEFAULT
        };
        assert_eq!(Settings::read("{}"), Ok(expected));
    }

    #[test]
    fn everything_can_be_set() {
        let config = r#"{"failed_objects": "reset", "backoff_initial_ms": 1, "backoff_factor_percent": 100,
            "backoff_max_ms": 86400000, "backoff_jitter_percent": 0, "max_rounds": 10000}"#;
        let expected = Settings {
            resets_failed: true,
            backoff_initial_ms: 1,
            backoff_factor_percent: 100,
            backoff_max_ms: 86_400_000,
            backoff_jitter_percent: 0,
            max_rounds: 10_000,
        };
        assert_eq!(Settings::read(config), Ok(expected));
        let config = config.replace("reset", "destroy");
        assert_eq!(
            Settings::read(&config),
            Ok(Settings {
                resets_failed: false,
                ..expected
            })
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_what_it_may_be() {
        for (config, error) in [
            ("3", "config: was 3, must be a JSON object"),
            (
                r#"{"failed_objects": "ignore"}"#,
                r#"failed_objects: was "ignore", must be "destroy" or "reset""#,
            ),
            (
                r#"{"failed_objects": true}"#,
                r#"failed_objects: was true, must be "destroy" or "reset""#,
            ),
            (
                r#"{"backoff_initial_ms": 0}"#,
                "backoff_initial_ms: was 0, must be a whole number from 1 to 3600000",
            ),
            (
                r#"{"backoff_factor_percent": 99}"#,
                "backoff_factor_percent: was 99, must be a whole number from 100 to 1000",
            ),
            (
                r#"{"backoff_max_ms": 86400001}"#,
                "backoff_max_ms: was 86400001, must be a whole number from 1 to 86400000",
            ),
            (
                r#"{"backoff_jitter_percent": "1"}"#,
                r#"backoff_jitter_percent: was "1", must be a whole number from 0 to 1000"#,
            ),
            (
                r#"{"max_rounds": 0, "x": 1}"#,
                "max_rounds: was 0, must be a whole number from 1 to 10000",
            ),
            (
                r#"{"backoff_steps": 3}"#,
                "backoff_steps: was 3, must not be set: the settings are backoff_factor_percent, backoff_initial_ms, \
                 backoff_jitter_percent, backoff_max_ms, failed_objects, max_rounds",
            ),
        ] {
            assert_eq!(Settings::read(config), Err(error.to_owned()), "{config}");
        }
    }
}
