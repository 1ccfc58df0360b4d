//! The worlds that a guest may implement, and calls by the name of an export.
//!
//! Each world has a module with its bindings. Everything above this module uses JSON with the names in WIT.

pub mod dispatch;
pub mod ipam;
pub mod lbaas;
pub mod neg;
pub mod nodesync;
pub mod renderer;
pub mod service;
pub(crate) mod source_ranges;

use serde_json::value::RawValue;
use trueup_capabilities::grants::CAPABILITIES;
use trueup_capabilities::{Host, wasi};
use trueup_engine::{CallError, Data, Engine, Guest, Instance};

/// One of the worlds in `wit/`, by its interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World {
    /// The name in WIT.
    pub name: &'static str,
    /// What a guest of this world may import, ascending.
    pub imports: &'static [&'static str],
    /// What it must export, ascending.
    pub exports: &'static [&'static str],
    /// The calls, with the names that scenarios and journals use.
    pub calls: &'static [&'static str],
}

impl World {
    /// Whether a guest of this world may start without the state of its predecessor: the host sends it the whole
    /// desired state, and it neither stores anything nor sets timers.
    pub fn state_is_told_again(&self) -> bool {
        !self.imports.contains(&TIMERS) && !self.imports.contains(&STORE)
    }
}

/// The import through which a guest stores persistent data.
const STORE: &str = "trueup:checkpoint/store@0.1.0";

/// The import through which an instance sets timers.
const TIMERS: &str = "trueup:host/timers@0.1.0";

/// Every world that this build knows.
pub const WORLDS: &[World] = &[
    World {
        name: ipam::WORLD,
        imports: &[
            "trueup:checkpoint/store@0.1.0",
            "trueup:cri/sandboxes@0.1.0",
            "trueup:host/clock@0.1.0",
            "trueup:host/log@0.1.0",
            "trueup:host/metrics@0.1.0",
        ],
        exports: &["trueup:guest/lifecycle@0.1.0", "trueup:ipam/datastore@0.1.0"],
        calls: ipam::CALLS,
    },
    World {
        name: lbaas::WORLD,
        imports: &[
            "trueup:host/clock@0.1.0",
            "trueup:host/log@0.1.0",
            "trueup:host/metrics@0.1.0",
            "trueup:host/random@0.1.0",
            "trueup:lbaas/api@0.1.0",
            "trueup:lbaas/types@0.1.0",
        ],
        exports: &["trueup:guest/lifecycle@0.1.0", "trueup:lbaas/reconciliation@0.1.0"],
        calls: lbaas::CALLS,
    },
    World {
        name: neg::WORLD,
        imports: &[
            "trueup:host/clock@0.1.0",
            "trueup:host/log@0.1.0",
            "trueup:host/metrics@0.1.0",
            TIMERS,
            "trueup:neg/api@0.1.0",
            "trueup:neg/types@0.1.0",
        ],
        exports: &[
            "trueup:guest/lifecycle@0.1.0",
            "trueup:guest/timer-events@0.1.0",
            "trueup:neg/migrator@0.1.0",
            "trueup:neg/syncer@0.1.0",
        ],
        calls: neg::CALLS,
    },
    World {
        name: nodesync::WORLD,
        imports: &[
            "trueup:etcd/kv@0.1.0",
            "trueup:host/log@0.1.0",
            "trueup:host/metrics@0.1.0",
            "trueup:kube/types@0.1.0",
            "trueup:nodesync/types@0.1.0",
        ],
        exports: &["trueup:guest/lifecycle@0.1.0", "trueup:nodesync/node-sync@0.1.0"],
        calls: nodesync::CALLS,
    },
    World {
        name: service::WORLD,
        imports: &[
            "trueup:host/log@0.1.0",
            "trueup:host/metrics@0.1.0",
            "trueup:kube/types@0.1.0",
            "trueup:nodesync/types@0.1.0",
            "trueup:service/renderer@0.1.0",
            "trueup:service/types@0.1.0",
        ],
        exports: &["trueup:guest/lifecycle@0.1.0", "trueup:service/processor@0.1.0"],
        calls: service::CALLS,
    },
    World {
        name: renderer::etcd::WORLD,
        imports: &[
            "trueup:etcd/kv@0.1.0",
            "trueup:host/log@0.1.0",
            "trueup:host/metrics@0.1.0",
            "trueup:kube/types@0.1.0",
            "trueup:service/types@0.1.0",
        ],
        exports: RENDERER_EXPORTS,
        calls: renderer::CALLS,
    },
    World {
        name: renderer::nftables::WORLD,
        imports: &[
            "trueup:host/log@0.1.0",
            "trueup:host/metrics@0.1.0",
            "trueup:kube/types@0.1.0",
            "trueup:service/nftables@0.1.0",
            "trueup:service/types@0.1.0",
        ],
        exports: RENDERER_EXPORTS,
        calls: renderer::CALLS,
    },
];

