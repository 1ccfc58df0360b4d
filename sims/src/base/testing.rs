//! A simulated server with a client, for tests over HTTP.

use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

use crate::Server;

/// On a busy machine, even an immediate effect may take long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Sim {
    pub(crate) server: Server,
    pub(crate) client: Client,
    authorization: &'static str,
}

impl Sim {
    /// A client of the server that sends this header `Authorization`.
    pub(crate) fn new(server: Server, authorization: &'static str) -> Self {
        // The client has no TLS provider of its own. Another test may have installed it.
        _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            server,
            client: Client::builder().no_proxy().timeout(PATIENCE).build().unwrap(),
            authorization,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.local_addr())
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, self.url(path));
        request.header("Authorization", self.authorization)
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> reqwest::Result<Response> {
        let request = self.request(method, path);
        match body {
            Some(body) => request.json(body).send().await,
            None => request.send().await,
        }
    }

    /// Status and body; a missing body is null.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let response = self.send(method, path, body).await.unwrap();
        let status = response.status().as_u16();
        let body = response.bytes().await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(Method::GET, path, None).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }
}
