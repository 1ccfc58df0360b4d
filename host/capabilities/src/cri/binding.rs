//! A guest's `sandboxes` calls pass the tape, then quota and grant, then reach the runtime.

use super::Sandbox;
use crate::ask::Nothing;
use crate::bindings::cri::sandboxes;
use crate::grants::{Access, SANDBOXES};
use crate::host::Host;

impl sandboxes::Host for Host {
    async fn list_running(&mut self) -> wasmtime::Result<Result<Vec<Sandbox>, String>> {
        self.ask("sandboxes.list-running", &Nothing {}, async |mut guard| {
            let what = || "no grant to read the container runtime's sandboxes".to_owned();
            let allowed = guard
                .count("cri", 1)
                .and_then(|()| guard.check("cri", Access::Read, SANDBOXES, what));
            allowed.map_err(|what| format!("access denied: {what}"))?;
            match &guard.backends.sandboxes {
                Some(runtime) => runtime.list_running().await,
                None => Err("this host has no container runtime for this guest; configure `[backend.cri]`".to_owned()),
            }
        })
        .await
    }
}
