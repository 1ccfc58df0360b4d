//! A command's end of the control socket.

use std::path::{Path, PathBuf};

use reqwest::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Failure;
use crate::socket::Reachable;

/// Asks a running host.
pub struct Client {
    http: reqwest::Client,
    socket: PathBuf,
    _reachable: Reachable,
}

/// Why there is no answer: one line.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No host listens there.
    #[error("no host runs with the state folder of `{}`: {why}; start one with `trueup run`", socket.parent().unwrap_or(socket).display())]
    NoHost {
        /// The socket.
        socket: PathBuf,
        /// What the system says.
        why: String,
    },
    /// It was asked for wrongly, or of something that is not there.
    #[error("{0}")]
    Misused(String),
    /// The host refused.
    #[error("{0}")]
    Refused(String),
    /// What it said is not understood.
    #[error("the host at `{}` gave an answer that is not understood: {why}", socket.display())]
    Answer {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl Client {
    /// For the host of a state folder. Nothing is sent yet.
    ///
    /// # Errors
    /// Where there is no such folder.
    pub fn new(state_dir: &Path) -> Result<Self, ClientError> {
        let socket = super::socket(state_dir);
        let no_host = |why: String| ClientError::NoHost {
            socket: socket.clone(),
            why,
        };
        let reachable = Reachable::new(&socket).map_err(|error| no_host(error.to_string()))?;
        // Nothing is encrypted here, but the client is built with TLS, which wants to know by whom.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .unix_socket(reachable.path())
            .no_proxy()
            .build()
            .map_err(|error| no_host(error.to_string()))?;
        Ok(Self {
            http,
            socket,
            _reachable: reachable,
        })
    }

    /// `GET` of a path below `/v1/`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, None::<&()>).await
    }

    /// `DELETE` of a path below `/v1/`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::DELETE, path, None::<&()>).await
    }

    /// `POST` to a path below `/v1/`. A change may take its time: nothing is given up here.
    ///
    /// # Errors
    /// Why there is no answer, or what the host has against it.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let mut request = self.http.request(method, format!("http://trueup/v1/{path}"));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| ClientError::NoHost {
            socket: self.socket.clone(),
            why: innermost(&error),
        })?;
        self.read(response).await
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T, ClientError> {
        let not_understood = |why: String| ClientError::Answer {
            socket: self.socket.clone(),
            why,
        };
        let status = response.status();
        let body = response
            .bytes()
            .await
            .map_err(|error| not_understood(innermost(&error)))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| not_understood(error.to_string()));
        }
        match serde_json::from_slice::<Failure>(&body) {
            Ok(failure) if matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND) => {
                Err(ClientError::Misused(failure.error))
            }
            Ok(failure) => Err(ClientError::Refused(failure.error)),
            Err(error) => Err(not_understood(error.to_string())),
        }
    }
}

/// What the system said: the layers above only say that they failed.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