/// The exports of every renderer. Its imports determine its world.
const RENDERER_EXPORTS: &[&str] = &["trueup:guest/lifecycle@0.1.0", "trueup:service/renderer@0.1.0"];

impl World {
    /// Whether an instance decides only by what it reads. If its recording is lost, a new instance decides the same,
    /// and only history is lost.
    pub fn is_stateless(&self) -> bool {
        self.name == lbaas::WORLD
    }

    /// The world of a guest, determined from its exports.
    ///
    /// # Errors
    /// One line: the exports or imports that match no world, and the known worlds.
    pub fn of(guest: &Guest) -> Result<&'static Self, String> {
        let exports_all = |world: &&Self| {
            world
                .exports
                .iter()
                .all(|export| guest.exports.iter().any(|has| has == export))
        };
        let may_import = |world: &&Self| guest.imports.iter().all(|import| world.may_import(import));
        let mut fitting = WORLDS.iter().filter(exports_all);
        let first = fitting.clone().find(may_import).or_else(|| fitting.next());
        let Some(world) = first else {
            let worlds: Vec<&str> = WORLDS.iter().map(|world| world.name).collect();
            return Err(format!(
                "guest `{}@{}` exports {}, which is no world of this host; the worlds are: {}",
                guest.name,
                guest.version,
                list_or_nothing(&guest.exports),
                worlds.join(", "),
            ));
        };
        let foreign = |import: &&String| !world.may_import(import);
        let foreign = guest.imports.iter().find(foreign);
        if let Some(foreign) = foreign.filter(|import| wasi::is_wasi(import)) {
            if !cfg!(feature = "wasi") {
                return Err(format!(
                    "guest `{}@{}` imports `{foreign}`: this trueup is built without WASI (cargo feature `wasi`)",
                    guest.name, guest.version,
                ));
            }
            return Err(format!(
                "guest `{}@{}` imports `{foreign}`, which this host does not have; of `wasi:*` a guest may import, in any version 0.2.x: {}",
                guest.name,
                guest.version,
                wasi::PROVIDED.join(", "),
            ));
        }
        if let Some(foreign) = foreign {
            return Err(format!(
                "guest `{}@{}` imports `{foreign}`, which its world {} does not have; it may import: {}",
                guest.name,
                guest.version,
                world.name,
                world.imports.join(", "),
            ));
        }
        Ok(world)
    }

    fn may_import(&self, import: &str) -> bool {
        self.imports.contains(&import) || wasi::provides(import)
    }
}

/// The capability of an import, as grants name it. `None` if it needs no grant.
pub fn capability_of(import: &str) -> Option<&'static str> {
    let (package, interface) = import.strip_prefix("trueup:")?.split_once('/')?;
    // Renderers and the service processor share a package. In it, only the packet filter is a capability.
    let name = match package {
        "service" => interface.split_once('@').map_or(interface, |(name, _)| name),
        _ => package,
    };
    CAPABILITIES.into_iter().find(|capability| *capability == name)
}

