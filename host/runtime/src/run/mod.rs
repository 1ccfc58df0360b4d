//! Runs what the configuration names: Services, NEGs, this node and pod addresses side by side in one process, or
//! some of them, once or until stopped.
//!
//! This module holds only what they share: how they begin, how they stop, and their results. What each does is in
//! [`crate::lbaas`], in [`crate::neg`], in [`crate::node`] and in [`crate::ipam`].
//!
//! ```text
//! stop ---+-> services (manifests -> objects -> controller -> jobs) ---+-> Ended
//!         +-> NEGs (manifests -> targets -> controller -> jobs) -------+
//!         +-> this node (manifests -> its number, its Services) -------+
//!         +-> pod addresses (interfaces, spool, socket -> instance) ---+
//! ```

mod housekeeping;
mod lock;
mod reload;

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, mpsc, watch as channel};
use tokio::task::JoinSet;
use trueup_capabilities::Backends;

pub use self::lock::{StateLock, Taken};
pub use self::reload::Reload;
pub use crate::event::Event;
pub use crate::instances::{Instances, OpenError, Recorded, Reopened};
pub use crate::lbaas::setup::Setup;
pub use crate::lbaas::summary::Summary;
pub use crate::lifecycle::quarantine::SetAside;
pub use crate::lifecycle::troubles::FAILURES_MAX_ONCE;
pub use crate::setup::SetupError;
pub use crate::work::ground::Ground;

use trueup_election::{Election, Standing};
use trueup_sources::enis::{self, Enis};
use trueup_sources::kubernetes::Kubernetes;

use crate::admin::{Admin, Reads};
use crate::board::{self, Board};
use crate::config::{Config, EnisFrom, Guest, Ipam, OnFailure};
use crate::control;
use crate::ipam;
use crate::ipam::setup::Addresses;
use crate::lbaas;
use crate::lifecycle::active::Active;
use crate::lifecycle::quarantine::Quarantine;
use crate::neg::{self, NegSetup};
use crate::node::{self, NodeSetup, OnNode};
use crate::registry::Registry;
use crate::swap::{self, FallBack, Fallen, Managed, Manager, Revisions};
use crate::work::cluster;
use crate::work::input::Input;
use crate::work::keyed;
use crate::work::leading::{Acts, Leading};

/// The results of a run, one for each part that the configuration names.
#[derive(Debug, Default)]
pub struct Ended {
    /// The Services.
    pub services: Option<Summary>,
    /// The NEGs.
    pub negs: Option<neg::Summary>,
    /// This node's number, and the Services on it.
    pub node: Option<node::Summary>,
    /// Pod addresses, if the run was to end by itself.
    pub addresses: Option<ipam::Summary>,
    /// Why serving pod addresses could not begin, which ended a run that would have continued.
    pub error: Option<SetupError>,
}

/// Runs once: until every key has succeeded or failed [`FAILURES_MAX_ONCE`] times, or until `stop`.
///
/// # Errors
/// If nothing could be begun.
pub async fn once(
    config: &Config,
    registry: &Registry,
    stop: impl Future<Output = ()>,
    tell: impl FnMut(Event),
) -> Result<Ended, SetupError> {
    let mut leading = None;
    let ended = Box::pin(run(config, registry, Extent::Once, &mut leading, stop, tell)).await;
    resign(leading).await;
    ended
}

/// Runs until `stop`, and watches the sources. A part that can't go on ends the others too: a host of which half is
/// left would look alive to a supervisor. If `reload` brings another configuration that could begin, it replaces this
/// one once everything that runs has ended.
///
/// # Errors
/// If nothing could be begun.
pub async fn watch(
    config: Config,
    registry: &Registry,
    mut reload: Option<Reload>,
    stop: impl Future<Output = ()>,
    tell: impl FnMut(Event),
) -> Result<Ended, SetupError> {
    // The configuration that ran before, until the current one has begun.
    let before: RefCell<Option<Config>> = RefCell::default();
    let tell = RefCell::new(tell);
    let tell = |event: Event| {
        // Pods begin last. If they fail later, this configuration is not to blame.
        if let Event::Ipam(ipam::Event::Listening { .. }) = &event {
            before.take();
        }
        (tell.borrow_mut())(event);
    };
    let mut stop = std::pin::pin!(stop);
    let mut current = config;
    let mut leading = None;
    loop {
        let (mut next, mut stopped) = (None, false);
        let end = async {
            tokio::select! {
                () = &mut stop => stopped = true,
                config = next_of(&mut reload, &current, registry, &tell) => next = Some(config),
            }
        };
        let ended = Box::pin(run(&current, registry, Extent::UntilStopped, &mut leading, end, &tell)).await;
        let not_begun = match &ended {
            Err(error) | Ok(Ended { error: Some(error), .. }) => Some(error.to_string()),
            Ok(_) => None,
        };
        match (&not_begun, before.take()) {
            (Some(error), Some(old)) if !stopped => {
                tell(Event::Problem(format!("{error}; the configuration stays as it was")));
                current = old;
            }
            (None, _) if next.is_some() => {}
            _ => {
                resign(leading).await;
                return ended;
            }
        }
        if let Some(config) = next {
            let file = config.file.clone();
            before.replace(Some(std::mem::replace(&mut current, config)));
            tell(Event::Reloaded { file });
        }
    }
}

