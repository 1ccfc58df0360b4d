//! The two layers that a configuration comes from, its file and the environment, and the problems found in them.
//!
//! This module knows line numbers, names of variables and how TOML becomes JSON; `section.rs` registers the keys.
//! Reading does not stop at the first mistake: this module collects the problems, and the host reports them all at
//! once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};
use trueup_base::text::nearest;

/// Environment variables by name.
pub type Environment = BTreeMap<String, String>;

/// The prefix of every variable that sets a key.
pub(super) const PREFIX: &str = "TRUEUP_";

/// Error texts cut a value at this length: enough to find it, and the text stays on one line.
const SHOWN_CHARS_MAX: usize = 80;

/// The layers that values come from, and the problems found in them.
pub(super) struct Document<'d> {
    name: String,
    /// Paths in it are relative to this folder.
    pub(super) folder: &'d Path,
    pub(super) text: &'d str,
    pub(super) environment: &'d Environment,
    problems: RefCell<Vec<Problem>>,
    /// By the name of the variable: its key, and whether the variable can set it.
    variables: RefCell<BTreeMap<String, (String, bool)>>,
    left: RefCell<BTreeSet<String>>,
    /// Keys and sections suggested in place of an unknown one.
    offered: RefCell<BTreeSet<String>>,
}

/// One line for the operator. Problems without a line of the file come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    line: Option<usize>,
    text: String,
    /// Set if the problem is that this key or section is missing. If it was suggested in place of an unknown one, that
    /// report suffices.
    missing: Option<String>,
}

/// A value and where it was given. If two values exclude each other, the one from the stronger layer wins.
pub(super) struct Given<'d> {
    pub(super) folder: &'d Path,
    pub(super) key: String,
    pub(super) value: GivenValue<'d>,
}

pub(super) enum GivenValue<'d> {
    File(&'d Spanned<DeValue<'d>>),
    /// A variable: its name, and its text.
    Outside(String, &'d str),
}

/// The layer that a value is from, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    File,
    Environment,
}

impl<'d> Given<'d> {
    /// The layer of the value.
    pub(super) fn layer(&self) -> Layer {
        match &self.value {
            GivenValue::File(_) => Layer::File,
            GivenValue::Outside(..) => Layer::Environment,
        }
    }

    /// As text.
    pub(super) fn text(&self) -> Option<&'d str> {
        match &self.value {
            GivenValue::File(value) => value.get_ref().as_str(),
            GivenValue::Outside(_, text) => Some(text),
        }
    }

    /// As text that is not empty.
    pub(super) fn filled(&self) -> Option<&'d str> {
        self.text().filter(|text| !text.is_empty())
    }

    /// As text that `fits`.
    pub(super) fn fitting(&self, fits: impl Fn(&str) -> bool) -> Option<String> {
        self.text().filter(|text| fits(text)).map(str::to_owned)
    }

    /// As a path, which is not empty.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.filled().map(|path| self.folder.join(path))
    }

    /// As a path, with the layer of the value.
    pub(super) fn layered_path(&self) -> Option<(PathBuf, Layer)> {
        Some((self.path()?, self.layer()))
    }

    /// As a whole number.
    pub(super) fn whole(&self) -> Option<u64> {
        match &self.value {
            GivenValue::File(value) => parsed_u64(value.get_ref().as_integer()?),
            GivenValue::Outside(_, text) => text.parse().ok(),
        }
    }

    /// As a number, whole or not.
    pub(super) fn number(&self) -> Option<f64> {
        let text = match &self.value {
            GivenValue::File(value) => match value.get_ref() {
                DeValue::Float(float) => float.as_str(),
                DeValue::Integer(integer) => integer.as_str(),
                _ => return None,
            },
            GivenValue::Outside(_, text) => text,
        };
        text.replace('_', "").parse().ok()
    }

    /// As `true` or `false`.
    pub(super) fn truth(&self) -> Option<bool> {
        match &self.value {
            GivenValue::File(value) => value.get_ref().as_bool(),
            GivenValue::Outside(_, text) => text.parse().ok(),
        }
    }
}

