//! What NEGs are called. Pure; whether two keys come to one name is found out in `claims.rs`.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::Key;

/// A resource's name in Compute Engine is so long at most (RFC 1035).
const NAME_MAX: usize = 63;

/// So many hex digits of its parts' hash a made name has: 80 bits, so that no two Services of any clusters come to one.
const MADE_DIGITS: usize = 20;

/// So many hex digits tell the subnets of one NEG's name apart: a region has some dozen.
const SUBNET_DIGITS: usize = 6;

/// Whether Compute Engine takes it as the name of a resource: 1 to 63 lower case letters, digits and `-`, a letter first
/// and no `-` last.
pub fn is_resource_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=NAME_MAX).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(allowed)
}

/// The name of a NEG whose annotation gives none: `trueup-` and the first 20 hex digits of the SHA-256 of cluster,
/// namespace, Service and port, each with its length (8 bytes, big-endian) before it.
pub fn made_name(cluster: &str, key: &Key) -> String {
    let port = key.port.to_string();
    let mut hash = Sha256::new();
    for part in [cluster, &key.namespace, &key.name, &port] {
        // The length first: no two lists of parts are one text.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("trueup-{}", digits(&hash.finalize(), MADE_DIGITS))
}

/// The name in another subnet than the default one: `NAME-` and the first 6 hex digits of the SHA-256 of the subnet's
/// name, with NAME cut so that all of it is 63 characters at most.
pub fn name_in_subnet(name: &str, subnet: &str) -> String {
    let room = NAME_MAX - SUBNET_DIGITS - 1;
    let cut = name.get(..room).unwrap_or(name);
    format!("{cut}-{}", digits(&Sha256::digest(subnet), SUBNET_DIGITS))
}

fn digits(bytes: &[u8], count: usize) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String does not fail.
        _ = write!(text, "{byte:02x}");
    }
    text.truncate(count);
    text
}
