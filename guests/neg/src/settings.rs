//! The operator's settings and their defaults.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use trueup_guest::settings::Given;

/// The most endpoints that the API takes in one operation (`attachNetworkEndpoints` of Compute Engine, v1).
const ENDPOINTS_PER_OPERATION_MAX: u64 = 500;

/// The guest's settings, each within its range. Their names are those in JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// If false, nothing migrates, and the two forms of an endpoint are unrelated.
    pub enable_dual_stack: bool,
    /// Between the end of a detachment and the next.
    pub migration_wait_ms: u64,
    /// A detachment that ended less than this ago is recent.
    pub previous_detach_threshold_ms: u64,
    /// Of the endpoints, how many a migration detaches at a time: above 0 and at most 1.
    pub fraction_of_migrating_endpoints: f64,
    /// Of the endpoints, how many attachments may be pending in trouble: 0 or more.
    pub fraction_for_pending_attachment_threshold: f64,
    /// The NEG's name by subnet.
    pub neg_names: BTreeMap<String, String>,
    /// Zones to empty in every subnet that no target names.
    pub zones: BTreeSet<String>,
    /// From 1 to 500.
    pub max_endpoints_per_operation: usize,
    /// 1 or more.
    pub min_retry_delay_ms: u64,
    /// `min_retry_delay_ms` or more.
    pub max_retry_delay_ms: u64,
    /// 0 means no limit.
    pub max_retries: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self::of(&mut Given::default())
    }
}

const MS: &str = "a whole number of milliseconds, 0 or more";
const MS_ABOVE_0: &str = "a whole number of milliseconds, 1 or more";
const FRACTION: &str = "a number above 0 and at most 1";
const THRESHOLD: &str = "a number, 0 or more";
const NEG_NAMES: &str = "an object from subnet to NEG name, neither empty";

impl Settings {
    /// Parses the JSON object of `lifecycle.init`.
    ///
    /// # Errors
    /// The first unknown setting by name, else the first wrong one in the order of the specification's table.
    pub fn read(config: &str) -> Result<Self, String> {
        let mut given = Given::read(config).map_err(|_| match serde_json::from_str::<Value>(config) {
            Ok(value) => format!("config: was {value}, may be a JSON object"),
            Err(_) => "config: is not JSON, may be a JSON object".to_owned(),
        })?;
        let settings = Self::of(&mut given);
        given.end_in_words(settings, ", may be one of ", |was, may_be| {
            format!("was {was}, may be {may_be}")
        })
    }

