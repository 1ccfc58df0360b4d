//! Pod addresses as a kind of work: their network interfaces, read once or watched, and their service.

use std::convert::Infallible;
use std::sync::Arc;

use serde_json::value::to_raw_value;
use tokio::sync::{mpsc, watch as channel};
use trueup_config::{self as config, Config, EnisFrom, Ipam, World};
use trueup_instance::Worlds;
use trueup_sources::enis::{self, Enis};
use trueup_work::event::Event;
use trueup_work::kind::{self, Begin, Fallible, Kind, Loop, On, Planning, Ready, RunMode, Summary};
use trueup_work::needs::Needs;
use trueup_work::plan::{KeyPlan, Plan};
use trueup_work::setup::SetupError;
use trueup_work::status::HostStatus;

use super::setup::Addresses;
use super::{actor, messages};
use crate::ipam::guest;

/// Addresses for pods.
pub(crate) struct OfPods;

/// What serving pods needs.
struct Pods<'c> {
    ipam: &'c Ipam,
    /// `None` once the loop has it.
    setup: Option<(Addresses, Interfaces)>,
}

/// This node's network interfaces, and the receiver of problems with them. `None` if they can't have problems.
type Interfaces = (channel::Receiver<Enis>, Option<mpsc::UnboundedReceiver<Option<String>>>);

/// The interfaces: as they are now, or followed.
///
/// # Errors
/// If there is no list to begin with.
fn interfaces(from: &EnisFrom, extent: RunMode) -> Result<Interfaces, SetupError> {
    if let (EnisFrom::File(file), RunMode::UntilStopped) = (from, extent) {
        let enis::Watched { enis, problems } = enis::watch(file).map_err(SetupError::misused)?;
        return Ok((enis, Some(problems)));
    }
    // Without a sender the interfaces never change.
    Ok((channel::Sender::new(listed(from)?).subscribe(), None))
}

/// The interfaces as they are now.
///
/// # Errors
/// If they can't be read.
fn listed(from: &EnisFrom) -> Result<Enis, SetupError> {
    match from {
        EnisFrom::Given(enis) => Ok(enis.clone()),
        EnisFrom::File(file) => enis::load(file).map_err(SetupError::misused),
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

    fn needs<'a>(&self, config: &'a Config) -> Needs<'a> {
        let Some(ipam) = config.world::<Ipam>() else {
            return Needs::default();
        };
        Needs {
            unusable: listed(&ipam.enis).err(),
            ..super::setup::needs(ipam)
        }
    }

    fn check_state(&self, config: &Config) -> Result<(), SetupError> {
        let Some(ipam) = config.world::<Ipam>() else {
            return Ok(());
        };
        actor::open_state(&ipam.adapter, &config.state_dir, true).map(drop)
    }

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("trueup.toml", include_str!("../../../../examples/ipam/trueup.toml")),
            ("enis.json", include_str!("../../../../examples/ipam/enis.json")),
        ]
    }

    fn set_up<'a>(&'a self, (config, host_context, extent, _): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(ipam) = config.world::<Ipam>() else {
                return Ok(None);
            };
            let interfaces = interfaces(&ipam.enis, extent)?;
            let addresses = Addresses::new(config, ipam, host_context).await?;
            let setup = Some((addresses, interfaces));
            Ok(Some(Box::new(Pods { ipam, setup }) as _))
        })
    }
}

impl Ready for Pods<'_> {
    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(async move {
            let Some((Addresses { version, backends, .. }, (enis, _))) = self.setup.take() else {
                return Ok(());
            };
            let active = Arc::clone(&version.active);
            let policy = self.ipam.guest.failure.clone();
            let managed = super::ManagedGuest::new(Arc::clone(&active), version.unmanaged(), policy);
            let settings = self.ipam.adapter.clone();
            let key = settings.instance.clone();
            let stop = std::future::pending();
            let ended = super::once(settings, managed, backends, enis, stop, |_| {}).await?;
            let found = active.plan.as_ref().map(|plan| plan.take(&key));
            // The copy that the plan reads is always whole.
            let damage = super::setup::whole_store(&self.ipam.checkpoint).err();
            let damage = damage.map(|damage| format!("the store can't be read: {}; {}", damage.text, damage.next));
            let pool = KeyPlan {
                key,
                guest: active.instances().name,
                writes: found.unwrap_or_default().writes,
                error: damage.or(ended.error),
                ..KeyPlan::default()
            };
            plan.add(of.name, "address pool", vec![pool]);
            Ok(())
        })
    }

    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let Some((addresses, (enis, problems))) = self.setup.take() else {
            return Ok(kind::nothing());
        };
        let ipam = self.ipam;
        let active = Arc::clone(&addresses.version.active);
        let managing = with.management.connect(addresses.version);
        let managed = super::ManagedGuest {
            runtime: ipam.runtime_socket.as_ref().map(|_| addresses.runtime),
            ..super::ManagedGuest::new(active, managing, ipam.guest.failure.clone())
        };
        let (settings, backends) = (ipam.adapter.clone(), addresses.backends);
        let (context, tell, host_status) = (
            with.context,
            with.report,
            Arc::clone(&with.management.host_context.host_status),
        );
        Ok(Box::pin(async move {
            let tell_of_pods = |event| {
                host_status.pods_event(&event);
                tell(Event::Own(messages::own(&event)));
            };
            if context.is_once() {
                let ended = super::once(settings, managed, backends, enis, context.stopped(), tell_of_pods).await?;
                return summary(&ended).map(Some);
            }
            let serving = super::serve(settings, managed, backends, enis, context.stopped(), tell_of_pods);
            tokio::select! {
                served = serving => served.map(|()| None),
                never = tell_problems(problems, &host_status, tell) => match never {},
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
        line: format!("1 address pool: {succeeded} true, {failed} failed; 0 created, {released} destroyed"),
        json: to_raw_value(of).map_err(SetupError::failed)?,
        ..Summary::default()
    })
}

async fn tell_problems(
    problems: Option<mpsc::UnboundedReceiver<Option<String>>>,
    host_status: &HostStatus,
    tell: &dyn Fn(Event),
) -> Infallible {
    if let Some(mut problems) = problems {
        while let Some(problem) = problems.recv().await {
            host_status.interfaces(problem.clone());
            if let Some(problem) = problem {
                tell(Event::Problem(problem));
            }
        }
    }
    std::future::pending().await
}
