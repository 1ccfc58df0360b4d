//! Reads a guest's settings: one JSON object, whose members the guest asks for by name.
//!
//! Knows no defaults: a guest's own settings module has them. Of several wrong settings, the error names the first by
//! name, so that one configuration has one answer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::text;

/// Completes the sentence `must be ` for a text that is not empty.
pub const FILLED: &str = "a text that is not empty";

/// The given settings, by default none. A guest asks for each setting that it knows, and then for [`Given::end`].
#[derive(Debug, Default)]
pub struct Given {
    members: BTreeMap<String, Value>,
    /// The settings that the guest has asked for.
    known: BTreeSet<&'static str>,
    /// The wrong settings in the order in which the guest asked: the name, what it was, and what it must be.
    wrong: Vec<(&'static str, Value, String)>,
    /// The error of the first required setting that is missing.
    missing: Option<String>,
}

impl Given {
    /// Parses the object.
    ///
    /// # Errors
    /// `config: was VALUE, must be a JSON object`.
    pub fn read(config: &str) -> Result<Self, String> {
        let no_object = |was: &str| format!("config: was {was}, must be a JSON object");
        let value = serde_json::from_str(config).map_err(|_| no_object(&text::quoted(config)))?;
        let Value::Object(members) = value else {
            return Err(no_object(&value.to_string()));
        };
        Ok(Self {
            members: members.into_iter().collect(),
            ..Self::default()
        })
    }

    /// A setting that `read` accepts; `must_be` completes the sentence `must be `. `None` if it is missing or wrong.
    pub fn value<T>(&mut self, name: &'static str, must_be: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        self.known.insert(name);
        let value = self.members.get(name)?;
        let read = read(value);
        if read.is_none() {
            self.wrong.push((name, value.clone(), must_be.to_owned()));
        }
        read
    }

    /// Lets [`Given::end`] return an error for a setting that alone is right, or was not given.
    pub fn refuse(&mut self, name: &'static str, was: impl Into<Value>, must_be: String) {
        self.wrong.push((name, was.into(), must_be));
    }

    /// As [`Given::value`], for a text.
    pub fn text<T>(&mut self, name: &'static str, must_be: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.value(name, must_be, |value| read(value.as_str()?))
    }

    /// Lets [`Given::end`] return an error if this setting is missing.
    pub fn require(&mut self, name: &'static str, must_be: &str) {
        if !self.members.contains_key(name) {
            let missing = || format!("{name}: was not set, must be {must_be}");
            self.missing.get_or_insert_with(missing);
        }
    }

    /// A text that is not empty, as [`Given::text`].
    pub fn filled(&mut self, name: &'static str) -> Option<String> {
        self.text(name, FILLED, |text| (!text.is_empty()).then(|| text.to_owned()))
    }

    /// A whole number in a range. `None` if it is missing or wrong.
    pub fn whole<T: TryFrom<u64>>(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Option<T> {
        let must_be = format!("a whole number from {} to {}", range.start(), range.end());
        self.value(name, &must_be, |value| {
            let number = value.as_u64().filter(|number| range.contains(number));
            T::try_from(number?).ok()
        })
    }

    /// The meaning of one of these words. `None` if it is missing or wrong.
    pub fn word<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        let quoted: Vec<String> = words.iter().map(|(word, _)| text::quoted(word)).collect();
        self.text(name, &quoted.join(" or "), |text| {
            let meaning = words.iter().find(|(word, _)| *word == text);
            meaning.map(|&(_, meaning)| meaning)
        })
    }

    /// `true` or `false`. `None` if it is missing or wrong.
    pub fn truth(&mut self, name: &'static str) -> Option<bool> {
        self.value(name, "true or false", Value::as_bool)
    }

