//! The import `trueup:lbaas/api`: checks quotas and the grant, then asks the backend. The tape records the answer of
//! either.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use super::owners::{Owners, Parent, parent, referred};
use super::{Api, Error, Object, ObjectRef, Spec, State};
use crate::ask::ask;
use crate::bindings::lbaas::{api, types};
use crate::grants::{Access, EVERYTHING, Grant, Grants};
use crate::guard::Guard;
use crate::host::Host;
use crate::meter::Change;
use crate::quota::Blast;

/// The capability's name in grants.
const LBAAS: &str = "lbaas";

/// What a request needs apart from the tape; borrowed separately.
struct Door<'a> {
    guard: Guard<'a>,
    owners: &'a mut Owners,
    blast: &'a mut Blast,
    removing: bool,
}

impl<'a> Door<'a> {
    fn api(&self) -> Result<&'a Arc<dyn Api>, Error> {
        self.guard.backends.lbaas.as_ref().ok_or_else(|| {
            Error::Unavailable("this host has no backend for lbaas; configure `[backend.lbaas]`".to_owned())
        })
    }

    fn grants(&self) -> &'a Grants {
        self.guard.grants
    }

    fn grant(&self) -> Option<&'a Grant> {
        self.grants().grant(LBAAS)
    }

    /// Counts the request, and refuses it with all its entries if the guest exceeds its quota.
    fn count(&mut self, call: &str, entries: usize) -> Result<(), Error> {
        self.guard.count(call, LBAAS, entries).map_err(Error::AccessDenied)
    }

    fn check(&mut self, call: &str, access: Access, load_balancer: &str) -> Result<(), Error> {
        let what = || format!("no grant to {access} load balancer `{load_balancer}`");
        self.guard
            .check(call, LBAAS, access, load_balancer, what)
            .map_err(Error::AccessDenied)
    }

    /// Refuses if the guest has no such access to any load balancer.
    fn check_some(&mut self, call: &str, access: Access) -> Result<(), Error> {
        if self.grants().allow_some(LBAAS, access) {
            return Ok(());
        }
        let what = format!("no grant to {access} any load balancer");
        Err(Error::AccessDenied(self.guard.refuse(call, EVERYTHING, what, 1)))
    }

    /// Refuses to destroy all of these if that exceeds a limit of this call. Nothing is sent then, and owners are not
    /// looked up: entries without a grant count, too.
    fn check_blast(&mut self, call: &str, refs: &[ObjectRef]) -> Result<(), Error> {
        if !self.grants().allow_some(LBAAS, Access::Write) {
            // Nothing will be destroyed, so that is the refusal to return.
            return Ok(());
        }
        match self.blast.above(self.grant(), refs, self.removing) {
            None => self.check_round(call, refs),
            Some(above) => {
                let told = self.guard.refuse(call, above.limit, above.what, refs.len());
                Err(Error::AccessDenied(told))
            }
        }
    }

    /// Refuses to destroy all of these if the round exceeds what needs an approval.
    fn check_round(&mut self, call: &str, refs: &[ObjectRef]) -> Result<(), Error> {
        let holdings = &self.guard.backends.quotas.holdings;
        holdings
            .admit(&self.guard.identity.instance, refs.len() as u64)
            .map_err(|why| {
                let told = self.guard.refuse(call, "approve_above", why, refs.len());
                Error::AccessDenied(told)
            })
    }

    /// Finds the load balancer above `from` and checks the grant for it.
    async fn check_owner(&mut self, call: &str, access: Access, from: Parent) -> Result<(), Error> {
        if self.grants().allow_all(LBAAS, access) {
            return Ok(());
        }
        self.check_some(call, access)?;
        let api = self.api()?;
        let load_balancer = self.owners.load_balancer(from, api.as_ref()).await?;
        self.check(call, access, &load_balancer)
    }

    fn see<'o>(&mut self, access: Access, objects: impl IntoIterator<Item = &'o Object>) {
        if !self.grants().allow_all(LBAAS, access) {
            objects.into_iter().for_each(|object| self.owners.see(object));
        }
    }

    /// The tagged resources of the load balancers that the guest may read; it must not see others.
    async fn list(&mut self, tag: &str) -> Result<Vec<Object>, Error> {
        self.check_some("api.list-tagged", Access::Read)?;
        let api = self.api()?;
        if self.grants().allow_some(LBAAS, Access::Write) {
            api.adopt(tag).await?;
        }
        let listed = api.list_tagged(tag).await?;
        // Writes look up the owner, too, and need not read again what this list shows.
        self.see(Access::Write, &listed);
        if self.grants().allow_all(LBAAS, Access::Read) {
            return Ok(listed);
        }
        self.see(Access::Read, &listed);
        let mut readable = Vec::with_capacity(listed.len());
        for object in listed {
            match self.owners.load_balancer(parent(&object.spec), api.as_ref()).await {
                Ok(load_balancer) if self.grants().allow(LBAAS, Access::Read, &load_balancer) => readable.push(object),
                // No grant can cover a parent that is gone or has no load balancer.
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(readable)
    }

    /// Checks each entry: granted ones go to the backend, the rest is answered here.
    async fn sift<'e, T: Clone>(
        &mut self,
        call: &'static str,
        access: Access,
        entries: &'e [T],
        owners: impl Fn(&T) -> Vec<Parent>,
    ) -> Sifted<'e, T> {
        if let Err(error) = self.api() {
            return Sifted {
                call,
                granted: Cow::Borrowed(&[]),
                refusals: vec![Some(error); entries.len()],
            };
        }
        if self.grants().allow_all(LBAAS, access) {
            return Sifted {
                call,
                granted: Cow::Borrowed(entries),
                refusals: vec![None; entries.len()],
            };
        }
        let mut refusals = Vec::with_capacity(entries.len());
        let mut granted = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut verdict = Ok(());
            for owner in owners(entry) {
                verdict = self.check_owner(call, access, owner).await;
                if verdict.is_err() {
                    break;
                }
            }
            if verdict.is_ok() {
                granted.push(entry.clone());
            }
            refusals.push(verdict.err());
        }
        Sifted {
            call,
            granted: Cow::Owned(granted),
            refusals,
        }
    }
}

