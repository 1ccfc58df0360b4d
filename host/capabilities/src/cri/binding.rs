//! What a guest's `sandboxes` calls go through: the grant, then the tape, then the runtime.

use serde::Serialize;

use super::Sandbox;
use crate::bindings::cri::sandboxes;
use crate::grants::{Access, SANDBOXES};
use crate::host::{Host, ask};

impl sandboxes::Host for Host {
    async fn list_running(&mut self) -> wasmtime::Result<Result<Vec<Sandbox>, String>> {
        #[derive(Serialize)]
        struct Args {}
        let Self {
            identity,
            tape,
            grants,
            backends,
            meter,
            owners,
            ..
        } = self;
        let call = "sandboxes.list-running";
        ask(tape, meter, call, &Args {}, async || {
            if !grants.allow("cri", Access::Read, SANDBOXES) {
                let what = "no grant to read the container runtime's sandboxes";
                let what = Self::refusal(identity, &backends.metrics, owners, call, what);
                return Err(format!("access denied: {what}"));
            }
            match &backends.sandboxes {
                Some(runtime) => runtime.list_running().await,
                None => Err("this host has no container runtime for this guest; configure `[backend.cri]`".to_owned()),
            }
        })
        .await
    }
}
