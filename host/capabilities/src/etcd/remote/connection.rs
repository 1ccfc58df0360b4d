//! The connection to one member of the cluster at a time, its settings, and what its failures mean. On failure, it
//! switches to the next member.
//!
//! ```text
//! request -> link (made if there is none) -> member -> answer
//!                \-> failure of the connection: the next member, after a pause, until the request times out
//! ```

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Code, ConnectError, Status};
use trueup_base::text;

use crate::etcd::{Error, rules};

/// The first pause before a retry; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: a request has only seconds.
const PAUSE_MAX: Duration = Duration::from_secs(1);

const TOO_LATE: &str = "there was no connection in time";

/// The client's answer to a request.
type Asked<T> = Result<T, etcd_client::Error>;

/// How to reach a cluster, and its current member.
pub(super) struct Connection {
    settings: Settings,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// The number of members given up so far. It tells the current one, since requests go around the endpoints.
    generation: usize,
    /// `None` until the first request.
    client: Option<Client>,
}

/// A client of one member.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) endpoint: String,
    generation: usize,
}

impl Connection {
    pub(super) fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            current: Mutex::default(),
        })
    }

    /// The deadline of a request that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.settings.request_timeout
    }

    /// Sends a request that changes nothing, to as many members and as often as time permits.
    pub(super) async fn read<T, F: Future<Output = Asked<T>>>(&self, ask: impl Fn(Client) -> F) -> Result<T, Failed> {
        self.ask(true, ask).await
    }

    /// Sends a change. Does not repeat it if it may have been made.
    pub(super) async fn write<T, F: Future<Output = Asked<T>>>(&self, ask: impl Fn(Client) -> F) -> Result<T, Error> {
        let answer = self.ask(false, ask).await;
        answer.map_err(Failed::of_write)
    }

    async fn ask<T, F: Future<Output = Asked<T>>>(
        &self,
        is_read: bool,
        ask: impl Fn(Client) -> F,
    ) -> Result<T, Failed> {
        let until = self.deadline();
        let mut pause = PAUSE_MIN;
        loop {
            let answer = self.once(is_read, until, &ask).await;
            let may_repeat = match answer.as_ref().map_err(|failed| &failed.failure) {
                Err(Failure::NotSent(_)) => true,
                Err(Failure::Lost(_)) => is_read,
                _ => false,
            };
            if !may_repeat || Instant::now() + pause >= until {
                return answer;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn once<T, F: Future<Output = Asked<T>>>(
        &self,
        is_read: bool,
        until: Instant,
        ask: impl Fn(Client) -> F,
    ) -> Result<T, Failed> {
        let link = self.link(until).await?;
        // A silent member must leave time to ask another, unless only this one may answer.
        let limit = match is_read {
            true => Instant::now() + until.saturating_duration_since(Instant::now()) / 2,
            false => until,
        };
        let failure = match timeout_at(limit, ask(link.client.clone())).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::of(&error),
            Err(_) => Failure::Lost("it does not answer in time".to_owned()),
        };
        if failure.is_connection() {
            self.give_up(&link).await;
        }
        let endpoint = link.endpoint;
        Err(Failed { failure, endpoint })
    }

    /// Returns the connection, making it if there is none. Concurrent callers wait for the same one.
    pub(super) async fn link(&self, until: Instant) -> Result<Link, Failed> {
        // A request that is over gives up no member: it has not tried one.
        let current = timeout_at(until, self.current.lock()).await.ok();
        let current = current.filter(|current| current.client.is_some() || Instant::now() < until);
        let Some(mut current) = current else {
            return Err(Failed {
                failure: Failure::NotSent(TOO_LATE.to_owned()),
                endpoint: self.settings.endpoints.join(", "),
            });
        };
        let generation = current.generation;
        let endpoints = &self.settings.endpoints;
        let endpoint = endpoints.get(generation % endpoints.len().max(1));
        let endpoint = endpoint.cloned().unwrap_or_default();
        let client = match &current.client {
            Some(client) => client.clone(),
            None => match self.connect(&endpoint, until).await {
                Ok(client) => current.client.insert(client).clone(),
                Err(failure) => {
                    current.give_up();
                    return Err(Failed { failure, endpoint });
                }
            },
        };
        Ok(Link {
            client,
            endpoint,
            generation,
        })
    }

    async fn connect(&self, endpoint: &str, until: Instant) -> Result<Client, Failure> {
        let connecting = Client::connect([endpoint], Some(self.settings.options(endpoint)));
        let Ok(connected) = timeout_at(until, connecting).await else {
            return Err(Failure::NotSent(TOO_LATE.to_owned()));
        };
        connected.map_err(|error| match Failure::of(&error) {
            // Only authentication was requested.
            Failure::Lost(text) => Failure::NotSent(text),
            other => other,
        })
    }

    /// Moves the next and all later requests to the next member; only once for all callers that failed on this one.
    pub(super) async fn give_up(&self, link: &Link) {
        let mut current = self.current.lock().await;
        if current.generation == link.generation {
            current.give_up();
        }
    }
}

impl Current {
    fn give_up(&mut self) {
        self.generation += 1;
        self.client = None;
    }
}

/// A failure, and the member that caused it.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) endpoint: String,
}

