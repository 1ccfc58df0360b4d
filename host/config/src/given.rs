//! The value of one key, wherever it was given.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use super::document::parsed_u64;

/// A value and where it was given. If two values exclude each other, the one from the stronger layer wins.
pub(super) struct Given<'d> {
    pub(super) folder: &'d Path,
    pub(super) key: String,
    pub(super) value: GivenValue<'d>,
}

pub(super) enum GivenValue<'d> {
    File(&'d Spanned<DeValue<'d>>),
    /// A variable, with its name.
    Outside {
        origin: String,
        text: &'d str,
    },
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
            GivenValue::Outside { .. } => Layer::Environment,
        }
    }

    /// As text.
    pub(super) fn text(&self) -> Option<&'d str> {
        match &self.value {
            GivenValue::File(value) => value.get_ref().as_str(),
            GivenValue::Outside { text, .. } => Some(text),
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

    /// As a whole number.
    pub(super) fn whole(&self) -> Option<u64> {
        match &self.value {
            GivenValue::File(value) => parsed_u64(value.get_ref().as_integer()?),
            GivenValue::Outside { text, .. } => text.parse().ok(),
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
            GivenValue::Outside { text, .. } => text,
        };
        text.replace('_', "").parse().ok()
    }

    /// As `true` or `false`.
    pub(super) fn truth(&self) -> Option<bool> {
        match &self.value {
            GivenValue::File(value) => value.get_ref().as_bool(),
            GivenValue::Outside { text, .. } => text.parse().ok(),
        }
    }
}
