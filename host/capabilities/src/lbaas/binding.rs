//! The import `trueup:lbaas/api`: checks the grant, then asks the backend; the tape has both.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use super::owners::{Owners, Parent, parent, referred};
use super::{Api, Error, Object, ObjectRef, Spec, State};
use crate::bindings::lbaas::{api, types};
use crate::grants::{Access, Grants};
use crate::host::{Host, Identity, ask};
use crate::meter::Change;
use crate::metrics::Registry;

/// What a question needs beside the tape: borrowed apart from it.
struct Door<'a> {
    identity: &'a Identity,
    grants: &'a Grants,
    metrics: &'a Registry,
    owners: &'a mut Owners,
    api: Option<&'a Arc<dyn Api>>,
}

impl<'a> Door<'a> {
    fn api(&self) -> Result<&'a Arc<dyn Api>, Error> {
        self.api.ok_or_else(|| {
            Error::Unavailable("this host has no backend for lbaas; configure `[backend.lbaas]`".to_owned())
        })
    }

    fn denied(&mut self, call: &str, what: String) -> Error {
        Error::AccessDenied(Host::refusal(self.identity, self.metrics, self.owners, call, &what))
    }

    fn check(&mut self, call: &str, access: Access, load_balancer: &str) -> Result<(), Error> {
        if self.grants.allow("lbaas", access, load_balancer) {
            return Ok(());
        }
        Err(self.denied(call, format!("no grant to {access} load balancer `{load_balancer}`")))
    }

    /// Finds out the load balancer behind `from` and checks the grant for it.
    async fn check_owner(&mut self, call: &str, access: Access, from: Parent) -> Result<(), Error> {
        if self.grants.allow_all("lbaas", access) {
            return Ok(());
        }
        if !self.grants.allow_some("lbaas", access) {
            return Err(self.denied(call, format!("no grant to {access} any load balancer")));
        }
        let api = self.api()?;
        let load_balancer = self.owners.load_balancer(from, api.as_ref()).await?;
        self.check(call, access, &load_balancer)
    }

    fn see<'o>(&mut self, access: Access, objects: impl IntoIterator<Item = &'o Object>) {
        if !self.grants.allow_all("lbaas", access) {
            objects.into_iter().for_each(|object| self.owners.see(object));
        }
    }

    /// The tagged resources of the load balancers that may be read; others are not this guest's to see.
    async fn list(&mut self, tag: &str) -> Result<Vec<Object>, Error> {
        if !self.grants.allow_some("lbaas", Access::Read) {
            return Err(self.denied("api.list-tagged", "no grant to read any load balancer".to_owned()));
        }
        let api = self.api()?;
        let listed = api.list_tagged(tag).await?;
        // Writes ask for the owner too: what this list shows need not be read again for them.
        self.see(Access::Write, &listed);
        if self.grants.allow_all("lbaas", Access::Read) {
            return Ok(listed);
        }
        self.see(Access::Read, &listed);
        let mut readable = Vec::with_capacity(listed.len());
        for object in listed {
            match self.owners.load_balancer(parent(&object.spec), api.as_ref()).await {
                Ok(load_balancer) if self.grants.allow("lbaas", Access::Read, &load_balancer) => readable.push(object),
                // A parent that is gone or has no load balancer: nobody is granted that.
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(readable)
    }

    /// Checks each entry: what is granted goes to the backend, the rest is answered here.
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
        if self.grants.allow_all("lbaas", access) {
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

/// The entries of a list that are granted, and why the others are not.
struct Sifted<'e, T: Clone> {
    call: &'static str,
    granted: Cow<'e, [T]>,
    /// One for each entry, in order.
    refusals: Vec<Option<Error>>,
}

impl<T: Clone> Sifted<'_, T> {
    /// What to ask of whom; none where nothing is left to ask.
    fn question<'a>(&'a self, door: &Door<'a>) -> Option<(&'a dyn Api, &'a [T])> {
        let api = door.api().ok()?;
        (!self.granted.is_empty()).then_some((api.as_ref(), self.granted.as_ref()))
    }

    /// The backend's answers to what was granted, and the refusals, in the order of the entries.
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
        let door = Door {
            identity: &self.identity,
            grants: &self.grants,
            metrics: &self.backends.metrics,
            owners: &mut self.owners,
            api: self.backends.lbaas.as_ref(),
        };
        (&mut self.tape, &mut self.meter, door)
    }
}

#[derive(Serialize)]
struct Refs<'a> {
    refs: &'a [ObjectRef],
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
            door.list(&tag).await
        })
        .await
    }

    async fn get(&mut self, refs: Vec<ObjectRef>) -> wasmtime::Result<Vec<Result<Object, Error>>> {
        let (tape, meter, mut door) = self.lbaas();
        ask(tape, meter, "api.get", &Refs { refs: &refs }, async || {
            let sifted = door.sift("api.get", Access::Read, &refs, of_ref).await;
            let answers = match sifted.question(&door) {
                Some((api, refs)) => Some(api.get(refs).await),
                None => None,
            };
            sifted.answer(answers)
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
                let sifted = door.sift("api.create", Access::Write, &specs, referred).await;
                let answers = match sifted.question(&door) {
                    Some((api, specs)) => Some(api.create(specs, &tags).await),
                    None => None,
                };
                let answers = sifted.answer(answers);
                door.see(Access::Write, answers.iter().flatten());
                answers
            },
        )
        .await?;
        meter.effects.created += succeeded(&answers);
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
            let sifted = door.sift("api.destroy", Access::Write, &refs, of_ref).await;
            let answers = match sifted.question(&door) {
                Some((api, refs)) => Some(api.destroy(refs).await),
                None => None,
            };
            sifted.answer(answers)
        })
        .await?;
        meter.effects.destroyed += succeeded(&answers);
        let destroyed = refs.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
        self.changed(destroyed.map(|(reference, _)| Change::Destroyed {
            kind: reference.kind.name(),
            identifier: reference.identifier.clone(),
        }));
        Ok(answers)
    }
}