fn list_or_nothing(names: &[String]) -> String {
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

/// A guest linked to its world, ready to be instantiated.
pub struct Program {
    /// The guest.
    pub guest: Guest,
    /// Its world.
    pub world: &'static World,
    linked: Linked,
}

enum Linked {
    Ipam(ipam::IpamDatastorePre<Data>),
    Lbaas(lbaas::LbaasReconcilerPre<Data>),
    Neg(neg::NegSyncerPre),
    Nodesync(nodesync::NodeSyncerPre<Data>),
    Service(service::ServiceProcessorPre<Data>),
    EtcdRenderer(renderer::etcd::EtcdRendererPre<Data>),
    NftablesRenderer(renderer::nftables::NftablesRendererPre<Data>),
}

/// An instance of one of the worlds.
#[expect(clippy::large_enum_variant, reason = "one for each instance, and never in lists")]
pub(crate) enum Running {
    Ipam(Instance<ipam::IpamDatastore>),
    Lbaas(Instance<lbaas::LbaasReconciler>),
    Neg(Instance<neg::NegSyncer>),
    Nodesync(Instance<nodesync::NodeSyncer>),
    Service(Instance<service::ServiceProcessor>),
    EtcdRenderer(Instance<renderer::etcd::EtcdRenderer>),
    NftablesRenderer(Instance<renderer::nftables::NftablesRenderer>),
}

/// The same expression for an instance of any world.
macro_rules! each {
    ($running:expr, $instance:ident => $body:expr) => {
        match $running {
            Running::Ipam($instance) => $body,
            Running::Lbaas($instance) => $body,
            Running::Neg($instance) => $body,
            Running::Nodesync($instance) => $body,
            Running::Service($instance) => $body,
            Running::EtcdRenderer($instance) => $body,
            Running::NftablesRenderer($instance) => $body,
        }
    };
}

impl Program {
    /// Finds the guest's world and links it.
    ///
    /// # Errors
    /// One line: why this guest cannot run here.
    pub fn new(engine: &Engine, guest: Guest) -> Result<Self, String> {
        let world = World::of(&guest)?;
        let linked = match world.name {
            ipam::WORLD => ipam::link(engine, &guest).map(Linked::Ipam),
            neg::WORLD => neg::link(engine, &guest).map(Linked::Neg),
            nodesync::WORLD => nodesync::link(engine, &guest).map(Linked::Nodesync),
            service::WORLD => service::link(engine, &guest).map(Linked::Service),
            renderer::etcd::WORLD => renderer::etcd::link(engine, &guest).map(Linked::EtcdRenderer),
            renderer::nftables::WORLD => renderer::nftables::link(engine, &guest).map(Linked::NftablesRenderer),
            _ => lbaas::link(engine, &guest).map(Linked::Lbaas),
        };
        let linked = linked.map_err(|error| {
            format!(
                "guest `{}@{}` does not fit its world {}: {error:#}",
                guest.name, guest.version, world.name
            )
        })?;
        Ok(Self { guest, world, linked })
    }

    /// Whether an instance may schedule timers. Its `restore` schedules the pending ones again, and the recording has a
    /// place for that only at the head of a segment.
    pub(crate) fn has_timers(&self) -> bool {
        self.guest.imports.iter().any(|import| import == TIMERS)
    }

    pub(crate) async fn instantiate(
        &self,
        engine: &Engine,
        host: Host,
        cpu_max: std::time::Duration,
    ) -> Result<Running, (Box<Host>, CallError)> {
        /// The same for any world: only the types differ.
        macro_rules! new {
            ($linked:expr, $running:expr) => {
                Instance::new(engine, host, cpu_max, async |store| {
                    $linked.instantiate_async(store).await
                })
                .await
                .map($running)
            };
        }
        match &self.linked {
            Linked::Ipam(linked) => new!(linked, Running::Ipam),
            Linked::Lbaas(linked) => new!(linked, Running::Lbaas),
            Linked::Neg(linked) => new!(linked, Running::Neg),
            Linked::Nodesync(linked) => new!(linked, Running::Nodesync),
            Linked::Service(linked) => new!(linked, Running::Service),
            Linked::EtcdRenderer(linked) => new!(linked, Running::EtcdRenderer),
            Linked::NftablesRenderer(linked) => new!(linked, Running::NftablesRenderer),
        }
    }
}

impl Running {
    /// Calls an export by its name; `lifecycle` is the same in every world.
    pub(crate) async fn dispatch(&mut self, call: &str, args: &RawValue) -> dispatch::Answer {
        match self {
            Self::Ipam(instance) => ipam::dispatch(instance, call, args).await,
            Self::Lbaas(instance) => lbaas::dispatch(instance, call, args).await,
            Self::Neg(instance) => neg::dispatch(instance, call, args).await,
            Self::Nodesync(instance) => nodesync::dispatch(instance, call, args).await,
            Self::Service(instance) => service::dispatch(instance, call, args).await,
            Self::EtcdRenderer(instance) => renderer::etcd::dispatch(instance, call, args).await,
            Self::NftablesRenderer(instance) => renderer::nftables::dispatch(instance, call, args).await,
        }
    }

    pub(crate) fn host(&self) -> &Host {
        each!(self, instance => instance.host())
    }

    pub(crate) fn host_mut(&mut self) -> &mut Host {
        each!(self, instance => instance.host_mut())
    }

    pub(crate) fn set_cpu_max(&mut self, cpu_max: std::time::Duration) {
        each!(self, instance => instance.set_cpu_max(cpu_max));
    }

    pub(crate) fn is_usable(&self) -> bool {
        each!(self, instance => instance.is_usable())
    }

    pub(crate) fn into_host(self) -> Host {
        each!(self, instance => instance.into_host())
    }
}
