//! An HTTP/1.1 server with scripted answers, including connections that break.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use axum::serve::ListenerExt as _;
use futures_util::stream::{self, StreamExt as _};
use http::header::{CONTENT_LENGTH, HeaderMap};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    /// Path and query, still encoded.
    pub(crate) target: String,
    headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        Some(self.headers.get(name)?.to_str().unwrap())
    }

    /// A query parameter, decoded once.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let query = self.target.split_once('?')?.1;
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
    }

    /// Method and path.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path())
    }
}

/// The server's reaction to a request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: HeaderMap,
    body: String,
    /// Held back until this many requests are in flight.
    company: usize,
    /// And this long after that.
    after: Duration,
    ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Whole,
    /// The connection ends in the middle of the body.
    Cut,
    /// The connection ends without an answer.
    Closed,
}

impl Reply {
    pub(crate) fn json(status: u16, body: Value) -> Self {
        Self::text(status, &body.to_string())
    }

    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            body: body.to_owned(),
            company: 0,
            after: Duration::ZERO,
            ending: Ending::Whole,
        }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::text(status, "")
    }

    pub(crate) fn closed() -> Self {
        Self {
            ending: Ending::Closed,
            ..Self::status(200)
        }
    }

    pub(crate) fn cut(self) -> Self {
        Self {
            ending: Ending::Cut,
            ..self
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// Holds the reply back until this many requests are in flight, however long the machine takes to send them.
    pub(crate) fn in_company_of(self, company: usize) -> Self {
        Self { company, ..self }
    }

    pub(crate) fn after_ms(self, ms: u64) -> Self {
        Self {
            after: Duration::from_millis(ms),
            ..self
        }
    }

    fn into_response(mut self) -> Response {
        // The connection breaks where its body fails: before the head is sent, or after what the pause lets through.
        let broken = || Err::<String, _>(std::io::Error::other("broken"));
        let bytes = self.body.len();
        let body = match self.ending {
            Ending::Whole => Body::from(self.body),
            Ending::Cut => {
                self.headers.insert(CONTENT_LENGTH, (bytes + 10).into());
                let pause = stream::once(tokio::task::yield_now()).map(move |()| broken());
                Body::from_stream(stream::iter([Ok(self.body)]).chain(pause))
            }
            Ending::Closed => Body::from_stream(stream::iter([broken()])),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap();
        *response.headers_mut() = self.headers;
        response
    }
}

/// The current and the maximum number of requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    fn enter(&self) {
        self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, SeqCst);
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(SeqCst)
    }
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

#[derive(Default)]
struct Record {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    requests: Gauge,
    taggings: Gauge,
}

/// Listens until it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    record: Arc<Record>,
    accepting: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let record = Arc::new(Record::default());
        let (script, shared): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&record));
        let router = Router::new().fallback(move |request| answer(request, Arc::clone(&script), Arc::clone(&shared)));
        let counted = Arc::clone(&record);
        let listener = listener.tap_io(move |_| _ = counted.connections.fetch_add(1, SeqCst));
        let accepting = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, record, accepting }
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.record.seen.lock().unwrap().clone()
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.record.connections.load(SeqCst)
    }

    /// Method and path of all requests so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().iter().map(Seen::line).collect()
    }

    pub(crate) fn requests(&self) -> &Gauge {
        &self.record.requests
    }

    pub(crate) fn taggings(&self) -> &Gauge {
        &self.record.taggings
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(request: Request, script: Arc<Script>, record: Arc<Record>) -> Response {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let seen = Seen {
        method: head.method,
        target: head.uri.to_string(),
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let is_tagging = seen.target.contains("/tags/");
    record.seen.lock().unwrap().push(seen.clone());
    record.requests.enter();
    if is_tagging {
        record.taggings.enter();
    }
    let reply = script(&seen);
    while record.requests.most() < reply.company {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(reply.after).await;
    record.requests.leave();
    if is_tagging {
        record.taggings.leave();
    }
    reply.into_response()
}
