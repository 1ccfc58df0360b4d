//! The exported functions: the received events, their state in the database, the keys under which the agent finds it,
//! and the snapshot.
//!
//! A change costs only the services that it affects; only a resync walks over everything.

use serde::{Deserialize, Serialize};
use trueup_guest::address::Address;
use trueup_guest::bindings::trueup::etcd::kv::KeyValue;
use trueup_guest::{Guest, etcd, snapshot};

use crate::bindings::trueup::kube::types::ObjectId;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::dnat;
use crate::settings::Settings;
use crate::world::World;
use crate::writes::{Cache, Writes};

/// The state between calls, whatever became of writes; as JSON in the form of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Only IPv4, in the order received.
    pub(crate) node_ips: Vec<Address>,
    /// In the order received.
    pub(crate) frontends: Vec<String>,
    /// In the order received.
    pub(crate) backends: Vec<String>,
    /// The known contents of the database.
    #[serde(flatten)]
    pub(crate) cache: Cache,
}

/// The answer to an event.
type Rendered = Result<(), String>;

/// The renderer of one instance.
#[derive(Clone, Debug)]
pub(crate) struct Renderer {
    settings: Settings,
    pub(crate) keys: Keys,
    pub(crate) state: State,
}

impl Renderer {
    /// `renderer.resync`: lists the database, and writes the differences.
    ///
    /// # Errors
    /// The database's error.
    pub(crate) fn resync(&mut self, world: &mut impl World, mut event: ResyncEvent) -> Result<(), String> {
        if self.settings.snat_only {
            event.services.clear();
            for list in [&mut event.node_ips, &mut event.frontend_ifs, &mut event.backend_ifs] {
                list.clear();
            }
        }
        self.keep_node_ips(world, &event.node_ips);
        self.state.frontends = event.frontend_ifs;
        self.state.backends = event.backend_ifs;
        let listing = world.list_prefix(&self.keys.prefix).map_err(|error| {
            self.state.cache = Cache::default();
            etcd::words(&error)
        })?;
        let global = self.keys.global();
        let is_own = |entry: &KeyValue| self.keys.is_dnat(&entry.key) || entry.key == global;
        let own = listing.into_iter().filter(is_own);
        self.state.cache = Cache {
            is_complete: true,
            keys: own.map(|entry| (entry.key, Some(entry.value))).collect(),
        };

        let mut writes = Writes::default();
        let there = self.state.cache.keys.keys().filter(|key| self.keys.is_dnat(key));
        writes.deletes.extend(there.cloned());
        // Of a duplicate id the last service counts.
        for service in &event.services {
            self.put_dnat(world, &mut writes, service);
        }
        let identities = snapshot::write(&dnat::identities(&self.settings));
        writes.puts.insert(self.keys.identities(), identities);
        self.put_global(&mut writes);
        writes.store(world, &mut self.state.cache)
    }

    /// `renderer.add-service`
    ///
    /// # Errors
    /// The database's error.
    pub(crate) fn add_service(&mut self, world: &mut impl World, service: &ContivService) -> Rendered {
        self.update_service(world, &service.id, service)
    }

    /// `renderer.update-service`: only the id of the old service matters, since the cache knows its contents.
    ///
    /// # Errors
    /// The database's error.
    pub(crate) fn update_service(&mut self, world: &mut impl World, old: &ObjectId, new: &ContivService) -> Rendered {
        self.write(world, |renderer, world, writes| {
            // Deleted only if it is not the key of the put.
            writes.deletes.insert(renderer.keys.dnat(old));
            renderer.put_dnat(world, writes, new);
        })
    }

    /// `renderer.delete-service`
    ///
    /// # Errors
    /// The database's error.
    pub(crate) fn delete_service(&mut self, world: &mut impl World, service: &ObjectId) -> Rendered {
        self.write(world, |renderer, _, writes| {
            writes.deletes.insert(renderer.keys.dnat(service));
        })
    }

    /// `renderer.update-node-port-services`
    ///
    /// # Errors
    /// The database's error; the addresses are kept.
    pub(crate) fn update_node_port_services(
        &mut self,
        world: &mut impl World,
        node_ips: &[String],
        services: &[ContivService],
    ) -> Rendered {
        self.write(world, |renderer, world, writes| {
            renderer.keep_node_ips(world, node_ips);
            for service in services {
                renderer.put_dnat(world, writes, service);
            }
        })
    }