/// The granted entries of a list, and why the others are refused.
struct Sifted<'e, T: Clone> {
    call: &'static str,
    granted: Cow<'e, [T]>,
    /// One per entry, in order.
    refusals: Vec<Option<Error>>,
}

impl<T: Clone> Sifted<'_, T> {
    /// The backend and the entries to ask it for; `None` if no entry is left.
    fn question<'a>(&'a self, door: &Door<'a>) -> Option<(&'a dyn Api, &'a [T])> {
        let api = door.api().ok()?;
        (!self.granted.is_empty()).then_some((api.as_ref(), self.granted.as_ref()))
    }

    /// The backend's answers and the refusals, in the order of the entries.
    fn answer<R>(self, answers: Option<Vec<Result<R, Error>>>) -> Vec<Result<R, Error>> {
        let mut answers = answers.unwrap_or_default().into_iter();
        let missing = || {
            Err(Error::Unavailable(format!(
                "the backend gave fewer answers than `{}` has entries",
                self.call
            )))
        };
        let answer = |refusal: Option<Error>| refusal.map_or_else(|| answers.next().unwrap_or_else(missing), Err);
        self.refusals.into_iter().map(answer).collect()
    }
}

impl Host {
    fn lbaas(&mut self) -> (&mut trueup_journal::Tape, &mut crate::meter::Meter, Door<'_>) {
        let guard = Guard {
            identity: &self.identity,
            grants: &self.grants,
            backends: &self.backends,
            refused: &mut self.refused,
        };
        let door = Door {
            guard,
            owners: &mut self.owners,
            blast: &mut self.blast,
            removing: self.removing,
        };
        (&mut self.tape, &mut self.meter, door)
    }
}

#[derive(Serialize)]
struct Refs<'a> {
    refs: &'a [ObjectRef],
}

/// Refuses a whole list: each entry gets the refusal.
fn all<R>(entries: usize, refusal: &Error) -> Vec<Result<R, Error>> {
    (0..entries).map(|_| Err(refusal.clone())).collect()
}

fn succeeded<R>(answers: &[Result<R, Error>]) -> u64 {
    answers.iter().filter(|answer| answer.is_ok()).count() as u64
}

fn of_ref(entry: &ObjectRef) -> Vec<Parent> {
    vec![Parent::Resource(entry.kind, entry.identifier.clone())]
}

impl types::Host for Host {}

