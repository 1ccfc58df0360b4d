//! CNI errors: the codes that this plugin uses, and how an error is printed.

use serde::{Deserialize, Serialize};

use crate::version::Version;

/// `cniVersion` is missing, or the plugin does not speak it.
pub(crate) const INCOMPATIBLE_VERSION: u32 = 1;
/// The container has no address here.
pub(crate) const UNKNOWN_CONTAINER: u32 = 3;
/// A variable of the environment is missing or wrong, or this version does not have the command.
pub(crate) const INVALID_ENVIRONMENT: u32 = 4;
/// Input or output failed, and a retry does not help.
pub(crate) const IO: u32 = 5;
/// The input can't be decoded.
pub(crate) const DECODING: u32 = 6;
/// The network configuration lacks a member, or a member is wrong.
pub(crate) const INVALID_CONFIGURATION: u32 = 7;
/// A retry may succeed: the host is down or busy, or no address is free.
pub(crate) const TRY_AGAIN_LATER: u32 = 11;
/// The plugin can't serve ADD.
pub(crate) const NOT_AVAILABLE: u32 = 50;
/// The address differs from the one in `prevResult`. Codes from 100 on are the plugin's own.
pub(crate) const OTHER_ADDRESS: u32 = 101;

/// Printed if an error itself can't be printed: stdout is never empty after a failure.
const UNPRINTABLE: &str = r#"{"cniVersion":"1.1.0","code":5,"msg":"the error could not be printed"}"#;

/// How many characters an error shows of a text with a wrong value: enough to find it in the configuration.
const SHOWN_CHARS_MAX: usize = 200;

/// A failed command, in CNI's form.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CniError {
    /// One of the codes above, or one that the host chose.
    pub(crate) code: u32,
    /// One line for people.
    pub(crate) msg: String,
    /// The subject of the error; left out if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<String>,
}

/// With the version that it is printed in.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed<'a> {
    cni_version: Version,
    #[serde(flatten)]
    error: &'a CniError,
}

impl CniError {
    /// An error without details.
    pub(crate) fn new(code: u32, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: None,
        }
    }

    /// Adds details unless the error already has some.
    pub(crate) fn about(mut self, details: &str) -> Self {
        self.details.get_or_insert_with(|| details.to_owned());
        self
    }

    /// The JSON object for stdout.
    pub(crate) fn to_json(&self, version: Version) -> String {
        let printed = Printed {
            cni_version: version,
            error: self,
        };
        serde_json::to_string(&printed).unwrap_or_else(|_| UNPRINTABLE.to_owned())
    }
}

/// A text in an error, cut if it is long.
pub(crate) fn shown(text: String) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_printed_as_the_specification_shows_it() {
        let error = CniError::new(TRY_AGAIN_LATER, "no address is free").about("net/c1/eth0");
        assert_eq!(
            error.to_json(Version::V1_0_0),
            r#"{"cniVersion":"1.0.0","code":11,"msg":"no address is free","details":"net/c1/eth0"}"#
        );
        assert_eq!(
            error.about("later").details.as_deref(),
            Some("net/c1/eth0"),
            "the first details stay"
        );
        assert_eq!(
            CniError::new(IO, "a \"b\"\n").to_json(Version::V0_4_0),
            r#"{"cniVersion":"0.4.0","code":5,"msg":"a \"b\"\n"}"#
        );
        assert!(serde_json::from_str::<CniError>(UNPRINTABLE).is_ok());
    }

    #[test]
    fn a_long_wrong_value_is_cut() {
        assert_eq!(shown("ä".to_owned()), "ä");
        let long = shown("ä".repeat(300));
        assert_eq!(long.chars().count(), SHOWN_CHARS_MAX + 3);
        assert!(long.ends_with("ä..."), "{long}");
    }
}
