//! A guest's `sandboxes` calls, and how they are read in a recording.

use trueup_journal::Ask;

use super::Sandbox;
use crate::ask::Nothing;
use crate::bindings::cri::sandboxes;
use crate::grants::{Access, EVERYTHING, SANDBOXES};
use crate::host::Host;
use crate::reading::{Capability, Function, Granted, Need, Reading, unless_refused};

/// The calls pass the tape, then quota and grant, then reach the runtime.
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

/// How its questions are read.
pub(crate) static CAPABILITY: Capability = Capability {
    package: "cri",
    grant: Some(Granted {
        name: "cri",
        scope: r#""sandboxes""#,
        is_scope: |text| [SANDBOXES, EVERYTHING].contains(&text),
        example: r#""sandboxes""#,
    }),
    limits_destroying: false,
    functions: &[Function::read("sandboxes.list-running")],
    reader: || Box::new(Reader),
};

struct Reader;

impl Reading for Reader {
    fn needs(&mut self, ask: &Ask) -> Vec<Need> {
        // A question that got no answer needed the grant, too.
        unless_refused(ask, || vec![Need::Access(Access::Read, SANDBOXES.to_owned())])
    }
}
