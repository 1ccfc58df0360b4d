//! Single requests to the API: their pace, tries and tokens, and the meaning of unsuccessful answers.
//!
//! Knows methods, paths and bodies, but not NEGs. Every request may be repeated, because changes carry their request
//! id.

use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::{AcquireError, Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};
use trueup_base::fence::Fence;
use trueup_base::http::client::{Answer, Client, NOT_SENT, Times, Trouble};
use trueup_base::http::secret::Secret;
use trueup_base::window::Window;

use super::credentials::Credentials;
use super::settings::Settings;
use super::wire;
use crate::neg::Error;
use crate::remote::{ERROR_BODY_MAX_BYTES, SettingsError, client};

/// The maximum size of an answer. A page of 500 endpoints with annotations has some hundred kilobytes.
const ANSWER_MAX_BYTES: usize = 16 * 1024 * 1024;

/// The API, for the whole host.
pub(super) struct Requests {
    /// For guests' requests: withheld if this host may not act.
    asking: Client,
    /// For polling operations, which changes nothing: it belongs to no lease.
    watching: Client,
    times: Times,
    /// Base URL without a trailing slash.
    base: String,
    credentials: Credentials,
    pace: Pace,
    retry_pause: Duration,
}

/// A request before it is sent, perhaps several times.
pub(super) struct Request {
    pub(super) method: Method,
    /// Path, from `projects/` on, and query, encoded.
    pub(super) target: String,
    pub(super) body: Option<Value>,
}

/// Why a request did not succeed, and whether another try may succeed.
type Failure = (Error, bool);

/// The host itself withheld the request.
fn withheld(request: &Request, why: &str) -> Failure {
    (Error::Unavailable(format!("{}: {why}", request.shown())), false)
}

impl Requests {
    pub(super) fn new(settings: &Settings, credentials: Credentials) -> Result<Self, SettingsError> {
        let base = settings.base()?;
        let times = Times {
            request: Duration::from_millis(settings.request_timeout_ms),
            connect: Duration::from_millis(settings.connect_timeout_ms),
        };
        Ok(Self {
            asking: client(&base, times)?,
            watching: client(&base, times)?,
            times,
            base: base.as_str().trim_end_matches('/').to_owned(),
            credentials,
            pace: Pace::new(settings.requests_per_second, settings.max_concurrent_requests),
            retry_pause: Duration::from_millis(settings.retry_pause_ms),
        })
    }

