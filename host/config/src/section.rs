//! Reads one table key by key: the environment first, then the file.
//!
//! This module does not know what a key means. A key exists because a reader asks for it here, so the list of known
//! keys, the variables and the error texts cannot drift apart. After a mistake the reader continues with a placeholder,
//! which never leaves [`super::Config::load_with`].
//!
//! ```text
//! environment, file -> Section -> typed values + problems
//! ```

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};
use trueup_base::text::nearest;

use super::document::{Document, GivenValue, offered};
pub(super) use super::document::{Given, Layer};

/// What [`is_label`] requires.
pub(super) const LABEL: &str = "be 1 to 63 letters, digits, `-`, `_` or `.`";

/// One table of the file, with the variables that set keys in it. If it is in neither, every key of it is absent, and a
/// missing key is no problem.
pub(super) struct Section<'d> {
    pub(super) document: &'d Document<'d>,
    /// Its name with those of the sections around it: `adapter.lbaas`.
    pub(super) name: String,
    table: Option<&'d DeTable<'d>>,
    pub(super) line: Option<usize>,
    /// Whether the operator set any key in it, or the file contains it, even empty.
    pub(super) is_present: bool,
    pub(super) known: Vec<&'static str>,
    /// Keys that are known to be wrong and already reported.
    refused: Vec<&'static str>,
    /// What a key is, and a note about all of them, for the report of an unknown one.
    noun: &'static str,
    note: &'static str,
}

/// The name of a key.
type Key = &'static str;

/// An unsigned whole number.
pub(super) trait Whole: TryFrom<u64> + PartialOrd + Display + Copy {}

impl<T: TryFrom<u64> + PartialOrd + Display + Copy> Whole for T {}

impl<'d> Section<'d> {
    /// The outermost section of a document: this table of the file.
    pub(super) fn outermost(document: &'d Document<'d>, table: &'d DeTable<'d>) -> Self {
        Self::new(document, String::new(), Some(table), None)
    }

    fn new(document: &'d Document<'d>, name: String, table: Option<&'d DeTable<'d>>, line: Option<usize>) -> Self {
        Self {
            document,
            name,
            table,
            line,
            is_present: true,
            known: Vec::new(),
            refused: Vec::new(),
            noun: "key",
            note: "",
        }
    }

    /// The same section, whose keys are names of things: what they are, and a note about the names.
    pub(super) fn of_names(mut self, noun: &'static str, note: &'static str) -> Self {
        (self.noun, self.note) = (noun, note);
        self
    }

    /// A problem of the section as a whole, at its header.
    pub(super) fn wrong(&self, text: impl Display) {
        self.document.wrong_on(self.line, text);
    }

    /// A problem of the section as a whole: another one is missing.
    pub(super) fn wrong_without(&self, other: &str, text: impl Display) {
        self.document.missing_on(self.line, other, text);
    }

    /// A problem of a value in it.
    pub(super) fn wrong_value(&self, given: &Given<'d>, reason: impl Display) {
        let shown = match &given.value {
            GivenValue::File(value) => self.document.shown(value.span()),
            GivenValue::Outside(_, text) => Value::from(*text).to_string(),
        };
        self.wrong_given(given, format_args!("was {shown}, {reason}"));
    }

    /// A problem of a value in it. The message does not show the value.
    pub(super) fn wrong_given(&self, given: &Given<'d>, text: impl Display) {
        match &given.value {
            GivenValue::File(value) => self
                .document
                .wrong_at(value.span(), format_args!("{}: {text}", given.key)),
            GivenValue::Outside(origin, _) => self.document.push(None, format!("{origin}: {text}"), None),
        }
    }

    /// Reports why a key that an operator may expect does not exist, if the file contains it.
    pub(super) fn refuse(&mut self, key: Key, text: impl Display) {
        if self.has(key) {
            self.refused.push(key);
            self.wrong_key(key, text);
        }
    }

    /// The same for a key in a table of the file that is plain JSON to the other readers.
    pub(super) fn refuse_below(&self, key: &str, below: &str, text: impl Display) {
        let table = self.table.and_then(|table| table.get(key)?.get_ref().as_table());
        if let Some((name, _)) = table.and_then(|table| table.get_key_value(below)) {
            let path = format!("{}.{below}", self.path_of(key));
            self.document.wrong_at(name.span(), format_args!("{path}: {text}"));
        }
    }

