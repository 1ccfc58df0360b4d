//! A guest's `store` calls pass the tape, then quota and grant, then reach the store.

use serde::Serialize;

use super::{Error, Saved, Store};
use crate::ask::ask;
use crate::bindings::checkpoint::store;
use crate::grants::{Access, OWN};
use crate::guard::Guard;
use crate::host::Host;

impl<'a> Guard<'a> {
    /// Returns the store if the guest may make this request.
    fn store(mut self, call: &str, access: Access) -> Result<&'a dyn Store, Error> {
        let what = || format!("no grant to {access} its own checkpoint");
        self.count(call, "checkpoint", 1)
            .and_then(|()| self.check(call, "checkpoint", access, OWN, what))
            .map_err(Error::AccessDenied)?;
        let store = self.backends.checkpoint.as_deref();
        store.ok_or_else(|| Error::Unavailable("this host has no checkpoint storage for this guest".to_owned()))
    }
}

impl store::Host for Host {
    async fn checkpoint(&mut self, data: String) -> wasmtime::Result<Result<(), Error>> {
        #[derive(Serialize)]
        struct Args<'a> {
            data: &'a str,
        }
        let (tape, meter, guard) = self.apart();
        ask(tape, meter, "store.checkpoint", &Args { data: &data }, async || {
            guard.store("store.checkpoint", Access::Write)?.checkpoint(&data).await
        })
        .await
    }

    async fn append(&mut self, entry: String) -> wasmtime::Result<Result<(), Error>> {
        #[derive(Serialize)]
        struct Args<'a> {
            entry: &'a str,
        }
        let (tape, meter, guard) = self.apart();
        ask(tape, meter, "store.append", &Args { entry: &entry }, async || {
            guard.store("store.append", Access::Write)?.append(&entry).await
        })
        .await
    }

    async fn restore(&mut self) -> wasmtime::Result<Result<Option<Saved>, Error>> {
        #[derive(Serialize)]
        struct Args {}
        let (tape, meter, guard) = self.apart();
        ask(tape, meter, "store.restore", &Args {}, async || {
            guard.store("store.restore", Access::Read)?.restore().await
        })
        .await
    }
}
