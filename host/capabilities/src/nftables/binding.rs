//! What a guest's `nftables` calls go through: the tape, then quota and grant, then the kernel.

use serde::Serialize;

use super::Api;
use crate::bindings::service::nftables;
use crate::grants::{Access, NFTABLES};
use crate::guard::Guard;
use crate::host::{Host, ask};

#[derive(Serialize)]
struct Apply<'a> {
    ruleset: &'a str,
}

impl<'a> Guard<'a> {
    /// The packet filter, where this transaction may be applied.
    fn nftables(&mut self, call: &str, _ruleset: &str) -> Result<&'a dyn Api, String> {
        self.count(call, NFTABLES, 1)
            .map_err(|text| format!("access denied: {text}"))?;
        if !self.grants.allow_some(NFTABLES, Access::Write) {
            let text = "no grant to write to nftables".to_owned();
            return Err(format!("access denied: {}", self.refuse(call, "", text, 1)));
        }
        let api = self.backends.nftables.as_deref();
        api.ok_or_else(|| "this host has no packet filter".to_owned())
    }
}

impl nftables::Host for Host {
    async fn apply(&mut self, ruleset: String) -> wasmtime::Result<Result<(), String>> {
        let (tape, meter, mut guard) = self.apart();
        let call = "nftables.apply";
        let ruleset = &*ruleset;
        ask(tape, meter, call, &Apply { ruleset }, async || {
            guard.nftables(call, ruleset)?.apply(ruleset).await
        })
        .await
    }
}