async fn resign(leading: Option<Leading>) {
    if let Some(leading) = leading {
        leading.resign().await;
    }
}

/// A configuration that replaces `current`. Never returns without a `reload`.
async fn next_of(reload: &mut Option<Reload>, current: &Config, registry: &Registry, tell: impl Fn(Event)) -> Config {
    match reload {
        Some(reload) => {
            reload
                .next(current, registry, |problem| tell(Event::Problem(problem)))
                .await
        }
        None => std::future::pending().await,
    }
}

/// When a run ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Once,
    UntilStopped,
}

async fn run(
    config: &Config,
    registry: &Registry,
    extent: Extent,
    leading: &mut Option<Leading>,
    stop: impl Future<Output = ()>,
    tell: impl FnMut(Event),
) -> Result<Ended, SetupError> {
    // All parts report from this one task, and no part waits while it reports.
    let tell = RefCell::new(tell);
    let ground = Ground::new(config, registry)?.with_state(config)?;
    let board = Arc::clone(&ground.board);
    let tell = |event: Event| {
        if let Event::Ipam(event) = &event {
            board.told_of_pods(event);
        }
        (tell.borrow_mut())(event);
    };
    let reads = Reads::new(config, &ground);
    // Starts before guests are loaded, so that the operator sees that the host begins.
    let admin = match extent {
        // A run that ends by itself does not live long enough to be observed.
        Extent::Once => None,
        Extent::UntilStopped => Some(Admin::start(&config.admin, &reads).await?),
    };
    let (fall_back, wanted) = mpsc::unbounded_channel();
    let mut management = Management::new(fall_back);
    let pods = match &config.ipam {
        Some(ipam) => Some(Pods::new(config, ipam, &ground, extent, &mut management).await?),
        None => None,
    };
    let alone = Leading::alone();
    let (mut acts, mut election) = (alone.acts(), alone.election());
    let mut client = None;
    let (mut input, mut setup, mut neg_setup, mut node_setup) = (None, None, None, None);
    match config.source() {
        Some(source) => {
            Input::check(source).await?;
            client = Input::client(source).await?;
            if client.is_none() {
                cluster::is_no_clusters(&config.state_dir, source).map_err(SetupError::misused)?;
            }
            let leading = lead(leading, config, client.clone()).await?;
            (acts, election) = (leading.acts(), leading.election());
            if let Some(lbaas) = &config.lbaas {
                setup = Some(Box::pin(Setup::new(config, lbaas, &ground, acts.fence().clone())).await?);
            }
            if let Some(neg) = &config.neg {
                neg_setup = Some(Box::pin(NegSetup::new(config, neg, &ground, acts.fence().clone())).await?);
            }
            if let Some(node) = &config.node {
                node_setup = Some(Box::pin(NodeSetup::new(config, node, &ground, None)).await?);
            }
            if let (Extent::Once, Some(client)) = (extent, &client) {
                // Reports problems with the source before the host takes the Lease.
                Input::once(source).await?;
                cluster::belongs(&config.state_dir, client)
                    .await
                    .map_err(SetupError::misused)?;
            }
            leading.begin(extent == Extent::Once).await?;
            // With `--once`, the host lists after it has taken the Lease.
            let all = match extent {
                Extent::Once => Input::once(source).await,
                Extent::UntilStopped => Input::watched(source).await,
            }?;
            input = Some((source, all));
        }
        None => resign(leading.take()).await,
    }
    let fence = acts.fence().clone();
    let cluster = input.as_ref().and_then(|(_, input)| input.cluster.clone());
    let (set_error_state, error_states) = mpsc::channel(ERROR_STATES_MAX);
    let negs = match (&config.neg, &mut neg_setup, &input) {
        (Some(neg), Some((setup, _)), Some((source, input))) => {
            let versions = (&setup.active, &mut setup.revisions, &mut setup.problem);
            let names = (crate::guests::neg::NAME, crate::guests::neg::WORLDS);
            let acting = (acts.clone(), config.lbaas.is_some(), extent);
            let managing = management.keyed(config, &ground, names, &neg.guest, versions, acting);
            Some((neg, managing, input.once_more(source)?))
        }
        _ => None,
    };
    let negs = match (negs, neg_setup.as_mut()) {
        (Some((neg, managing, input)), Some((setup, ends))) => {
            // Only one loop takes them.
            let ends = std::mem::replace(ends, mpsc::channel(1).1);
            let negs = neg::negs(config, neg, setup, (ends, error_states), managing, tell)?;
            Some((negs, input))
        }
        _ => None,
    };
    let on_node = match (&config.node, node_setup, &input) {
        (Some(node), Some(setup), Some((source, input))) => {
            let (setup, managing) = management.node(config, setup, &ground, extent);
            let on_node = OnNode::new(config, node, setup, managing, &board);
            Some((on_node, input.once_more(source)?))
        }
        _ => None,
    };
    let managed = match (&config.lbaas, &mut setup) {
        (Some(lbaas), Some(setup)) => {
            let versions = (&setup.active, &mut setup.revisions, &mut setup.problem);
            let names = (crate::guests::lbaas::NAME, crate::guests::lbaas::WORLDS);
            let acting = (acts, false, extent);
            Some(management.keyed(config, &ground, names, &lbaas.guest, versions, acting))
        }
        _ => None,
    };
    let services = match (&config.lbaas, input, &setup, managed) {
        (Some(lbaas), Some((_, input)), Some(setup), Some(managed)) => {
            let publish = lbaas::publish::of(&input, config.state_dir.join("status"), fence);
            let services = lbaas::services(config, lbaas, setup, managed, publish, tell)?;
            Some((services, input))
        }
        _ => None,
    };
    for problem in management.problems.drain(..) {
        tell(Event::Problem(problem));
    }
    let (events, mut changed) = mpsc::unbounded_channel();
    let manager = Manager::new(
        ground.guests().clone(),
        management.managed,
        events,
        ground.audit.clone(),
    );
    reads.loaded(&manager);
    let mut serving = JoinSet::new();
    serving.spawn(housekeeping::run(housekeeping::Limits::of(config, &ground)));
    match extent {
        // A run that ends by itself does not live long enough to receive commands.
        Extent::Once => {}
        Extent::UntilStopped => {
            let control = control::listen(&config.state_dir).await?;
            // A task of its own answers while the loops are busy.
            let set_error_state = config.neg.is_some().then_some(set_error_state);
            serving.spawn(control::serve(
                control,
                Arc::clone(&manager),
                Arc::clone(&reads),
                set_error_state,
            ));
        }
    }

    let stopping = channel::Sender::new(false);
    let stopped = || {
        let mut wanted = stopping.subscribe();
        async move {
            // The sender outlives both.
            _ = wanted.wait_for(|wanted| *wanted).await;
        }
    };
    let end_all = || {
        if extent == Extent::UntilStopped {
            stopping.send_replace(true);
        }
    };
    // All loops wait for one answer.
    let asked = OnceCell::new();
    let belongs = async || {
        let ask = async || match &client {
            Some(client) if extent == Extent::UntilStopped => cluster::belongs(&config.state_dir, client).await,
            // The check ran before anything was listed.
            _ => Ok(()),
        };
        asked.get_or_init(ask).await.clone()
    };
    let services = async {
        let (services, input) = services?;
        // Each of these futures is large and one task runs them all, so each is boxed.
        let summary = Box::pin(services.run(input, belongs(), stopped())).await;
        end_all();
        Some(summary)
    };
    let negs = async {
        let (negs, input) = negs?;
        let summary = Box::pin(negs.run(input, belongs(), stopped())).await;
        end_all();
        Some(summary)
    };
    let on_node = async {
        let (on_node, input) = on_node?;
        let tell_of_node = |event| tell(Event::Node(event));
        let summary = Box::pin(on_node.run(input, belongs(), stopped(), tell_of_node)).await;
        end_all();
        Some(summary)
    };
    let addresses = async {
        let ended = Box::pin(pods?.run(stopped(), tell)).await;
        end_all();
        Some(ended)
    };
    let relay = async {
        stop.await;
        board.stopping();
        stopping.send_replace(true);
        std::future::pending::<Infallible>().await
    };
    let managing = async {
        let told = async {
            while let Some(event) = changed.recv().await {
                tell(Event::Guest(event));
            }
        };
        tokio::join!(
            told,
            beats(&board, election.as_deref(), cluster.as_ref()),
            swap::fall_back(&manager, wanted)
        );
        std::future::pending::<Infallible>().await
    };
    let (services, negs, on_node, addresses) = tokio::select! {
        ended = async { tokio::join!(services, negs, on_node, addresses) } => ended,
        never = relay => match never {},
        never = managing => match never {},
    };
    // Events that arrived while the last loop ended.
    while let Ok(event) = changed.try_recv() {
        tell(Event::Guest(event));
    }
    serving.shutdown().await;
    if let Some(admin) = admin {
        admin.stop().await;
    }
    drop(manager);
    if let Some(engine) = setup.and_then(|setup| setup.simulated_engine) {
        engine.stop().await;
    }
    if let Some((setup, _)) = neg_setup {
        setup.stop().await;
    }
    let (addresses, error) = match addresses {
        Some(Ok(summary)) => (summary, None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    Ok(Ended {
        services,
        negs,
        node: on_node,
        addresses,
        error,
    })
}

/// The leader state: that of the configuration before, if it fits this one.
async fn lead<'l>(
    leading: &'l mut Option<Leading>,
    config: &Config,
    client: Option<kube::Client>,
) -> Result<&'l mut Leading, SetupError> {
    let kept = match leading.take() {
        Some(kept) if kept.fits(config) => kept,
        other => {
            resign(other).await;
            let timeout = config.lbaas.as_ref().and_then(lbaas::setup::request_timeout);
            Leading::new(config, client, timeout)?
        }
    };
    Ok(leading.insert(kept))
}

