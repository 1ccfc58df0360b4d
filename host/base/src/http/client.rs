//! The HTTP client: one request and its answer, within its own time limit and that of this host's lease.
//!
//! Follows no redirects and repeats nothing. It reports why a request has no answer, but does not interpret it.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::header::{ACCEPT, DATE, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use url::Url;

use super::connector::{Connector, Way};
use super::limit;
use super::socket::{Refused, links};
use crate::fence::Fence;
use crate::text::causes;

const AGENT: &str = concat!("trueup/", env!("CARGO_PKG_VERSION"));

/// The text for a request that this host may not send.
pub const NOT_SENT: &str = "not sent: this host does not hold the lease any more";
/// The text for one that was sent, wholly or in part.
const GIVEN_UP: &str = "given up without an answer: this host does not hold the lease any more";

/// Below the usual idle timeouts of load balancers and servers, so that a request rarely meets a connection that is
/// just closing. For a creation that would be a lost answer.
const IDLE_CONNECTION: Duration = Duration::from_secs(15);

/// The timeouts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Including its whole answer.
    pub request: Duration,
    /// For connecting.
    pub connect: Duration,
}

/// Sends requests to one server over persistent connections.
pub struct Client {
    /// The connections of the last epoch with a request, and that epoch. They carry only its requests.
    connections: Mutex<Option<(u64, Connections)>>,
    way: Way,
    /// The default headers of every request.
    headers: HeaderMap,
    request_timeout: Duration,
}

type Connections = Pool<Connector, Full<Bytes>>;

/// Why there is no answer, or only a part of it.
#[derive(Debug)]
pub enum Trouble {
    /// The request is not valid HTTP.
    Unsendable(String),
    /// This host may not act any more.
    Fenced(Refused),
    /// No connection could be made.
    NotConnected(String),
    /// No connection could be made in time.
    NotConnectedInTime,
    /// The connection ended before the answer did.
    Broken(String),
    /// The answer did not arrive within the full time.
    TimedOut,
    /// What the body is instead: longer than allowed, or no JSON.
    Unusable(String),
}

/// The answer's head, and its body while it arrives.
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    time: Allowed,
}

impl Client {
    /// Creates a client; it does not connect yet. `proxies` are ignored for a server on this machine.
    ///
    /// # Errors
    /// The TLS library's error; with `https` mostly a machine without CA certificates.
    pub fn new(base: &Url, times: Times, proxies: &Matcher) -> Result<Self, String> {
        let is_encrypted = base.scheme() == "https";
        let agent = HeaderValue::from_static(AGENT);
        let mut headers =
            HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("*/*")), (USER_AGENT, agent.clone())]);
        // No proxy for a server on this machine: the proxy would look for it on its own machine. A URL that can't be
        // looked up can't be sent to either; each request reports that.
        let server = base.as_str().parse::<Uri>().ok().filter(|_| !is_loopback(base));
        let proxy = server.and_then(|server| proxies.intercept(&server));
        if let Some(auth) = proxy.as_ref().and_then(Intercept::basic_auth)
            && !is_encrypted
        {
            // Through a tunnel this header would reach the server.
            headers.insert(PROXY_AUTHORIZATION, auth.clone());
        }
        Ok(Self {
            connections: Mutex::default(),
            way: Way {
                tls: tls(is_encrypted).map_err(|error| causes(&error))?,
                proxy,
                scheme: base.scheme().to_owned(),
                agent,
                connect_timeout: times.connect,
            },
            headers,
            request_timeout: times.request,
        })
    }

    /// The connection pool of this epoch; `None` if the epoch is over. `fence` is pinned to it.
    fn pool(&self, fence: &Fence) -> Option<Connections> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        match &*connections {
            Some((epoch, pool)) if *epoch == fence.epoch() => return Some(pool.clone()),
            Some((epoch, _)) if *epoch > fence.epoch() => return None,
            _ => {}
        }
        let pool = Pool::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .build(self.way.connector(fence));
        *connections = Some((fence.epoch(), pool.clone()));
        Some(pool)
    }

    /// Sends one request, and returns as soon as its answer begins. `fence` is pinned to the epoch of the decision.
    pub async fn send(
        &self,
        fence: &Fence,
        method: Method,
        url: &str,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: Option<String>,
    ) -> Result<Answer, Trouble> {
        let body = Full::from(body.unwrap_or_default());
        let built = Request::builder().method(method).uri(url).body(body);
        let mut request = built.map_err(|error| Trouble::Unsendable(causes(&error)))?;
        request.headers_mut().clone_from(&self.headers);
        for (name, value) in headers {
            request.headers_mut().insert(name, value);
        }
        let pool = self.pool(fence).ok_or(Trouble::Fenced(Refused { begun: false }))?;
        let connection = capture_connection(&mut request);
        let time = Allowed {
            until: Instant::now() + self.request_timeout,
            fence: fence.clone(),
        };
        // On a connection, another task writes a request at once.
        let has_begun = || connection.connection_metadata().is_some();
        let response = time.spend(pool.request(request), has_begun).await?;
        let response = response.map_err(|error| match Refused::among(&error) {
            Some(refused) => Trouble::Fenced(refused),
            None => Trouble::of(&error, error.is_connect()),
        });
        let (head, body) = response?.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
            time,
        })
    }
}

