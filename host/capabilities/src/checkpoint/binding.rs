//! A guest's `store` calls pass the tape, then quota and grant, then reach the store.

use super::{Error, Saved, Store};
use crate::ask::{Nothing, args};
use crate::bindings::checkpoint::store;
use crate::grants::{Access, OWN};
use crate::guard::Guard;
use crate::host::Host;

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
