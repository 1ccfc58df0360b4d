//! The statements of rules in nft's JSON (libnftables-json(5)). All forms were tested with nft 1.0.6.
//!
//! Pure text. Names of chains hold nothing that JSON would escape.

use std::fmt::Display;

use crate::ruleset::{Balance, Family};

/// Keeps a client's endpoint the same on all nodes and after every restart: the bytes of `true`.
const HASH_SEED: u32 = 0x7472_7565;

/// The packet's transport protocol.
pub(crate) const L4PROTO: &str = r#"{"meta":{"key":"l4proto"}}"#;

/// The type of the packet's source address: `local` for an address of this host.
pub(crate) const SOURCE_TYPE: &str = r#"{"fib":{"result":"type","flags":["saddr"]}}"#;

/// The packet's source address.
pub(crate) fn saddr(family: Family) -> String {
    let family = family.name();
    format!(r#"{{"payload":{{"protocol":"{family}","field":"saddr"}}}}"#)
}

/// Continues if this field of the packet has that value.
pub(crate) fn is(left: &str, right: impl Display) -> String {
    format!(r#"{{"match":{{"op":"==","left":{left},"right":"{right}"}}}}"#)
}

/// Sets this bit of the packet's mark.
pub(crate) fn set_mark(bit: u32) -> String {
    let mark = r#"{"meta":{"key":"mark"}}"#;
    format!(r#"{{"mangle":{{"key":{mark},"value":{{"|":[{mark},{bit}]}}}}}}"#)
}

/// Continues in this chain.
pub(crate) fn goto(target: &str) -> String {
    format!(r#"{{"goto":{{"target":"{target}"}}}}"#)
}

/// Leads to one of the endpoints.
pub(crate) fn choose(family: Family, balance: &Balance) -> String {
    match balance.to.as_slice() {
        [] => return r#"{"drop":null}"#.to_owned(),
        [target] => return goto(target),
        _ => {}
    }
    let modulus = balance.to.len();
    let key = if balance.by_client {
        let client = saddr(family);
        format!(r#"{{"jhash":{{"mod":{modulus},"expr":{client},"seed":{HASH_SEED},"offset":0}}}}"#)
    } else {
        format!(r#"{{"numgen":{{"mode":"random","mod":{modulus},"offset":0}}}}"#)
    };
    let to = balance.to.iter().enumerate();
    let to: Vec<String> = to
        .map(|(number, target)| format!("[{number},{}]", goto(target)))
        .collect();
    format!(r#"{{"vmap":{{"key":{key},"data":{{"set":[{}]}}}}}}"#, to.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_that_of_the_specification() {
        assert_eq!(HASH_SEED, 1_953_658_213);
    }
}
