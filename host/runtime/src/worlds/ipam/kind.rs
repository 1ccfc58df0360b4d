//! Pod addresses as a kind of work: their network interfaces, read once or watched, and their service.

use std::convert::Infallible;
use std::sync::Arc;

use serde_json::value::to_raw_value;
use tokio::sync::{mpsc, watch as channel};
use trueup_sources::enis::{self, Enis};

use super::failing::Failing;
use super::setup::Addresses;
use crate::board::Board;
use crate::config::{self, Config, EnisFrom, Ipam, World};
use crate::event::Event;
use crate::guests::Worlds;
use crate::kind::{self, Begin, Extent, Fallible, Kind, Loop, On, Ready, Summary};
use crate::setup::SetupError;
use crate::work::ground::Ground;
use crate::worlds::ipam::guest;

/// Addresses for pods.
pub(crate) struct OfPods;

/// What serving pods needs.
struct Pods<'c> {
    ipam: &'c Ipam,
    /// `None` once the loop has it.
    setup: Option<(Addresses, Interfaces)>,
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

impl Kind for OfPods {
    fn name(&self) -> &'static str {
        "addresses"
    }

    fn worlds(&self) -> Worlds {
        guest::WORLDS
    }

    fn sections(&self) -> &'static dyn World {
        config::IPAM
    }

    fn reads_source(&self) -> bool {
        false
    }

    fn check<'a>(&'a self, config: &'a Config, ground: &'a Ground) -> Fallible<'a, ()> {
        Box::pin(async move {
            let Some(ipam) = config.world::<Ipam>() else {
                return Ok(());
            };
            if let EnisFrom::File(file) = &ipam.enis {
                enis::load(file).map_err(SetupError::misused)?;
            }
            Addresses::check(config, ipam, ground).await
        })
    }

    fn set_up<'a>(&'a self, (config, ground, extent, _): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(ipam) = config.world::<Ipam>() else {
                return Ok(None);
            };
            let interfaces = Interfaces::new(&ipam.enis, extent)?;
            let addresses = Addresses::new(config, ipam, ground).await?;
            let setup = Some((addresses, interfaces));
            Ok(Some(Box::new(Pods { ipam, setup }) as _))
        })
    }
}

impl Ready for Pods<'_> {
    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let Some((addresses, interfaces)) = self.setup.take() else {
            return Ok(kind::nothing());
        };
        let ipam = self.ipam;
        let active = Arc::clone(&addresses.version.active);
        let managing = with.management.connect(addresses.version);
        let managed = super::Managing {
            active,
            handovers: managing.handovers,
            failing: Failing::new(managing.quarantine, ipam.guest.failure.clone(), managing.fall_back),
            runtime: ipam.runtime_socket.as_ref().map(|_| addresses.runtime),
        };
        let (settings, backends) = (ipam.adapter.clone(), addresses.backends);
        let (context, tell, board) = (with.context, with.tell, Arc::clone(&with.management.ground.board));
        Ok(Box::pin(async move {
            let tell_of_pods = |event| {
                board.told_of_pods(&event);
                tell(Event::Ipam(event));
            };
            match interfaces {
                Interfaces::Once(enis) => {
                    let ended = super::once(settings, managed, backends, enis, context.stopped(), tell_of_pods).await?;
                    summary(&ended).map(Some)
                }
                Interfaces::Watched { enis, problems } => {
                    let serving = super::serve(settings, managed, backends, enis, context.stopped(), tell_of_pods);
                    tokio::select! {
                        served = serving => served.map(|()| None),
                        never = tell_problems(problems, &board, tell) => match never {},
                    }
                }
            }
        }))
    }
}

/// One pool is one key. Nothing is created in it, but a freed address is one allocation less.
fn summary(of: &super::Summary) -> Result<Summary, SetupError> {
    let failed = usize::from(of.error.is_some());
    let (succeeded, released) = (1 - failed, of.released);
    Ok(Summary {
        is_true: failed == 0,
        unchanged: None,
        cut_short: None,
        problems: Vec::new(),
        held: Vec::new(),
        failed: Vec::new(),
        line: format!("1 address pool: {succeeded} true, {failed} failed; 0 created, {released} destroyed"),
        json: to_raw_value(of).map_err(SetupError::failed)?,
    })
}

async fn tell_problems(
    problems: Option<mpsc::UnboundedReceiver<Option<String>>>,
    board: &Board,
    tell: &dyn Fn(Event),
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
