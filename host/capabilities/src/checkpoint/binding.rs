//! A guest's `store` calls pass the tape, then quota and grant, then reach the store.

use serde_json::Value;
use trueup_journal::Ask;

use super::{Error, Saved, Store};
use crate::ask::{Nothing, args};
use crate::bindings::checkpoint::store;
use crate::grants::{Access, EVERYTHING, OWN};
use crate::guard::Guard;
use crate::host::Host;
use crate::reading::{self, Capability, Function, Granted, Need, Reading, Write, access, stored, text, unless_refused};

impl<'a> Guard<'a> {
    /// Returns the store if the guest may make this request.
    fn store(mut self, access: Access) -> Result<&'a dyn Store, Error> {
        let what = || format!("no grant to {access} its own checkpoint");
        self.count("checkpoint", 1)
            .and_then(|()| self.check("checkpoint", access, OWN, what))
            .map_err(Error::AccessDenied)?;
        let store = self.backends.checkpoint.as_deref();
        store.ok_or_else(|| Error::Unavailable("this host has no checkpoint storage for this guest".to_owned()))
    }
}

impl store::Host for Host {
    async fn checkpoint(&mut self, data: String) -> wasmtime::Result<Result<(), Error>> {
        self.ask("store.checkpoint", &args!(data: String), async |guard| {
            guard.store(Access::Write)?.checkpoint(&data).await
        })
        .await
    }

    async fn append(&mut self, entry: String) -> wasmtime::Result<Result<(), Error>> {
        self.ask("store.append", &args!(entry: String), async |guard| {
            guard.store(Access::Write)?.append(&entry).await
        })
        .await
    }

    async fn restore(&mut self) -> wasmtime::Result<Result<Option<Saved>, Error>> {
        self.ask("store.restore", &Nothing {}, async |guard| {
            guard.store(Access::Read)?.restore().await
        })
        .await
    }
}

/// How its questions are read.
pub(crate) static CAPABILITY: Capability = Capability {
    package: "checkpoint",
    grant: Some(Granted {
        name: "checkpoint",
        scope: r#""own""#,
        is_scope: |text| [OWN, EVERYTHING].contains(&text),
        example: r#""own""#,
    }),
    limits_destroying: false,
    functions: &[
        Function::write("store.append", the_store),
        Function::write("store.checkpoint", the_store),
        Function::read("store.restore"),
    ],
    reader: || Box::new(Reader),
};

fn the_store(_: &Value) -> String {
    "the store".to_owned()
}

struct Reader;

impl Reading for Reader {
    fn needs(&mut self, ask: &Ask) -> Vec<Need> {
        unless_refused(ask, || vec![Need::Access(access(ask), OWN.to_owned())])
    }

    fn wrote(&self, n: u64, ask: &Ask) -> Vec<Write> {
        let args: Value = reading::args(ask).unwrap_or_default();
        let (kind, member) = match ask.name.as_str() {
            "store.append" => ("record", "entry"),
            "store.checkpoint" => ("checkpoint", "data"),
            _ => return Vec::new(),
        };
        vec![stored(n, ask, kind, String::new(), text(&args, member))]
    }
}
