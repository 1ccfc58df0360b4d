//! A node's record in the database: its key, and its value as text.

use serde::{Deserialize, Serialize};
use trueup_guest::snapshot;

use crate::view::Addresses;

/// The part of the key after the key prefix of the settings.
const FOLDER: &str = "allocatedIDs/";
/// Digits of the largest id, 4294967295.
const DIGITS_MAX: usize = 10;

/// The common prefix of all records' keys.
pub(crate) fn prefix(key_prefix: &str) -> String {
    format!("{key_prefix}{FOLDER}")
}

/// The key of the record of an id.
pub(crate) fn key(key_prefix: &str, id: u32) -> String {
    format!("{key_prefix}{FOLDER}{id}")
}

/// The id of a record by its key; `None` if the key is not that of a record.
pub(crate) fn id(key_prefix: &str, key: &str) -> Option<u32> {
    let tail = key.strip_prefix(key_prefix)?.strip_prefix(FOLDER)?;
    let is_plain = tail.len() <= DIGITS_MAX && tail.bytes().all(|byte| byte.is_ascii_digit()) && !tail.starts_with('0');
    tail.parse().ok().filter(|_| is_plain)
}

#[derive(Serialize)]
struct Written<'r> {
    id: u32,
    name: &'r str,
    #[serde(skip_serializing_if = "Addresses::is_empty")]
    ip_addresses: &'r Addresses,
}

/// The value of a record.
pub(crate) fn write(id: u32, name: &str, ip_addresses: &Addresses) -> String {
    snapshot::write(&Written { id, name, ip_addresses })
}

/// The parsed value of a record. Its id comes from its key.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Stored {
    /// The node's name.
    pub(crate) name: String,
    #[serde(default)]
    ip_addresses: Option<Vec<String>>,
    /// Old versions stored one more address here.
    #[serde(default)]
    ip_address: Option<String>,
}

impl Stored {
    /// `None` if the value is no record.
    pub(crate) fn read(value: &str) -> Option<Self> {
        // serde would read a list by position, with its first text as the name.
        let is_object = value.trim_start().starts_with('{');
        is_object.then(|| serde_json::from_str(value).ok()).flatten()
    }

    /// The addresses as written, not parsed yet.
    pub(crate) fn into_addresses(self) -> Vec<String> {
        let mut addresses = self.ip_addresses.unwrap_or_default();
        addresses.extend(self.ip_address.filter(|address| !address.is_empty()));
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trueup_guest::network::Network;

    fn addresses(texts: &[&str]) -> Addresses {
        texts.iter().filter_map(|text| Network::parse(text)).collect()
    }

    #[test]
    fn only_a_plain_number_is_an_id() {
        for (tail, expected) in [
            ("1", Some(1)),
            ("50", Some(50)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("99999999999", None),
            ("00000000001", None),
            ("0", None),
            ("03", None),
            ("+3", None),
            ("-3", None),
            ("3/sub", None),
            ("3 ", None),
            ("٣", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(id("/p/", &format!("/p/allocatedIDs/{tail}")), expected, "{tail:?}");
        }
        assert_eq!(id("/p/", "/p/k8s/node/3"), None);
        assert_eq!(id("/p/", "/q/allocatedIDs/3"), None);
    }

    #[test]
    fn the_value_is_compact_and_leaves_out_what_is_empty() {
        assert_eq!(write(3, "node-a", &Addresses::new()), r#"{"id":3,"name":"node-a"}"#);
        assert_eq!(
            write(3, "node-a", &addresses(&["fd00::3/64", "192.168.16.3/24"])),
            r#"{"id":3,"name":"node-a","ip_addresses":["192.168.16.3/24","fd00::3/64"]}"#
        );
        assert_eq!(write(1, "a\"\n", &Addresses::new()), r#"{"id":1,"name":"a\"\n"}"#);
    }

    #[test]
    fn what_old_versions_stored_is_read_too() {
        for (value, expected) in [
            (r#"{"id":3,"name":"a"}"#, &[][..]),
            (r#"{"id":3,"name":"a","ip_addresses":["x","y"]}"#, &["x", "y"]),
            (
                r#"{"id":3,"name":"a","ip_addresses":["x"],"ip_address":"z"}"#,
                &["x", "z"],
            ),
            (r#"{"name":"a","ip_address":"","ip_addresses":null,"more":[1]}"#, &[]),
            (" \r\n\t{\"name\":\"a\"} ", &[]),
        ] {
            let stored = Stored::read(value).unwrap();
            assert_eq!(stored.name, "a", "{value}");
            assert_eq!(stored.into_addresses(), expected, "{value}");
        }
        for value in [
            "",
            "x",
            "[]",
            r#"["a"]"#,
            r#" ["a",["x"],"z"]"#,
            "{}",
            r#"{"id":3}"#,
            r#"{"name":3}"#,
            r#"{"name":"a","ip_addresses":"x"}"#,
        ] {
            assert_eq!(Stored::read(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_key_reads_back_as_its_id(number in 1..=u32::MAX) {
            prop_assert_eq!(id("/p/", &key("/p/", number)), Some(number));
        }

        #[test]
        fn a_value_reads_back(number: u32, name: String, v4: u32, length in 0..=32_u8) {
            let network = format!("{}/{length}", std::net::Ipv4Addr::from_bits(v4));
            let set = addresses(&[&network]);
            let stored = Stored::read(&write(number, &name, &set)).unwrap();
            prop_assert_eq!(&stored.name, &name);
            prop_assert_eq!(stored.into_addresses(), [network]);
        }
    }
}
