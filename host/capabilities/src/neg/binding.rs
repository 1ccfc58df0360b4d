//! The import `trueup:neg/api`: checks quotas and the grant, then asks the backend. The tape records the answer of
//! either.
//!
//! A change carries a [`RequestId`] that follows from the request's position, and is only sent once the journal is on
//! the disk up to there. A call that a crash interrupts is therefore found, runs again, and sends the same id.

use std::time::Instant;

use serde::Serialize;
use trueup_journal::TapeError;

use super::{Api, ENDPOINTS_PER_OPERATION_MAX, Endpoint, Error, NegRef, RequestId};
use crate::ask::{Stop, args};
use crate::bindings::neg::{api, types};
use crate::grants::{Access, NEG, neg_scope};
use crate::guard::Guard;
use crate::host::Host;

impl<'a> Guard<'a> {
    /// Returns the backend if the guest may make this request.
    fn neg(&mut self, access: Access, neg: &NegRef) -> Result<&'a dyn Api, Error> {
        self.count(NEG, 1).map_err(Error::AccessDenied)?;
        let NegRef { name, zone } = neg;
        if !self.grants.allow_neg(access, name, zone) {
            let what = format!("no grant to {access} NEG `{name}` in zone `{zone}`");
            return Err(Error::AccessDenied(self.refuse(&neg_scope(name, zone), what, 1)));
        }
        let api = self.backends.neg.as_deref();
        api.ok_or_else(|| Error::Unavailable("this host has no backend for neg; configure `[backend.neg]`".to_owned()))
    }
}

/// The HTTP status that Compute Engine returns for an invalid request.
const BAD_REQUEST: u16 = 400;

/// The number of an operation.
type Started = wasmtime::Result<Result<u64, Error>>;

impl Host {
    /// The id of the next request, a change of this NEG, after the journal is on the disk: after a crash, that request
    /// must be repeated.
    ///
    /// # Errors
    /// If the journal can't be written; then the request must not be sent.
    fn request_id(&mut self, neg: &NegRef, call: &str, args: &impl Serialize) -> wasmtime::Result<RequestId> {
        // Otherwise the request will be refused and changes nothing: a guest on trial must not cause endless disk
        // syncs.
        if self.grants.allow_neg(Access::Write, &neg.name, &neg.zone)
            && let Some(journal) = self.tape.journal_mut()
        {
            let entered = Instant::now();
            let synced = journal.sync_now();
            self.meter.used.waited += entered.elapsed();
            synced.map_err(|error| Stop::from(TapeError::from(error)))?;
        }
        // `ask` counts it as the next.
        let number = self.meter.used.imports.saturating_add(1);
        let position = (self.identity.instance.as_str(), self.began, number);
        Ok(RequestId::of(position, call, args)?)
    }

    /// Starts an operation on endpoints of the NEG.
    async fn change(&mut self, attaches: bool, neg: NegRef, endpoints: Vec<Endpoint>) -> Started {
        let call = if attaches { "api.attach" } else { "api.detach" };
        let args = args!(neg: NegRef, endpoints: Vec<Endpoint>);
        let request = self.request_id(&neg, call, &args)?;
        self.ask(call, &args, async |mut guard| {
            let api = guard.neg(Access::Write, &neg)?;
            let count = endpoints.len();
            let most = ENDPOINTS_PER_OPERATION_MAX;
            if count > most {
                // Compute Engine would refuse it, too.
                let text = format!("{count} endpoints in one operation, which takes at most {most}; split them");
                return Err(Error::Refused((BAD_REQUEST, text)));
            }
            api.change(attaches, &neg, &endpoints, request).await
        })
        .await
    }
}

impl types::Host for Host {}

impl api::Host for Host {
    async fn ensure(&mut self, neg: NegRef, subnet: String) -> wasmtime::Result<Result<bool, Error>> {
        let (call, args) = ("api.ensure", args!(neg: NegRef, subnet: String));
        let request = self.request_id(&neg, call, &args)?;
        self.ask(call, &args, async |mut guard| {
            guard.neg(Access::Write, &neg)?.ensure(&neg, &subnet, request).await
        })
        .await
    }

    async fn list_endpoints(&mut self, neg: NegRef) -> wasmtime::Result<Result<Vec<Endpoint>, Error>> {
        self.ask("api.list-endpoints", &args!(neg: NegRef), async |mut guard| {
            guard.neg(Access::Read, &neg)?.list_endpoints(&neg).await
        })
        .await
    }

    async fn attach(&mut self, neg: NegRef, endpoints: Vec<Endpoint>) -> Started {
        self.change(true, neg, endpoints).await
    }

    async fn detach(&mut self, neg: NegRef, endpoints: Vec<Endpoint>) -> Started {
        self.change(false, neg, endpoints).await
    }
}

#[cfg(test)]
#[path = "binding_tests.rs"]
mod tests;