impl Failed {
    /// The guest's error for a request that only read.
    pub(super) fn of_read(self) -> Error {
        let endpoint = self.endpoint;
        match self.failure {
            Failure::NotSent(text) | Failure::Lost(text) => Error::Unavailable(format!("etcd at `{endpoint}`: {text}")),
            Failure::Refused(error) => error,
            Failure::Compacted => {
                Error::Unavailable(format!("etcd at `{endpoint}` was compacted meanwhile; ask again"))
            }
            Failure::TooLong => Error::Unavailable(format!("etcd at `{endpoint}`: the answer is longer than is read")),
        }
    }

    /// The guest's error for a request that was to change something.
    fn of_write(self) -> Error {
        match &self.failure {
            Failure::Lost(text) => Error::Unavailable(format!(
                "etcd at `{}`: no answer to a change ({text}): whether it was made is not known; read what is \
                 stored before you try again",
                self.endpoint
            )),
            _ => self.of_read(),
        }
    }
}

/// The timeout for connecting to one endpoint. Within a data center connecting takes milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of probes on a silent connection in use. etcd rejects less than 5 s (`--grpc-keepalive-min-time`).
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The client gives the connection up if a probe has no answer for this long.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The default timeout of a request, including all retries. etcd itself gives up after 7 s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// Everything needed to talk to an etcd cluster. Not `Debug`: a password is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The members' client URLs, `http://HOST:PORT` or `https://HOST:PORT`. The client tries them in this order on
    /// failure. At least one.
    pub endpoints: Vec<String>,
    /// Name and password; `None`: no authentication, or that of the certificate's name.
    pub user: Option<(String, String)>,
    /// How we trust an `https` endpoint, and how it trusts us.
    pub tls: Tls,
    /// The timeout of a request, including all retries.
    pub request_timeout: Duration,
}

/// Certificates, as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CA that signs the members' certificates; `None` for the system's CAs.
    pub ca: Option<Vec<u8>>,
    /// Our own certificate and its key; `None` if we show none.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the members' certificates must have; `None` for the endpoint's host.
    pub server_name: Option<String>,
}

impl Settings {
    /// Settings with these endpoints and defaults otherwise.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            user: None,
            tls: Tls::default(),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// The options for the client of one endpoint.
    fn options(&self, endpoint: &str) -> ConnectOptions {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
            // etcd rejects those, too.
            .with_keep_alive_while_idle(false)
            // A member that is cut off from the others reports it, and the client asks another one.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &self.user {
            options = options.with_user(name, password);
        }
        if endpoint.starts_with("https://") {
            options = options.with_tls(self.tls.options());
        }
        options
    }
}

impl Tls {
    fn options(&self) -> TlsOptions {
        let mut options = TlsOptions::new();
        options = match &self.ca {
            Some(pem) => options.ca_certificate(Certificate::from_pem(pem)),
            None => options.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.own {
            options = options.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            options = options.domain_name(name);
        }
        options
    }
}

/// Why a request has no answer: what etcd's errors and a connection's failures mean, whether the request arrived, and
/// what the guest gets.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Failure {
    /// Nothing was sent, or etcd said that it did nothing: always repeat.
    NotSent(String),
    /// It may have been done: repeat only reads.
    Lost(String),
    /// It was not done, and never will be.
    Refused(Error),
    /// The requested revision is compacted, or has never existed.
    Compacted,
    /// The answer exceeds the size limit.
    TooLong,
}

impl Failure {
    /// Whether the connection or its member is at fault, so that another one may answer.
    pub(super) fn is_connection(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::Lost(_))
    }

    /// Classifies a client's error.
    pub(super) fn of(error: &etcd_client::Error) -> Self {
        match error {
            etcd_client::Error::GRpcStatus(status) => of_status(status),
            // A connection that could not be made ready.
            etcd_client::Error::TransportError(error) => Self::NotSent(text::causes(error)),
            other => Self::NotSent(other.to_string()),
        }
    }
}

