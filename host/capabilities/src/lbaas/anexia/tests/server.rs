//! An HTTP/1.1 server with scripted answers, including connections that break.
//!
//! Written on the bare socket: a real server library would never close a connection without an answer.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// Path and query, still encoded.
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(it, _)| it == name)
            .map(|(_, value)| value.as_str())
    }

    /// A query parameter, decoded once.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let query = self.target.split_once('?')?.1;
        let value = query
            .split('&')
            .find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
        Some(
            percent_encoding::percent_decode_str(value)
                .decode_utf8()
                .unwrap()
                .into_owned(),
        )
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
    headers: Vec<(String, String)>,
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
            headers: Vec::new(),
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

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
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
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                shared.connections.fetch_add(1, SeqCst);
                tokio::spawn(serve(socket, Arc::clone(&script), Arc::clone(&shared)));
            }
        });
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

async fn serve(socket: TcpStream, script: Arc<Script>, record: Arc<Record>) {
    let (reader, mut writer) = socket.into_split();
    let mut reader = BufReader::new(reader);
    while let Some(seen) = receive(&mut reader).await {
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
        if reply.ending == Ending::Closed {
            return;
        }
        let missing = if reply.ending == Ending::Cut { 10 } else { 0 };
        let mut answer = format!(
            "HTTP/1.1 {} Reason\r\ncontent-length: {}\r\n",
            reply.status,
            reply.body.len() + missing
        );
        for (name, value) in &reply.headers {
            answer.push_str(&format!("{name}: {value}\r\n"));
        }
        answer.push_str(&format!("\r\n{}", reply.body));
        if writer.write_all(answer.as_bytes()).await.is_err() || reply.ending == Ending::Cut {
            return;
        }
    }
}

async fn receive(reader: &mut BufReader<tokio::net::tcp::OwnedReadHalf>) -> Option<Seen> {
    let mut first = String::new();
    if reader.read_line(&mut first).await.ok()? == 0 {
        return None;
    }
    let mut words = first.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, it)| it.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.ok()?;
    Some(Seen {
        method,
        target,
        headers,
        body: String::from_utf8(body).unwrap(),
    })
}
