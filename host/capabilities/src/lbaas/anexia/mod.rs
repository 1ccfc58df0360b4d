//! The real backend of `trueup:lbaas/api`: the Anexia Engine over HTTP.
//!
//! Decides nothing about what should be there; that is the guest's. Checks no grant and keeps no journal; that is the
//! binding's. From the contract inwards:
//!
//! ```text
//! mod (the functions) -> list, create, leftovers -> http (one request: slots, tries, rate limit) -> http::client -> the Engine
//!                            wire, path: what its JSON and paths mean
//! ```
//!
//! Where several hosts run and this one may not act any more, requests are held back at three places, the last of which
//! is the one that counts:
//!
//! ```text
//! http (before it is sent) -> http::client (given up while it waits) -> http::connector -> http::socket (each write)
//! ```
//!
//! So they are where it acts again, but others may have acted since they were decided on: each call, its connections with
//! it, is of one epoch of the fence.

mod create;
mod created;
mod http;
mod intents;
mod leftovers;
mod list;
mod ordered;
mod path;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{AUTHORIZATION, HeaderMap};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::sync::{Mutex, Semaphore};

use self::http::{Call, Engine, Pauses};
use self::intents::Intents;
use self::path::Collection;
pub use self::settings::{Settings, SettingsError, TOKEN_ENV_DEFAULT, Token, TokenError};
use crate::Answer;
use crate::fence::Fence;
use crate::http::client::{Client, Times};
use crate::http::limit::RateLimit;
use crate::lbaas::{Api, Error, Object, ObjectRef, Spec, State};

/// How the tag begins that says whose a resource is; the Service's uid follows.
const SERVICE_TAG_PREFIX: &str = "anxccm-svc-uid=";

/// Told of every single HTTP request: `trueup_engine_requests_total` and `trueup_engine_requests_in_flight`.
pub trait RequestMetrics: Send + Sync {
    /// A request ended. `resource` is the path without identifiers and tags; `status` the HTTP status, or `timeout`,
    /// `connection` (none, or it broke), or `abandoned` (nobody waited for it any more).
    fn request(&self, resource: &str, method: &str, status: &str);
    /// The number of requests under way changed.
    fn in_flight(&self, delta: i64);
}

/// How the objects of one Service are known: by their names, and below what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Each of its objects is named so, or ends so after a dot.
    pub name_suffix: String,
    /// What is found by name gets the tag of this Service. None: the Service is gone, and any tag that is listed will do, since
    /// everything under it goes.
    pub service_uid: Option<String>,
    /// The load balancers where its objects may be.
    pub load_balancers: BTreeSet<String>,
}

/// The Anexia Engine. One for the whole host: its requests share one limit, and its taggings one queue.
pub struct Anexia {
    engine: Arc<Engine>,
    fence: Fence,
    /// None: it is no Service's.
    owned: Option<Owned>,
}

impl Anexia {
    /// Checks the settings and prepares a client; sends nothing yet, and nothing when `fence` lets nothing through. What is
    /// about to be created is written to the folder `intents`, and read from there at the start; none: it is forgotten
    /// with the process.
    ///
    /// # Errors
    /// One line: the setting that can't be, or why the folder can't be read.
    pub fn new(
        settings: Settings,
        token: Token,
        metrics: Arc<dyn RequestMetrics>,
        fence: Fence,
        intents: Option<&Path>,
    ) -> Result<Self, SettingsError> {
        let proxies = Matcher::from_env();
        Self::build(settings, token, metrics, fence, intents, Pauses::default(), &proxies)
    }

    fn build(
        settings: Settings,
        token: Token,
        metrics: Arc<dyn RequestMetrics>,
        fence: Fence,
        intents: Option<&Path>,
        pauses: Pauses,
        proxies: &Matcher,
    ) -> Result<Self, SettingsError> {
        settings.check_numbers()?;
        let base = settings.base()?;
        let intents = Intents::open(intents, Duration::from_millis(settings.request_timeout_ms))
            .map_err(SettingsError::Intents)?;
        let times = Times {
            request: Duration::from_millis(settings.request_timeout_ms),
            connect: Duration::from_millis(settings.connect_timeout_ms),
        };
        let headers = HeaderMap::from_iter([(AUTHORIZATION, token.header())]);
        let client = Client::new(&base, times, headers, proxies).map_err(|reason| SettingsError::Client { reason })?;
        Ok(Self {
            engine: Arc::new(Engine {
                client,
                base: base.as_str().trim_end_matches('/').to_owned(),
                token,
                metrics,
                permits: Semaphore::new(usize::from(settings.max_concurrent_requests)),
                rate_limit: RateLimit::default(),
                tagging: Mutex::new(()),
                pauses,
                page_size: settings.page_size,
                pages_max: list::PAGES_MAX,
                request_timeout_ms: settings.request_timeout_ms,
                connect_timeout_ms: settings.connect_timeout_ms,
                adopt_orphans: settings.adopt_orphans,
                created_parents: created::CreatedParents::default(),
                intents,
                looks: leftovers::Looks::default(),
            }),
            fence,
            owned: None,
        })
    }

