//! The contents of every table before it has any service: its maps, its hooks, and the rules that look services up.
//!
//! Pure. The order of the commands is that of the specification.

use std::io::Write;

use crate::ruleset::{Family, Map};
use crate::schema::{BaseChain, Command, Elements, Expression, Object, REJECT_CHAIN, Rejection, Statement, Table};
use crate::settings::Settings;
use crate::transaction::Writer;

/// Looks up packets to services.
const SERVICES: &str = "services";
/// Looks up packets to service ports without endpoints.
const NO_ENDPOINTS: &str = "no-endpoints";
/// The set of the cluster's pods.
pub(crate) const POD_SUBNETS: &str = "pod-subnets";

/// Chains that the kernel enters: name, type, hook, priority.
///
/// -100 and 100 are nft's `dstnat` and `srcnat`; -110 comes before other filters (0), and before `dstnat`, which
/// packets without endpoints never reach.
const BASE_CHAINS: [(&str, &str, &str, i32); 6] = [
    ("nat-prerouting", "nat", "prerouting", -100),
    ("nat-output", "nat", "output", -100),
    ("nat-postrouting", "nat", "postrouting", 100),
    ("filter-input", "filter", "input", -110),
    ("filter-forward", "filter", "forward", -110),
    ("filter-output", "filter", "output", -110),
];

/// Writes the commands that leave a table with only the base, whatever it held.
pub(crate) fn write<W: Write>(out: &mut Writer<W>, settings: &Settings, of: Table<'_>) {
    let table = || Object::Table {
        family: of.family,
        name: of.table,
    };
    // Add it first, so that the deletion finds it.
    out.command(&Command::Add(table()));
    out.command(&Command::Delete(table()));
    out.command(&Command::Add(table()));
    maps(out, of);
    for (name, kind, hook, prio) in BASE_CHAINS {
        let base = Some(BaseChain {
            kind,
            hook,
            prio,
            policy: "accept",
        });
        out.command(&Command::Add(Object::Chain { of, name, base }));
    }
    for name in [SERVICES, NO_ENDPOINTS, REJECT_CHAIN] {
        out.command(&Command::Add(Object::Chain { of, name, base: None }));
    }
    for (chain, expr) in rules(of.family, settings.masquerade_mark) {
        out.rule(of, chain, &expr, None);
    }
    let networks: Vec<Expression<'_>> = settings.pod_networks(of.family).map(prefix).collect();
    if !networks.is_empty() {
        out.command(&Command::Add(Object::Element {
            of,
            name: POD_SUBNETS,
            elem: Elements::Networks(networks),
        }));
    }
}

fn prefix(network: trueup_guest::network::Network) -> Expression<'static> {
    Expression::Prefix {
        addr: network.address().to_string(),
        len: network.prefix_len(),
    }
}

fn maps<W: Write>(out: &mut Writer<W>, of: Table<'_>) {
    let address = match of.family {
        Family::Ip => "ipv4_addr",
        Family::Ip6 => "ipv6_addr",
    };
    out.command(&Command::Add(Object::Set {
        of,
        name: POD_SUBNETS,
        kind: address,
        flags: ["interval"],
    }));
    for map in Map::ALL {
        let kind: &[&str] = if map.has_addresses() {
            &[address, "inet_proto", "inet_service"]
        } else {
            &["inet_proto", "inet_service"]
        };
        out.command(&Command::Add(Object::Map {
            of,
            name: map.name(),
            kind,
            map: "verdict",
        }));
    }
}

/// Rules with the chains that they are in.
fn rules(family: Family, mark: u32) -> Vec<(&'static str, Vec<Statement<'static>>)> {
    let jump = |target| Statement::Jump { target };
    let nodeports = |data| {
        let mut rule = here(family);
        rule.push(look_up(vec![Expression::l4proto(), Expression::dport()], data));
        rule
    };
    let addresses = |data| {
        let key = vec![Expression::daddr(family), Expression::l4proto(), Expression::dport()];
        vec![look_up(key, data)]
    };
    let mut new_to_nodeports = vec![is_new()];
    new_to_nodeports.extend(nodeports("@no-endpoint-nodeports"));
    vec![
        ("nat-prerouting", vec![jump(SERVICES)]),
        ("nat-output", vec![jump(SERVICES)]),
        ("nat-postrouting", masquerade(mark)),
        ("filter-input", vec![is_new(), jump(NO_ENDPOINTS)]),
        ("filter-input", new_to_nodeports),
        ("filter-forward", vec![is_new(), jump(NO_ENDPOINTS)]),
        ("filter-output", vec![is_new(), jump(NO_ENDPOINTS)]),
        (SERVICES, addresses("@service-ips")),
        (SERVICES, nodeports("@service-nodeports")),
        (NO_ENDPOINTS, addresses("@no-endpoint-ips")),
        (
            REJECT_CHAIN,
            vec![
                Statement::is(Expression::l4proto(), Expression::word("tcp")),
                Statement::Reject(Some(Rejection { kind: "tcp reset" })),
            ],
        ),
        (REJECT_CHAIN, vec![Statement::Reject(None)]),
    ]
}

fn look_up(key: Vec<Expression<'static>>, map: &'static str) -> Statement<'static> {
    Statement::Vmap {
        key: Expression::Concat(key),
        data: Expression::word(map),
    }
}

/// The first packet of a flow: an existing flow keeps its endpoint.
fn is_new() -> Statement<'static> {
    Statement::Match {
        op: "in",
        left: Expression::Ct { key: "state" },
        right: Expression::word("new"),
    }
}

/// To an address of this host other than a loopback one: node ports are not for the host's own services there.
fn here(family: Family) -> Vec<Statement<'static>> {
    let local = Expression::Fib {
        result: "type",
        flags: ["daddr"],
    };
    let loopback = match family {
        Family::Ip => Expression::Prefix {
            addr: "127.0.0.0".to_owned(),
            len: 8,
        },
        Family::Ip6 => Expression::word("::1"),
    };
    vec![
        Statement::is(local, Expression::word("local")),
        Statement::Match {
            op: "!=",
            left: Expression::daddr(family),
            right: loopback,
        },
    ]
}

/// The mark is no longer needed, so clear it: a packet may pass here twice.
fn masquerade(mark: u32) -> Vec<Statement<'static>> {
    vec![
        Statement::Match {
            op: "!=",
            left: Expression::And((Box::new(Expression::mark()), mark)),
            right: Expression::Number(0),
        },
        Statement::Mangle {
            key: Expression::mark(),
            value: Expression::Xor((Box::new(Expression::mark()), mark)),
        },
        Statement::Masquerade { flags: "fully-random" },
    ]
}
