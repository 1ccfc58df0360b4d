//! The operator's settings and their defaults.

use trueup_guest::settings::{FILLED, Given};

/// The guest's settings. Their names are those in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// This node's name in Kubernetes. Not empty once the settings are parsed.
    pub(crate) node_name: String,
    /// The prefix of all keys. Ends in `/`.
    pub(crate) key_prefix: String,
    /// How often to try for a number before the caller gets an error, 1 or more.
    pub(crate) allocation_attempts: u32,
}

impl Settings {
    /// Parses the JSON object of `lifecycle.init`.
    ///
    /// # Errors
    /// The first setting by name that is unknown or wrong, else `node_name` if it is missing.
    pub(crate) fn read(config: &str) -> Result<Self, String> {
        let mut given = Given::read(config)?;
        let prefix = |text: &str| text.ends_with('/').then(|| text.to_owned());
        given.require("node_name", FILLED);
        let key_prefix = given.text("key_prefix", "a text that ends in \"/\"", prefix);
        let settings = Self {
            node_name: given.filled("node_name").unwrap_or_default(),
            key_prefix: key_prefix.unwrap_or_else(|| "/vnf-agent/contiv-ksr/".to_owned()),
            // The original's effective limit: it compares with 10 after it has counted the attempt.
            allocation_attempts: given.whole("allocation_attempts", 1..=1000).unwrap_or(11),
        };
        given.end(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_must_be_set() {
        let settings = Settings::read(r#"{"node_name": "a"}"#).unwrap();
        assert_eq!(settings.node_name, "a");
        assert_eq!(settings.key_prefix, "/vnf-agent/contiv-ksr/");
        assert_eq!(settings.allocation_attempts, 11);
    }

    #[test]
    fn everything_can_be_set() {
        let settings =
            Settings::read(r#"{"node_name": "ä b", "key_prefix": "/", "allocation_attempts": 1000}"#).unwrap();
        let expected = Settings {
            node_name: "ä b".to_owned(),
            key_prefix: "/".to_owned(),
            allocation_attempts: 1000,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (config, error) in [
            ("{}", "node_name: was not set, must be a text that is not empty"),
            (
                r#"{"node_name": ""}"#,
                r#"node_name: was "", must be a text that is not empty"#,
            ),
            (
                r#"{"node_name": null}"#,
                "node_name: was null, must be a text that is not empty",
            ),
            (
                r#"{"node_name": "a", "key_prefix": ""}"#,
                r#"key_prefix: was "", must be a text that ends in "/""#,
            ),
            (
                r#"{"node_name": "a", "key_prefix": "/x"}"#,
                r#"key_prefix: was "/x", must be a text that ends in "/""#,
            ),
            (
                r#"{"node_name": "a", "allocation_attempts": 0}"#,
                "allocation_attempts: was 0, must be a whole number from 1 to 1000",
            ),
            (
                r#"{"node_name": "a", "allocation_attempts": 1001}"#,
                "allocation_attempts: was 1001, must be a whole number from 1 to 1000",
            ),
            (
                r#"{"node_name": "a", "colour": 1}"#,
                "colour: was 1, must not be set: the settings are allocation_attempts, key_prefix, node_name",
            ),
            ("[]", "config: was [], must be a JSON object"),
        ] {
            assert_eq!(Settings::read(config), Err(error.to_owned()), "{config}");
        }
    }
}