impl Answer {
    /// Reads the body, or as much of it as allowed.
    pub async fn read(&mut self, max_bytes: usize) -> Result<Vec<u8>, Trouble> {
        let mut body = Vec::new();
        while let Some(frame) = self.time.spend(self.body.frame(), || true).await? {
            // Ignore frames without data.
            let chunk = frame.map_err(|error| Trouble::of(&error, false))?.into_data();
            let chunk = chunk.unwrap_or_default();
            if chunk.len() > max_bytes.saturating_sub(body.len()) {
                return Err(Trouble::Unusable(format!(
                    "the answer is longer than {max_bytes} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Reads the body as JSON.
    ///
    /// # Errors
    /// If it is too long, is no JSON, or does not arrive to its end.
    pub async fn json(&mut self, max_bytes: usize) -> Result<Value, Trouble> {
        let body = self.read(max_bytes).await?;
        serde_json::from_slice(&body).map_err(|error| Trouble::Unusable(format!("the answer is no JSON: {error}")))
    }

    /// The wait in milliseconds that its `Retry-After` asks for. `None` if it has none, or an unreadable one.
    pub fn retry_after_ms(&self) -> Option<u64> {
        let text = |name: HeaderName| self.headers.get(name).and_then(|value| value.to_str().ok());
        limit::retry_after_ms(text(RETRY_AFTER), text(DATE), SystemTime::now())
    }
}

impl Trouble {
    /// What happened to a request with these limits, to complete the sentence `REQUEST: `.
    pub fn text(self, times: Times) -> String {
        match self {
            Self::Unsendable(reason) => format!("can't be sent: {reason}"),
            Self::Fenced(Refused { begun: true }) => GIVEN_UP.to_owned(),
            Self::Fenced(Refused { begun: false }) => NOT_SENT.to_owned(),
            Self::NotConnectedInTime => format!("no connection within {} ms", times.connect.as_millis()),
            Self::NotConnected(reason) => format!("no connection: {reason}"),
            Self::TimedOut => format!("no answer within {} ms", times.request.as_millis()),
            Self::Broken(reason) => format!("the connection broke: {reason}"),
            Self::Unusable(reason) => reason,
        }
    }

    fn of(error: &(dyn Error + 'static), is_connect: bool) -> Self {
        match (is_connect, is_timeout(error)) {
            (true, true) => Self::NotConnectedInTime,
            (true, false) => Self::NotConnected(causes(error)),
            (false, true) => Self::TimedOut,
            (false, false) => Self::Broken(causes(error)),
        }
    }
}

/// The time limit for a request and its answer.
struct Allowed {
    until: Instant,
    fence: Fence,
}

impl Allowed {
    /// `has_begun` says whether a step that was given up may have reached the server.
    async fn spend<T>(&self, step: impl Future<Output = T>, has_begun: impl Fn() -> bool) -> Result<T, Trouble> {
        tokio::select! {
            // Prefer an answer that has arrived, even if the process was stopped meanwhile.
            biased;
            done = step => Ok(done),
            () = sleep_until(self.until) => Err(Trouble::TimedOut),
            () = self.fence.over() => Err(Trouble::Fenced(Refused { begun: has_begun() })),
        }
    }
}

fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    links(error).any(|link| {
        let by_system = link.downcast_ref::<std::io::Error>();
        let by_http = link.downcast_ref::<hyper::Error>();
        by_system.is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
            || by_http.is_some_and(hyper::Error::is_timeout)
    })
}

/// The clock of a server: the `Date` of any answer to a request for its base URL, sent without credentials. `None` if
/// the answer has none.
///
/// # Errors
/// Why there is no answer.
pub async fn clock_of(url: &str, patience: Duration) -> Result<Option<SystemTime>, String> {
    let base = Url::parse(url).map_err(|error| error.to_string())?;
    let times = Times {
        request: patience,
        connect: patience,
    };
    let client = Client::new(&base, times, &Matcher::from_env())?;
    let fence = Fence::open();
    let sent = client.send(&fence, Method::GET, base.as_str(), None, None).await;
    let answer = sent.map_err(|trouble| trouble.text(times))?;
    let date = answer.headers.get(DATE).and_then(|date| date.to_str().ok());
    Ok(date.and_then(|date| httpdate::parse_http_date(date).ok()))
}

/// Makes ring the default provider for libraries that sign or encrypt, unless the program has chosen another one.
pub fn use_ring() {
    // An error means that a provider is already installed, which is as good.
    let _ = ring::default_provider().install_default();
}

/// TLS with the machine's CA certificates. A machine without them suffices if nothing is ever verified.
fn tls(is_encrypted: bool) -> Result<ClientConfig, rustls::Error> {
    use_ring();
    let config = ClientConfig::builder();
    let config = if is_encrypted {
        config.with_platform_verifier()?
    } else {
        config.with_root_certificates(RootCertStore::empty())
    };
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Reads a server's URL from the settings. `secrets` completes the sentence `must hold no user name and no password: `.
///
/// # Errors
/// What it must be.
pub fn base_url(text: &str, allow_http: bool, secrets: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with `http://` or `https://`".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("must hold no user name and no password: {secrets}"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must hold no query and no fragment".to_owned());
    }
    // Others on the network path could read what is sent there.
    if url.scheme() != "https" && !is_loopback(&url) && !allow_http {
        return Err(OPENLY.to_owned());
    }
    Ok(url)
}

const OPENLY: &str = "must begin with `https://`: over plain `http` everyone on the way can read the token; set \
                      `allow_http = true` where you want that";

/// Whether requests to this URL stay on this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