fn of_status(status: &Status) -> Failure {
    let mut causes = std::iter::successors(status.source(), |&error| error.source());
    // A connection that was never made carried nothing.
    if causes.any(|error| error.is::<ConnectError>()) {
        return Failure::NotSent(status_text(status));
    }
    let says = |text: &str| status.message().contains(text);
    let text = || status.message().to_owned();
    match status.code() {
        Code::InvalidArgument if says("too many operations") => {
            // etcd does not report its own limit: assume the default, which an operator may have changed.
            Failure::Refused(rules::too_many_operations())
        }
        Code::InvalidArgument if says("authentication failed") || says("user name is empty") => {
            Failure::Refused(Error::AccessDenied(text()))
        }
        // Users or roles changed since authentication, and etcd did nothing. A new connection authenticates again.
        Code::InvalidArgument if says("revision of auth store is old") => Failure::NotSent(text()),
        Code::Unauthenticated => Failure::NotSent(text()),
        Code::InvalidArgument => Failure::Refused(Error::Invalid(text())),
        // gRPC's own limit, a little above that of etcd.
        Code::ResourceExhausted if says("larger than max") => Failure::Refused(Error::Invalid(text())),
        Code::ResourceExhausted if says("too many requests") => Failure::NotSent(text()),
        Code::ResourceExhausted => Failure::Refused(Error::Unavailable(text())),
        Code::PermissionDenied => Failure::Refused(Error::AccessDenied(text())),
        Code::FailedPrecondition if says("authentication is not enabled") => Failure::Refused(Error::AccessDenied(
            text() + "; leave the user out, or enable it in etcd",
        )),
        Code::OutOfRange if says("compacted") || says("future revision") => Failure::Compacted,
        Code::OutOfRange => Failure::TooLong,
        // etcd says so before it does anything, to clients that require a leader.
        Code::Unavailable if says("no leader") => Failure::NotSent(text()),
        _ => Failure::Lost(status_text(status)),
    }
}

fn status_text(status: &Status) -> String {
    let text = match status.source() {
        Some(source) => text::causes(source),
        None if status.message().is_empty() => format!("{:?}", status.code()),
        // The library suspects a proxy, but a member that stops ends its streams like this.
        None if status.message().contains("missing grpc-status") => "the connection ended before the answer".to_owned(),
        None => status.message().to_owned(),
    };
    // Keep it on one line, whatever a server wrote.
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_that_is_over_waits_for_no_connection_and_gives_up_no_member() {
        let settings = Settings::new(vec!["http://127.0.0.1:1".to_owned(), "http://127.0.0.1:2".to_owned()]);
        let connection = Connection::new(settings);
        let connecting = connection.current.lock().await;
        let waiting = connection.link(Instant::now() + Duration::from_millis(20));
        let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        assert!(ended.expect("it ends while another request connects").is_err());
        drop(connecting);
        assert!(connection.link(Instant::now()).await.is_err());
        let current = connection.current.lock().await;
        assert_eq!(current.generation, 0);
    }

    fn of(code: Code, message: &str) -> Failure {
        Failure::of(&etcd_client::Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn what_etcd_refuses_is_told_as_the_contract_says() {
        let kind = |code, message| match of(code, message) {
            Failure::Refused(error) => error.kind(),
            other => panic!("{message}: {other:?}"),
        };
        let denied = "access-denied";
        for (code, message, expected) in [
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                "too-many-operations",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: duplicate key given in txn request",
                "invalid",
            ),
            (Code::InvalidArgument, "etcdserver: key is not provided", "invalid"),
            (Code::InvalidArgument, "etcdserver: request is too large", "invalid"),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (3000000 vs. 2097152)",
                "invalid",
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                "unavailable",
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", denied),
            (Code::InvalidArgument, "etcdserver: user name is empty", denied),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                denied,
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: authentication is not enabled",
                denied,
            ),
        ] {
            assert_eq!(kind(code, message), expected, "{message}");
        }
    }

    #[test]
    fn only_what_was_surely_not_done_may_be_asked_again() {
        let not_sent = |code, message| matches!(of(code, message), Failure::NotSent(_));
        assert!(not_sent(Code::Unavailable, "etcdserver: no leader"));
        assert!(not_sent(Code::Unauthenticated, "etcdserver: invalid auth token"));
        assert!(not_sent(
            Code::InvalidArgument,
            "etcdserver: revision of auth store is old"
        ));
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unknown, "transport error"),
            (Code::Cancelled, ""),
        ] {
            assert!(matches!(of(code, message), Failure::Lost(_)), "{message}");
        }
        let at_e = |failure| Failed {
            failure,
            endpoint: "http://e:2379".to_owned(),
        };
        let stopped = of(
            Code::Unknown,
            "protocol error: missing grpc-status trailer, stream was terminated without a final status (possible \
             truncation by a proxy or load balancer)",
        );
        assert_eq!(
            at_e(stopped).of_read(),
            Error::Unavailable("etcd at `http://e:2379`: the connection ended before the answer".to_owned())
        );
        let lost = of(Code::Unavailable, "etcdserver: leader\nchanged");
        assert_eq!(
            at_e(lost.clone()).of_write(),
            Error::Unavailable(
                "etcd at `http://e:2379`: no answer to a change (etcdserver: leader changed): whether it was made is not \
                 known; read what is stored before you try again"
                    .to_owned()
            )
        );
        assert_eq!(
            at_e(lost).of_read(),
            Error::Unavailable("etcd at `http://e:2379`: etcdserver: leader changed".to_owned())
        );
    }
}
