//! Runs what the configuration names: the kinds of work of a list side by side in one process, or some of them, once
//! or until stopped.
//!
//! This module holds only what they share: how they begin, how they stop, and their results. What each does is in the
//! folder that its line in the list of `worlds.rs` names.
//!
//! ```text
//! stop ---+-> services (manifests -> objects -> controller -> jobs) ---+-> Ended
//!         +-> NEGs (manifests -> targets -> controller -> jobs) -------+
//!         +-> this node (manifests -> its number, its Services) -------+
//!         +-> pod addresses (interfaces, spool, socket -> instance) ---+
//! ```

mod housekeeping;
mod reload;

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_config::Config;
use trueup_election::Election;
use trueup_registry::Registry;
use trueup_sources::kubernetes::Kubernetes;
use trueup_work::event::Event;
use trueup_work::host_context::HostContext;
use trueup_work::input::Input;
use trueup_work::kind::{Begin, Kind, Loop, Management, Ready, RunContext, RunMode, Summary};
use trueup_work::leading::{Leadership, Leading};
use trueup_work::setup::SetupError;
use trueup_work::status::{Failing, HostStatus};
use trueup_work::{cluster, swap};
use trueup_worlds::{KINDS, worlds};

pub use self::reload::Reload;

use crate::admin::{self, Admin, Reads};
use crate::control;

/// The results of a run.
#[derive(Debug, Default)]
pub struct Ended {
    /// What came of each kind of work that has a result, by name.
    pub parts: Vec<Part>,
    /// Why a kind of work could not begin, which ended a run that would have continued.
    pub error: Option<SetupError>,
}

/// The result of one kind of work.
#[derive(Debug)]
pub struct Part {
    /// Its name in the JSON document of a run.
    pub name: &'static str,
    /// Whether it reports the problems of the source, for all that read it.
    pub reports_source: bool,
    /// Its result.
    pub summary: Summary,
}

impl Ended {
    /// The result of one kind of work. `None` if it has none.
    pub fn of(&self, name: &str) -> Option<&Summary> {
        let part = self.parts.iter().find(|part| part.name == name)?;
        Some(&part.summary)
    }
}

/// Runs once: until every key has succeeded or failed [`FAILURES_MAX_ONCE`] times, or until `stop`.
///
/// [`FAILURES_MAX_ONCE`]: trueup_work::lifecycle::failure_counts::FAILURES_MAX_ONCE
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
    let first = Before::default();
    let stop = async |_: &HostContext| stop.await;
    let ended = Box::pin(run(config, registry, RunMode::Once, (first, &mut leading), stop, tell)).await;
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
    // The configuration that ran before. It runs again if the current one can't begin: a run that has begun returns no
    // error.
    let mut before: Option<Config> = None;
    let tell = RefCell::new(tell);
    let tell = |event: Event| (tell.borrow_mut())(event);
    let mut stop = std::pin::pin!(stop);
    let mut current = config;
    let mut leading = None;
    let mut begun = Before::default();
    let (started_ms, mut failing) = (SystemClock.steady_ms(), Failing::new());
    loop {
        let (mut next, mut stopped) = (None, false);
        let end = async |host_context: &HostContext| {
            tokio::select! {
                () = &mut stop => stopped = true,
                // Without a `reload`, only a stop ends this.
                Some(config) = async {
                    Some(reload.as_mut()?.next(&current, registry, host_context, &tell).await)
                } => next = Some(config),
            }
            failing = host_context.host_status.failing();
        };
        let kept = (std::mem::take(&mut begun), &mut leading);
        let ended = Box::pin(run(&current, registry, RunMode::UntilStopped, kept, end, &tell)).await;
        begun.since = Some((started_ms, failing.clone()));
        let not_begun = match &ended {
            Err(error) | Ok(Ended { error: Some(error), .. }) => Some(error.to_string()),
            Ok(_) => None,
        };
        match (&not_begun, before.take()) {
            (Some(error), Some(old)) if !stopped => {
                tell(reload::stays(error));
                begun.refused = vec![error.clone()];
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
            before = Some(std::mem::replace(&mut current, config));
            tell(Event::Reloaded { file });
        }
    }
}

async fn resign(leading: Option<Leading>) {
    if let Some(leading) = leading {
        leading.resign().await;
    }
}

