//! The real backend of `trueup:lbaas/api`: the Anexia Engine over HTTP.
//!
//! Does not decide what should exist; the guest does. Checks no grant and keeps no journal; the binding does. From the
//! contract inwards:
//!
//! ```text
//! mod (the functions) -> list, create, leftovers -> http (a request: slots, tries, limit) -> http::client -> Engine
//!                            wire: its JSON and paths
//! ```
//!
//! If several hosts run and this one may not act any more, requests are withheld at three places. The last one is
//! decisive:
//!
//! ```text
//! http (before it is sent) -> http::client (given up while it waits) -> http::connector -> http::socket (each write)
//! ```
//!
//! Requests are also withheld if the host acts again but others may have acted since the decision: each call, including
//! its connections, is pinned to one epoch of the fence.

mod create;
mod http;
mod intents;
mod leftovers;
mod list;
#[cfg(test)]
mod tests;
pub mod token;
mod wire;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::sync::{Mutex, Semaphore};
use trueup_base::fence::Fence;
use trueup_base::http::client::{Times, base_url};
use trueup_base::http::limit::RateLimit;
use trueup_base::http::secret::Secret;

pub use self::http::RequestMetrics;
use self::http::{Call, Engine, Pauses, if_there};
use self::intents::Intents;
pub use self::leftovers::Owned;
use self::leftovers::SERVICE_TAG_PREFIX;
use self::token::Token;
pub use self::token::{TOKEN_ENV_DEFAULT, TokenAt};
use crate::lbaas::{Api, Error, Kind, Object, ObjectRef, Spec, State};
pub use crate::remote::SettingsError;
use crate::remote::client;
use async_trait::async_trait;

/// How to reach the Engine. All settings are optional. The configuration checks the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Base URL, `http` or `https`, including a path prefix. Default `https://engine.anexia-it.com`.
    pub url: String,
    /// Whether the token may be sent over plain `http` to another machine. Default false.
    pub allow_http: bool,
    /// Where the token is. Default: the variable [`TOKEN_ENV_DEFAULT`].
    pub token: TokenAt,
    /// The maximum number of concurrent requests of the whole host, 1 to 1000. Default 16.
    pub max_concurrent_requests: u16,
    /// The requested number of entries per page of a list, 1 to 1000. Default 100.
    pub page_size: u32,
    /// Timeout in milliseconds for one request with its whole answer, 1 to 3600000. Default 30000.
    pub request_timeout_ms: u64,
    /// Timeout in milliseconds for connecting, 1 to 3600000. Default 10000.
    pub connect_timeout_ms: u64,
    /// Whether a creation first looks for an equal object that an earlier run left behind untagged. Default true.
    pub adopt_orphans: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: "https://engine.anexia-it.com".to_owned(),
            allow_http: false,
            token: TokenAt::Variable(TOKEN_ENV_DEFAULT.to_owned()),
            max_concurrent_requests: 16,
            page_size: 100,
            request_timeout_ms: 30_000,
            connect_timeout_ms: 10_000,
            adopt_orphans: true,
        }
    }
}

/// The Anexia Engine. One for the whole host: its requests share one limit, and its taggings one queue.
pub struct Anexia {
    engine: Arc<Engine>,
    fence: Fence,
    /// `None` if it is not for one Service.
    owned: Option<Owned>,
}

impl Anexia {
    /// Checks the settings and creates a client. Sends nothing yet, and nothing while `fence` is closed. Pending
    /// creations are written to the folder `intents`, and read from there at the start. Without a folder, they are lost
    /// with the process.
    ///
    /// # Errors
    /// One line: the invalid setting, or why the folder can't be read.
    pub fn new(
        settings: Settings,
        token: Secret,
        metrics: Arc<dyn RequestMetrics>,
        fence: Fence,
        intents: Option<&Path>,
    ) -> Result<Self, SettingsError> {
        let secret = "the token is in `token_file` or `token_env`";
        let base = base_url(&settings.url, settings.allow_http, secret);
        let base = base.map_err(|reason| SettingsError(format!("url: {reason}")))?;
        let intents = Intents::open(intents, Duration::from_millis(settings.request_timeout_ms))
            .map_err(|error| SettingsError(error.to_string()))?;
        let times = Times {
            request: Duration::from_millis(settings.request_timeout_ms),
            connect: Duration::from_millis(settings.connect_timeout_ms),
        };
        let client = client(&base, times)?;
        Ok(Self {
            engine: Arc::new(Engine {
                client,
                base: base.as_str().trim_end_matches('/').to_owned(),
                token: Token::new(settings.token, token),
                metrics,
                permits: Semaphore::new(usize::from(settings.max_concurrent_requests)),
                rate_limit: RateLimit::default(),
                tagging: Mutex::new(()),
                pauses: Pauses::default(),
                page_size: settings.page_size,
                pages_max: list::PAGES_MAX,
                times,
                adopt_orphans: settings.adopt_orphans,
                created_parents: create::CreatedParents::default(),
                intents,
                looks: leftovers::Looks::default(),
            }),
            fence,
            owned: None,
        })
    }