impl<'d> Document<'d> {
    pub(super) fn new(file: &'d Path, text: &'d str, environment: &'d Environment) -> Self {
        Self {
            name: file.display().to_string(),
            folder: file.parent().unwrap_or(Path::new("")),
            text,
            environment,
            problems: RefCell::default(),
            variables: RefCell::default(),
            left: RefCell::default(),
            offered: RefCell::default(),
        }
    }

    /// The variable that sets a key, if there is one: its name and its text.
    pub(super) fn outside(&self, key: &str) -> Option<(String, &'d str)> {
        let variable = variable_of_key(key);
        let text = self.environment.get(&variable)?;
        Some((variable, text))
    }

    /// Whether a variable sets anything in a section.
    pub(super) fn has_outside(&self, section: &str) -> bool {
        let variables = format!("{}_", variable_of_key(section));
        self.environment.keys().any(|name| name.starts_with(&variables))
    }

    /// Registers a key, and whether a variable can set it.
    pub(super) fn register(&self, key: &str, settable: bool) {
        let mut variables = self.variables.borrow_mut();
        variables.insert(variable_of_key(key), (key.to_owned(), settable));
    }

    /// A problem in the file.
    pub(super) fn wrong_at(&self, span: Range<usize>, text: impl Display) {
        self.wrong_on(Some(self.line(span.start)), text);
    }

    /// An invalid value in the file.
    pub(super) fn wrong_value(&self, key: &str, value: &Spanned<DeValue<'_>>, reason: impl Display) {
        let shown = self.shown(value.span());
        self.wrong_at(value.span(), format_args!("{key}: was {shown}, {reason}"));
    }

    /// A syntax error, on one line.
    pub(super) fn not_toml(&self, error: &toml::de::Error) -> String {
        let span = error.span().unwrap_or_default();
        let line = self.line(span.start);
        let mut message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        if message == "duplicate key" {
            message = format!("{message} `{}`", self.shown(span));
        }
        format!("{}:{line}: not TOML: {message}", self.name)
    }

    /// Marks a variable of the environment as used for something other than a key.
    pub(super) fn leave(&self, variable: &str) {
        self.left.borrow_mut().insert(variable.to_owned());
    }

    /// A problem on a line of the file, if it has one.
    pub(super) fn wrong_on(&self, line: Option<usize>, text: impl Display) {
        self.push(line, format!("{}: {text}", self.location(line)), None);
    }

    /// The same, for a missing key or section.
    pub(super) fn missing_on(&self, line: Option<usize>, key: &str, text: impl Display) {
        self.push(line, format!("{}: {text}", self.location(line)), Some(key.to_owned()));
    }

    /// Records that this key or section was suggested in place of an unknown one.
    pub(super) fn offer(&self, key: String) {
        self.offered.borrow_mut().insert(key);
    }

    /// The position of a line, for errors that are found later.
    pub(super) fn location(&self, line: Option<usize>) -> String {
        line.map_or_else(|| self.name.clone(), |line| format!("{}:{line}", self.name))
    }

    pub(super) fn push(&self, line: Option<usize>, text: String, missing: Option<String>) {
        self.problems.borrow_mut().push(Problem { line, text, missing });
    }

