//! One transaction as text: `{"nftables":[{"metainfo":...}, command, ...]}`, compact. And the base: the
//! commands for a table without services.
//!
//! The text of a resync with 100,000 endpoints is 60 MB. The code writes it twice, first only to measure it: a growing
//! text would need three times its size, and an instance has 256 MiB.

use std::fmt::{self, Display};
use std::io::{self, Write};

use trueup_guest::network::Network;
use trueup_guest::text;

use crate::change::{Change, goto};
use crate::ruleset::{Family, Key, Verdict};
use crate::settings::Settings;

/// The text; `None` if there is nothing to do.
pub(crate) fn of_changes(settings: &Settings, changes: &[Change<'_>]) -> Option<String> {
    if changes.iter().all(Change::is_empty) {
        return None;
    }
    let length = write(settings, changes, Length(0)).0;
    let text = write(settings, changes, Vec::with_capacity(length));
    // All of it is text.
    Some(String::from_utf8(text).unwrap_or_default())
}

fn write<W: Write>(settings: &Settings, changes: &[Change<'_>], mut out: W) -> W {
    let start = format_args!(r#"{{"nftables":[{{"metainfo":{{"json_schema_version":1}}}}"#);
    push(&mut out, start);
    for change in changes {
        let (family, name) = (change.family.name(), text::quoted(&settings.table_name));
        let mut table = Table {
            out: &mut out,
            family: change.family,
            mark: settings.masquerade_mark,
            of: format!(r#""family":"{family}","table":{name}"#),
        };
        if change.with_base {
            write_base(&mut table, settings);
        }
        change.write(&mut table);
    }
    push(&mut out, format_args!("]}}"));
    out
}

/// Neither a Vec nor a counter refuses a write.
fn push(out: &mut dyn Write, text: fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// The sink of one table's commands.
pub(crate) struct Table<'w> {
    out: &'w mut dyn Write,
    /// Its family.
    pub(crate) family: Family,
    /// The bit of the mark for packets to masquerade.
    pub(crate) mark: u32,
    /// The members that every object in it begins with.
    of: String,
}

impl Table<'_> {
    /// Writes one more command, which is JSON already.
    pub(crate) fn text(&mut self, command: &str) {
        push(self.out, format_args!(",{command}"));
    }

    /// Writes one more command; `members` are those of the object that it applies to, besides the table.
    pub(crate) fn command(&mut self, verb: &str, kind: &str, members: impl Display) {
        let of = &self.of;
        let command = format_args!(r#",{{"{verb}":{{"{kind}":{{{of},{members}}}}}}}"#);
        push(self.out, command);
    }

    /// Writes a command that adds a rule of these statements at the end of a chain.
    pub(crate) fn rule(&mut self, chain: &str, statements: impl Display, comment: Option<&str>) {
        let comment = comment.map_or_else(String::new, |text| format!(r#","comment":{}"#, text::quoted(text)));
        let members = format_args!(r#""chain":"{chain}","expr":[{statements}]{comment}"#);
        self.command("add", "rule", members);
    }

    /// Writes a command on elements of a map, one by one: a resync has hundreds of thousands.
    pub(crate) fn elements(&mut self, verb: &str, map: &str, elements: &[(Key, &Verdict)]) {
        let list = fmt::from_fn(|out| {
            for (number, (key, verdict)) in elements.iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                write!(out, "{comma}[{key},{}]", goto(verdict.target()))?;
            }
            Ok(())
        });
        self.command(verb, "element", format_args!(r#""name":"{map}","elem":[{list}]"#));
    }
}

/// Counts the length of a text, in bytes.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(text.len());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The contents of every table before it has any service: its maps, its hooks, and the rules that look services up.
/// `$NAME` stands for a JSON value.
///
/// The commands, one a line, are in the order of the specification. Of its chains, the kernel enters those with a hook:
/// -100 and 100 are nft's `dstnat` and `srcnat`; -110 comes before other filters (0), and before `dstnat`, which
/// packets without endpoints never reach. `services` looks up packets to services, `no-endpoints` packets to ports
/// without endpoints. Only the first packet of a flow goes there: an existing flow keeps its endpoint. A node port is
/// looked up for addresses of this host other than loopback ones, which are for the host's own services.
/// `nat-postrouting` clears the mark, which is no longer needed: a packet may pass there twice.
const COMMANDS: &str = include_str!("base.jsonl");

/// The set of the cluster's pods.
pub(crate) const POD_SUBNETS: &str = "pod-subnets";

/// Writes the commands that leave a table with only the base, whatever it held.
pub(crate) fn write_base(table: &mut Table<'_>, settings: &Settings) {
    let family = table.family;
    let (address, loopback) = match family {
        Family::Ip => ("ipv4_addr", r#"{"prefix":{"addr":"127.0.0.0","len":8}}"#),
        Family::Ip6 => ("ipv6_addr", r#""::1""#),
    };
    let mark = settings.masquerade_mark.to_string();
    let name = text::quoted(&settings.table_name);
    for command in COMMANDS.lines() {
        let command = command.replace("$FAMILY", &text::quoted(family.name()));
        let command = command.replace("$ADDRESS", &text::quoted(address));
        let command = command.replace("$LOOPBACK", loopback).replace("$MARK", &mark);
        // The name comes last: it may be any text.
        table.text(&command.replace("$TABLE", &name));
    }
    let prefix = |of: Network| {
        format!(
            r#"{{"prefix":{{"addr":"{}","len":{}}}}}"#,
            of.address(),
            of.prefix_len()
        )
    };
    let networks: Vec<String> = settings.pod_networks(family).map(prefix).collect();
    if !networks.is_empty() {
        let networks = networks.join(",");
        let members = format_args!(r#""name":"{POD_SUBNETS}","elem":[{networks}]"#);
        table.command("add", "element", members);
    }
}
