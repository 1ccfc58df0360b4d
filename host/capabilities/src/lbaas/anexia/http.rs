//! Single requests to the Engine: limits, tries, and the meaning of unsuccessful answers.
//!
//! Knows methods, paths and bodies, but not resources; its callers know those.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep};
use trueup_base::fence::Fence;
use trueup_base::http::client::{Answer, Client, NOT_SENT, Times, Trouble};
use trueup_base::http::limit::{self, RateLimit};
use trueup_base::http::secret::Secret;

use super::create::CreatedParents;
use super::intents::Intents;
use super::leftovers::Looks;
use super::token::Token;
use super::wire;
use crate::lbaas::Error;
use crate::remote::{ERROR_BODY_MAX_BYTES, segment};

/// The maximum size of an answer. A page of 1,000 entries of 1 KiB has 1 MiB.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;
/// How often in all a tagging is tried if it conflicts with another change.
const TAGGING_TRIES: u32 = 3;

/// The pauses before the host tries or looks again. Only tests differ from the default.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// Before the second and third try of a request, and before each search for the object of a lost creation.
    pub(super) tries: [Duration; 2],
    /// Before a conflicting tagging is tried again.
    pub(super) tagging: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            tries: [Duration::from_millis(500), Duration::from_millis(1000)],
            tagging: Duration::from_secs(1),
        }
    }
}

/// Receives every single HTTP request: `trueup_engine_requests_total` and `trueup_engine_requests_in_flight`.
pub trait RequestMetrics: Send + Sync {
    /// A request ended. `resource` is the path without identifiers and tags. `status` is the HTTP status, or `timeout`,
    /// `connection` (there was none, or it broke), or `abandoned` (the caller no longer waited).
    fn request(&self, resource: &str, method: &str, status: &str);
    /// The number of requests in flight changed.
    fn in_flight(&self, delta: i64);
}

/// One Engine, for the whole host: the shared state of all calls to it.
pub(super) struct Engine {
    pub(super) client: Client,
    /// Base URL without a trailing slash.
    pub(super) base: String,
    pub(super) token: Token,
    pub(super) metrics: Arc<dyn RequestMetrics>,
    pub(super) permits: Semaphore,
    pub(super) rate_limit: RateLimit,
    /// The Engine mixes up overlapping taggings (upstream knows it as ENGSUP-5902).
    pub(super) tagging: Mutex<()>,
    pub(super) pauses: Pauses,
    pub(super) page_size: u32,
    /// The maximum number of a list's pages. Only tests differ from the default.
    pub(super) pages_max: u64,
    pub(super) times: Times,
    pub(super) adopt_orphans: bool,
    pub(super) created_parents: CreatedParents,
    pub(super) intents: Intents,
    pub(super) looks: Looks,
}

/// One import call, shared by the handlers of its entries: the first rate-limited answer stops what is not yet sent.
pub(super) struct Call {
    pub(super) engine: Arc<Engine>,
    /// Pinned to the epoch of the decision.
    pub(super) fence: Fence,
    /// The first rate-limited answer sets this: until when, if the Engine said so.
    pub(super) limited: OnceLock<Option<Instant>>,
}

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) fate: Fate,
}

/// What happened to an unsuccessful request; it decides whether the request may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The host itself withheld it.
    Withheld,
    /// No connection could be made.
    NotConnected,
    /// The connection ended before the answer did, or a gateway answered: the request may or may not have had its
    /// effect.
    Lost,
    /// As `Lost`, after its full time or that of this host's lease.
    TimedOut,
    /// The Engine answered.
    Answered,
}

