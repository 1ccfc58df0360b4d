//! The part of nft's JSON schema (libnftables-json(5)) that this guest writes, with members in the order of writing.
//!
//! Pure data with serde; knows no services. All forms were tested with nft 1.0.6.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use trueup_guest::address::Address;

use crate::ruleset::{Family, Key, Protocol, Verdict};

/// One command. Each wraps the object that it applies to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Command<'t> {
    /// The first command.
    Metainfo {
        /// nft 1.0.6 knows 1.
        json_schema_version: u8,
    },
    /// If it exists, this tests that it is the same.
    Add(Object<'t>),
    /// Removes all of its contents.
    Flush(Object<'t>),
    /// It must exist, and nothing may refer to it.
    Delete(Object<'t>),
}

/// The table that an object is in.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Table<'t> {
    /// Tables of two families may have the same name.
    pub(crate) family: Family,
    /// Its name.
    pub(crate) table: &'t str,
}

/// The object of a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Object<'t> {
    Chain {
        #[serde(flatten)]
        of: Table<'t>,
        name: &'t str,
    },
    Rule {
        #[serde(flatten)]
        of: Table<'t>,
        chain: &'t str,
        expr: &'t [Statement<'t>],
        #[serde(skip_serializing_if = "Option::is_none")]
        comment: Option<&'t str>,
    },
    Element {
        #[serde(flatten)]
        of: Table<'t>,
        name: &'static str,
        elem: Elements<'t>,
    },
}

/// One step of a rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Statement<'t> {
    Match {
        op: &'static str,
        left: Expression<'t>,
        right: Expression<'t>,
    },
    Mangle {
        key: Expression<'t>,
        value: Expression<'t>,
    },
    Dnat {
        addr: Expression<'t>,
        port: u16,
    },
    Goto {
        target: &'t str,
    },
    Vmap {
        key: Expression<'t>,
        data: Expression<'t>,
    },
    Drop(()),
}

/// A value, or a field read from a packet.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Expression<'t> {
    Payload {
        /// The network header of the table's family.
        protocol: Family,
        field: &'static str,
    },
    Meta {
        key: &'static str,
    },
    Fib {
        result: &'static str,
        flags: [&'static str; 1],
    },
    Numgen {
        mode: &'static str,
        #[serde(rename = "mod")]
        modulus: usize,
        offset: u32,
    },
    Jhash {
        #[serde(rename = "mod")]
        modulus: usize,
        expr: Box<Expression<'t>>,
        seed: u32,
        offset: u32,
    },
    Set(Vec<(usize, Statement<'t>)>),
    Prefix {
        addr: String,
        len: u8,
    },
    #[serde(rename = "|")]
    Or((Box<Expression<'t>>, u32)),
    #[serde(untagged)]
    Protocol(Protocol),
    #[serde(untagged)]
    Text(Cow<'t, str>),
}

impl<'t> Expression<'t> {
    /// A constant.
    pub(crate) const fn word(text: &'t str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// A constant.
    pub(crate) fn address(address: Address) -> Self {
        Self::Text(Cow::Owned(address.to_string()))
    }

    /// The packet's source address.
    pub(crate) fn saddr(family: Family) -> Self {
        Self::Payload {
            protocol: family,
            field: "saddr",
        }
    }

    /// The packet's transport protocol.
    pub(crate) fn l4proto() -> Self {
        Self::Meta { key: "l4proto" }
    }

    /// The packet's mark.
    pub(crate) fn mark() -> Self {
        Self::Meta { key: "mark" }
    }
}

impl<'t> Statement<'t> {
    /// Continues if the two are equal.
    pub(crate) fn is(left: Expression<'t>, right: Expression<'t>) -> Self {
        Self::Match { op: "==", left, right }
    }

    /// Sets this bit of the packet's mark.
    pub(crate) fn set_mark(bit: u32) -> Self {
        Self::Mangle {
            key: Expression::mark(),
            value: Expression::Or((Box::new(Expression::mark()), bit)),
        }
    }

    /// Sends a packet to the target that a lookup found.
    pub(crate) fn of(verdict: &'t Verdict) -> Self {
        let target = match verdict {
            Verdict::Chain(name) => name,
            Verdict::Reject => REJECT_CHAIN,
        };
        Self::Goto { target }
    }
}

/// The chain for packets to service ports without endpoints.
pub(crate) const REJECT_CHAIN: &str = "reject-it";

/// What to put into a set or map, or to remove from it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Elements<'t> {
    /// Elements of a set.
    Networks(Vec<Expression<'t>>),
    /// Elements of a map, written one by one: a resync has hundreds of thousands.
    #[serde(serialize_with = "verdicts")]
    Verdicts(&'t [(Key, &'t Verdict)]),
}

fn verdicts<S: Serializer>(elements: &&[(Key, &Verdict)], serializer: S) -> Result<S::Ok, S::Error> {
    let elements = elements.iter();
    serializer.collect_seq(elements.map(|(key, verdict)| (Form::of(key), Statement::of(verdict))))
}

/// A key in nft's notation.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    Concat(Parts),
}

#[derive(Serialize)]
#[serde(untagged)]
enum Parts {
    Address(String, Protocol, u16),
    Port(Protocol, u16),
}

impl Form {
    fn of(key: &Key) -> Self {
        Self::Concat(match key.address {
            Some(address) => Parts::Address(address.to_string(), key.protocol, key.port),
            None => Parts::Port(key.protocol, key.port),
        })
    }
}