/// What happened in this process before a run.
#[derive(Default)]
struct Before {
    /// When the first configuration began, and since when keys failed. `None` if this is the first.
    since: Option<(u64, Failing)>,
    /// Why the configuration that was to replace this one did not begin.
    refused: Vec<String>,
}

async fn run(
    config: &Config,
    registry: &Registry,
    extent: RunMode,
    (before, leading): (Before, &mut Option<Leading>),
    stop: impl AsyncFnOnce(&HostContext),
    tell: impl FnMut(Event),
) -> Result<Ended, SetupError> {
    // All parts report from this one task, and no part waits while it reports.
    let tell = RefCell::new(tell);
    let tell: &dyn Fn(Event) = &|event| (tell.borrow_mut())(event);
    let host_context = HostContext::with_state(config, registry, worlds())?;
    if let Some((since_ms, failing)) = before.since {
        host_context.host_status.reloaded(since_ms, failing);
    }
    if !before.refused.is_empty() {
        reload::refused(&host_context, before.refused);
    }
    let reads = Reads::new(config, &host_context);
    // Starts before guests are loaded, so that the operator sees that the host begins.
    let admin = match extent {
        // A run that ends by itself does not live long enough to be observed.
        RunMode::Once => None,
        RunMode::UntilStopped => Some(Admin::start(&config.admin, &reads).await?),
    };
    let (management, wanted) = Management::new(config, &host_context);
    let mut setups = set_up(config, &host_context, extent, leading).await?;
    // A run that ends by itself has checked this before it listed anything.
    let client = setups.client.filter(|_| extent == RunMode::UntilStopped);
    let context = RunContext::new(&config.state_dir, client, extent);
    let mut begin = Begin {
        management,
        leadership: setups.leadership,
        context: &context,
        report: tell,
        source_is_reported: false,
        error_states: None,
        inputs: setups.inputs,
    };
    let mut loops = Vec::new();
    for (kind, ready) in &mut setups.kinds {
        let reads_source = kind.reads_source();
        let reports_source = reads_source && !begin.source_is_reported;
        loops.push((kind.name(), reports_source, ready.begin(&mut begin)?));
        begin.source_is_reported |= reads_source;
    }
    let ended = to_its_end(loops, begin, (wanted, reads, setups.around), stop).await?;
    if let Some(admin) = admin {
        admin.stop().await;
    }
    for (_, ready) in setups.kinds {
        ready.stop().await;
    }
    Ok(ended)
}

/// What the loops need before they begin.
struct Setups<'c> {
    kinds: Vec<(&'static dyn Kind, Box<dyn Ready + 'c>)>,
    leadership: Leadership,
    /// For the API server of the source.
    client: Option<kube::Client>,
    /// One for each loop that reads the source.
    inputs: Vec<Input>,
    around: Around,
}

/// What a run looks at beside its loops.
type Around = (Option<Kubernetes>, Option<Arc<Election>>);

/// Sets up what the loops need, in the order in which problems are found. Takes the leader state from `leading`, or
/// begins it there. With `--once`, waits for the Lease.
async fn set_up<'c>(
    config: &'c Config,
    host_context: &'c HostContext,
    extent: RunMode,
    leading: &mut Option<Leading>,
) -> Result<Setups<'c>, SetupError> {
    let source = config.source();
    let mut client = None;
    if let Some(source) = source {
        Input::check(source).await?;
        client = Input::client(source).await?;
        if client.is_none() {
            cluster::is_no_clusters(&config.state_dir, source).map_err(SetupError::Misused)?;
        }
    }
    let kept = lead(leading.take(), config, client.clone()).await?;
    let leading = leading.insert(kept);
    let leadership = leading.leadership();
    let mut kinds = Vec::new();
    for &kind in KINDS {
        let on = (config, host_context, extent, leadership.fence().clone());
        kinds.extend(kind.set_up(on).await?.map(|ready| (kind, ready)));
    }
    if let (RunMode::Once, Some(source), Some(client)) = (extent, source, &client) {
        // Reports problems with the source before the host takes the Lease.
        Input::once(source).await?;
        let belongs = cluster::belongs(&config.state_dir, client).await;
        belongs.map_err(SetupError::Misused)?;
    }
    leading.begin(extent == RunMode::Once).await?;
    let mut inputs = Vec::new();
    let mut cluster = None;
    if let Some(source) = source {
        // With `--once`, the host lists after it has taken the Lease.
        let input = match extent {
            RunMode::Once => Input::once(source).await,
            RunMode::UntilStopped => Input::watched(source).await,
        }?;
        for _ in kinds.iter().filter(|(kind, _)| kind.reads_source()).skip(1) {
            inputs.push(input.once_more(source)?);
        }
        cluster = input.cluster.clone();
        inputs.push(input);
    }
    Ok(Setups {
        kinds,
        leadership,
        client,
        inputs,
        around: (cluster, leading.election()),
    })
}

