//! Pod addresses in a run: their network interfaces, read once or watched, and their service.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{mpsc, watch as channel};
use trueup_capabilities::Backends;
use trueup_sources::enis::{self, Enis};

use super::Extent;
use super::management::Management;
use crate::board::Board;
use crate::config::EnisFrom;
use crate::event::Event;
use crate::ipam::{self, setup::Addresses};
use crate::setup::SetupError;

/// Pod addresses, ready to be served.
pub(super) struct Pods {
    settings: ipam::Settings,
    managed: ipam::Managing,
    backends: Backends,
    interfaces: Interfaces,
    board: Arc<Board>,
}

/// This node's network interfaces, fixed or watched.
enum Interfaces {
    Once(Enis),
    Watched {
        enis: channel::Receiver<Enis>,
        /// `None` if they can't have problems.
        problems: Option<mpsc::UnboundedReceiver<Option<String>>>,
    },
}

impl Interfaces {
    /// # Errors
    /// If there is no list to begin with.
    fn new(from: &EnisFrom, extent: Extent) -> Result<Self, SetupError> {
        Ok(match (from, extent) {
            (EnisFrom::Given(enis), Extent::Once) => Self::Once(enis.clone()),
            (EnisFrom::Given(enis), Extent::UntilStopped) => Self::Watched {
                // Without a sender the interfaces never change.
                enis: channel::Sender::new(enis.clone()).subscribe(),
                problems: None,
            },
            (EnisFrom::File(file), Extent::Once) => Self::Once(enis::load(file).map_err(SetupError::misused)?),
            (EnisFrom::File(file), Extent::UntilStopped) => {
                let enis::Watched { enis, problems } = enis::watch(file).map_err(SetupError::misused)?;
                Self::Watched {
                    enis,
                    problems: Some(problems),
                }
            }
        })
    }
}

impl Pods {
    /// `None` if the configuration names no pod addresses.
    ///
    /// # Errors
    /// If their guest or the list of interfaces can't be used.
    pub(super) async fn new(management: &mut Management<'_>) -> Result<Option<Self>, SetupError> {
        let Some(ipam) = &management.config.ipam else {
            return Ok(None);
        };
        let interfaces = Interfaces::new(&ipam.enis, management.extent)?;
        let addresses = Addresses::new(management.config, ipam, management.ground).await?;
        let backends = addresses.backends.clone();
        Ok(Some(Self {
            settings: ipam.adapter.clone(),
            managed: management.addresses(ipam, addresses),
            backends,
            interfaces,
            board: Arc::clone(&management.ground.board),
        }))
    }

    /// Runs to its end. Returns a summary if it was to end by itself.
    pub(super) async fn run(
        self,
        stop: impl Future<Output = ()>,
        tell: impl Fn(Event),
    ) -> Result<Option<ipam::Summary>, SetupError> {
        let Self {
            settings,
            managed,
            backends,
            interfaces,
            board,
        } = self;
        let tell_of_pods = |event| tell(Event::Ipam(event));
        match interfaces {
            Interfaces::Once(enis) => ipam::once(settings, managed, backends, enis, stop, tell_of_pods)
                .await
                .map(Some),
            Interfaces::Watched { enis, problems } => {
                let serving = ipam::serve(settings, managed, backends, enis, stop, tell_of_pods);
                tokio::select! {
                    served = serving => served.map(|()| None),
                    never = tell_problems(problems, &board, &tell) => match never {},
                }
            }
        }
    }
}

async fn tell_problems(
    problems: Option<mpsc::UnboundedReceiver<Option<String>>>,
    board: &Board,
    tell: &impl Fn(Event),
) -> Infallible {
    if let Some(mut problems) = problems {
        while let Some(problem) = problems.recv().await {
            board.interfaces(problem.clone());
            if let Some(problem) = problem {
                tell(Event::Problem(problem));
            }
        }
    }
    std::future::pending().await
}