    /// What is given, in the order of the table; else the defaults, which are those of the Kubernetes controller.
    fn of(given: &mut Given) -> Self {
        let from_1 = |value: &Value| value.as_u64().filter(|&number| number > 0);
        let fraction = |value: &Value| value.as_f64().filter(|&number| number > 0.0 && number <= 1.0);
        let threshold = |value: &Value| value.as_f64().filter(|&number| number >= 0.0);
        let mut settings = Self {
            enable_dual_stack: given.truth("enable_dual_stack").unwrap_or(true),
            migration_wait_ms: given.value("migration_wait_ms", MS, Value::as_u64).unwrap_or(60_000),
            previous_detach_threshold_ms: given
                .value("previous_detach_threshold_ms", MS, Value::as_u64)
                .unwrap_or(300_000),
            fraction_of_migrating_endpoints: given
                .value("fraction_of_migrating_endpoints", FRACTION, fraction)
                .unwrap_or(if cfg!(feature = "moves-a-half") { 0.5 } else { 0.1 }),
            fraction_for_pending_attachment_threshold: given
                .value("fraction_for_pending_attachment_threshold", THRESHOLD, threshold)
                .unwrap_or(0.5),
            neg_names: given.value("neg_names", NEG_NAMES, neg_names).unwrap_or_default(),
            zones: given
                .value("zones", "a list of zone names, none empty", zones)
                .unwrap_or_default(),
            max_endpoints_per_operation: given
                .whole("max_endpoints_per_operation", 1..=ENDPOINTS_PER_OPERATION_MAX)
                .unwrap_or(500),
            min_retry_delay_ms: given.value("min_retry_delay_ms", MS_ABOVE_0, from_1).unwrap_or(5000),
            max_retry_delay_ms: given.value("max_retry_delay_ms", MS_ABOVE_0, from_1).unwrap_or(600_000),
            // Asked for below, since the error is the first wrong one in this order.
            max_retries: 15,
        };
        let (least_ms, most_ms) = (settings.min_retry_delay_ms, settings.max_retry_delay_ms);
        if most_ms < least_ms {
            let must_be = format!("min_retry_delay_ms ({least_ms}) or more");
            given.refuse("max_retry_delay_ms", most_ms, must_be);
        }
        let retries = given.value("max_retries", "a whole number, 0 or more (0: no limit)", Value::as_u64);
        settings.max_retries = retries.unwrap_or(settings.max_retries);
        settings
    }
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn neg_names(value: &Value) -> Option<BTreeMap<String, String>> {
    let member = |(subnet, name): (&String, &Value)| Some((filled(subnet)?, filled(name.as_str()?)?));
    value.as_object()?.iter().map(member).collect()
}

fn zones(value: &Value) -> Option<BTreeSet<String>> {
    value.as_array()?.iter().map(|zone| filled(zone.as_str()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_set_is_the_default() {
        let expected = Settings {
            enable_dual_stack: true,
            migration_wait_ms: 60_000,
            previous_detach_threshold_ms: 300_000,
            fraction_of_migrating_endpoints: if cfg!(feature = "moves-a-half") { 0.5 } else { 0.1 },
            fraction_for_pending_attachment_threshold: 0.5,
            neg_names: BTreeMap::new(),
            zones: BTreeSet::new(),
            max_endpoints_per_operation: 500,
            min_retry_delay_ms: 5000,
            max_retry_delay_ms: 600_000,
            max_retries: 15,
        };
        assert_eq!(Settings::default(), expected);
        assert_eq!(Settings::read("{}"), Ok(expected));
    }

    #[test]
    fn everything_can_be_set() {
        let config = r#"{"enable_dual_stack": false, "migration_wait_ms": 0, "previous_detach_threshold_ms": 1,
            "fraction_of_migrating_endpoints": 1, "fraction_for_pending_attachment_threshold": 0,
            "neg_names": {"s1": "web"}, "zones": ["z2", "z1"], "max_endpoints_per_operation": 1,
            "min_retry_delay_ms": 1, "max_retry_delay_ms": 1, "max_retries": 0}"#;
        let expected = Settings {
            enable_dual_stack: false,
            migration_wait_ms: 0,
            previous_detach_threshold_ms: 1,
            fraction_of_migrating_endpoints: 1.0,
            fraction_for_pending_attachment_threshold: 0.0,
            neg_names: BTreeMap::from([("s1".to_owned(), "web".to_owned())]),
            zones: BTreeSet::from(["z1".to_owned(), "z2".to_owned()]),
            max_endpoints_per_operation: 1,
            min_retry_delay_ms: 1,
            max_retry_delay_ms: 1,
            max_retries: 0,
        };
        assert_eq!(Settings::read(config), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        for (config, error) in [
            ("", "config: is not JSON, may be a JSON object"),
            ("{", "config: is not JSON, may be a JSON object"),
            ("[1, 2]", "config: was [1,2], may be a JSON object"),
            ("null", "config: was null, may be a JSON object"),
            (
                r#"{"enable_dual_stack": 1}"#,
                "enable_dual_stack: was 1, may be true or false",
            ),
            (
                r#"{"migration_wait_ms": 1.0}"#,
                "migration_wait_ms: was 1.0, may be a whole number of milliseconds, 0 or more",
            ),
            (
                r#"{"previous_detach_threshold_ms": -1}"#,
                "previous_detach_threshold_ms: was -1, may be a whole number of milliseconds, 0 or more",
            ),
            (
                r#"{"fraction_of_migrating_endpoints": 0}"#,
                "fraction_of_migrating_endpoints: was 0, may be a number above 0 and at most 1",
            ),
            (
                r#"{"fraction_of_migrating_endpoints": 1.5}"#,
                "fraction_of_migrating_endpoints: was 1.5, may be a number above 0 and at most 1",
            ),
            (
                r#"{"fraction_for_pending_attachment_threshold": "1"}"#,
                r#"fraction_for_pending_attachment_threshold: was "1", may be a number, 0 or more"#,
            ),
            (
                r#"{"neg_names": {"s1": ""}}"#,
                r#"neg_names: was {"s1":""}, may be an object from subnet to NEG name, neither empty"#,
            ),
            (
                r#"{"neg_names": {"": "a"}}"#,
                r#"neg_names: was {"":"a"}, may be an object from subnet to NEG name, neither empty"#,
            ),
            (
                r#"{"zones": ["z1", ""]}"#,
                r#"zones: was ["z1",""], may be a list of zone names, none empty"#,
            ),
            (
                r#"{"max_endpoints_per_operation": 501}"#,
                "max_endpoints_per_operation: was 501, may be a whole number from 1 to 500",
            ),
            (
                r#"{"min_retry_delay_ms": 0}"#,
                "min_retry_delay_ms: was 0, may be a whole number of milliseconds, 1 or more",
            ),
            (
                r#"{"max_retry_delay_ms": null}"#,
                "max_retry_delay_ms: was null, may be a whole number of milliseconds, 1 or more",
            ),
            (
                r#"{"max_retry_delay_ms": 999, "min_retry_delay_ms": 1000}"#,
                "max_retry_delay_ms: was 999, may be min_retry_delay_ms (1000) or more",
            ),
            (
                r#"{"min_retry_delay_ms": 600001}"#,
                "max_retry_delay_ms: was 600000, may be min_retry_delay_ms (600001) or more",
            ),
            (
                r#"{"max_retries": -1}"#,
                "max_retries: was -1, may be a whole number, 0 or more (0: no limit)",
            ),
        ] {
            assert_eq!(Settings::read(config), Err(error.to_owned()), "{config}");
        }
    }

    #[test]
    fn unknown_settings_come_first_and_then_the_table_from_top_to_bottom() {
        let unknown = "unknown setting, may be one of enable_dual_stack, fraction_for_pending_attachment_threshold, \
                       fraction_of_migrating_endpoints, max_endpoints_per_operation, max_retries, max_retry_delay_ms, \
                       migration_wait_ms, min_retry_delay_ms, neg_names, previous_detach_threshold_ms, zones";
        let error = Settings::read(r#"{"zone": 1, "enable_dual_stack": 1, "naming": 2}"#);
        assert_eq!(error, Err(format!("naming: {unknown}")));
        let error = Settings::read(r#"{"max_retries": -1, "zones": 1, "migration_wait_ms": -1}"#).unwrap_err();
        assert!(error.starts_with("migration_wait_ms: "), "{error}");
        let error = Settings::read(r#"{"max_retries": -1, "min_retry_delay_ms": 700000}"#).unwrap_err();
        assert!(error.starts_with("max_retry_delay_ms: "), "{error}");
    }
}
