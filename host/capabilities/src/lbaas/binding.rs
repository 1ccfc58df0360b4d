//! The import `trueup:lbaas/api`: checks quotas and the grant, then asks the backend. The tape records the answer of
//! either.

use std::borrow::Cow;

use super::{Api, Error, Object, ObjectRef, Parent, Spec, State, parent, referred};
use crate::ask::args;
use crate::bindings::lbaas::{api, types};
use crate::grants::{Access, EVERYTHING, Grant};
use crate::guard::Guard;
use crate::holdings::COUNTS_FIRST;
use crate::host::Host;
use crate::meter::Change;
use crate::quota;

/// The capability's name in grants.
const LBAAS: &str = "lbaas";

impl<'a> Guard<'a> {
    fn lbaas(&self) -> Result<&'a dyn Api, Error> {
        let none = "this host has no backend for lbaas; configure `[backend.lbaas]`";
        let api = self.backends.lbaas.as_deref();
        api.ok_or_else(|| Error::Unavailable(none.to_owned()))
    }

    fn lbaas_grant(&self) -> Option<&'a Grant> {
        self.grants.grant(LBAAS)
    }

    /// Counts the request, and refuses it with all its entries if the guest exceeds its quota.
    fn count_lbaas(&mut self, entries: usize) -> Result<(), Error> {
        self.count(LBAAS, entries).map_err(Error::AccessDenied)
    }

    fn check_load_balancer(&mut self, access: Access, load_balancer: &str) -> Result<(), Error> {
        let what = || format!("no grant to {access} load balancer `{load_balancer}`");
        self.check(LBAAS, access, load_balancer, what)
            .map_err(Error::AccessDenied)
    }

    /// Refuses if the guest has no such access to any load balancer.
    fn check_some(&mut self, access: Access) -> Result<(), Error> {
        if self.grants.allow_some(LBAAS, access) {
            return Ok(());
        }
        let what = format!("no grant to {access} any load balancer");
        Err(Error::AccessDenied(self.refuse(EVERYTHING, what, 1)))
    }

    /// Refuses to destroy all of these if that exceeds a limit of this call. Nothing is sent then, and owners are not
    /// looked up: entries without a grant count, too.
    fn check_blast(&mut self, refs: &[ObjectRef]) -> Result<(), Error> {
        if !self.grants.allow_some(LBAAS, Access::Write) {
            // Nothing will be destroyed, so that is the refusal to return.
            return Ok(());
        }
        let holdings = &self.backends.quotas.holdings;
        let key = &self.identity.instance;
        let count = refs.len() as u64;
        let (grant, foreseen, removing) = (self.lbaas_grant(), self.foreseen, self.removing);
        let is_limited = foreseen.is_none() && quota::limits(grant, removing);
        let has = self.blast.left.unwrap_or_default();
        if holdings.uncounted(key, count, has, is_limited).is_some() {
            self.refused.is_repeated = true;
            return Err(Error::AccessDenied(COUNTS_FIRST.to_owned()));
        }
        let (limit, what) = match self.blast.above(grant, refs, (foreseen, removing)) {
            Some(above) => above,
            None => {
                let Err(why) = holdings.admit(key, count) else {
                    return Ok(());
                };
                self.refused.is_repeated = true;
                ("approve_above", why)
            }
        };
        Err(Error::AccessDenied(self.refuse(limit, what, refs.len())))
    }

    /// Finds the load balancer above each owner and checks the grant for it.
    async fn check_owners(&mut self, access: Access, owners: Vec<Parent>) -> Result<(), Error> {
        self.check_some(access)?;
        for owner in owners {
            let load_balancer = self.blast.owners.load_balancer(owner, self.lbaas()?).await?;
            self.check_load_balancer(access, &load_balancer)?;
        }
        Ok(())
    }

    fn see_owners<'o>(&mut self, access: Access, objects: impl IntoIterator<Item = &'o Object>) {
        if !self.grants.allow_all(LBAAS, access) {
            objects.into_iter().for_each(|object| self.blast.owners.see(object));
        }
    }

    /// The tagged resources of the load balancers that the guest may read; it must not see others.
    async fn list_tagged(&mut self, tag: &str) -> Result<Vec<Object>, Error> {
        self.check_some(Access::Read)?;
        let api = self.lbaas()?;
        if self.grants.allow_some(LBAAS, Access::Write) {
            api.adopt(tag).await?;
        }
        let listed = api.list_tagged(tag).await?;
        // Writes look up the owner, too, and need not read again what this list shows.
        self.see_owners(Access::Write, &listed);
        if self.grants.allow_all(LBAAS, Access::Read) {
            return Ok(listed);
        }
        self.see_owners(Access::Read, &listed);
        let mut readable = Vec::with_capacity(listed.len());
        for object in listed {
            match self.blast.owners.load_balancer(parent(&object.spec), api).await {
                Ok(load_balancer) if self.grants.allow(LBAAS, Access::Read, &load_balancer) => readable.push(object),
                // No grant can cover a parent that is gone or has no load balancer.
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(readable)
    }

    /// Asks the backend about the entries of an admitted list that are granted, and refuses the others. The answers
    /// have the order of the entries.
    async fn each<'e, T: Clone, R, Fut>(
        &mut self,
        access: Access,
        entries: &'e [T],
        admitted: Result<(), Error>,
        owners: impl Fn(&T) -> Vec<Parent>,
        question: impl FnOnce(&mut Self, &'a dyn Api, Cow<'e, [T]>) -> Fut,
    ) -> Vec<Result<R, Error>>
    where
        Fut: Future<Output = Vec<Result<R, Error>>>,
    {
        let api = match admitted.and_then(|()| self.lbaas()) {
            Ok(api) => api,
            Err(refusal) => return entries.iter().map(|_| Err(refusal.clone())).collect(),
        };
        let mut refusals = vec![None; entries.len()];
        let mut granted = Cow::Borrowed(entries);
        if !self.grants.allow_all(LBAAS, access) {
            for (entry, refusal) in entries.iter().zip(&mut refusals) {
                *refusal = self.check_owners(access, owners(entry)).await.err();
            }
            let admitted = entries.iter().zip(&refusals).filter(|(_, refusal)| refusal.is_none());
            granted = admitted.map(|(entry, _)| entry.clone()).collect();
        }
        let mut answers = Vec::new().into_iter();
        if !granted.is_empty() {
            answers = question(self, api, granted).await.into_iter();
        }
        let missing = || {
            let call = self.call;
            let text = format!("the backend gave fewer answers than `{call}` has entries");
            Err(Error::Unavailable(text))
        };
        let answer = |refusal: Option<Error>| refusal.map_or_else(|| answers.next().unwrap_or_else(missing), Err);
        refusals.into_iter().map(answer).collect()
    }
}

