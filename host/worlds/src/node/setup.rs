//! What this node's guests need before they begin: their versions, the store, the packet filter.

use std::sync::Arc;

use trueup_base::regular;
use trueup_capabilities::{Backends, etcd};
use trueup_config::{Config, InterfacesFrom, ThisNode};
use trueup_work::host_context::{HostContext, Version};
use trueup_work::needs::{Named, Needs};
use trueup_work::setup::SetupError;
use trueup_work::status::HostStatus;

use crate::node::guests::service::adapter::{Interfaces, read_interfaces};
use crate::node::guests::{nodesync, renderer, service};

/// One guest of this node, ready to be called.
pub(crate) type LoadedGuest = (Version, Backends);

/// Everything that the loops of this node need.
pub(crate) struct NodeSetup<'c> {
    pub(crate) config: &'c Config,
    pub(crate) node: &'c ThisNode,
    pub(crate) host_status: &'c Arc<HostStatus>,
    pub(crate) etcd: Arc<dyn etcd::Api>,
    pub(crate) nodesync: Option<LoadedGuest>,
    pub(crate) service: Option<LoadedGuest>,
    pub(crate) renderers: Vec<LoadedGuest>,
    pub(crate) interfaces: Interfaces,
}

impl<'c> NodeSetup<'c> {
    /// Loads the guests, has each accept its settings, and opens their backends.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(crate) async fn new(
        config: &'c Config,
        node: &'c ThisNode,
        host_context: &'c HostContext,
    ) -> Result<Self, SetupError> {
        let etcd = host_context.etcd(config)?;
        let filter = host_context.nftables(config);
        let backends = |name: &str| Backends {
            etcd: Some(Arc::clone(&etcd)),
            nftables: Some(Arc::clone(&filter)),
            // The quotas are for this guest alone.
            ..host_context.backends(config.seed, &format!("{name}/{}", node.name), &Arc::default())
        };
        let interfaces = match &node.service {
            Some(of) => read(&of.interfaces)?,
            None => Interfaces::None,
        };
        let mut loaded = Vec::new();
        for (name, worlds, guest) in guests(node) {
            let version = host_context.version(config, name, worlds, &guest).await?;
            version.warn_of_missing_grants();
            loaded.push((version, backends(name)));
        }
        let mut loaded = loaded.into_iter();
        Ok(Self {
            config,
            node,
            host_status: &host_context.host_status,
            etcd,
            nodesync: node.nodesync.as_ref().and_then(|_| loaded.next()),
            service: node.service.as_ref().and_then(|_| loaded.next()),
            renderers: loaded.collect(),
            interfaces,
        })
    }
}

/// The guests of this node, and the file with its pods' interfaces. The backends are those that all guests share.
pub(super) fn needs(node: &ThisNode) -> Needs<'_> {
    Needs {
        unusable: node.service.as_ref().and_then(|of| read(&of.interfaces).err()),
        guests: guests(node),
        ..Needs::default()
    }
}

/// The guests of this node: who numbers it, with the name of the node among its settings, the service processor, then
/// its renderers.
fn guests(node: &ThisNode) -> Vec<Named> {
    let numbering = node.nodesync.iter().map(|guest| {
        let mut guest = guest.clone();
        if let Some(settings) = guest.settings.as_object_mut() {
            settings.insert(trueup_config::NODE_NAME.to_owned(), node.name.clone().into());
        }
        (nodesync::NAME, nodesync::WORLDS, guest)
    });
    let serving = node.service.iter().flat_map(|of| {
        let processor = (service::NAME, service::WORLDS, of.guest.clone());
        let renderers = of.renderers.iter();
        let renderers = renderers.map(|(name, guest)| (*name, renderer::WORLDS, guest.clone()));
        std::iter::once(processor).chain(renderers)
    });
    numbering.chain(serving).collect()
}

fn read(from: &InterfacesFrom) -> Result<Interfaces, SetupError> {
    Ok(match from {
        InterfacesFrom::Nowhere => Interfaces::None,
        InterfacesFrom::Pattern(pattern) => Interfaces::Pattern(pattern.clone()),
        InterfacesFrom::File(file) => {
            let text = regular::read_text(file, regular::LIST).map_err(|error| {
                let cause = trueup_base::text::cause(&error);
                SetupError::Misused(format!("`pod_interfaces_file`: reading `{}`: {cause}", file.display()))
            })?;
            Interfaces::File(read_interfaces(&text, file).map_err(SetupError::Misused)?)
        }
    })
}
