//! What a guest's `store` calls go through: the grant, then the tape, then the store.

use std::sync::Arc;

use serde::Serialize;

use super::{Error, Saved, Store};
use crate::bindings::checkpoint::store;
use crate::grants::{Access, Grants, OWN};
use crate::host::{Host, Identity, ask};
use crate::lbaas::Owners;
use crate::metrics::Registry;

/// What a question needs beside the tape: borrowed apart from it.
struct Door<'a> {
    identity: &'a Identity,
    grants: &'a Grants,
    metrics: &'a Registry,
    owners: &'a mut Owners,
    store: Option<&'a Arc<dyn Store>>,
}

impl<'a> Door<'a> {
    fn store(self, call: &str, access: Access) -> Result<&'a dyn Store, Error> {
        if !self.grants.allow("checkpoint", access, OWN) {
            let what = format!("no grant to {access} its own checkpoint");
            return Err(Error::AccessDenied(Host::refusal(
                self.identity,
                self.metrics,
                self.owners,
                call,
                &what,
            )));
        }
        let store = self.store.map(AsRef::as_ref);
        store.ok_or_else(|| Error::Unavailable("this host has no checkpoint storage for this guest".to_owned()))
    }
}

impl Host {
    fn checkpoint(&mut self) -> (&mut trueup_journal::Tape, &mut crate::meter::Meter, Door<'_>) {
        let door = Door {
            identity: &self.identity,
            grants: &self.grants,
            metrics: &self.backends.metrics,
            owners: &mut self.owners,
            store: self.backends.checkpoint.as_ref(),
        };
        (&mut self.tape, &mut self.meter, door)
    }
}

impl store::Host for Host {
    async fn checkpoint(&mut self, data: String) -> wasmtime::Result<Result<(), Error>> {
        #[derive(Serialize)]
        struct Args<'a> {
            data: &'a str,
        }
        let (tape, meter, door) = self.checkpoint();
        ask(tape, meter, "store.checkpoint", &Args { data: &data }, async || {
            door.store("store.checkpoint", Access::Write)?.checkpoint(&data).await
        })
        .await
    }

    async fn append(&mut self, entry: String) -> wasmtime::Result<Result<(), Error>> {
        #[derive(Serialize)]
        struct Args<'a> {
            entry: &'a str,
        }
        let (tape, meter, door) = self.checkpoint();
        ask(tape, meter, "store.append", &Args { entry: &entry }, async || {
            door.store("store.append", Access::Write)?.append(&entry).await
        })
        .await
    }

    async fn restore(&mut self) -> wasmtime::Result<Result<Option<Saved>, Error>> {
        #[derive(Serialize)]
        struct Args {}
        let (tape, meter, door) = self.checkpoint();
        ask(tape, meter, "store.restore", &Args {}, async || {
            door.store("store.restore", Access::Read)?.restore().await
        })
        .await
    }
}
