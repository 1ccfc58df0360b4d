//! The connection to one member of the cluster at a time, and the next member where that one fails.
//!
//! ```text
//! question -> link (made where there is none) -> member -> answer
//!                 \-> failure of the connection: the next member, after a pause, until the question's time is up
//! ```

use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::failure::Failure;
use super::settings::Settings;
use crate::etcd::Error;

/// The pause before a question is asked again, at first; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// It gets no longer: a question has seconds.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Whether a question that may have been answered may be asked once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    Freely,
    UnlessDone,
}

/// How a cluster is reached, and the member that is asked now.
#[derive(Debug)]
pub(super) struct Connection {
    settings: Settings,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// Its place among the endpoints.
    member: usize,
    /// Counts the members that were given up.
    generation: u64,
    /// None until somebody asks.
    client: Option<Client>,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current")
            .field("member", &self.member)
            .finish_non_exhaustive()
    }
}

/// A client of one member.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) endpoint: String,
    generation: u64,
}

impl Connection {
    pub(super) fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            current: Mutex::default(),
        })
    }

    /// The end of a question that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.settings.request_timeout
    }

    /// Asks what changes nothing, of as many members and as often as there is time for.
    pub(super) async fn read<T, F>(&self, ask: impl Fn(Client) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        self.ask(Again::Freely, ask).await
    }

    /// Asks for a change. What may have been done is not asked again.
    pub(super) async fn write<T, F>(&self, ask: impl Fn(Client) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let answer = self.ask(Again::UnlessDone, ask).await;
        answer.map_err(|failed| failed.failure.of_write(&failed.endpoint))
    }

    async fn ask<T, F>(&self, again: Again, ask: impl Fn(Client) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let until = self.deadline();
        let mut pause = PAUSE_MIN;
        loop {
            let failed = match self.once(again, until, &ask).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let may = match failed.failure {
                Failure::NotSent(_) => true,
                Failure::Lost(_) => again == Again::Freely,
                _ => false,
            };
            if !may || Instant::now() + pause >= until {
                return Err(failed);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn once<T, F>(&self, again: Again, until: Instant, ask: impl Fn(Client) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let link = self.link(until).await?;
        // A member that says nothing leaves time to ask another, unless this is the one that must answer.
        let limit = match again {
            Again::Freely => Instant::now() + until.saturating_duration_since(Instant::now()) / 2,
            Again::UnlessDone => until,
        };
        let failure = match timeout_at(limit, ask(link.client.clone())).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::of(&error),
            Err(_) => Failure::Lost("it does not answer in time".to_owned()),
        };
        if failure.is_connection() {
            self.give_up(&link).await;
        }
        Err(Failed {
            failure,
            endpoint: link.endpoint,
        })
    }

    /// The connection, made where there is none. Whoever comes meanwhile waits for the same one.
    pub(super) async fn link(&self, until: Instant) -> Result<Link, Failed> {
        let mut current = self.current.lock().await;
        let endpoint = self.settings.endpoints.get(current.member).cloned().unwrap_or_default();
        let failure = match &current.client {
            Some(client) => {
                return Ok(Link {
                    client: client.clone(),
                    endpoint,
                    generation: current.generation,
                });
            }
            None => {
                let options = self.settings.options(&endpoint);
                let connecting = Client::connect([endpoint.as_str()], Some(options));
                match timeout_at(until, connecting).await {
                    Ok(Ok(client)) => {
                        current.client = Some(client.clone());
                        return Ok(Link {
                            client,
                            endpoint,
                            generation: current.generation,
                        });
                    }
                    // Authentication alone was asked for.
                    Ok(Err(error)) => match Failure::of(&error) {
                        Failure::Lost(text) => Failure::NotSent(text),
                        other => other,
                    },
                    Err(_) => Failure::NotSent("there was no connection in time".to_owned()),
                }
            }
        };
        self.next_member(&mut current);
        Err(Failed { failure, endpoint })
    }

    /// Has the next question, and all that follow, go to the next member; once for all that found this one wanting.
    pub(super) async fn give_up(&self, link: &Link) {
        let mut current = self.current.lock().await;
        if current.generation == link.generation {
            self.next_member(&mut current);
        }
    }

    fn next_member(&self, current: &mut Current) {
        current.member = (current.member + 1) % self.settings.endpoints.len().max(1);
        current.generation += 1;
        current.client = None;
    }
}

/// A failure, and whose it was.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) endpoint: String,
}

impl Failed {
    pub(super) fn of_read(self) -> Error {
        self.failure.of_read(&self.endpoint)
    }
}