/// How often the main task reports that it is alive.
const BEAT: Duration = Duration::from_secs(1);

/// Reports that this task is alive, and what is known of other hosts and of the cluster.
async fn beats(board: &Arc<Board>, election: Option<&Election>, cluster: Option<&Kubernetes>) {
    let beating = board.begin_loop("host");
    loop {
        if let Some(election) = election {
            board.set_identity(&election.settings().identity);
            board.set_standing(match election.standing() {
                Standing::Leading { .. } => board::Standing::Leading,
                Standing::Standby { holder } => board::Standing::Standby { leader: holder },
            });
        }
        if let Some(cluster) = cluster {
            // A status that can't be serialized is not shown.
            board.set_source(serde_json::to_value(cluster.status()).unwrap_or_default());
        }
        tokio::time::sleep(BEAT).await;
        beating.beat();
    }
}

/// What the manager needs of each guest, collected before the guests run.
struct Management {
    managed: Vec<Managed>,
    /// Why versions that the configuration names are not active.
    problems: Vec<String>,
    fall_back: mpsc::UnboundedSender<FallBack>,
}

/// The maximum number of requested error states that wait. An operator sends them one by one.
const ERROR_STATES_MAX: usize = 16;

/// The maximum number of versions that wait to be handed over. Changes of one guest come one after another.
const HANDOVERS_MAX: usize = 1;

