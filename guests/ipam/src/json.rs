//! Parses JSON text only as far as the caller asks.
//!
//! The stored text may be any JSON: of any depth, with numbers of any size. A value is a piece of text that is known to
//! be valid, so this code skips unused members and never recurses.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The members of an object. Of members with one name the last counts.
#[derive(Debug, Deserialize)]
pub(crate) struct Members<'t>(#[serde(borrow)] BTreeMap<String, &'t RawValue>);

impl<'t> Members<'t> {
    /// `None` unless the text is exactly one object.
    pub(crate) fn read(text: &'t str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// `None` if there is no such member, or it is of another type.
    pub(crate) fn get<T: Deserialize<'t>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// As [`Members::get`]; a member that is missing or null has the default value.
    pub(crate) fn get_or_default<T: Deserialize<'t> + Default>(&self, name: &str) -> Option<T> {
        if self.0.contains_key(name) {
            self.get::<Option<T>>(name).map(Option::unwrap_or_default)
        } else {
            Some(T::default())
        }
    }
}

/// Whether the text is exactly one JSON value.
pub(crate) fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value as a member.
    fn get<T: for<'t> Deserialize<'t>>(value: &str) -> Option<T> {
        let text = format!("{{\"a\":{value}}}");
        Members::read(&text).unwrap().get("a")
    }

    #[test]
    fn only_one_whole_value_is_json() {
        for text in [
            "",
            " ",
            "{",
            "[1",
            "{}x",
            "{} {}",
            "nul",
            "01",
            "\"\n\"",
            "{'a':1}",
            "[1,]",
            "\u{feff}{}",
        ] {
            assert!(!is_json(text), "{text:?}");
        }
        for text in [
            "null",
            " {} \n",
            "1e999",
            "[[]]",
            "\"\\ud800\"",
            "123456789012345678901234567890",
        ] {
            assert!(is_json(text), "{text:?}");
        }
    }

    #[test]
    fn each_kind_is_itself_alone() {
        assert_eq!(get::<Option<String>>("null"), Some(None));
        assert_eq!(get::<Option<String>>("\"null\""), Some(Some("null".to_owned())));
        assert_eq!(get(r#" "a\n\u00e9" "#), Some("a\né".to_owned()));
        assert_eq!(get::<String>("1"), None);
        assert_eq!(get::<String>(r#""\ud800""#), None);
        assert_eq!(get("true"), Some(true));
        assert_eq!(get::<bool>("\"true\""), None);
        assert_eq!(get("18446744073709551615"), Some(u64::MAX));
        for text in [
            "18446744073709551616",
            "-1",
            "1.0",
            "1e3",
            "\"1\"",
            "null",
            "[1]",
            "1e999",
        ] {
            assert_eq!(get::<u64>(text), None, "{text}");
        }
        assert_eq!(get("-7"), Some(-7));
        assert_eq!(get::<i32>("2147483648"), None);
        assert!(get::<Vec<u64>>("{}").is_none());
        assert!(Members::read("[]").is_none());
        assert!(Members::read("null").is_none());
        let members = Members::read(r#"{"a": [1, [2], {}], "b": null}"#).unwrap();
        assert_eq!(members.get::<Vec<&RawValue>>("a").unwrap().len(), 3);
        assert_eq!(members.get_or_default::<String>("a"), None);
        for empty in ["b", "c"] {
            assert_eq!(members.get_or_default(empty), Some(String::new()));
        }
    }

    #[test]
    fn of_two_members_of_one_name_the_last_counts() {
        let members = Members::read(r#"{"a": 1, "b": 1e999, "a": 2}"#).unwrap();
        assert_eq!(members.get("a"), Some(2));
        assert_eq!(members.get::<u64>("c"), None);
    }

    #[test]
    fn depth_is_no_matter() {
        let depth = 200_000;
        let text = format!("{{\"a\":{}{},\"b\":7}}", "[".repeat(depth), "]".repeat(depth));
        let members = Members::read(&text).unwrap();
        assert_eq!(members.get("b"), Some(7));
        assert_eq!(members.get::<Vec<&RawValue>>("a").unwrap().len(), 1);
        assert!(!is_json(&"[".repeat(depth)));
    }
}
