//! How the questions about the packet filter are read.

use serde_json::Value;
use trueup_journal::Ask;

use super::scope::{Table, tables};
use crate::grants::{Access, NFTABLES, is_nftables_scope};
use crate::reading::{Capability, Function, Granted, Need, Reading, Write, args, stored, text, unless_refused};

pub(crate) static CAPABILITY: Capability = Capability {
    package: "service",
    grant: Some(Granted {
        name: NFTABLES,
        scope: r#"a table as "FAMILY TABLE", such as "ip trueup""#,
        is_scope: is_nftables_scope,
        example: r#""ip trueup", "ip6 trueup""#,
    }),
    limits_destroying: false,
    functions: &[Function::write("nftables.apply", |_| "the world".to_owned())],
    reader: || Box::new(Reader),
};

struct Reader;

impl Reading for Reader {
    /// Every table in the transaction, whatever its result.
    fn needs(&mut self, ask: &Ask) -> Vec<Need> {
        unless_refused(ask, || {
            let args: Value = args(ask).unwrap_or_default();
            let touched = tables(text(&args, "ruleset")).unwrap_or_default();
            let scopes = touched.iter().map(Table::scope);
            // No configuration accepts a name with whitespace.
            let granted = scopes.filter(|scope| is_nftables_scope(scope));
            granted.map(|scope| Need::Access(Access::Write, scope)).collect()
        })
    }

    fn wrote(&self, n: u64, ask: &Ask) -> Vec<Write> {
        let args: Value = args(ask).unwrap_or_default();
        vec![stored(n, ask, "ruleset", String::new(), text(&args, "ruleset"))]
    }
}