    /// Children of the load balancers, direct or not, that carry no Service's tag, by kind then identifier: what was
    /// created and never tagged by a host that has not come back, and what people made by hand. Changes nothing.
    pub async fn orphans(&self, load_balancers: &[String]) -> Result<Vec<Object>, Error> {
        self.call().orphans(load_balancers).await
    }

    /// Takes a tag from a resource; it need not carry it.
    pub async fn untag(&self, identifier: &str, tag: &str) -> Result<(), Error> {
        Ok(self.call().untag(identifier, tag).await?)
    }

    /// The same Engine for what is decided from here on, such as one job of this Service: once others may have acted it sends
    /// nothing more, also where this host acts again.
    pub fn of_this_epoch(&self, owned: Owned) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            fence: self.fence.of_this_epoch(),
            owned: Some(owned),
        }
    }

    /// Whether Services are looked at by name, since the intents on disk do not say all. With several hosts they never do.
    pub fn looks_by_name(&self) -> bool {
        self.fence.epoch() > 0 || !self.engine.intents.is_complete()
    }

    /// Every Service was listed since the start. Where this host is alone, its intents say all from here on, also after a
    /// restart.
    pub fn all_listed(&self) {
        if self.fence.epoch() == 0 {
            self.engine.intents.complete();
        }
    }

    fn call(&self) -> Call {
        Call::new(&self.engine, &self.fence)
    }
}

impl Api for Anexia {
    fn load_balancer<'a>(&'a self, identifier: &'a str) -> Answer<'a, Result<State, Error>> {
        Box::pin(async move {
            let answer = self.call().get(Collection::LoadBalancers, identifier).await?;
            Ok(wire::state(answer.get("state")))
        })
    }

    fn adopt<'a>(&'a self, tag: &'a str) -> Answer<'a, Result<(), Error>> {
        Box::pin(async move { self.call().adopt(tag, self.owned.as_ref()).await })
    }

    fn leftovers<'a>(&'a self, tag: &'a str) -> Answer<'a, Result<Vec<Object>, Error>> {
        Box::pin(async move {
            let look = self.call().look(tag, self.owned.as_ref()).await?;
            Ok(look.found.into_iter().map(|leftover| leftover.object).collect())
        })
    }

    fn list_tagged<'a>(&'a self, tag: &'a str) -> Answer<'a, Result<Vec<Object>, Error>> {
        Box::pin(async move { self.call().list_tagged(tag).await })
    }

    fn get<'a>(&'a self, refs: &'a [ObjectRef]) -> Answer<'a, Vec<Result<Object, Error>>> {
        Box::pin(async move {
            let call = self.call();
            ordered::all(refs.iter().cloned().map(|it| {
                let call = call.clone();
                async move { call.read(it.kind, &it.identifier).await }
            }))
            .await
        })
    }

    fn create<'a>(&'a self, specs: &'a [Spec], tags: &'a [String]) -> Answer<'a, Vec<Result<Object, Error>>> {
        Box::pin(async move { self.call().create(specs, tags).await })
    }

    fn reset<'a>(&'a self, refs: &'a [ObjectRef]) -> Answer<'a, Vec<Result<(), Error>>> {
        Box::pin(async move {
            let call = self.call();
            ordered::all(refs.iter().cloned().map(|it| {
                let call = call.clone();
                async move {
                    let existing = call.get(it.kind.into(), &it.identifier).await?;
                    let body = wire::reset(it.kind, &it.identifier, &existing);
                    Ok(call.put(it.kind.into(), &it.identifier, body).await?)
                }
            }))
            .await
        })
    }

    fn destroy<'a>(&'a self, refs: &'a [ObjectRef]) -> Answer<'a, Vec<Result<(), Error>>> {
        Box::pin(async move {
            let call = self.call();
            let answers = ordered::all(refs.iter().cloned().map(|it| {
                let call = call.clone();
                async move {
                    call.delete(it.kind.into(), &it.identifier).await?;
                    call.engine.created_parents.remove(&it.identifier);
                    Ok(())
                }
            }))
            .await;
            let is_referred_to = |answer: &Result<(), Error>| matches!(answer, Err(Error::Refused((409, _))));
            if let Some(owned) = self.owned.as_ref().filter(|_| answers.iter().any(is_referred_to)) {
                self.engine.looks.doubt(&owned.name_suffix);
            }
            answers
        })
    }
}
