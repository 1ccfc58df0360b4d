//! The names of NEGs. Pure; `claims.rs` detects two keys with the same name.

use sha2::{Digest as _, Sha256};
use trueup_base::text::hex;
use trueup_config::RESOURCE_NAME_MAX;

use super::key::Key;

/// The number of hex digits of the hash in a generated name: 80 bits, so that the names of any two Services in any
/// clusters differ.
const MADE_DIGITS: usize = 20;

/// The number of hex digits that distinguish the subnets of a name: a region has some dozen.
const SUBNET_DIGITS: usize = 6;

/// The name of a NEG without a name in the annotation: `trueup-` and the first 20 hex digits of the SHA-256 of cluster,
/// namespace, Service and port, each preceded by its length (8 bytes, big-endian).
pub(crate) fn made_name(cluster: &str, key: &Key) -> String {
    let port = key.port.to_string();
    let mut hash = Sha256::new();
    for part in [cluster, &key.service.namespace, &key.service.name, &port] {
        // The lengths make the encoding of the parts unambiguous.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("trueup-{}", digits(&hash.finalize(), MADE_DIGITS))
}

/// The name in a subnet other than the default: `NAME-` and the first 6 hex digits of the SHA-256 of the subnet's name.
/// NAME is cut so that the result has at most 63 characters.
pub(crate) fn name_in_subnet(name: &str, subnet: &str) -> String {
    let room = RESOURCE_NAME_MAX - SUBNET_DIGITS - 1;
    let cut = name.get(..room).unwrap_or(name);
    format!("{cut}-{}", digits(&Sha256::digest(subnet), SUBNET_DIGITS))
}

fn digits(bytes: &[u8], count: usize) -> String {
    let mut text = hex(bytes);
    text.truncate(count);
    text
}
