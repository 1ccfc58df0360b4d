//! The client of the control socket.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use reqwest::{RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trueup_work::setup::SetupError;
use trueup_work::socket::Reachable;

use crate::http::Failure;
use crate::state_lock::StateLock;

/// The client of a running host.
pub struct Client {
    http: reqwest::Client,
    /// The state folder with its control socket.
    state_dir: PathBuf,
    _reachable: Reachable,
}

/// The prefix of every path. A socket needs no host name; the server accepts this one as local.
const BASE: &str = "http://localhost/v1";

/// A host that accepts a connection and stays silent for this long is stuck: no read takes longer. A change may.
const READ_MAX: Duration = Duration::from_secs(30);

impl Client {
    /// For the host of a state folder. This sends nothing yet.
    ///
    /// # Errors
    /// If the folder does not exist.
    pub fn new(state_dir: &Path) -> Result<Self, SetupError> {
        let failed = |error: &dyn fmt::Display| unreachable(state_dir, error);
        let reachable = Reachable::new(&super::socket(state_dir)).map_err(|error| failed(&error))?;
        // Nothing is encrypted here, but the client is built with TLS and needs a crypto provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().unix_socket(reachable.path());
        Ok(Self {
            http: http.build().map_err(|error| failed(&error))?,
            state_dir: state_dir.to_owned(),
            _reachable: reachable,
        })
    }

    /// `GET` of a path below `/v1/`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, SetupError> {
        self.ask(self.http.get(format!("{BASE}/{path}")).timeout(READ_MAX))
            .await
    }

    /// `DELETE` of a path below `/v1/`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, SetupError> {
        self.ask(self.http.delete(format!("{BASE}/{path}"))).await
    }

    /// `POST` to a path below `/v1/`. A change may take long, so there is no timeout.
    ///
    /// # Errors
    /// Why there is no answer, or why the host refuses.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, SetupError> {
        self.ask(self.http.post(format!("{BASE}/{path}")).json(body)).await
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, SetupError> {
        let response = request.send().await.map_err(|error| self.no_answer(&error))?;
        let not_understood = |why: String| {
            let socket = super::socket(&self.state_dir);
            let gave = "gave an answer that is not understood";
            SetupError::Failed(format!("the host at `{}` {gave}: {why}", socket.display()))
        };
        let status = response.status();
        let body = response.bytes().await;
        let body = body.map_err(|error| not_understood(innermost(&error).to_string()))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| not_understood(error.to_string()));
        }
        match serde_json::from_slice::<Failure>(&body) {
            Ok(failure) if matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND) => {
                Err(SetupError::Misused(failure.error))
            }
            Ok(failure) => Err(SetupError::Failed(failure.error)),
            Err(error) => Err(not_understood(error.to_string())),
        }
    }

    fn no_answer(&self, error: &reqwest::Error) -> SetupError {
        let socket = super::socket(&self.state_dir);
        let shown = socket.display();
        let seconds = READ_MAX.as_secs();
        let cause = innermost(error);
        let of_system = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let why = if error.is_timeout() {
            let then = "see its log, and start it again if it stays so";
            format!("does not answer: it took the request and said nothing for {seconds} s; {then}")
        } else if of_system == Some(io::ErrorKind::PermissionDenied) {
            format!("can't be asked: {cause}; ask as the user that it runs as, or as root")
        } else {
            return unreachable(&self.state_dir, cause);
        };
        SetupError::Failed(format!("the host at `{shown}` {why}"))
    }
}

fn unreachable(state_dir: &Path, why: impl fmt::Display) -> SetupError {
    let shown = state_dir.display();
    SetupError::Failed(match StateLock::taken(state_dir).ok().flatten().flatten() {
        Some(pid) => format!(
            "process {pid} has the state folder `{shown}` and does not answer yet: it is starting, ends, or runs with \
             `--once`; see its log"
        ),
        None => format!(
            "no host runs with the state folder of `{shown}`: {why}; if one should, see its log: it ended, or the \
             folder was moved; else start one with `trueup run`"
        ),
    })
}

/// The system's error: the outer layers only say that they failed.
fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_that_does_not_listen_yet_is_told_from_none() {
        let dir = tempfile::tempdir().unwrap();
        let said = async || {
            let status = Client::new(dir.path()).unwrap().get::<()>("status").await;
            status.unwrap_err().to_string()
        };
        let none = said().await;
        assert!(none.starts_with("no host runs with the state folder of "), "{none}");
        let _lock = StateLock::take(dir.path()).unwrap();
        let starts = said().await;
        let process = format!("process {} has the state folder ", std::process::id());
        assert!(
            starts.starts_with(&process) && starts.contains("it is starting"),
            "{starts}"
        );
    }
}