impl api::Host for Host {
    async fn load_balancer(&mut self, identifier: String) -> wasmtime::Result<Result<State, Error>> {
        #[derive(Serialize)]
        struct Args<'a> {
            identifier: &'a str,
        }
        let (tape, meter, mut door) = self.lbaas();
        ask(
            tape,
            meter,
            "api.load-balancer",
            &Args {
                identifier: &identifier,
            },
            async || {
                door.count("api.load-balancer", 1)?;
                door.check("api.load-balancer", Access::Read, &identifier)?;
                door.api()?.load_balancer(&identifier).await
            },
        )
        .await
    }

    async fn list_tagged(&mut self, tag: String) -> wasmtime::Result<Result<Vec<Object>, Error>> {
        #[derive(Serialize)]
        struct Args<'a> {
            tag: &'a str,
        }
        let (tape, meter, mut door) = self.lbaas();
        ask(tape, meter, "api.list-tagged", &Args { tag: &tag }, async || {
            door.count("api.list-tagged", 1)?;
            let listed = door.list(&tag).await?;
            door.blast.see(door.grant(), &listed);
            door.blast.listed(listed.len());
            Ok(listed)
        })
        .await
    }

    async fn get(&mut self, refs: Vec<ObjectRef>) -> wasmtime::Result<Vec<Result<Object, Error>>> {
        let (tape, meter, mut door) = self.lbaas();
        ask(tape, meter, "api.get", &Refs { refs: &refs }, async || {
            if let Err(refusal) = door.count("api.get", refs.len()) {
                return all(refs.len(), &refusal);
            }
            let sifted = door.sift("api.get", Access::Read, &refs, of_ref).await;
            let answers = match sifted.question(&door) {
                Some((api, refs)) => Some(api.get(refs).await),
                None => None,
            };
            let answers = sifted.answer(answers);
            door.blast.see(door.grant(), answers.iter().flatten());
            answers
        })
        .await
    }

    async fn create(&mut self, specs: Vec<Spec>, tags: Vec<String>) -> wasmtime::Result<Vec<Result<Object, Error>>> {
        #[derive(Serialize)]
        struct Args<'a> {
            specs: &'a [Spec],
            tags: &'a [String],
        }
        let (tape, meter, mut door) = self.lbaas();
        let answers = ask(
            tape,
            meter,
            "api.create",
            &Args {
                specs: &specs,
                tags: &tags,
            },
            async || {
                if let Err(refusal) = door.count("api.create", specs.len()) {
                    return all(specs.len(), &refusal);
                }
                let sifted = door.sift("api.create", Access::Write, &specs, referred).await;
                let answers = match sifted.question(&door) {
                    Some((api, specs)) => Some(api.create(specs, &tags).await),
                    None => None,
                };
                let answers = sifted.answer(answers);
                door.see(Access::Write, answers.iter().flatten());
                door.blast.make(door.grant(), answers.iter().flatten());
                answers
            },
        )
        .await?;
        meter.effects.created += succeeded(&answers);
        self.blast.changed(succeeded(&answers), 0);
        self.changed(answers.iter().flatten().map(|object| Change::Created {
            kind: object.spec.kind().name(),
            name: object.spec.name().to_owned(),
            identifier: object.identifier.clone(),
        }));
        Ok(answers)
    }

    async fn reset(&mut self, refs: Vec<ObjectRef>) -> wasmtime::Result<Vec<Result<(), Error>>> {
        let (tape, meter, mut door) = self.lbaas();
        ask(tape, meter, "api.reset", &Refs { refs: &refs }, async || {
            if let Err(refusal) = door.count("api.reset", refs.len()) {
                return all(refs.len(), &refusal);
            }
            let sifted = door.sift("api.reset", Access::Write, &refs, of_ref).await;
            let answers = match sifted.question(&door) {
                Some((api, refs)) => Some(api.reset(refs).await),
                None => None,
            };
            sifted.answer(answers)
        })
        .await
    }

    async fn destroy(&mut self, refs: Vec<ObjectRef>) -> wasmtime::Result<Vec<Result<(), Error>>> {
        let (tape, meter, mut door) = self.lbaas();
        let answers = ask(tape, meter, "api.destroy", &Refs { refs: &refs }, async || {
            let call = "api.destroy";
            let counted = door.count(call, refs.len());
            if let Err(refusal) = counted.and_then(|()| door.check_blast(call, &refs)) {
                return all(refs.len(), &refusal);
            }
            let sifted = door.sift(call, Access::Write, &refs, of_ref).await;
            door.blast.send(door.grant(), &sifted.granted);
            let answers = match sifted.question(&door) {
                Some((api, refs)) => Some(api.destroy(refs).await),
                None => None,
            };
            sifted.answer(answers)
        })
        .await?;
        let count = succeeded(&answers);
        meter.effects.destroyed += count;
        self.blast.changed(0, count);
        self.backends.quotas.holdings.destroyed(&self.identity.instance, count);
        let destroyed = refs.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
        self.changed(destroyed.map(|(reference, _)| Change::Destroyed {
            kind: reference.kind.name(),
            identifier: reference.identifier.clone(),
        }));
        Ok(answers)
    }
}
