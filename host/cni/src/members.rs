//! Reads members of a JSON object, each by its rule. An error names the member by its path.
//!
//! Ignores unknown members. Pure.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{CniError, INVALID_CONFIGURATION, shown};

/// The members of one object of the network configuration.
#[derive(Clone, Copy)]
pub(crate) struct Members<'a> {
    object: &'a Map<String, Value>,
    /// The prefix of a member's name in errors: empty, or an object's path and a dot.
    path: &'a str,
}

impl<'a> Members<'a> {
    /// The members of `object`. Errors call them `path` and their name.
    pub(crate) fn new(object: &'a Map<String, Value>, path: &'a str) -> Self {
        Self { object, path }
    }

    /// The member, even if it is null; `None` if it is missing.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name)
    }

    /// The member; `None` if it is null or missing.
    pub(crate) fn given(&self, name: &str) -> Option<&'a Value> {
        self.get(name).filter(|value| !value.is_null())
    }

    /// A required text of at least one character.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn text(&self, name: &str) -> Result<&'a str, CniError> {
        let value = self.get(name).ok_or_else(|| self.missing(name))?;
        let text = value.as_str().filter(|text| !text.is_empty());
        text.ok_or_else(|| self.wrong(name, value, "a text of at least one character"))
    }

    /// A required object.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn object(&self, name: &str) -> Result<&'a Map<String, Value>, CniError> {
        let value = self.get(name).ok_or_else(|| self.missing(name))?;
        value.as_object().ok_or_else(|| self.wrong(name, value, "an object"))
    }

    /// A list; empty if the member is missing or null.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn list(&self, name: &str) -> Result<&'a [Value], CniError> {
        let Some(value) = self.given(name) else { return Ok(&[]) };
        let list = value.as_array().map(Vec::as_slice);
        list.ok_or_else(|| self.wrong(name, value, "a list"))
    }

    /// A whole number from `least` to `most`; `None` if the member is missing.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, CniError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_u64().filter(|number| (least..=most).contains(number));
        let rule = || format!("a whole number from {least} to {most}");
        number.map(Some).ok_or_else(|| self.wrong(name, value, &rule()))
    }

    /// `true` or `false`; `false` if the member is missing.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, CniError> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value
            .as_bool()
            .ok_or_else(|| self.wrong(name, value, "`true` or `false`"))
    }

    /// An absolute path; `None` if the member is missing. A runtime calls plugins in any folder, so a relative path
    /// would name a different file each time.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn path(&self, name: &str) -> Result<Option<PathBuf>, CniError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = value.as_str().filter(|text| !text.contains('\0'));
        let path = text.map(Path::new).filter(|path| path.is_absolute());
        let path = path.ok_or_else(|| self.wrong(name, value, "an absolute path"))?;
        Ok(Some(path.to_owned()))
    }

    /// An IPv4 address; `None` if the member is missing or null.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn ipv4(&self, name: &str) -> Result<Option<Ipv4Addr>, CniError> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let address = value.as_str().and_then(|text| text.parse().ok());
        address
            .map(Some)
            .ok_or_else(|| self.wrong(name, value, "an IPv4 address"))
    }

    /// An IP address as written; `None` if the member is missing or null.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn ip_text(&self, name: &str) -> Result<Option<String>, CniError> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let text = value.as_str().filter(|text| text.parse::<IpAddr>().is_ok());
        let text = text.ok_or_else(|| self.wrong(name, value, "an IP address"))?;
        Ok(Some(text.to_owned()))
    }

    /// A required network as written, such as `0.0.0.0/0`.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn cidr_text(&self, name: &str) -> Result<String, CniError> {
        let value = self.get(name).ok_or_else(|| self.missing(name))?;
        let text = value.as_str().filter(|text| is_cidr(text));
        let text = text.ok_or_else(|| self.wrong(name, value, "a network such as 0.0.0.0/0"))?;
        Ok(text.to_owned())
    }

    /// The error for a missing member.
    pub(crate) fn missing(&self, name: &str) -> CniError {
        CniError::new(INVALID_CONFIGURATION, format!("`{}{name}` is missing", self.path))
    }

    /// The error for a member that breaks its rule.
    pub(crate) fn wrong(&self, name: &str, value: &Value, rule: &str) -> CniError {
        let msg = format!("`{}{name}`: {} is not {rule}", self.path, shown(value));
        CniError::new(INVALID_CONFIGURATION, msg)
    }
}

/// Reads each object of a list. Errors call its members by position (`routes[0].dst`).
///
/// # Errors
/// Code 7, naming the element that is not an object; and any error from `read`.
pub(crate) fn each<'a, T>(
    list: &'a [Value],
    path: &str,
    read: impl Fn(Members<'_>) -> Result<T, CniError>,
) -> Result<Vec<T>, CniError> {
    let element = |(index, value): (usize, &'a Value)| match value.as_object() {
        Some(object) => read(Members::new(object, &format!("{path}[{index}]."))),
        None => {
            let msg = format!("`{path}[{index}]`: {} is not an object", shown(value));
            Err(CniError::new(INVALID_CONFIGURATION, msg))
        }
    };
    list.iter().enumerate().map(element).collect()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    let digits = length.bytes().all(|byte| byte.is_ascii_digit());
    digits && length.parse::<u8>().is_ok_and(|length| length <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_an_address_and_a_length_that_fits() {
        for good in ["0.0.0.0/0", "10.1.2.3/8", "10.0.0.0/32", "::/0", "fd00::/128"] {
            assert!(is_cidr(good), "{good}");
        }
        for wrong in [
            "",
            "/",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0/8",
            "::/129",
            "a/8",
        ] {
            assert!(!is_cidr(wrong), "{wrong}");
        }
    }
}