impl Failure {
    /// The host itself withheld the request.
    fn withheld(error: Error) -> Self {
        let fate = Fate::Withheld;
        Self { error, fate }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// A request before it is sent, perhaps several times.
struct Request {
    method: Method,
    /// Path and query, encoded.
    target: String,
    /// The path without identifiers, for metrics.
    label: &'static str,
    body: Option<Value>,
}

impl Request {
    fn new(method: Method, target: String, label: &'static str, body: Option<Value>) -> Self {
        Self {
            method,
            target,
            label,
            body,
        }
    }

    /// Its name in error texts, without the query, which does not help the reader.
    fn shown(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

impl Call {
    /// Reads one resource.
    pub(super) async fn get(&self, collection: &'static str, identifier: &str) -> Result<Value, Failure> {
        let target = item(collection, identifier)?;
        self.repeated(Request::new(Method::GET, target, collection, None)).await
    }

    /// Reads one page of a list.
    pub(super) async fn get_page(&self, collection: &'static str, query: &str, page: u64) -> Result<Value, Failure> {
        let limit = self.engine.page_size;
        let target = format!("{collection}?{query}&page={page}&limit={limit}");
        self.repeated(Request::new(Method::GET, target, collection, None)).await
    }

    /// Creates a resource with one request, which is never simply repeated.
    pub(super) async fn post(&self, collection: &'static str, body: Value) -> Result<Value, Failure> {
        let request = Request::new(Method::POST, collection.to_owned(), collection, Some(body));
        self.send(&request).await
    }

    /// Updates a resource.
    pub(super) async fn put(&self, collection: &'static str, identifier: &str, body: Value) -> Result<(), Failure> {
        let request = Request::new(Method::PUT, item(collection, identifier)?, collection, Some(body));
        self.repeated(request).await.map(drop)
    }

    /// Destroys a resource.
    pub(super) async fn delete(&self, collection: &'static str, identifier: &str) -> Result<(), Failure> {
        let request = Request::new(Method::DELETE, item(collection, identifier)?, collection, None);
        self.repeated(request).await.map(drop)
    }

    /// Tags a resource, which may carry the tag already.
    pub(super) async fn tag(&self, identifier: &str, tag: &str) -> Result<(), Failure> {
        let body = Value::from("");
        let request = Request::new(Method::POST, tag_target(identifier, tag)?, wire::TAGS_LABEL, Some(body));
        let _alone = self.engine.tagging.lock().await;
        let mut tries = 1;
        loop {
            let Err(failure) = self.send(&request).await else {
                return Ok(());
            };
            match failure.error {
                Error::Refused((409, _)) if tries < TAGGING_TRIES => {
                    tries += 1;
                    sleep(self.engine.pauses.tagging).await;
                }
                // The tag already exists, or is not valid.
                Error::Refused((422, _)) => {
                    let answer = self.get(wire::RESOURCES, identifier).await?;
                    let has_it = wire::tags(&answer).is_ok_and(|tags| tags.iter().any(|it| it == tag));
                    return if has_it { Ok(()) } else { Err(failure) };
                }
                _ => return Err(failure),
            }
        }
    }

    /// Removes a tag from a resource, which need not carry it.
    pub(super) async fn untag(&self, identifier: &str, tag: &str) -> Result<(), Error> {
        let request = Request::new(Method::DELETE, tag_target(identifier, tag)?, wire::TAGS_LABEL, None);
        let _alone = self.engine.tagging.lock().await;
        if_there(self.repeated(request).await).map(drop)
    }

    /// Sends an idempotent request, and repeats it while that is useful.
    async fn repeated(&self, request: Request) -> Result<Value, Failure> {
        let mut pauses = self.engine.pauses.tries.into_iter();
        let mut tried_before = false;
        loop {
            let failure = match self.send(&request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match pauses.next() {
                Some(pause) if matches!(failure.fate, Fate::Lost | Fate::NotConnected) => {
                    tracing::debug!(error = ?failure.error, request = request.shown(), "trying again in {pause:?}");
                    sleep(pause).await;
                }
                // An earlier try that seemed lost did destroy it.
                _ if failure.error == Error::NotFound && tried_before && request.method == Method::DELETE => {
                    return Ok(Value::Null);
                }
                _ => return Err(failure),
            }
            tried_before = true;
        }
    }

    /// Sends a request once; once more if the Engine refuses the token and there is a new one.
    async fn send(&self, request: &Request) -> Result<Value, Failure> {
        let token = self.engine.token.now();
        let answer = self.send_with(request, &token).await;
        let is_refused = matches!(&answer, Err(failure) if failure.error == Error::Unauthorized);
        match is_refused.then(|| self.engine.token.instead_of(&token)).flatten() {
            Some(new) => self.send_with(request, &new).await,
            None => answer,
        }
    }

    /// Sends a request as soon as one of the host's request slots is free.
    async fn send_with(&self, request: &Request, token: &Secret) -> Result<Value, Failure> {
        // Fails only if the semaphore is closed, which never happens.
        let _permit = self.engine.permits.acquire().await;
        // During this wait a lease may have ended and another may have begun.
        if !self.fence.may_act() {
            let text = format!("{}: {NOT_SENT}", request.shown());
            return Err(Failure::withheld(Error::Unavailable(text)));
        }
        self.check_rate_limit().map_err(Failure::withheld)?;
        let mut meter = Meter {
            metrics: &*self.engine.metrics,
            request,
            status: "abandoned".to_owned(),
        };
        meter.metrics.in_flight(1);
        let url = format!("{}{}", self.engine.base, request.target);
        let json = HeaderValue::from_static("application/json");
        let is_read = request.method == Method::GET;
        let media_type = if is_read { ACCEPT } else { CONTENT_TYPE };
        let headers = [(AUTHORIZATION, token.header()), (media_type, json)];
        let body = request.body.as_ref().map(Value::to_string);
        let client = &self.engine.client;
        let method = request.method.clone();
        let sent = client.send(&self.fence, method, &url, headers, body).await;
        let mut answer = sent.map_err(|trouble| {
            let failure = self.unanswered(request, trouble);
            let is_timeout = failure.fate == Fate::TimedOut;
            meter.status = if is_timeout { "timeout" } else { "connection" }.to_owned();
            failure
        })?;
        meter.status = answer.status.as_str().to_owned();
        if !answer.status.is_success() {
            return Err(self.refusal(request, answer).await);
        }
        // Objects are read and created; all else is only changed.
        if !is_read && (request.method != Method::POST || request.label == wire::TAGS_LABEL) {
            // Only so that the connection can serve the next request.
            drop(answer.read(ANSWER_MAX_BYTES).await);
            return Ok(Value::Null);
        }
        let json = answer.json(ANSWER_MAX_BYTES).await;
        json.map_err(|trouble| self.unanswered(request, trouble))
    }

    /// Fails during a rate limit of the Engine, and for the rest of a call that was rate-limited once.
    fn check_rate_limit(&self) -> Result<(), Error> {
        let now = Instant::now();
        if let Some(until) = self.engine.rate_limit.until(now) {
            // Stop the rest of this call, too, even if the limit ends meanwhile.
            let _ = self.limited.set(Some(until));
            return Err(Error::RateLimited(Some(limit::left_ms(until, now))));
        }
        match self.limited.get() {
            Some(until) => Err(Error::RateLimited(until.map(|until| limit::left_ms(until, now)))),
            None => Ok(()),
        }
    }

    /// Interprets an unsuccessful answer.
    async fn refusal(&self, request: &Request, mut answer: Answer) -> Failure {
        let status = answer.status;
        let error = match status {
            StatusCode::NOT_FOUND => Error::NotFound,
            StatusCode::UNAUTHORIZED => Error::Unauthorized,
            StatusCode::TOO_MANY_REQUESTS => Error::RateLimited(self.note_rate_limit(&answer)),
            _ => {
                // An unreadable body counts as empty.
                let body = answer.read(ERROR_BODY_MAX_BYTES).await.unwrap_or_default();
                let reason = status.canonical_reason().unwrap_or("no reason given");
                let text = self.engine.token.scrub(wire::error_text(&body, reason));
                if status.is_client_error() {
                    Error::Refused((status.as_u16(), text))
                } else {
                    Error::Unavailable(format!("{}: HTTP {}: {text}", request.shown(), status.as_u16()))
                }
            }
        };
        let fate = match status {
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Fate::Lost,
            _ => Fate::Answered,
        };
        Failure { error, fate }
    }

    /// Keeps the host from sending until the limit is over; without a `Retry-After`, only this call.
    fn note_rate_limit(&self, answer: &Answer) -> Option<u64> {
        let wait_ms = answer.retry_after_ms();
        let until = wait_ms.map(|wait_ms| limit::end_of(wait_ms, Instant::now()));
        self.engine.rate_limit.extend(until);
        // Ignore the error: an earlier answer to this call has already set it.
        let _ = self.limited.set(until);
        wait_ms
    }

    /// Interprets a request without a (whole, usable) answer.
    fn unanswered(&self, request: &Request, trouble: Trouble) -> Failure {
        let fate = match &trouble {
            Trouble::Unsendable(_) => Fate::Withheld,
            Trouble::Fenced(refused) if !refused.begun => Fate::Withheld,
            Trouble::NotConnectedInTime | Trouble::NotConnected(_) => Fate::NotConnected,
            Trouble::Fenced(_) | Trouble::TimedOut => Fate::TimedOut,
            Trouble::Broken(_) => Fate::Lost,
            // A creation with an unreadable answer counts as lost: it made an unknown object.
            Trouble::Unusable(_) if request.method == Method::POST => Fate::Lost,
            Trouble::Unusable(_) => Fate::Answered,
        };
        let error = self.unusable(format!("{}: {}", request.shown(), trouble.text(self.engine.times)));
        Failure { error, fate }
    }

    /// Such as an answer that is valid JSON but has the wrong content.
    pub(super) fn unusable(&self, problem: String) -> Error {
        Error::Unavailable(self.engine.token.scrub(problem))
    }
}

/// An answer about a resource; `None` if the resource is gone.
pub(super) fn if_there<T>(answer: Result<T, impl Into<Error>>) -> Result<Option<T>, Error> {
    match answer.map_err(Into::into) {
        Err(Error::NotFound) => Ok(None),
        other => other.map(Some),
    }
}

/// The path of one resource of a collection. No resource has an identifier that can't be a path segment.
fn item(collection: &'static str, identifier: &str) -> Result<String, Failure> {
    let identifier = segment(identifier).ok_or(Failure::withheld(Error::NotFound))?;
    Ok(format!("{collection}/{identifier}"))
}

/// The path of one resource's tag.
fn tag_target(identifier: &str, tag: &str) -> Result<String, Failure> {
    let tag = segment(tag).ok_or(Failure::withheld(Error::NotFound))?;
    Ok(format!("{}/tags/{tag}", item(wire::RESOURCES, identifier)?))
}

/// Counts one request, even if its caller no longer waits.
struct Meter<'a> {
    metrics: &'a dyn RequestMetrics,
    request: &'a Request,
    status: String,
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        let Request { label, method, .. } = self.request;
        self.metrics.in_flight(-1);
        self.metrics.request(label, method.as_str(), &self.status);
    }
}
