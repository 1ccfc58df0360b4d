//! Single requests to the API: their pace, tries and tokens, and the meaning of unsuccessful answers.
//!
//! Knows methods, paths and bodies, but not NEGs. Every request may be repeated, because changes carry their request
//! id.

use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use hyper_util::client::proxy::matcher::Matcher;
use serde_json::Value;
use tokio::time::sleep;
use trueup_base::fence::Fence;
use trueup_base::http::client::{Answer, Client, NOT_SENT, Times, Trouble, Unread};
use trueup_base::http::secret::Secret;

use super::credentials::Credentials;
use super::pace::Pace;
use super::settings::Settings;
use super::wire::Said;
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
    pub(super) pace: Pace,
    retry_pause: Duration,
}

/// A request before it is sent, perhaps several times.
pub(super) struct Request {
    pub(super) method: Method,
    /// From `projects/` on, encoded.
    pub(super) path: String,
    /// With the `?`, encoded; may be empty.
    pub(super) query: String,
    pub(super) body: Option<Value>,
}

/// Why a request did not succeed.
struct Failure {
    error: Error,
    /// Whether another try may succeed.
    is_passing: bool,
}

impl Failure {
    fn lasting(error: Error) -> Self {
        Self {
            error,
            is_passing: false,
        }
    }
}

impl Requests {
    pub(super) fn new(settings: &Settings, credentials: Credentials) -> Result<Self, SettingsError> {
        let base = settings.base()?;
        let times = Times {
            request: Duration::from_millis(settings.request_timeout_ms),
            connect: Duration::from_millis(settings.connect_timeout_ms),
        };
        let client = || client(&base, times, &Matcher::from_env());
        Ok(Self {
            asking: client()?,
            watching: client()?,
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
            let failure = match self.with_token(&self.asking, fence, request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match pauses.next() {
                Some(pause) if failure.is_passing => {
                    tracing::debug!(error = ?failure.error, request = request.shown(), "trying again in {pause:?}");
                    sleep(pause).await;
                }
                _ => return Err(failure.error),
            }
        }
    }

    /// Polls an operation once.
    pub(super) async fn look(&self, request: &Request) -> Result<Value, Error> {
        let answer = self.with_token(&self.watching, &Fence::open(), request).await;
        answer.map_err(|failure| failure.error)
    }

    /// Uses another token if the first is refused.
    async fn with_token(&self, client: &Client, fence: &Fence, request: &Request) -> Result<Value, Failure> {
        let mut is_first = true;
        loop {
            let token =
                self.credentials.token().await.map_err(|problem| {
                    Failure::lasting(Error::Unavailable(format!("{}: {problem}", request.shown())))
                })?;
            match self.once(client, fence, request, &token).await {
                Err(failure) if failure.error == Error::Unauthorized && is_first => {
                    self.credentials.refused(&token).await;
                    is_first = false;
                }
                result => return result,
            }
        }
    }

    async fn once(&self, client: &Client, fence: &Fence, request: &Request, token: &Secret) -> Result<Value, Failure> {
        let Some(_slot) = self.pace.slot().await else {
            let text = "the host does not send requests any more".to_owned();
            return Err(Failure::lasting(Error::Unavailable(text)));
        };
        // During this wait a lease may have ended and another may have begun.
        if !fence.may_act() {
            let text = format!("{}: {NOT_SENT}", request.shown());
            return Err(Failure::lasting(Error::Unavailable(text)));
        }
        let url = format!("{}/{}{}", self.base, request.path, request.query);
        let json = HeaderValue::from_static("application/json");
        let headers = [(AUTHORIZATION, token.header()), (CONTENT_TYPE, json)];
        let body = request.body.as_ref().map(Value::to_string);
        let sent = client.send(fence, request.method.clone(), &url, headers, body).await;
        let mut answer = sent.map_err(|trouble| unanswered(request, token, trouble, self.times))?;
        if !answer.status.is_success() {
            return Err(refusal(request, token, answer).await);
        }
        answer.json(ANSWER_MAX_BYTES).await.map_err(|unread| match unread {
            Unread::Unusable(problem) => Failure {
                error: Error::Unavailable(token.scrub(format!("{}: {problem}", request.shown()))),
                is_passing: true,
            },
            Unread::Broken(trouble) => unanswered(request, token, trouble, self.times),
        })
    }
}

impl Request {
    /// Its name in error texts.
    pub(super) fn shown(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// Interprets an unsuccessful answer.
async fn refusal(request: &Request, token: &Secret, mut answer: Answer) -> Failure {
    let status = answer.status;
    // An unreadable body counts as empty.
    let body = answer.read(ERROR_BODY_MAX_BYTES).await.unwrap_or_default();
    let said = Said::read(&body);
    let usual = || status.canonical_reason().unwrap_or("no reason given").to_owned();
    let is_rate_limit =
        status == StatusCode::TOO_MANY_REQUESTS || (status == StatusCode::FORBIDDEN && said.is_rate_limit());
    let text = token.scrub(said.message.unwrap_or_else(usual));
    let error = match status {
        StatusCode::NOT_FOUND => Error::NotFound,
        StatusCode::UNAUTHORIZED => Error::Unauthorized,
        _ if is_rate_limit => Error::RateLimited(answer.retry_after_ms()),
        _ if status.is_client_error() => Error::Refused((status.as_u16(), text)),
        _ => Error::Unavailable(format!("{}: HTTP {}: {text}", request.shown(), status.as_u16())),
    };
    Failure {
        is_passing: status.is_server_error(),
        error,
    }
}

/// Interprets a request without a (whole) answer.
fn unanswered(request: &Request, token: &Secret, trouble: Trouble, times: Times) -> Failure {
    let is_passing = match &trouble {
        // It took its full time, and another try would take it again.
        Trouble::Unsendable(_) | Trouble::Fenced(_) | Trouble::TimedOut => false,
        Trouble::NotConnectedInTime | Trouble::NotConnected(_) | Trouble::Broken(_) => true,
    };
    let text = format!("{}: {}", request.shown(), trouble.text(times));
    Failure {
        error: Error::Unavailable(token.scrub(text)),
        is_passing,
    }
}
