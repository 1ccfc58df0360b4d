//! The operator's settings and their defaults.

use trueup_guest::settings::Given;

/// The guest's settings. Their names are those in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The name of the default pod network; a pod without a named network is in it. Not empty.
    pub(crate) default_pod_network: String,
}

impl Settings {
    /// Parses the JSON object of `lifecycle.init`.
    ///
    /// # Errors
    /// The first setting by name that is unknown or wrong.
    pub(crate) fn read(config: &str) -> Result<Self, String> {
        let mut given = Given::read(config)?;
        let default_pod_network = given.filled("default_pod_network");
        let default_pod_network = default_pod_network.unwrap_or_else(|| "default".to_owned());
        given.end(Self { default_pod_network })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(Settings::read("{}").unwrap().default_pod_network, "default");
    }

    #[test]
    fn what_is_set_holds_and_what_is_wrong_is_named() {
        let network = |config: &str| Settings::read(config).map(|settings| settings.default_pod_network);
        assert_eq!(network(r#"{"default_pod_network": "pods"}"#), Ok("pods".to_owned()));
        for (config, error) in [
            (
                r#"{"default_pod_network": ""}"#,
                r#"default_pod_network: was "", must be a text that is not empty"#,
            ),
            (
                r#"{"default_pod_network": ["a"]}"#,
                r#"default_pod_network: was ["a"], must be a text that is not empty"#,
            ),
            (
                r#"{"colour": "red"}"#,
                r#"colour: was "red", must not be set: the settings are default_pod_network"#,
            ),
            ("1", "config: was 1, must be a JSON object"),
        ] {
            assert_eq!(network(config), Err(error.to_owned()), "{config}");
        }
    }
}
