//! Pod addresses as a kind of work: what they need before a run, what a run sets up (the guest, its storage, the
//! container runtime, and this node's network interfaces, read once or watched), how it runs, and what it reports.

use std::sync::Arc;

use serde_json::value::to_raw_value;
use tokio::sync::{mpsc, watch as channel};
use trueup_capabilities::Backends;
use trueup_capabilities::checkpoint::tools::{self, ToolError, Verdict};
use trueup_capabilities::checkpoint::{OpenError, Simulated, Store, file, json_file};
use trueup_capabilities::cri::Runtime;
use trueup_capabilities::cri::remote::Remote;
use trueup_capabilities::grants::{Access, OWN, SANDBOXES};
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_config::{self as config, AdminAt, CheckpointAt, Config, EnisFrom, Guest, Ipam, World};
use trueup_instance::Worlds;
use trueup_sources::enis::{self, Enis};
use trueup_work::event::{Event, Message, WorldEvent};
use trueup_work::host_context::Version;
use trueup_work::kind::{self, Begin, Fallible, Kind, Loop, On, Planning, Ready, RunMode, Summary};
use trueup_work::needs::{Needs, NoGrant, Probe, Problem};
use trueup_work::plan::{KeyPlan, Plan};
use trueup_work::setup::SetupError;

use super::{Event as PodEvent, ManagedGuest, Serving, actor, guest_settings};
use crate::ipam::guest;

/// Addresses for pods.
pub(crate) struct OfPods;

/// What serving pods needs.
struct Pods<'c> {
    ipam: &'c Ipam,
    /// `None` once the loop has it.
    setup: Option<Setup>,
}

struct Setup {
    version: Version,
    backends: Backends,
    /// The container runtime, which the host itself also queries.
    runtime: Arc<dyn Runtime>,
    /// This node's network interfaces: as they are now, or followed.
    enis: channel::Receiver<Enis>,
    /// Problems with them. If they can't have problems, nothing comes.
    problems: mpsc::UnboundedReceiver<Option<String>>,
}

/// The interfaces as they are now.
///
/// # Errors
/// If they can't be read.
fn listed(from: &EnisFrom) -> Result<Enis, SetupError> {
    match from {
        EnisFrom::Given(enis) => Ok(enis.clone()),
        EnisFrom::File(file) => enis::load(file).map_err(SetupError::Misused),
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
            ..needs(ipam)
        }
    }

    fn check_state(&self, config: &Config) -> Result<(), SetupError> {
        let Some(ipam) = config.world::<Ipam>() else {
            return Ok(());
        };
        actor::open_state(&ipam.adapter, &config.state_dir, true).map(drop)
    }

    fn example(&self) -> &'static [(&'static str, &'static str)] {
        example!("ipam": "trueup.toml", "enis.json")
    }

    fn set_up<'a>(&'a self, (config, host_context, extent, _): On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>> {
        Box::pin(async move {
            let Some(ipam) = config.world::<Ipam>() else {
                return Ok(None);
            };
            let (enis, problems) = match (&ipam.enis, extent) {
                (EnisFrom::File(file), RunMode::UntilStopped) => {
                    let watched = enis::watch(file).map_err(SetupError::Misused)?;
                    (watched.enis, watched.problems)
                }
                // Without a sender the interfaces never change.
                (from, _) => (
                    channel::Sender::new(listed(from)?).subscribe(),
                    mpsc::unbounded_channel().1,
                ),
            };
            no_grants(ipam).iter().for_each(|missing| tracing::warn!("{missing}"));
            let called = called(ipam);
            let version = host_context.version(config, guest::NAME, guest::WORLDS, &called);
            let version = Version {
                // Its manager gets the settings as they are configured.
                guest: ipam.guest.clone(),
                ..version.await?
            };
            let runtime: Arc<dyn Runtime> = Arc::new(container_runtime(ipam));
            let backends = Backends {
                checkpoint: Some(match host_context.plans() {
                    true => copied(&ipam.checkpoint)?,
                    false => open_store(&ipam.checkpoint, &host_context.metrics)?,
                }),
                sandboxes: Some(Arc::clone(&runtime)),
                ..host_context.backends(config.seed, &ipam.adapter.instance, &Arc::default())
            };
            let setup = Some(Setup {
                version,
                backends,
                runtime,
                enis,
                problems,
            });
            Ok(Some(Box::new(Pods { ipam, setup }) as _))
        })
    }
}