    /// The line in the file, counted from 1 as in editors.
    pub(super) fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }

    /// The problems: first those without a line, then in the order of the file. They include variables that set no key,
    /// except those in `elsewhere`, which other parts of the program read.
    pub(super) fn problems(&self, elsewhere: &[&str]) -> Vec<String> {
        for name in self.environment.keys().filter(|name| name.starts_with(PREFIX)) {
            if !elsewhere.contains(&name.as_str()) && !self.left.borrow().contains(name) {
                self.check_variable(name, elsewhere);
            }
        }
        let mut problems = self.problems.borrow().clone();
        let offered = self.offered.borrow();
        problems.retain(|problem| !problem.missing.as_ref().is_some_and(|key| offered.contains(key)));
        problems.sort();
        problems.dedup();
        problems.into_iter().map(|problem| problem.text).collect()
    }

    /// Names the variable only: its value may be a secret.
    fn check_variable(&self, name: &str, elsewhere: &[&str]) {
        let variables = self.variables.borrow();
        if variables.get(name).is_some_and(|(_, settable)| *settable) {
            return;
        }
        let is_inside = |whole: &str| {
            let rest = name.strip_prefix(whole);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        let mut whole = variables.iter().filter(|(_, (_, settable))| !settable);
        let text = match whole.find(|(known, _)| is_inside(known)) {
            Some((_, (key, _))) => format!("{name}: `{key}` is a list or a table, which the file alone can set"),
            None => {
                let settable = variables.iter().filter(|(_, (_, settable))| *settable);
                let settable = settable.map(|(known, _)| known.as_str());
                let known = settable.chain(elsewhere.iter().copied());
                // All names begin with the prefix, so it must not count as similarity.
                let bare = |name| str::strip_prefix(name, PREFIX).unwrap_or_default();
                let meant = nearest(bare(name), known.map(bare));
                let offer = meant.map(|known| offered(&format!("{PREFIX}{known}")));
                let offer = offer.unwrap_or_default();
                format!("{name}: unknown variable{offer} (`{PREFIX}A_B` sets the key `b` in [a])")
            }
        };
        self.push(None, text, None);
    }

    /// The value as written in the file, on one line and cut if too long.
    pub(super) fn shown(&self, span: Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or_default();
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.chars().count() <= SHOWN_CHARS_MAX {
            return line;
        }
        line.chars().take(SHOWN_CHARS_MAX).chain("...".chars()).collect()
    }

    /// A value as JSON. A value that JSON cannot hold is a problem.
    pub(super) fn json(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Value {
        let wrong = |must: &str| {
            self.wrong_value(key, value, format_args!("must be {must}"));
            Value::Null
        };
        match value.get_ref() {
            DeValue::String(text) => Value::from(text.as_ref()),
            DeValue::Boolean(truth) => Value::from(*truth),
            DeValue::Integer(number) => {
                match (parsed_u64(number), i64::from_str_radix(number.as_str(), number.radix())) {
                    (Some(number), _) => Value::from(number),
                    (None, Ok(number)) => Value::from(number),
                    (None, Err(_)) => wrong(&format!("a whole number from {} to {}", i64::MIN, u64::MAX)),
                }
            }
            DeValue::Float(number) => {
                let number = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
                number.map_or_else(|| wrong("a number that JSON can hold"), Value::Number)
            }
            DeValue::Datetime(_) => wrong("text in quotes: settings are JSON, which has no dates"),
            DeValue::Array(items) => {
                let item = |(index, item)| self.json(&format!("{key}[{index}]"), item);
                Value::Array(items.iter().enumerate().map(item).collect())
            }
            DeValue::Table(table) => Value::Object(self.json_object(key, table)),
        }
    }

    /// The same for a table.
    pub(super) fn json_object(&self, key: &str, table: &DeTable<'_>) -> serde_json::Map<String, Value> {
        let entry = |name: &str, value: &_| (name.to_owned(), self.json(&format!("{key}.{name}"), value));
        table.iter().map(|(name, value)| entry(name.get_ref(), value)).collect()
    }
}

pub(super) fn parsed_u64(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn variable_of_key(key: &str) -> String {
    format!("{PREFIX}{}", key.replace(['.', '-'], "_").to_uppercase())
}

pub(super) fn offered(key: &str) -> String {
    format!("; did you mean `{key}`?")
}
