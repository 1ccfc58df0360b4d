//! Parses JSON text only as far as the caller asks, and writes text as JSON.
//!
//! The stored text may be any JSON: of any depth, with numbers of any size. A value is a piece of text that is known to
//! be valid, so this code skips unused members and never recurses.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use trueup_guest::text;

/// One JSON value inside a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<'t>(&'t RawValue);

impl<'t> Json<'t> {
    /// `None` unless the text is exactly one JSON value.
    pub(crate) fn read(text: &'t str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    /// Whether it is `null`.
    pub(crate) fn is_null(self) -> bool {
        self.0.get() == "null"
    }

    /// `None` if it is no text, or one with half of a surrogate pair, which no string can hold.
    pub(crate) fn text(self) -> Option<String> {
        serde_json::from_str(self.0.get()).ok()
    }

    /// `None` unless it is a whole number of the type, written without fraction and exponent.
    pub(crate) fn whole<T: std::str::FromStr>(self) -> Option<T> {
        self.0.get().parse().ok()
    }

    /// `None` if it is neither `true` nor `false`.
    pub(crate) fn boolean(self) -> Option<bool> {
        self.0.get().parse().ok()
    }

    /// `None` if it is no list.
    pub(crate) fn list(self) -> Option<Vec<Self>> {
        let list: Vec<&'t RawValue> = serde_json::from_str(self.0.get()).ok()?;
        Some(list.into_iter().map(Self).collect())
    }

    /// `None` if it is no object. Of members with one name the last counts.
    pub(crate) fn members(self) -> Option<Members<'t>> {
        serde_json::from_str(self.0.get()).ok().map(Members)
    }
}

/// The members of an object.
#[derive(Debug)]
pub(crate) struct Members<'t>(BTreeMap<String, &'t RawValue>);

impl<'t> Members<'t> {
    /// `None` if there is no such member.
    pub(crate) fn get(&self, name: &str) -> Option<Json<'t>> {
        self.0.get(name).copied().map(Json)
    }

    /// `None` if there is no such member, or it is no text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.text()
    }

    /// `None` if there is no such member, or it is no list.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<Json<'t>>> {
        self.get(name)?.list()
    }

    /// `None` if there is no such member, or it is no whole number of the type.
    pub(crate) fn whole<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.whole()
    }

    /// `None` if there is no such member, or it is neither `true` nor `false`.
    pub(crate) fn boolean(&self, name: &str) -> Option<bool> {
        self.get(name)?.boolean()
    }
}

/// Appends the text in quotes, escaped only as JSON requires.
pub(crate) fn push_text(out: &mut String, piece: &str) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if piece.bytes().all(plain) {
        out.push('"');
        out.push_str(piece);
        out.push('"');
    } else {
        out.push_str(&text::quoted(piece));
    }
}

/// Appends the pieces with commas between them.
pub(crate) fn push_list<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut push: impl FnMut(&mut String, T)) {
    out.push('[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push(out, item);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Json<'_> {
        Json::read(text).unwrap()
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
            assert!(Json::read(text).is_none(), "{text:?}");
        }
        for text in [
            "null",
            " {} \n",
            "1e999",
            "[[]]",
            "\"\\ud800\"",
            "123456789012345678901234567890",
        ] {
            assert!(Json::read(text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn each_kind_is_itself_alone() {
        assert!(read("null").is_null());
        assert!(!read("\"null\"").is_null());
        assert_eq!(read(r#" "a\n\u00e9" "#).text().as_deref(), Some("a\né"));
        assert_eq!(read("1").text(), None);
        assert_eq!(read(r#""\ud800""#).text(), None);
        assert_eq!(read("true").boolean(), Some(true));
        assert_eq!(read("\"true\"").boolean(), None);
        assert_eq!(read("18446744073709551615").whole(), Some(u64::MAX));
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
            assert_eq!(read(text).whole::<u64>(), None, "{text}");
        }
        assert_eq!(read("-7").whole::<i32>(), Some(-7));
        assert_eq!(read("2147483648").whole::<i32>(), None);
        assert!(read("{}").list().is_none());
        assert!(read("[]").members().is_none());
        assert_eq!(read("[1, [2], {}]").list().unwrap().len(), 3);
    }

    #[test]
    fn of_two_members_of_one_name_the_last_counts() {
        let members = read(r#"{"a": 1, "b": 1e999, "a": 2}"#).members().unwrap();
        assert_eq!(members.whole::<u64>("a"), Some(2));
        assert!(members.get("c").is_none());
    }

    #[test]
    fn depth_is_no_matter() {
        let depth = 200_000;
        let text = format!("{{\"a\":{}{},\"b\":7}}", "[".repeat(depth), "]".repeat(depth));
        let members = read(&text).members().unwrap();
        assert_eq!(members.whole::<u64>("b"), Some(7));
        assert_eq!(members.list("a").unwrap().len(), 1);
        assert!(Json::read(&"[".repeat(depth)).is_none());
    }

    proptest! {
        #[test]
        fn text_comes_back_and_is_what_serde_json_writes(text in any::<String>()) {
            let mut out = String::new();
            push_text(&mut out, &text);
            prop_assert_eq!(&out, &serde_json::Value::from(text.as_str()).to_string());
            prop_assert_eq!(read(&out).text(), Some(text));
        }
    }
}