    /// `renderer.update-local-frontend-ifs`
    ///
    /// # Errors
    /// The database's error; the set is kept.
    pub(crate) fn update_local_frontend_ifs(&mut self, world: &mut impl World, new: Vec<String>) -> Rendered {
        self.write(world, |renderer, _, writes| {
            renderer.state.frontends = new;
            renderer.put_global(writes);
        })
    }

    /// `renderer.update-local-backend-ifs`
    ///
    /// # Errors
    /// The database's error; the set is kept.
    pub(crate) fn update_local_backend_ifs(&mut self, world: &mut impl World, new: Vec<String>) -> Rendered {
        self.write(world, |renderer, _, writes| {
            renderer.state.backends = new;
            renderer.put_global(writes);
        })
    }

    /// Makes the writes of the function, unless another renderer handles services.
    fn write<W: World>(&mut self, world: &mut W, ask: impl FnOnce(&mut Self, &mut W, &mut Writes)) -> Rendered {
        if self.settings.snat_only {
            return Ok(());
        }
        let mut writes = Writes::default();
        ask(self, world, &mut writes);
        writes.store(world, &mut self.state.cache)
    }

    fn put_dnat(&self, world: &mut impl World, writes: &mut Writes, service: &ContivService) {
        let dnat = dnat::of_service(world, &self.settings, &self.state.node_ips, service);
        writes.puts.insert(self.keys.dnat(&service.id), snapshot::write(&dnat));
    }

    fn put_global(&self, writes: &mut Writes) {
        let global = dnat::global(&self.settings, &self.state.frontends, &self.state.backends);
        writes.puts.insert(self.keys.global(), snapshot::write(&global));
    }

    fn keep_node_ips(&mut self, world: &mut impl World, node_ips: &[String]) {
        self.state.node_ips = dnat::v4(world, "nodes", node_ips);
    }
}

/// The version of the text. Increment it when the contents change.
const VERSION: u64 = 1;

/// The whole state, for the next build of this guest. Of the settings it holds only the prefix of the keys.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    version: u64,
    prefix: String,
    #[serde(flatten)]
    state: State,
}

impl Guest for Renderer {
    /// No events yet, and nothing known of the database.
    fn init(config: &str) -> Result<Self, String> {
        let settings = Settings::read(config)?;
        Ok(Self {
            keys: Keys::new(&settings.agent_label),
            settings,
            state: State::default(),
        })
    }

    fn snapshot(&self) -> String {
        snapshot::write(&Snapshot {
            version: VERSION,
            prefix: self.keys.prefix.clone(),
            state: self.state.clone(),
        })
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        let snapshot: Snapshot = snapshot::read(snapshot, VERSION)?;
        self.state = snapshot.state;
        if snapshot.prefix != self.keys.prefix {
            // Another agent's keys do not apply to this one.
            self.state.cache = Cache::default();
        }
        Ok(())
    }
}

/// The label of the DNAT with identity mappings, and the end of its key.
pub(crate) const IDENTITIES: &str = "DNAT-identities";

/// The keys of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// The prefix of all NAT keys.
    pub(crate) prefix: String,
    dnats: String,
}

impl Keys {
    /// The keys of the agent with this microservice label.
    pub(crate) fn new(agent_label: &str) -> Self {
        let prefix = format!("/vnf-agent/{agent_label}/config/vpp/nat/v2/");
        let dnats = format!("{prefix}dnat44/");
        Self { prefix, dnats }
    }

    /// A service's DNAT.
    pub(crate) fn dnat(&self, id: &ObjectId) -> String {
        format!("{}{}", self.dnats, label(id))
    }

    /// The DNAT with identity mappings.
    pub(crate) fn identities(&self) -> String {
        format!("{}{IDENTITIES}", self.dnats)
    }

    /// The global configuration.
    pub(crate) fn global(&self) -> String {
        format!("{}nat44-global", self.prefix)
    }

    /// True for every DNAT, whichever writer it has.
    pub(crate) fn is_dnat(&self, key: &str) -> bool {
        key.starts_with(&self.dnats)
    }
}

/// A service's label.
pub(crate) fn label(id: &ObjectId) -> String {
    format!("{}/{}", id.namespace, id.name)
}