    /// Whether the file contains this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Reports the keys requested so far that the file contains, but `others`: they go with another kind alone.
    pub(super) fn go_alone(&self, kind: &str, others: &[&str]) {
        for key in self.known.iter().filter(|key| self.has(key) && !others.contains(key)) {
            self.wrong_key(key, format_args!("goes with `kind = \"{kind}\"` alone"));
        }
    }

    /// The names of all keys in the file.
    pub(super) fn names_in_file(&self) -> impl Iterator<Item = &'d str> + use<'d> {
        let entries = self.table.into_iter().flat_map(DeTable::iter);
        let mut names: Vec<&'d str> = entries.map(|(key, _)| key.get_ref().as_ref()).collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// A problem with the meaning of a key whose value is well-formed: at the key, or at the section.
    pub(super) fn wrong_key(&self, key: &str, text: impl Display) {
        let entry = self.table.and_then(|table| table.get_key_value(key));
        let line = entry.map(|(name, _)| self.document.line(name.span().start));
        let text = format_args!("{}: {text}", self.path_of(key));
        self.document.wrong_on(line.or(self.line), text);
    }

    /// The subsection with the name `key`.
    pub(super) fn section(&mut self, key: Key) -> Section<'d> {
        self.known.push(key);
        let path = self.path_of(key);
        let entry = self.table.and_then(|table| table.get_key_value(key));
        let table = entry.and_then(|(_, value)| {
            if value.get_ref().as_table().is_none() {
                self.document.wrong_value(&path, value, "must be a table");
            }
            value.get_ref().as_table()
        });
        let line = entry.map(|(name, _)| self.document.line(name.span().start));
        let is_present = entry.is_some() || self.document.has_outside(&path);
        let mut section = Section::new(self.document, path, table, line);
        section.is_present = is_present;
        section
    }

