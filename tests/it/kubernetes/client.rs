//! A client that sends exactly what a test wants, over plain HTTP.

use std::sync::LazyLock;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use support::api_server::ApiServer;

/// Anything slower counts as a hang.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

static CLIENT: LazyLock<Client> = LazyLock::new(|| {
    // Ignore the error: another test of this process may have been first.
    _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
});

/// A client with a name.
pub(crate) struct Caller<'a> {
    pub(crate) server: &'a ApiServer,
    pub(crate) user: &'a str,
}

/// An answer: HTTP status and object.
type Answer = (u16, Value);

impl<'a> Caller<'a> {
    pub(crate) fn new(server: &'a ApiServer, user: &'a str) -> Self {
        Self { server, user }
    }

    /// Sends a request and awaits the start of the answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: Option<Value>,
    ) -> reqwest::Result<Response> {
        let request = CLIENT
            .request(method, format!("{}{path}", self.server.url()))
            .bearer_auth(self.user);
        let request = request.header(ACCEPT, "application/json").header(CONTENT_TYPE, media);
        match body {
            Some(body) => request.body(body.to_string()).send().await,
            None => request.send().await,
        }
    }

    fn ask(&self, method: Method, path: &str, media: &str, body: Option<Value>) -> Answer {
        RUNTIME.block_on(async {
            let response = timeout(PATIENCE, self.send(method, path, media, body))
                .await
                .unwrap()
                .unwrap();
            (response.status().as_u16(), response.json().await.unwrap())
        })
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, "application/json", None)
    }

    pub(crate) fn put(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::PUT, path, "application/json", Some(body))
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::POST, path, "application/json", Some(body))
    }

    pub(crate) fn merge(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::PATCH, path, "application/merge-patch+json", Some(body))
    }

    pub(crate) fn delete(&self, path: &str, body: Value) -> Answer {
        self.ask(Method::DELETE, path, "application/json", Some(body))
    }

    /// Starts a watch.
    pub(crate) fn watch(&self, path: &str) -> Watch {
        self.try_watch(path).unwrap()
    }

    /// Starts a watch; an error if it is cut before the answer.
    pub(crate) fn try_watch(&self, path: &str) -> reqwest::Result<Watch> {
        let sent = self.send(Method::GET, path, "application/json", None);
        let response = RUNTIME.block_on(async { timeout(PATIENCE, sent).await.unwrap() })?;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        Ok(Watch {
            response,
            read: Vec::new(),
        })
    }
}

/// An open watch.
pub(crate) struct Watch {
    response: Response,
    read: Vec<u8>,
}

impl Watch {
    /// The next event; `None` at the end, an error if it breaks off.
    pub(crate) fn next(&mut self) -> reqwest::Result<Option<Value>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).unwrap()));
            }
            let chunk = RUNTIME.block_on(async { timeout(PATIENCE, self.response.chunk()).await.unwrap() });
            match chunk? {
                Some(bytes) => self.read.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// Type, name and version of the next event.
    pub(crate) fn told(&mut self) -> (String, String, u64) {
        let event = self.next().unwrap().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let meta = &event["object"]["metadata"];
        (
            text(&event["type"]),
            text(&meta["name"]),
            text(&meta["resourceVersion"]).parse().unwrap_or(0),
        )
    }
}

/// A node, the smallest thing with a status.
pub(crate) fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}