impl Management {
    fn new(fall_back: mpsc::UnboundedSender<FallBack>) -> Self {
        Self {
            managed: Vec::new(),
            problems: Vec::new(),
            fall_back,
        }
    }

    /// The sender of requests for the version that the failure policy names.
    fn wishes(&self, name: &'static str, guest: &Guest) -> mpsc::UnboundedSender<Fallen> {
        let (wish, mut wishes) = mpsc::unbounded_channel();
        if let OnFailure::FallBack(to) = &guest.failure.on_failure {
            let (all, to) = (self.fall_back.clone(), to.clone());
            tokio::spawn(async move {
                while let Some(fallen) = wishes.recv().await {
                    let to = to.clone();
                    let fall_back = FallBack {
                        guest: name,
                        to,
                        fallen,
                    };
                    // The manager ends with the host. The requester then sees its channel closed.
                    let _ = all.send(fall_back);
                }
            });
        }
        wish
    }

    /// For a guest that works by key. Passes its revisions to the manager.
    fn keyed(
        &mut self,
        config: &Config,
        ground: &Ground,
        (name, worlds): (&'static str, &'static [&'static str]),
        guest: &Guest,
        (active, revisions, problem): (&Arc<Active>, &mut Revisions, &mut Option<String>),
        (acts, source_is_told, extent): (Acts, bool, Extent),
    ) -> keyed::Managing {
        let (hand_over, handovers) = mpsc::channel(HANDOVERS_MAX);
        let quarantine = Arc::new(Quarantine::load(&config.state_dir, name).audited(ground.audit.clone()));
        let fall_back = self.wishes(name, guest);
        self.problems.extend(problem.take());
        self.managed.push(Managed::new(
            (name, worlds),
            guest.clone(),
            Arc::clone(active),
            std::mem::take(revisions),
            hand_over,
            Arc::clone(&quarantine),
            Arc::clone(&ground.metrics),
        ));
        keyed::Managing {
            quarantine,
            handovers,
            fall_back,
            acts,
            source_is_told,
            once: extent == Extent::Once,
        }
    }

    /// Passes the revisions of each guest to the manager.
    fn node(
        &mut self,
        config: &Config,
        mut setup: NodeSetup,
        ground: &Ground,
        extent: Extent,
    ) -> (NodeSetup, node::AllManaging) {
        let mut managing = |seated: &mut node::Seated| {
            let (hand_over, handovers) = mpsc::channel(HANDOVERS_MAX);
            let quarantine = Quarantine::load(&config.state_dir, seated.name).audited(ground.audit.clone());
            let quarantine = Arc::new(quarantine);
            let fall_back = self.wishes(seated.name, &seated.guest);
            self.problems.extend(seated.problem.take());
            self.managed.push(Managed::new(
                (seated.name, seated.worlds),
                seated.guest.clone(),
                Arc::clone(&seated.active),
                std::mem::take(&mut seated.revisions),
                hand_over,
                Arc::clone(&quarantine),
                Arc::clone(&ground.metrics),
            ));
            node::Managing {
                quarantine,
                handovers,
                fall_back,
            }
        };
        let all = node::AllManaging {
            nodesync: setup.nodesync.as_mut().map(&mut managing),
            service: setup.service.as_mut().map(&mut managing),
            renderers: setup.renderers.iter_mut().map(&mut managing).collect(),
            source_is_told: config.lbaas.is_some() || config.neg.is_some(),
            once: extent == Extent::Once,
        };
        (setup, all)
    }

    fn addresses(&mut self, config: &Config, ipam: &Ipam, addresses: Addresses, ground: &Ground) -> ipam::Managing {
        let (hand_over, handovers) = mpsc::channel(HANDOVERS_MAX);
        let name = crate::guests::ipam::NAME;
        let quarantine = Arc::new(Quarantine::load(&config.state_dir, name).audited(ground.audit.clone()));
        let fall_back = self.wishes(name, &ipam.guest);
        self.problems.extend(addresses.problem);
        self.managed.push(Managed::new(
            (name, crate::guests::ipam::WORLDS),
            ipam.guest.clone(),
            Arc::clone(&addresses.active),
            addresses.revisions,
            hand_over,
            Arc::clone(&quarantine),
            Arc::clone(&ground.metrics),
        ));
        ipam::Managing {
            active: addresses.active,
            handovers,
            failing: ipam::Failing::new(quarantine, ipam.guest.failure.clone(), fall_back),
            runtime: ipam.runtime_socket.as_ref().map(|_| addresses.runtime),
        }
    }
}

/// Pod addresses, ready to be served.
struct Pods {
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
    async fn new(
        config: &Config,
        ipam: &Ipam,
        ground: &Ground,
        extent: Extent,
        management: &mut Management,
    ) -> Result<Self, SetupError> {
        let interfaces = Interfaces::new(&ipam.enis, extent)?;
        let addresses = Addresses::new(config, ipam, ground).await?;
        let backends = addresses.backends.clone();
        Ok(Self {
            settings: ipam.adapter.clone(),
            managed: management.addresses(config, ipam, addresses, ground),
            backends,
            interfaces,
            board: Arc::clone(&ground.board),
        })
    }

    /// Runs to its end. Returns a summary if it was to end by itself.
    async fn run(
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
