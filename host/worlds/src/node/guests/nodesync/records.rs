//! Node records in the database, as a watch or a list returns them: parses keys and values.
//!
//! Pure. The guest writes records; this module does not.

use serde::Deserialize;
use serde_json::Value;
use trueup_base::text;

use super::VppNode;

/// The number of digits of the largest id, 4294967295.
const DIGITS_MAX: usize = 10;

/// The id of a record, parsed from its key. `None` if the key is not a record's. `prefix` is the prefix of all records,
/// including `allocatedIDs/`.
pub fn id_of(prefix: &str, key: &str) -> Option<u32> {
    let tail = key.strip_prefix(prefix)?;
    let is_plain = tail.len() <= DIGITS_MAX && tail.bytes().all(|byte| byte.is_ascii_digit()) && !tail.starts_with('0');
    tail.parse().ok().filter(|_| is_plain)
}

#[derive(Deserialize)]
struct Json {
    name: String,
    id: Option<Value>,
    ip_addresses: Option<Vec<String>>,
    /// Old versions stored one more address here.
    ip_address: Option<String>,
}

/// Parses the value of a record: the guest's input, and a line for the operator. Its id is that of the key: that id is
/// allocated, and a deletion names it.
///
/// # Errors
/// One line for why it is invalid, to be placed after the key.
pub fn record(id: u32, value: &[u8]) -> Result<(VppNode, Option<String>), String> {
    // A list would be parsed by position, with its first text as the name.
    if !value.trim_ascii_start().starts_with(b"{") {
        return Err("is no record of a node: it is no JSON object".to_owned());
    }
    let read: Json = serde_json::from_slice(value)
        .map_err(|error| format!("is no record of a node: {}", text::line(&error.to_string())))?;
    let other = read.id.filter(|given| *given != id);
    let warning = other.map(|other| {
        let other = text::line(&other.to_string());
        format!("says that it is the record of id {other}: taken for that of id {id}, its key")
    });
    let mut ip_addresses = read.ip_addresses.unwrap_or_default();
    ip_addresses.extend(read.ip_address.filter(|address| !address.is_empty()));
    let node = VppNode {
        id,
        name: read.name,
        ip_addresses,
    };
    Ok((node, warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/vnf-agent/contiv-ksr/allocatedIDs/";

    #[test]
    fn only_a_plain_number_is_an_id() {
        for (tail, expected) in [
            ("1", Some(1)),
            ("50", Some(50)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("9999999999", None),
            ("99999999999", None),
            ("0", None),
            ("03", None),
            ("+3", None),
            ("-3", None),
            ("3/more", None),
            ("3 ", None),
            ("٣", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(id_of(PREFIX, &format!("{PREFIX}{tail}")), expected, "{tail:?}");
        }
        assert_eq!(id_of(PREFIX, "/vnf-agent/contiv-ksr/k8s/node/3"), None);
    }

    fn read(id: u32, value: &str) -> (VppNode, Option<String>) {
        record(id, value.as_bytes()).unwrap()
    }

    fn node(addresses: &[&str]) -> VppNode {
        VppNode {
            id: 3,
            name: "node-a".to_owned(),
            ip_addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
        }
    }

    #[test]
    fn a_record_says_whose_it_is_and_at_which_addresses() {
        for (value, addresses) in [
            (r#"{"id":3,"name":"node-a"}"#, &[][..]),
            (
                r#"{"id":3,"name":"node-a","ip_addresses":["192.168.16.3/24","fd00::3/64"]}"#,
                &["192.168.16.3/24", "fd00::3/64"],
            ),
            (
                r#"{"id":3,"name":"node-a","ip_addresses":["a"],"ip_address":"b"}"#,
                &["a", "b"],
            ),
            (
                r#"{"name":"node-a","ip_address":"","ip_addresses":null,"more":[1]}"#,
                &[],
            ),
            (" \r\n\t{\"name\":\"node-a\"} ", &[]),
        ] {
            assert_eq!(read(3, value), (node(addresses), None), "{value}");
        }
    }

    #[test]
    fn where_key_and_value_differ_the_key_counts() {
        let (node_of_key, warning) = read(3, r#"{"id":4,"name":"node-a"}"#);
        assert_eq!(node_of_key, node(&[]));
        assert_eq!(
            warning.as_deref(),
            Some("says that it is the record of id 4: taken for that of id 3, its key")
        );
        for odd in ["-3", "3.5", "\"3\"", "[3]"] {
            let (node_of_key, warning) = read(3, &format!(r#"{{"id":{odd},"name":"node-a"}}"#));
            assert_eq!(node_of_key, node(&[]), "{odd}");
            assert!(warning.is_some_and(|warning| warning.contains(odd)), "{odd}");
        }
    }

    #[test]
    fn what_is_no_record_is_said_on_one_line() {
        for value in [
            &b""[..],
            b"x",
            b"[]",
            br#"["a"]"#,
            br#" ["a",3,["x"],"z"]"#,
            b"{}",
            b"\xff",
            br#"{"id":3}"#,
            br#"{"name":3}"#,
            br#"{"name":"a","ip_addresses":"x"}"#,
            b"{\n\"name\":\n7}",
        ] {
            let cause = record(3, value).unwrap_err();
            assert!(
                cause.starts_with("is no record of a node: ") && !cause.contains('\n'),
                "{cause}"
            );
        }
    }
}