fn succeeded<R>(answers: &[Result<R, Error>]) -> u64 {
    answers.iter().filter(|answer| answer.is_ok()).count() as u64
}

fn of_ref(entry: &ObjectRef) -> Vec<Parent> {
    vec![Parent::Resource(entry.clone())]
}

impl Host {
    /// Notes which of these the Engine failed to apply.
    fn saw<'o>(&mut self, objects: impl Iterator<Item = &'o Object>) {
        for object in objects {
            let of = (object.spec.kind().name(), object.identifier.clone());
            match object.state {
                State::Failed => self.unapplied.insert(of),
                _ => self.unapplied.remove(&of),
            };
        }
    }
}

impl types::Host for Host {}

impl api::Host for Host {
    async fn load_balancer(&mut self, identifier: String) -> wasmtime::Result<Result<State, Error>> {
        self.ask("api.load-balancer", &args!(identifier: String), async |mut guard| {
            guard.count_lbaas(1)?;
            guard.check_load_balancer(Access::Read, &identifier)?;
            guard.lbaas()?.load_balancer(&identifier).await
        })
        .await
    }

    async fn list_tagged(&mut self, tag: String) -> wasmtime::Result<Result<Vec<Object>, Error>> {
        let args = args!(tag: String);
        let listed = self.ask("api.list-tagged", &args, async |mut guard| {
            guard.count_lbaas(1)?;
            let listed = guard.list_tagged(&tag).await?;
            guard.blast.see(guard.lbaas_grant(), &listed);
            guard.blast.left = Some(listed.len() as u64);
            Ok(listed)
        });
        let listed = listed.await?;
        self.saw(listed.iter().flatten());
        Ok(listed)
    }

    async fn get(&mut self, refs: Vec<ObjectRef>) -> wasmtime::Result<Vec<Result<Object, Error>>> {
        let args = args!(refs: Vec<ObjectRef>);
        let got = self.ask("api.get", &args, async |mut guard| {
            let admitted = guard.count_lbaas(refs.len());
            let answers = guard.each(Access::Read, &refs, admitted, of_ref, |_, api, refs| async move {
                api.get(&refs).await
            });
            let answers = answers.await;
            guard.blast.see(guard.lbaas_grant(), answers.iter().flatten());
            answers
        });
        let got = got.await?;
        self.saw(got.iter().flatten());
        Ok(got)
    }

    async fn create(&mut self, specs: Vec<Spec>, tags: Vec<String>) -> wasmtime::Result<Vec<Result<Object, Error>>> {
        let args = args!(specs: Vec<Spec>, tags: Vec<String>);
        let created = self.ask("api.create", &args, async |mut guard| {
            let admitted = guard.count_lbaas(specs.len());
            let tags = &tags;
            let answers = guard.each(Access::Write, &specs, admitted, referred, |_, api, specs| async move {
                api.create(&specs, tags).await
            });
            let answers = answers.await;
            guard.see_owners(Access::Write, answers.iter().flatten());
            guard.blast.make(guard.lbaas_grant(), answers.iter().flatten());
            answers
        });
        let answers = created.await?;
        self.meter.effects.created += succeeded(&answers);
        self.blast.changed(succeeded(&answers), 0);
        self.changed(answers.iter().flatten().map(|object| Change::Created {
            kind: object.spec.kind().name(),
            name: object.spec.name().to_owned(),
            identifier: object.identifier.clone(),
        }));
        Ok(answers)
    }

    async fn reset(&mut self, refs: Vec<ObjectRef>) -> wasmtime::Result<Vec<Result<(), Error>>> {
        self.ask("api.reset", &args!(refs: Vec<ObjectRef>), async |mut guard| {
            let admitted = guard.count_lbaas(refs.len());
            let answers = guard.each(Access::Write, &refs, admitted, of_ref, |_, api, refs| async move {
                api.reset(&refs).await
            });
            answers.await
        })
        .await
    }

    async fn destroy(&mut self, refs: Vec<ObjectRef>) -> wasmtime::Result<Vec<Result<(), Error>>> {
        let args = args!(refs: Vec<ObjectRef>);
        let destroyed = self.ask("api.destroy", &args, async |mut guard| {
            let admitted = guard.count_lbaas(refs.len()).and_then(|()| guard.check_blast(&refs));
            let answers = guard.each(Access::Write, &refs, admitted, of_ref, |guard, api, refs| {
                guard.blast.send(guard.lbaas_grant(), &refs);
                async move { api.destroy(&refs).await }
            });
            answers.await
        });
        let answers = destroyed.await?;
        let count = succeeded(&answers);
        self.meter.effects.destroyed += count;
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

#[cfg(test)]
#[path = "binding_tests/mod.rs"]
mod tests;