    /// Children of the load balancers, direct or not, of none of the Services with these UIDs, by kind then identifier.
    /// Each with the UID of the Service whose tag it carries: another cluster's, or one that is gone. `None`: a host
    /// created it and never came back to tag it, or people made it by hand. Changes nothing.
    pub async fn orphans(
        &self,
        load_balancers: &[String],
        uids: BTreeSet<String>,
    ) -> Result<Vec<(Object, Option<String>)>, Error> {
        let call = &self.call();
        let uids = &uids;
        let load_balancers: BTreeSet<&str> = load_balancers.iter().map(String::as_str).collect();
        let kinds = [Kind::Backend, Kind::Frontend];
        let first = load_balancers.into_iter().flat_map(|id| kinds.map(|kind| (kind, id)));
        let first = call.children(first).await?;
        let second = first.iter().filter_map(|(kind, id)| Some((kind.child()?, id.as_str())));
        let second = call.children(second).await?;
        let reads = first.iter().chain(&second).map(|(kind, identifier)| async move {
            // `None`: it is gone meanwhile.
            let Some(tags) = call.tags(identifier).await? else {
                return Ok::<_, Error>(None);
            };
            let mut of = tags.iter().filter_map(|tag| tag.strip_prefix(SERVICE_TAG_PREFIX));
            if of.clone().any(|uid| uids.contains(uid)) {
                return Ok(None);
            }
            let object = if_there(call.read(*kind, identifier).await)?;
            Ok(object.map(|object| (object, of.next().map(str::to_owned))))
        });
        let mut orphans: Vec<_> = try_join_all(reads).await?.into_iter().flatten().collect();
        orphans.sort_by_cached_key(|(object, _)| object.reference());
        Ok(orphans)
    }

    /// Removes a tag from a resource, which need not carry it.
    pub async fn untag(&self, identifier: &str, tag: &str) -> Result<(), Error> {
        self.call().untag(identifier, tag).await
    }

    /// The same Engine pinned to the current epoch, such as for one job of this Service. Once others may have acted, it
    /// sends nothing more, even if this host acts again.
    pub fn of_this_epoch(&self, owned: Owned) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            fence: self.fence.of_this_epoch(),
            owned: Some(owned),
        }
    }

    /// Whether Services are looked up by name, because the intents on disk are incomplete. With several hosts they
    /// always are.
    pub fn looks_by_name(&self) -> bool {
        self.fence.epoch() > 0 || !self.engine.intents.is_complete()
    }

    /// Records that every Service was listed since the start. For a host that runs alone, the intents are complete from
    /// here on, also after a restart.
    pub fn all_listed(&self) {
        if self.fence.epoch() == 0 {
            self.engine.intents.complete();
        }
    }

    /// Its requests are pinned to the current epoch, or to that of this value.
    fn call(&self) -> Call {
        Call {
            engine: Arc::clone(&self.engine),
            fence: self.fence.of_this_epoch(),
            limited: OnceLock::new(),
        }
    }
}

#[async_trait]
impl Api for Anexia {
    async fn load_balancer(&self, identifier: &str) -> Result<State, Error> {
        let answer = self.call().get(wire::LOAD_BALANCERS, identifier).await?;
        Ok(wire::state(answer.get("state")))
    }

    async fn adopt(&self, tag: &str) -> Result<(), Error> {
        self.call().adopt(tag, self.owned.as_ref()).await
    }

    async fn leftovers(&self, tag: &str) -> Result<Vec<Object>, Error> {
        let look = self.call().look(tag, self.owned.as_ref()).await?;
        Ok(look.found.into_iter().map(|leftover| leftover.object).collect())
    }

    async fn list_tagged(&self, tag: &str) -> Result<Vec<Object>, Error> {
        self.call().list_tagged(tag).await
    }

    async fn get(&self, refs: &[ObjectRef]) -> Vec<Result<Object, Error>> {
        let call = &self.call();
        join_all(refs.iter().map(|it| call.read(it.kind, &it.identifier))).await
    }

    async fn create(&self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, Error>> {
        self.call().create(specs, tags).await
    }

    async fn reset(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>> {
        let call = &self.call();
        let resets = refs.iter().map(|it| async move {
            let existing = call.get(it.kind.names().path, &it.identifier).await?;
            let body = wire::reset(it.kind, &it.identifier, &existing);
            Ok(call.put(it.kind.names().path, &it.identifier, body).await?)
        });
        join_all(resets).await
    }

    async fn destroy(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>> {
        let call = &self.call();
        let destroyed = refs.iter().map(|it| async move {
            call.delete(it.kind.names().path, &it.identifier).await?;
            call.engine.created_parents.remove(&it.identifier);
            Ok(())
        });
        let answers = join_all(destroyed).await;
        let is_referred_to = |answer: &Result<(), Error>| matches!(answer, Err(Error::Refused((409, _))));
        if let Some(owned) = self.owned.as_ref().filter(|_| answers.iter().any(is_referred_to)) {
            self.engine.looks.doubt(&owned.name_suffix);
        }
        answers
    }
}