/// The leader state: that of the configuration before, if it fits this one.
async fn lead(kept: Option<Leading>, config: &Config, client: Option<kube::Client>) -> Result<Leading, SetupError> {
    match kept {
        Some(kept) if kept.fits(config) => Ok(kept),
        other => {
            resign(other).await;
            let longest = KINDS.iter().find_map(|kind| kind.longest_request(config));
            Leading::new(config, client, longest)
        }
    }
}

/// What goes on beside the loops.
type Beside = (mpsc::UnboundedReceiver<swap::FallBack>, Arc<Reads>, Around);

/// Runs the loops until each has ended, and meanwhile manages versions, answers commands, keeps the state folder within
/// its limits, and reports that the host is alive.
async fn to_its_end(
    loops: Vec<(&'static str, bool, Loop<'_>)>,
    begin: Begin<'_>,
    (wanted, reads, around): Beside,
    stop: impl AsyncFnOnce(&HostContext),
) -> Result<Ended, SetupError> {
    let Begin {
        mut management,
        context,
        report: tell,
        error_states,
        ..
    } = begin;
    let (config, host_context) = (management.config, management.host_context);
    for problem in management.problems.drain(..) {
        tell(Event::Problem(problem));
    }
    let (events, mut changed) = mpsc::unbounded_channel();
    let manager = management.manager(events);
    // Ignore the error: it is set only once.
    let _ = reads.manager.set(Arc::clone(&manager));
    let mut serving = JoinSet::new();
    serving.spawn(housekeeping::run(housekeeping::Limits::of(config, host_context)));
    // A run that ends by itself does not live long enough to receive commands.
    if !context.is_once() {
        let socket = admin::own_socket(&control::socket(&config.state_dir)).await?;
        // A task of its own answers while the loops are busy.
        serving.spawn(control::serve(socket, Arc::clone(&manager), reads, error_states));
    }
    let stopped = async {
        stop(host_context).await;
        host_context.host_status.stopping();
        context.stop();
    };
    let relayed = async {
        while let Some(event) = changed.recv().await {
            tell(Event::Guest(event));
        }
    };
    let managing = async {
        let beats = beats(&host_context.host_status, &around);
        tokio::join!(stopped, relayed, swap::fall_back(&manager, wanted), beats).3
    };
    let ended = tokio::select! {
        ended = joined(loops, context) => ended,
        never = managing => match never {},
    };
    // Events that arrived while the last loop ended.
    while let Ok(event) = changed.try_recv() {
        tell(Event::Guest(event));
    }
    serving.shutdown().await;
    Ok(ended)
}

/// Runs all loops to their ends. If the run was to go on, the end of one stops the others.
async fn joined(loops: Vec<(&'static str, bool, Loop<'_>)>, context: &RunContext<'_>) -> Ended {
    let loops = loops.into_iter().map(async |(name, reports_source, running)| {
        let ended = running.await;
        context.one_ended();
        let part = |summary| Part {
            name,
            reports_source,
            summary,
        };
        ended.map(|summary| summary.map(part))
    });
    let mut all = Ended::default();
    for ended in join_all(loops).await {
        match ended {
            Ok(part) => all.parts.extend(part),
            Err(error) => all.error = all.error.or(Some(error)),
        }
    }
    all.parts.sort_by_key(|part| part.name);
    all
}

/// How often the main task reports that it is alive.
const BEAT: Duration = Duration::from_secs(1);

/// Reports that this task is alive, and what is known of other hosts and of the cluster.
async fn beats(host_status: &Arc<HostStatus>, (cluster, election): &Around) -> Infallible {
    let beating = host_status.begin_loop("host");
    loop {
        if let Some(election) = election {
            host_status.set_election(election.status());
        }
        if let Some(cluster) = cluster {
            // A status that can't be serialized is not shown.
            host_status.set_source(serde_json::to_value(cluster.status()).unwrap_or_default());
        }
        tokio::time::sleep(BEAT).await;
        beating.beat();
    }
}
