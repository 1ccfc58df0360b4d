//! A guest's `nftables` calls pass the tape, then quota and grant, then reach the kernel.
//!
//! A grant of `nftables` is a list of tables. A transaction needs write access to every table that its commands touch.
//! If the tables of one command are unclear, the host refuses the whole transaction.

use super::Api;
use super::scope::{self, Unclear};
use crate::ask::args;
use crate::bindings::service::nftables;
use crate::grants::{Access, NFTABLES};
use crate::guard::Guard;
use crate::host::Host;

impl<'a> Guard<'a> {
    /// Returns the packet filter if the guest may apply this transaction.
    fn nftables(&mut self, ruleset: &str) -> Result<&'a dyn Api, String> {
        self.count(NFTABLES, 1)
            .map_err(|text| format!("access denied: {text}"))?;
        if !self.grants.allow_some(NFTABLES, Access::Write) {
            return Err(self.refuse_transaction("", "no grant to write to nftables".to_owned()));
        }
        let tables = match scope::tables(ruleset) {
            Ok(tables) => tables,
            // It can't be applied, whatever the grant.
            Err(error @ Unclear::NotJson(_)) => return Err(error.to_string()),
            Err(error @ Unclear::NoTable(_)) => return Err(self.refuse_transaction("", error.to_string())),
        };
        for table in tables {
            let scope = table.scope();
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

#[cfg(test)]
#[path = "binding_tests.rs"]
mod tests;
