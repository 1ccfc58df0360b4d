//! The versions of the CNI specification that this plugin speaks.

use serde::Serialize;
use serde_json::Value;

use crate::error::{CniError, INCOMPATIBLE_VERSION, shown};

/// A version of the CNI specification; later ones are greater, since their texts are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Version(&'static str);

impl Version {
    /// The first with CHECK.
    pub(crate) const V0_4_0: Self = Self("0.4.0");
    /// The entries of `ips` have no `version` any more.
    pub(crate) const V1_0_0: Self = Self("1.0.0");
    /// The first with STATUS and GC, and with more members of routes.
    pub(crate) const V1_1_0: Self = Self("1.1.0");
    /// All, ascending.
    pub(crate) const ALL: [Self; 3] = [Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// The version of an answer to a caller that named no supported one.
    pub(crate) const NEWEST: Self = Self::V1_1_0;

    /// As the specification writes it.
    pub(crate) const fn text(self) -> &'static str {
        self.0
    }

    /// Parses the configuration's `cniVersion`; `None` if it is missing.
    ///
    /// # Errors
    /// Code 1, naming the supported versions, if it is missing or not among them.
    pub(crate) fn parse(member: Option<&Value>) -> Result<Self, CniError> {
        let known = || Self::ALL.map(Self::text).join(", ");
        let Some(value) = member else {
            let msg = format!("`cniVersion` is missing; this plugin speaks {}", known());
            return Err(CniError::new(INCOMPATIBLE_VERSION, msg));
        };
        let found = Self::ALL.into_iter().find(|version| value == version.text());
        found.ok_or_else(|| {
            let value = shown(value.to_string());
            let known = known();
            let msg = format!("`cniVersion` {value}: this plugin speaks {known}");
            CniError::new(INCOMPATIBLE_VERSION, msg)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn three_versions_are_spoken_and_every_refusal_names_them() {
        for version in Version::ALL {
            assert_eq!(Version::parse(Some(&json!(version.text()))), Ok(version));
            assert_eq!(json!(version), version.text());
        }
        for wrong in [
            None,
            Some(json!("0.3.1")),
            Some(json!("1.1")),
            Some(json!(1)),
            Some(json!(null)),
        ] {
            let error = Version::parse(wrong.as_ref()).unwrap_err();
            assert_eq!(error.code, 1, "{error:?}");
            assert!(
                error.msg.ends_with("this plugin speaks 0.4.0, 1.0.0, 1.1.0"),
                "{error:?}"
            );
        }
    }
}
