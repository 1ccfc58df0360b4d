//! Reads a guest's settings: one JSON object, each member within the limits of a table.
//!
//! Knows no defaults: a guest's own settings module has them. Of several wrong settings, the error names the first by
//! name, so that one configuration has one answer.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::text;

/// The allowed values of a setting.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// A whole number between the two, both included.
    Whole(u64, u64),
    /// One of these texts.
    Word(&'static [&'static str]),
    /// A text that the function accepts; the words complete the sentence `must be `.
    Text(&'static str, fn(&str) -> bool),
    /// `true` or `false`.
    Truth,
    /// Any value that the function accepts, a list for example; the words complete the sentence `must be `.
    Value(&'static str, fn(&Value) -> bool),
}

impl Allowed {
    fn takes(self, value: &Value) -> bool {
        match self {
            Self::Whole(low, high) => value.as_u64().is_some_and(|number| (low..=high).contains(&number)),
            Self::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Text(_, takes) => value.as_str().is_some_and(takes),
            Self::Truth => value.is_boolean(),
            Self::Value(_, takes) => takes(value),
        }
    }

    /// Completes the sentence `must be `.
    fn words(self) -> String {
        match self {
            Self::Whole(low, high) => format!("a whole number from {low} to {high}"),
            Self::Word(words) => words
                .iter()
                .map(|word| text::quoted(word))
                .collect::<Vec<_>>()
                .join(" or "),
            Self::Text(words, _) | Self::Value(words, _) => words.to_owned(),
            Self::Truth => "true or false".to_owned(),
        }
    }
}

/// The given settings, all of them valid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given(BTreeMap<String, Value>);

impl Given {
    /// `None` if the setting is missing, or is no number.
    pub fn whole(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    /// `None` if the setting is missing, or is no text.
    pub fn word(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// `None` if the setting is missing, or is neither true nor false.
    pub fn truth(&self, name: &str) -> Option<bool> {
        self.0.get(name)?.as_bool()
    }

    /// `None` if the setting is missing.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

/// The error for a missing required setting.
pub fn missing(name: &str, must_be: Allowed) -> String {
    format!("{name}: was not set, must be {}", must_be.words())
}

/// Reads `config` against the table of all settings.
///
/// # Errors
/// `NAME: was VALUE, must be TEXT` for the first wrong setting by name, `config: was ...` if it is no object.
pub fn read(config: &str, settings: &BTreeMap<&str, Allowed>) -> Result<Given, String> {
    let value = serde_json::from_str(config).map_err(|_| no_object(&text::quoted(config)))?;
    let Value::Object(members) = value else {
        return Err(no_object(&text::json(&value)));
    };
    let members: BTreeMap<String, Value> = members.into_iter().collect();
    for (name, value) in &members {
        let was = text::json(value);
        match settings.get(name.as_str()) {
            None if settings.is_empty() => {
                return Err(format!("{name}: was {was}, must not be set: there are no settings"));
            }
            None => {
                let names = settings.keys().copied().collect::<Vec<_>>().join(", ");
                return Err(format!("{name}: was {was}, must not be set: the settings are {names}"));
            }
            Some(allowed) if !allowed.takes(value) => {
                return Err(format!("{name}: was {was}, must be {}", allowed.words()));
            }
            Some(_) => {}
        }
    }
    Ok(Given(members))
}

fn no_object(was: &str) -> String {
    format!("config: was {was}, must be a JSON object")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILLED: Allowed = Allowed::Text("a text that is not empty", |text| !text.is_empty());

    fn read(config: &str) -> Result<Given, String> {
        super::read(
            config,
            &BTreeMap::from([
                ("mode", Allowed::Word(&["fast", "safe"])),
                ("name", FILLED),
                ("steps", Allowed::Whole(1, 10)),
                ("strict", Allowed::Truth),
                ("zones", Allowed::Value("a list", Value::is_array)),
            ]),
        )
    }

    #[test]
    fn what_is_given_can_be_asked_for() {
        let given = read(r#"{"steps": 10, "mode": "safe"}"#).unwrap();
        assert_eq!((given.whole("steps"), given.word("mode")), (Some(10), Some("safe")));
        assert_eq!(read(r#"{"name": "a"}"#).unwrap().word("name"), Some("a"));
        let given = read(r#"{"strict": false, "zones": [1]}"#).unwrap();
        assert_eq!(given.truth("strict"), Some(false));
        assert_eq!(given.value("zones"), Some(&serde_json::json!([1])));
        let given = read("{}").unwrap();
        assert_eq!((given.whole("steps"), given.word("mode")), (None, None));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        for (config, error) in [
            ("[1, 2]", "config: was [1,2], must be a JSON object"),
            ("null", "config: was null, must be a JSON object"),
            ("{", "config: was \"{\", must be a JSON object"),
            ("", "config: was \"\", must be a JSON object"),
            (r#"{"steps": 0}"#, "steps: was 0, must be a whole number from 1 to 10"),
            (r#"{"steps": 11}"#, "steps: was 11, must be a whole number from 1 to 10"),
            (r#"{"steps": -1}"#, "steps: was -1, must be a whole number from 1 to 10"),
            (
                r#"{"steps": 1.5}"#,
                "steps: was 1.5, must be a whole number from 1 to 10",
            ),
            (
                r#"{"steps": null}"#,
                "steps: was null, must be a whole number from 1 to 10",
            ),
            (r#"{"mode": "slow"}"#, r#"mode: was "slow", must be "fast" or "safe""#),
            (
                r#"{"mode": {"a": [1]}}"#,
                r#"mode: was {"a":[1]}, must be "fast" or "safe""#,
            ),
            (r#"{"name": ""}"#, r#"name: was "", must be a text that is not empty"#),
            (r#"{"name": 7}"#, "name: was 7, must be a text that is not empty"),
            (
                r#"{"step": 1}"#,
                "step: was 1, must not be set: the settings are mode, name, steps, strict, zones",
            ),
            (r#"{"strict": 0}"#, "strict: was 0, must be true or false"),
            (r#"{"zones": {}}"#, "zones: was {}, must be a list"),
        ] {
            assert_eq!(read(config), Err(error.to_owned()), "{config}");
        }
    }

    #[test]
    fn a_guest_without_settings_refuses_each() {
        let error = super::read(r#"{"steps": 1}"#, &BTreeMap::new()).unwrap_err();
        assert_eq!(error, "steps: was 1, must not be set: there are no settings");
        assert!(super::read("{}", &BTreeMap::new()).is_ok());
    }

    #[test]
    fn what_is_missing_is_named_with_what_it_must_be() {
        assert_eq!(
            missing("name", FILLED),
            "name: was not set, must be a text that is not empty"
        );
        assert_eq!(
            missing("steps", Allowed::Whole(1, 10)),
            "steps: was not set, must be a whole number from 1 to 10"
        );
    }

    #[test]
    fn the_first_wrong_setting_by_name_is_the_error() {
        let error = read(r#"{"steps": 0, "zoo": 1, "mode": 1}"#).unwrap_err();
        assert!(error.starts_with("mode: "), "{error}");
        let error = read(r#"{"steps": 0, "abc": 1}"#).unwrap_err();
        assert!(error.starts_with("abc: "), "{error}");
    }
}
