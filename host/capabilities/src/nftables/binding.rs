//! A guest's `nftables` calls, and how they are read in a recording.

use serde_json::Value;
use trueup_journal::Ask;

use super::Api;
use super::scope::{Unclear, tables};
use crate::ask::args;
use crate::bindings::service::nftables;
use crate::grants::{Access, NFTABLES, is_nftables_scope};
use crate::guard::Guard;
use crate::host::Host;
use crate::reading::{
    self, Capability, Function, Granted, Need, Reading, Write, stored, text, the_world, unless_refused,
};

impl<'a> Guard<'a> {
    /// Returns the packet filter if the guest may apply this transaction.
    fn nftables(&mut self, ruleset: &str) -> Result<&'a dyn Api, String> {
        self.count(NFTABLES, 1)
            .map_err(|text| format!("access denied: {text}"))?;
        if !self.grants.allow_some(NFTABLES, Access::Write) {
            return Err(self.refuse_transaction("", "no grant to write to nftables".to_owned()));
        }
        let tables = tables(ruleset).map_err(|error| match error {
            // It can't be applied, whatever the grant.
            Unclear::NotJson(_) => error.to_string(),
            Unclear::NoTable(_) => self.refuse_transaction("", error.to_string()),
        })?;
        for scope in tables {
            if !self.grants.allow(NFTABLES, Access::Write, &scope) {
                let text = format!("no grant to write nftables' table `{scope}`");
                return Err(self.refuse_transaction(&scope, text));
            }
        }
        let api = self.backends.nftables.as_deref();
        api.ok_or_else(|| "this host has no packet filter".to_owned())
    }

    /// The text for the guest.
    fn refuse_transaction(&mut self, scope: &str, text: String) -> String {
        format!("access denied: {}", self.refuse(scope, text, 1))
    }
}

impl nftables::Host for Host {
    async fn apply(&mut self, ruleset: String) -> wasmtime::Result<Result<(), String>> {
        self.ask("nftables.apply", &args!(ruleset: String), async |mut guard| {
            guard.nftables(&ruleset)?.apply(&ruleset).await
        })
        .await
    }
}

/// How its questions are read.
pub(crate) static CAPABILITY: Capability = Capability {
    package: "service",
    grant: Some(Granted {
        name: NFTABLES,
        scope: r#"a table as "FAMILY TABLE", such as "ip trueup""#,
        is_scope: is_nftables_scope,
        example: r#""ip trueup", "ip6 trueup""#,
    }),
    limits_destroying: false,
    functions: &[Function::write("nftables.apply", the_world)],
    reader: || Box::new(Reader),
};

struct Reader;

impl Reading for Reader {
    /// Every table in the transaction, whatever its result.
    fn needs(&mut self, ask: &Ask) -> Vec<Need> {
        unless_refused(ask, || {
            let args: Value = reading::args(ask).unwrap_or_default();
            let touched = tables(text(&args, "ruleset")).unwrap_or_default().into_iter();
            // No configuration accepts a name with whitespace.
            let scopes = touched.filter(|scope| is_nftables_scope(scope));
            scopes.map(|scope| Need::Access(Access::Write, scope)).collect()
        })
    }

    fn wrote(&self, n: u64, ask: &Ask) -> Vec<Write> {
        let args: Value = reading::args(ask).unwrap_or_default();
        vec![stored(n, ask, "ruleset", String::new(), text(&args, "ruleset"))]
    }
}

#[cfg(test)]
#[path = "binding_tests.rs"]
mod tests;