    /// A scalar, from any of the layers.
    pub(super) fn given(&mut self, key: Key) -> Option<Given<'d>> {
        self.known.push(key);
        let path = self.path_of(key);
        self.document.register(&path, true);
        Some(Given {
            folder: self.document.folder,
            value: match self.document.outside(&path) {
                Some((origin, text)) => GivenValue::Outside(origin, text),
                None => GivenValue::File(self.table?.get(key)?),
            },
            key: path,
        })
    }

    /// A typed scalar. `None` if it is absent. `None` and a problem if `read` rejects it; the problem says what it
    /// `must` be.
    pub(super) fn value<T>(&mut self, key: Key, must: &str, read: impl FnOnce(&Given<'d>) -> Option<T>) -> Option<T> {
        let given = self.given(key)?;
        let value = read(&given);
        if value.is_none() {
            self.wrong_value(&given, format_args!("must {must}"));
        }
        value
    }

    /// The same, but absence is a problem too.
    pub(super) fn needs<T>(&mut self, key: Key, must: &str, read: impl FnOnce(&Given<'d>) -> Option<T>) -> Option<T> {
        if self.given(key).is_none() {
            self.missing(key, format_args!("must {must}"));
        }
        self.value(key, must, read)
    }

    /// Reports that a key is required.
    pub(super) fn missing(&self, key: &str, reason: impl Display) {
        if self.is_present {
            let path = self.path_of(key);
            self.wrong_without(&path, format_args!("{path}: is missing, {reason}"));
        }
    }

    /// A whole number in a range.
    pub(super) fn whole<T: Whole>(&mut self, key: Key, default: T, range: RangeInclusive<T>) -> T {
        self.optional_whole(key, range).unwrap_or(default)
    }

    /// A whole number in a range. `None` if it is absent.
    pub(super) fn optional_whole<T: Whole>(&mut self, key: Key, range: RangeInclusive<T>) -> Option<T> {
        let must = format!("be a whole number from {} to {}", range.start(), range.end());
        self.value(key, &must, |given| {
            let number = T::try_from(given.whole()?).ok()?;
            range.contains(&number).then_some(number)
        })
    }

    /// A number of milliseconds in a range.
    pub(super) fn duration(&mut self, key: Key, default: Duration, range_ms: RangeInclusive<u64>) -> Duration {
        self.optional_whole(key, range_ms)
            .map_or(default, Duration::from_millis)
    }

    /// `true` or `false`.
    pub(super) fn truth(&mut self, key: Key, default: bool) -> bool {
        self.value(key, "be true or false", Given::truth).unwrap_or(default)
    }

    /// A path.
    pub(super) fn path(&mut self, key: Key) -> Option<PathBuf> {
        self.value(key, "be a path", Given::path)
    }

    /// One of a few fixed words.
    pub(super) fn choice<T: Copy>(&mut self, key: Key, default: T, choices: &[(&str, T)]) -> T {
        let read = |given: &Given<'d>| chosen(given.text()?, choices);
        let chosen = self.value(key, &format!("be {}", words(choices)), read);
        chosen.unwrap_or(default)
    }

    /// `kind`: one of a few fixed words, and whether the file says so: if a variable does, the file may keep the keys
    /// of another kind. Without a `usual` one, absence is a problem, and then the word is empty.
    pub(super) fn kind(&mut self, kinds: &[&'static str], usual: Option<&'static str>) -> (&'static str, bool) {
        let kinds: Vec<_> = kinds.iter().map(|kind| (*kind, *kind)).collect();
        let must = format!("be {}", words(&kinds));
        let read = |given: &Given<'d>| Some((chosen(given.text()?, &kinds)?, given.layer() == Layer::File));
        match usual {
            None => self.needs("kind", &must, read).unwrap_or_default(),
            Some(usual) => self.value("kind", &must, read).unwrap_or((usual, true)),
        }
    }

    /// A text that `fits`. `None` if it is absent.
    pub(super) fn text(&mut self, key: Key, must: &str, fits: impl Fn(&str) -> bool) -> Option<String> {
        self.value(key, must, |given| given.fitting(fits))
    }

    /// A list of distinct texts that each `fit`. Empty if it is absent.
    pub(super) fn texts(&mut self, key: Key, must: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let read = |text: &str| fits(text).then(|| text.to_owned());
        self.list(key, must, read).unwrap_or_default()
    }

    /// A list of distinct texts, each parsed by `read`. `None` if it is absent.
    pub(super) fn list<T: Eq>(&mut self, key: Key, must: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
        let (path, items) = self.array(key)?;
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let value = item.get_ref().as_str().and_then(&read);
            let earlier = values.iter().find(|(_, other)| value.as_ref() == Some(other));
            let reason = match (earlier, value) {
                (Some((earlier, _)), _) => format!("must differ from {key}[{earlier}]"),
                (None, None) => format!("must {must}"),
                (None, Some(value)) => {
                    values.push((index, value));
                    continue;
                }
            };
            self.document.wrong_value(&format!("{path}[{index}]"), item, reason);
        }
        Some(values.into_iter().map(|(_, value)| value).collect())
    }

    /// The same, but absence and an empty list are problems too.
    pub(super) fn filled_list<T: Eq>(
        &mut self,
        key: Key,
        must: &str,
        least: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        if !self.has(key) {
            self.missing(key, format_args!("must hold {least}"));
        } else if self.length(key) == Some(0) {
            self.wrong_key(key, format_args!("was [], must hold {least}"));
        }
        self.list(key, must, read).unwrap_or_default()
    }

    /// A list of a type that another part of the program defines, whose own errors describe the mistakes.
    pub(super) fn items<T: DeserializeOwned>(&mut self, key: Key) -> Option<Vec<T>> {
        let (path, items) = self.array(key)?;
        let read = |(index, item): (usize, &Spanned<DeValue<'_>>)| {
            let path = format!("{path}[{index}]");
            let value = serde_json::from_value(self.document.json(&path, item));
            let wrong = |error| self.document.wrong_at(item.span(), format_args!("{path}: {error}"));
            value.map_err(wrong).ok()
        };
        Some(items.iter().enumerate().filter_map(read).collect())
    }

    /// The whole table as a type that another part of the program defines, whose own errors describe the mistakes.
    /// `None` if it is absent, or a problem was found. Only the file can set its keys.
    pub(super) fn typed<T: DeserializeOwned>(mut self) -> Option<T> {
        self.document.register(&self.name, false);
        // The type itself refuses unknown keys.
        let table = self.table.take()?;
        let wrong = |error: toml::de::Error| {
            // The span is empty if the table as a whole is the problem.
            let at = error.span().filter(|span| !span.is_empty()).map(|span| span.start);
            let line = at.map_or(self.line, |at| Some(self.document.line(at)));
            let mut entries = table.iter();
            let key = at.and_then(|at| entries.find(|(_, value)| value.span().contains(&at)));
            let path = key.map_or(self.name.clone(), |(key, _)| self.path_of(key.get_ref()));
            let text = format_args!("{path}: {}", error.message());
            self.document.wrong_on(line, text);
        };
        let whole = Deserializer::from(Spanned::new(0..0, table.clone()));
        T::deserialize(whole).map_err(wrong).ok()
    }

    /// The number of items of a list in the file, of any type.
    pub(super) fn length(&self, key: &str) -> Option<usize> {
        Some(self.items_of(key)?.len())
    }

    /// A problem with a well-formed item of a list in the file.
    pub(super) fn wrong_item(&self, key: &str, index: usize, text: impl Display) {
        let item = self.items_of(key).and_then(|items| items.get(index));
        let line = item.map(|item| self.document.line(item.span().start));
        let text = format_args!("{}{text}", self.path_of(""));
        self.document.wrong_on(line.or(self.line), text);
    }

    fn items_of(&self, key: &str) -> Option<&'d DeArray<'d>> {
        self.table?.get(key)?.get_ref().as_array()
    }

    fn array(&mut self, key: Key) -> Option<(String, &'d DeArray<'d>)> {
        let (path, value) = self.only_in_file(key)?;
        let items = value.get_ref().as_array();
        if items.is_none() {
            self.document.wrong_value(&path, value, "must be a list");
        }
        Some((path, items?))
    }

    /// A table with any content, as JSON. Empty if it is absent.
    pub(super) fn json_object(&mut self, key: Key) -> serde_json::Map<String, Value> {
        let Some((path, value)) = self.only_in_file(key) else {
            return serde_json::Map::new();
        };
        let Some(table) = value.get_ref().as_table() else {
            self.document.wrong_value(&path, value, "must be a table");
            return serde_json::Map::new();
        };
        self.document.json_object(&path, table)
    }

    fn only_in_file(&mut self, key: Key) -> Option<(String, &'d Spanned<DeValue<'d>>)> {
        self.known.push(key);
        let path = self.path_of(key);
        self.document.register(&path, false);
        Some((path, self.table?.get(key)?))
    }

    fn path_of(&self, key: &str) -> String {
        match self.name.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }
}

/// Reports the keys of the file that no reader has asked for until now.
impl Drop for Section<'_> {
    fn drop(&mut self) {
        let Self { noun, note, .. } = *self;
        self.known.sort_unstable();
        self.known.dedup();
        for (key, _) in self.table.into_iter().flat_map(DeTable::iter) {
            let name = key.get_ref().as_ref();
            if self.known.contains(&name) || self.refused.contains(&name) {
                continue;
            }
            let location = match self.name.as_str() {
                "" => String::new(),
                path => format!(" in [{path}]"),
            };
            let nearest = nearest(name, self.known.iter().copied());
            if let Some(nearest) = nearest {
                self.document.offer(self.path_of(nearest));
            }
            let offer = nearest.map(offered).unwrap_or_default();
            let known = self.known.join(", ");
            let text = format_args!("unknown {noun} `{name}`{location}{offer} (known: {known}{note})");
            self.document.wrong_at(key.span(), text);
        }
    }
}

/// Whether a text holds anything.
pub(super) fn is_filled(text: &str) -> bool {
    !text.is_empty()
}

/// A name that becomes part of a resource's or folder's name must follow the rules for host names and labels.
pub(super) fn is_label(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=63).contains(&text.len()) && text.chars().all(allowed)
}

/// Whether Kubernetes accepts it as a name: RFC 1123, with this maximum length, and with or without dots.
pub(super) fn is_name(text: &str, longest: usize, dots: bool) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let allowed = |c: char| ends(c) || c == '-' || (dots && c == '.');
    (1..=longest).contains(&text.len()) && text.chars().all(allowed) && text.starts_with(ends) && text.ends_with(ends)
}

/// The choice that a word names.
pub(super) fn chosen<T: Copy>(word: &str, choices: &[(&str, T)]) -> Option<T> {
    let (_, choice) = choices.iter().find(|(name, _)| *name == word)?;
    Some(*choice)
}

/// The choices as an error text lists them.
pub(super) fn words<T>(choices: &[(&str, T)]) -> String {
    let words: Vec<_> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    words.join(" or ")
}
