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
mod loops;
mod management;
mod pods;
mod reload;
mod setups;

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use trueup_election::Standing;

pub use self::lock::{StateLock, Taken};
pub use self::reload::Reload;
pub use crate::event::Event;
pub use crate::instances::{Instances, LastCall, OpenError, Recorded, Reopened};
pub use crate::lbaas::setup::Setup;
pub use crate::lifecycle::quarantine::SetAside;
pub use crate::lifecycle::troubles::FAILURES_MAX_ONCE;
pub use crate::setup::SetupError;
pub use crate::work::ground::Ground;
pub use crate::work::keyed::Summary;

use self::loops::{Belongs, Loops, Stopping};
use self::management::Management;
use self::pods::Pods;
use self::setups::{Around, Setups};
use crate::admin::{Admin, Reads};
use crate::board::{self, Board};
use crate::config::Config;
use crate::neg::SetErrorState;
use crate::registry::Registry;
use crate::swap;
use crate::work::leading::Leading;
use crate::{control, ipam, node};

/// The maximum number of requested error states that wait. An operator sends them one by one.
const ERROR_STATES_MAX: usize = 16;

/// The results of a run, one for each part that the configuration names.
#[derive(Debug, Default)]
pub struct Ended {
    /// The Services.
    pub services: Option<Summary>,
    /// The NEGs.
    pub negs: Option<Summary>,
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
    let tell = |event: Event| {
        if let Event::Ipam(event) = &event {
            ground.board.told_of_pods(event);
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
    let (mut management, wanted) = Management::new(config, &ground, extent);
    let pods = Pods::new(&mut management).await?;
    let (mut setups, around) = match config.source() {
        Some(source) => {
            let (setups, around) = Setups::new(config, source, &ground, extent, leading).await?;
            (Some(setups), around)
        }
        None => {
            resign(leading.take()).await;
            (None, Around::default())
        }
    };
    let (set_error_state, error_states) = mpsc::channel(ERROR_STATES_MAX);
    let loops = match &mut setups {
        Some(setups) => setups.loops(&mut management, error_states, tell)?,
        None => Loops::default(),
    };
    let loops = Loops { pods, ..loops };
    let beside = Beside {
        management,
        wanted,
        set_error_state: config.neg.is_some().then_some(set_error_state),
        reads,
        around,
    };
    let ended = to_its_end(loops, beside, stop, tell).await?;
    if let Some(admin) = admin {
        admin.stop().await;
    }
    if let Some(setups) = setups {
        setups.stop().await;
    }
    Ok(ended)
}

/// What goes on beside the loops.
struct Beside<'a> {
    management: Management<'a>,
    /// Requests for the versions that failure policies name.
    wanted: mpsc::UnboundedReceiver<swap::FallBack>,
    set_error_state: Option<mpsc::Sender<SetErrorState>>,
    reads: Arc<Reads>,
    around: Around,
}

/// Runs the loops until each has ended, and meanwhile manages versions, answers commands, keeps the state folder within
/// its limits, and reports that the host is alive.
async fn to_its_end<T: Fn(Event) + Copy>(
    loops: Loops<'_, T>,
    beside: Beside<'_>,
    stop: impl Future<Output = ()>,
    tell: T,
) -> Result<Ended, SetupError> {
    let Beside {
        mut management,
        wanted,
        set_error_state,
        reads,
        around,
    } = beside;
    let (config, ground, extent) = (management.config, management.ground, management.extent);
    for problem in management.problems.drain(..) {
        tell(Event::Problem(problem));
    }
    let (events, mut changed) = mpsc::unbounded_channel();
    let manager = management.manager(events);
    reads.loaded(&manager);
    let mut serving = JoinSet::new();
    serving.spawn(housekeeping::run(housekeeping::Limits::of(config, ground)));
    // A run that ends by itself does not live long enough to receive commands.
    if extent == Extent::UntilStopped {
        let control = control::listen(&config.state_dir).await?;
        // A task of its own answers while the loops are busy.
        serving.spawn(control::serve(control, Arc::clone(&manager), reads, set_error_state));
    }
    // A run that ends by itself has checked this before it listed anything.
    let client = around.client.as_ref().filter(|_| extent == Extent::UntilStopped);
    let belongs = Belongs::new(&config.state_dir, client);
    let stopping = Stopping::new(extent);
    let relay = async {
        stop.await;
        ground.board.stopping();
        stopping.stop();
        std::future::pending::<Infallible>().await
    };
    let managing = async {
        let told = async {
            while let Some(event) = changed.recv().await {
                tell(Event::Guest(event));
            }
        };
        tokio::join!(told, beats(&ground.board, &around), swap::fall_back(&manager, wanted));
        std::future::pending::<Infallible>().await
    };
    let ended = tokio::select! {
        ended = loops.run(&belongs, &stopping, tell) => ended,
        never = relay => match never {},
        never = managing => match never {},
    };
    // Events that arrived while the last loop ended.
    while let Ok(event) = changed.try_recv() {
        tell(Event::Guest(event));
    }
    serving.shutdown().await;
    Ok(ended)
}

/// How often the main task reports that it is alive.
const BEAT: Duration = Duration::from_secs(1);

/// Reports that this task is alive, and what is known of other hosts and of the cluster.
async fn beats(board: &Arc<Board>, around: &Around) {
    let beating = board.begin_loop("host");
    loop {
        if let Some(election) = &around.election {
            board.set_identity(&election.settings().identity);
            board.set_standing(match election.standing() {
                Standing::Leading { .. } => board::Standing::Leading,
                Standing::Standby { holder } => board::Standing::Standby { leader: holder },
            });
        }
        if let Some(cluster) = &around.cluster {
            // A status that can't be serialized is not shown.
            board.set_source(serde_json::to_value(cluster.status()).unwrap_or_default());
        }
        tokio::time::sleep(BEAT).await;
        beating.beat();
    }
}