    /// Sends a guest's request, with up to three tries while they may help. `fence` is pinned to the epoch of the
    /// decision.
    pub(super) async fn ask(&self, fence: &Fence, request: &Request) -> Result<Value, Error> {
        let mut pauses = [self.retry_pause, self.retry_pause * 2].into_iter();
        loop {
            let (error, is_passing) = match self.with_token(&self.asking, fence, request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let Some(pause) = pauses.next().filter(|_| is_passing) else {
                return Err(error);
            };
            tracing::debug!(?error, request = request.shown(), "trying again in {pause:?}");
            sleep(pause).await;
        }
    }

    /// Polls an operation once.
    pub(super) async fn look(&self, request: &Request) -> Result<Value, Error> {
        let answer = self.with_token(&self.watching, &Fence::open(), request).await;
        answer.map_err(|(error, _)| error)
    }

    /// Uses another token if the first is refused.
    async fn with_token(&self, client: &Client, fence: &Fence, request: &Request) -> Result<Value, Failure> {
        let token = async || {
            let token = self.credentials.token().await;
            token.map_err(|problem| withheld(request, &problem))
        };
        let first = token().await?;
        match self.once(client, fence, request, &first).await {
            Err((Error::Unauthorized, _)) => {
                self.credentials.refused(&first).await;
                self.once(client, fence, request, &token().await?).await
            }
            result => result,
        }
    }

    async fn once(&self, client: &Client, fence: &Fence, request: &Request, token: &Secret) -> Result<Value, Failure> {
        let _slot = self.pace.slot().await;
        // During this wait a lease may have ended and another may have begun.
        if !fence.may_act() {
            return Err(withheld(request, NOT_SENT));
        }
        let url = format!("{}/{}", self.base, request.target);
        let json = HeaderValue::from_static("application/json");
        let headers = [(AUTHORIZATION, token.header()), (CONTENT_TYPE, json)];
        let body = request.body.as_ref().map(Value::to_string);
        let sent = client.send(fence, request.method.clone(), &url, headers, body).await;
        let mut answer = sent.map_err(|trouble| unanswered(request, token, trouble, self.times))?;
        if !answer.status.is_success() {
            return Err(refusal(request, token, answer).await);
        }
        let json = answer.json(ANSWER_MAX_BYTES).await;
        json.map_err(|trouble| unanswered(request, token, trouble, self.times))
    }
}

impl Request {
    /// Its name in error texts, without the query.
    pub(super) fn shown(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

/// Interprets an unsuccessful answer.
async fn refusal(request: &Request, token: &Secret, mut answer: Answer) -> Failure {
    let status = answer.status;
    // An unreadable body counts as empty.
    let (message, says_rate_limit) = wire::said(&answer.read(ERROR_BODY_MAX_BYTES).await.unwrap_or_default());
    let usual = || status.canonical_reason().unwrap_or("no reason given").to_owned();
    let is_rate_limit = status == StatusCode::TOO_MANY_REQUESTS || (status == StatusCode::FORBIDDEN && says_rate_limit);
    let text = token.scrub(message.unwrap_or_else(usual));
    let error = match status {
        StatusCode::NOT_FOUND => Error::NotFound,
        StatusCode::UNAUTHORIZED => Error::Unauthorized,
        _ if is_rate_limit => Error::RateLimited(answer.retry_after_ms()),
        _ if status.is_client_error() => Error::Refused((status.as_u16(), text)),
        _ => Error::Unavailable(format!("{}: HTTP {}: {text}", request.shown(), status.as_u16())),
    };
    (error, status.is_server_error())
}

/// Interprets a request without a (whole, usable) answer.
fn unanswered(request: &Request, token: &Secret, trouble: Trouble, times: Times) -> Failure {
    let is_passing = match &trouble {
        // It took its full time, and another try would take it again.
        Trouble::Unsendable(_) | Trouble::Fenced(_) | Trouble::TimedOut => false,
        Trouble::NotConnectedInTime | Trouble::NotConnected(_) | Trouble::Broken(_) | Trouble::Unusable(_) => true,
    };
    let text = format!("{}: {}", request.shown(), trouble.text(times));
    (Error::Unavailable(token.scrub(text)), is_passing)
}

const SECOND: Duration = Duration::from_secs(1);

/// Limits the API's load: requests in any second, and concurrent requests. First come, first served. One for the whole
/// host.
struct Pace {
    at_a_time: Semaphore,
    per_second: usize,
    /// In nanoseconds since `since`.
    latest: Mutex<Window>,
    since: Instant,
}

impl Pace {
    fn new(per_second: u32, at_a_time: u16) -> Self {
        Self {
            at_a_time: Semaphore::new(usize::from(at_a_time)),
            per_second: usize::try_from(per_second).unwrap_or(usize::MAX),
            latest: Mutex::default(),
            since: Instant::now(),
        }
    }

    /// Waits for a slot, and for the time to use it. Fails only if the semaphore is closed, which never happens.
    async fn slot(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        let permit = self.at_a_time.acquire().await?;
        // Held while it waits: first come, first served.
        let mut latest = self.latest.lock().await;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        while let Err(left) = latest.admit(self.per_second, nanoseconds(SECOND), nanoseconds(self.since.elapsed())) {
            sleep(Duration::from_nanos(left)).await;
        }
        Ok(permit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_second_has_more_requests_than_it_may() {
        let pace = Pace::new(3, 100);
        let mut before = Vec::new();
        let mut after = Vec::new();
        for _ in 0..7 {
            before.push(Instant::now());
            drop(pace.slot().await);
            after.push(Instant::now());
        }
        for (first, fourth) in before.iter().zip(&after[3..]) {
            assert!(*fourth - *first >= SECOND, "{before:?} {after:?}");
        }
    }

    #[tokio::test]
    async fn the_next_waits_until_a_slot_is_free() {
        let pace = Pace::new(100, 2);
        let first = pace.slot().await;
        let _second = pace.slot().await;
        let third = pace.slot();
        tokio::pin!(third);
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, third.as_mut()).await.is_err());
        drop(first);
        assert!(third.await.is_ok());
    }
}