    /// Returns `settings`, which were read from here.
    ///
    /// # Errors
    /// `NAME: was VALUE, must be TEXT` or `NAME: was VALUE, must not be set: ...` for the first wrong or unknown
    /// setting by name, else `NAME: was not set, must be TEXT` for the setting that was required first.
    pub fn end<T>(self, settings: T) -> Result<T, String> {
        for (name, value) in &self.members {
            if let Some((_, was, must_be)) = self.wrong.iter().find(|wrong| wrong.0 == name) {
                return Err(format!("{name}: was {was}, must be {must_be}"));
            }
            if self.known.is_empty() {
                return Err(format!("{name}: was {value}, must not be set: there are no settings"));
            }
            if !self.known.contains(name.as_str()) {
                let names = self.known.iter().copied().collect::<Vec<_>>().join(", ");
                return Err(format!(
                    "{name}: was {value}, must not be set: the settings are {names}"
                ));
            }
        }
        self.missing.map_or(Ok(settings), Err)
    }

    /// As [`Given::end`] for a guest with words of its own, which needs no setting. `one_of` leads to the names of all
    /// settings, `wrong` words what a setting was and must be.
    ///
    /// # Errors
    /// `NAME: unknown setting` for the first unknown one by name, else the first wrong one in the order asked.
    pub fn end_in_words<T>(self, settings: T, one_of: &str, wrong: fn(&Value, &str) -> String) -> Result<T, String> {
        if let Some(name) = self.members.keys().find(|name| !self.known.contains(name.as_str())) {
            let names = self.known.iter().copied().collect::<Vec<_>>().join(", ");
            return Err(format!("{name}: unknown setting{one_of}{names}"));
        }
        match self.wrong.first() {
            Some((name, was, must_be)) => Err(format!("{name}: {}", wrong(was, must_be))),
            None => Ok(settings),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Settings {
        mode: Option<char>,
        name: Option<String>,
        steps: Option<u8>,
        strict: Option<bool>,
        zones: Option<usize>,
    }

    fn read(config: &str) -> Result<Settings, String> {
        let mut given = Given::read(config)?;
        let settings = Settings {
            zones: given.value("zones", "a list", |value| Some(value.as_array()?.len())),
            name: given.filled("name"),
            mode: given.word("mode", &[("fast", 'f'), ("safe", 's')]),
            steps: given.whole("steps", 1..=10),
            strict: given.truth("strict"),
        };
        given.end(settings)
    }

    #[test]
    fn what_is_given_can_be_asked_for() {
        let all = r#"{"steps": 10, "mode": "safe", "name": "a", "strict": false, "zones": [1]}"#;
        let expected = Settings {
            mode: Some('s'),
            name: Some("a".to_owned()),
            steps: Some(10),
            strict: Some(false),
            zones: Some(1),
        };
        assert_eq!(read(all), Ok(expected));
        assert_eq!(read("{}"), Ok(Settings::default()));
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
        let without = |config| Given::read(config).and_then(|given| given.end(()));
        let error = without(r#"{"steps": 1}"#).unwrap_err();
        assert_eq!(error, "steps: was 1, must not be set: there are no settings");
        assert_eq!(without("{}"), Ok(()));
    }

    #[test]
    fn what_is_missing_is_named_with_what_it_must_be() {
        let read = |config| {
            let mut given = Given::read(config)?;
            given.require("second", "a number");
            given.require("first", FILLED);
            let second: Option<u8> = given.whole("second", 1..=2);
            let first = given.filled("first");
            given.end((first, second))
        };
        assert_eq!(read("{}").unwrap_err(), "second: was not set, must be a number");
        assert_eq!(
            read(r#"{"second": 1}"#).unwrap_err(),
            "first: was not set, must be a text that is not empty"
        );
        assert_eq!(
            read(r#"{"first": 1}"#).unwrap_err(),
            "first: was 1, must be a text that is not empty"
        );
        let both = (Some("a".to_owned()), Some(1));
        assert_eq!(read(r#"{"first": "a", "second": 1}"#), Ok(both));
    }

    #[test]
    fn the_first_wrong_setting_by_name_is_the_error() {
        let error = read(r#"{"steps": 0, "zoo": 1, "mode": 1}"#).unwrap_err();
        assert!(error.starts_with("mode: "), "{error}");
        let error = read(r#"{"steps": 0, "abc": 1}"#).unwrap_err();
        assert!(error.starts_with("abc: "), "{error}");
    }
}