impl Ready for Pods<'_> {
    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()> {
        Box::pin(async move {
            let Some(setup) = self.setup.take() else { return Ok(()) };
            let active = Arc::clone(&setup.version.active);
            let policy = self.ipam.guest.failure.clone();
            let serving = Serving {
                settings: self.ipam.adapter.clone(),
                managed: ManagedGuest::new(Arc::clone(&active), setup.version.unmanaged(), policy),
                backends: setup.backends,
                enis: setup.enis,
            };
            let key = serving.settings.instance.clone();
            let ended = super::once(serving, std::future::pending(), |_| {}).await?;
            let found = active.plan.as_ref().map(|plan| plan.take(&key));
            let (writes, _) = found.unwrap_or_default();
            // The copy that the plan reads is always whole.
            let damage = whole_store(&self.ipam.checkpoint).err();
            let damage = damage.map(|damage| format!("the store can't be read: {}; {}", damage.text, damage.next));
            let pool = KeyPlan {
                key,
                guest: active.instances().name,
                writes,
                error: damage.or(ended.error),
                ..KeyPlan::default()
            };
            plan.add(of.name, "address pool", vec![pool]);
            Ok(())
        })
    }

    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError> {
        let Some(setup) = self.setup.take() else {
            return Ok(kind::nothing());
        };
        let ipam = self.ipam;
        let active = Arc::clone(&setup.version.active);
        let managing = with.management.connect(setup.version);
        let managed = ManagedGuest {
            runtime: ipam.runtime_socket.as_ref().map(|_| setup.runtime),
            ..ManagedGuest::new(active, managing, ipam.guest.failure.clone())
        };
        let serving = Serving {
            settings: ipam.adapter.clone(),
            managed,
            backends: setup.backends,
            enis: setup.enis,
        };
        let mut problems = setup.problems;
        let context = with.context;
        let tell = with.report;
        let host_status = Arc::clone(&with.management.host_context.host_status);
        Ok(Box::pin(async move {
            let tell_of_pods = |event| {
                host_status.pods_event(&event);
                tell(Event::Own(WorldEvent::new("ipam", &event, message(&event))));
            };
            if context.is_once() {
                let ended = super::once(serving, context.stopped(), tell_of_pods).await?;
                // One pool is one key. Nothing is created in it, but a freed address is one allocation less.
                let failed = usize::from(ended.error.is_some());
                let succeeded = 1 - failed;
                let released = ended.released;
                return Ok(Some(Summary {
                    is_true: failed == 0,
                    line: format!("1 address pool: {succeeded} true, {failed} failed; 0 created, {released} destroyed"),
                    json: to_raw_value(&ended).map_err(SetupError::failed)?,
                    ..Summary::default()
                }));
            }
            let serving = super::serve(serving, context.stopped(), tell_of_pods);
            let mut serving = std::pin::pin!(serving);
            loop {
                tokio::select! {
                    served = &mut serving => return served.map(|()| None),
                    Some(problem) = problems.recv() => {
                        host_status.interfaces(problem.clone());
                        if let Some(problem) = problem {
                            tell(Event::Problem(problem));
                        }
                    }
                }
            }
        }))
    }
}

/// The guest with the phase that the host adds to its settings.
fn called(ipam: &Ipam) -> Guest {
    Guest {
        settings: guest_settings(ipam.guest.settings.clone()),
        ..ipam.guest.clone()
    }
}

fn container_runtime(ipam: &Ipam) -> Remote {
    Remote {
        socket: ipam.runtime_socket.clone(),
        ..Remote::default()
    }
}

/// What serving pod addresses needs: its guest, its storage, and the container runtime if something asks it.
fn needs(ipam: &Ipam) -> Needs<'_> {
    let mut looks = vec![Probe::new("checkpoint", async { whole_store(&ipam.checkpoint) })];
    if ipam.reads_from_runtime() || ipam.runtime_socket.is_some() {
        looks.push(Probe::new("container runtime", async {
            let next = "crictl info: if that fails too, start the runtime; or correct `socket` in [backend.cri]";
            let known = container_runtime(ipam).list_ids().await;
            let known = known.map_err(|error| Problem::new(error, next))?;
            Ok(format!("answers, and knows {} sandboxes", known.len()))
        }));
    }
    Needs {
        guests: vec![(guest::NAME, guest::WORLDS, called(ipam))],
        no_grants: Some(no_grants(ipam)),
        looks,
        listens: vec![("adapter.ipam.socket", AdminAt::Unix(ipam.adapter.socket.clone()))],
        ..Needs::default()
    }
}

