//! A guest's `sandboxes` calls pass the tape, then quota and grant, then reach the runtime.

use serde::Serialize;

use super::Sandbox;
use crate::ask::ask;
use crate::bindings::cri::sandboxes;
use crate::grants::{Access, SANDBOXES};
use crate::host::Host;

impl sandboxes::Host for Host {
    async fn list_running(&mut self) -> wasmtime::Result<Result<Vec<Sandbox>, String>> {
        #[derive(Serialize)]
        struct Args {}
        let (tape, meter, mut guard) = self.apart();
        let call = "sandboxes.list-running";
        ask(tape, meter, call, &Args {}, async || {
            let what = || "no grant to read the container runtime's sandboxes".to_owned();
            let allowed = guard
                .count(call, "cri", 1)
                .and_then(|()| guard.check(call, "cri", Access::Read, SANDBOXES, what));
            allowed.map_err(|what| format!("access denied: {what}"))?;
            match &guard.backends.sandboxes {
                Some(runtime) => runtime.list_running().await,
                None => Err("this host has no container runtime for this guest; configure `[backend.cri]`".to_owned()),
            }
        })
        .await
    }
}
