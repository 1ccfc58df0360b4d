//! `trueup:cri/sandboxes`: the container runtime's running pod sandboxes.
//!
//! ```text
//! guest -> binding (grant, tape) -> Runtime: simulated, or CRI v1 over the runtime's socket
//! ```

mod messages;
pub mod remote;

use std::collections::BTreeSet;

use async_trait::async_trait;
use trueup_journal::Ask;

use crate::ask::Nothing;
use crate::bindings::cri::sandboxes;
use crate::grants::{Access, EVERYTHING, SANDBOXES};
use crate::host::Host;
use crate::reading::{Capability, Function, Granted, Need, Reading, unless_refused};

pub use sandboxes::Sandbox;

/// A container runtime, real or simulated.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// The running sandboxes with an address of their own, by id; one record per address.
    async fn list_running(&self) -> Result<Vec<Sandbox>, String>;

    /// The ids of all sandboxes that the runtime knows, running or not. Only the host can call this, not guests.
    ///
    /// # Errors
    /// If the ids are unknown; the caller must not draw any conclusion from that.
    async fn list_ids(&self) -> Result<BTreeSet<String>, String> {
        Err("this runtime does not list them".to_owned())
    }
}

/// A container runtime in memory, with a fixed set of sandboxes.
#[derive(Debug, Default)]
pub struct Simulated(Vec<Sandbox>);

impl Simulated {
    /// A runtime with these running sandboxes. Answers are ordered by id; those of one id keep the given order.
    pub fn new(mut sandboxes: Vec<Sandbox>) -> Self {
        sandboxes.sort_by(|left, right| left.id.cmp(&right.id));
        Self(sandboxes)
    }
}

#[async_trait]
impl Runtime for Simulated {
    async fn list_running(&self) -> Result<Vec<Sandbox>, String> {
        Ok(self.0.clone())
    }
}

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
