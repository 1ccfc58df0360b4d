//! The contents of every table before it has any service: its maps, its hooks, and the rules that look services up.
//!
//! `base.jsonl` has the commands, one a line, in the order of the specification. Of its chains, the kernel enters those
//! with a hook: -100 and 100 are nft's `dstnat` and `srcnat`; -110 comes before other filters (0), and before `dstnat`,
//! which packets without endpoints never reach. `services` looks up packets to services, `no-endpoints` packets to
//! service ports without endpoints. Only the first packet of a flow goes there: an existing flow keeps its endpoint. A
//! node port is looked up for addresses of this host other than loopback ones, which are for the host's own services.
//! `nat-postrouting` clears the mark, which is no longer needed: a packet may pass there twice.

use trueup_guest::{network::Network, text};

use crate::{ruleset::Family, settings::Settings, transaction::Table};

/// The commands. `$NAME` stands for a JSON value.
const COMMANDS: &str = include_str!("base.jsonl");

/// The set of the cluster's pods.
pub(crate) const POD_SUBNETS: &str = "pod-subnets";

/// Writes the commands that leave a table with only the base, whatever it held.
pub(crate) fn write(table: &mut Table<'_>, settings: &Settings) {
    let family = table.family;
    let (address, loopback) = match family {
        Family::Ip => ("ipv4_addr", r#"{"prefix":{"addr":"127.0.0.0","len":8}}"#),
        Family::Ip6 => ("ipv6_addr", r#""::1""#),
    };
    let (mark, name) = (settings.masquerade_mark.to_string(), text::quoted(&settings.table_name));
    for command in COMMANDS.lines() {
        let command = command.replace("$FAMILY", &text::quoted(family.name()));
        let command = command.replace("$ADDRESS", &text::quoted(address));
        let command = command.replace("$LOOPBACK", loopback).replace("$MARK", &mark);
        // The name comes last: it may be any text.
        table.text(&command.replace("$TABLE", &name));
    }
    let networks: Vec<String> = settings.pod_networks(family).map(prefix).collect();
    if !networks.is_empty() {
        let networks = networks.join(",");
        let members = format_args!(r#""name":"{POD_SUBNETS}","elem":[{networks}]"#);
        table.command("add", "element", members);
    }
}

fn prefix(network: Network) -> String {
    let (address, length) = (network.address(), network.prefix_len());
    format!(r#"{{"prefix":{{"addr":"{address}","len":{length}}}}}"#)
}