/// A guest without the grants it needs fails at each call.
fn no_grants(ipam: &Ipam) -> Vec<NoGrant> {
    let runtime = "the container runtime, where phase 1 reads";
    let needed = [
        (true, Access::Read, "its checkpoint", "checkpoint", OWN),
        (true, Access::Write, "its checkpoint", "checkpoint", OWN),
        (ipam.reads_from_runtime(), Access::Read, runtime, "cri", SANDBOXES),
    ];
    let missing = needed.into_iter().filter(|(is_needed, access, _, capability, scope)| {
        *is_needed && !ipam.guest.grants.allow(capability, *access, scope)
    });
    let missing = missing.map(|(_, access, what, capability, scope)| {
        NoGrant::new(guest::NAME, access, what, (capability, &format!("\"{scope}\"")))
    });
    missing.collect()
}

/// Where the store is, if it is whole or nothing was ever stored there.
fn whole_store(at: &CheckpointAt) -> Result<String, Problem> {
    let path = match at {
        CheckpointAt::File(file::Settings { path, .. }) | CheckpointAt::JsonFile { path, .. } => path,
        CheckpointAt::Simulated => return Ok("simulated, in memory".to_owned()),
    };
    let stored = path.display().to_string();
    let next = format!("trueup checkpoint verify {stored}; move a damaged one away, or restore an earlier generation");
    match tools::verify(path) {
        Ok((_, Verdict::Corrupt { text })) => Err(Problem::new(text, next)),
        Ok(_) | Err(ToolError::Misused(_)) => Ok(stored),
        Err(error) => Err(Problem::new(error, next)),
    }
}

/// A store in memory with what the configured one has. Another process may have that one open.
fn copied(at: &CheckpointAt) -> Result<Arc<dyn Store>, SetupError> {
    let saved = match at {
        CheckpointAt::File(file::Settings { path, .. }) | CheckpointAt::JsonFile { path, .. } => {
            let kind = tools::kind_of(path).map_err(SetupError::failed)?;
            let looked = kind.map(|_| tools::look(path)).transpose();
            looked.map_err(SetupError::failed)?.map(|picture| picture.saved)
        }
        CheckpointAt::Simulated => None,
    };
    Ok(Arc::new(Simulated::new(saved)))
}

/// Opens a store. It is exclusive until it is dropped.
fn open_store(at: &CheckpointAt, metrics: &Arc<Metrics>) -> Result<Arc<dyn Store>, SetupError> {
    let store: Result<Arc<dyn Store>, OpenError> = match at.clone() {
        CheckpointAt::File(settings) => {
            file::File::open(settings, Arc::clone(metrics)).map(|store| Arc::new(store) as _)
        }
        CheckpointAt::JsonFile { path, keep_generations } => {
            json_file::JsonFile::open(path, keep_generations).map(|store| Arc::new(store) as _)
        }
        CheckpointAt::Simulated => Ok(Arc::new(Simulated::new(None))),
    };
    store.map_err(SetupError::failed)
}

/// The line about an event of pod addresses.
fn message(event: &PodEvent) -> Option<Message> {
    Some(match event {
        PodEvent::Read { instance, stats } => Message::outcome(instance, "true", &stats.to_string()),
        PodEvent::Listening { socket } => Message::Line(format!("listening on {}", socket.display())),
        PodEvent::Released { instance, eni } => {
            let did = format!("network interface `{eni}` is unused and can be detached");
            Message::outcome(instance, "released", &did)
        }
        PodEvent::Spool { instance, done, kept } if *kept == 0 => {
            let did = format!("{done} left by pods that ended while no host ran: done");
            Message::outcome(instance, "spool", &did)
        }
        PodEvent::Spool { instance, done, kept } => Message::Warning(format!(
            "{instance}: of the releases left by pods that ended while no host ran, {done} are done and {kept} are tried \
             again"
        )),
        // `trueup status` shows these; the log has what the host refused to pods.
        PodEvent::Counted { .. } => return None,
        PodEvent::Ended { instance, error } => Message::Warning(format!("{instance}: {error}")),
        PodEvent::RolledBack {
            instance,
            error,
            stands,
        } => Message::Warning(format!(
            "{instance}: what the store took is lost, and the requests that waited failed ({error}): going on from entry \
             {stands} of the journal"
        )),
        PodEvent::ReadingFailed {
            instance,
            error,
            again_in_ms,
        } => Message::failed(instance, &format!("the store can't be read: {error}"), *again_in_ms),
        PodEvent::Down {
            instance,
            error,
            again_in_ms,
        } => Message::failed(instance, error, *again_in_ms),
    })
}
