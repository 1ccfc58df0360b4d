//! A kind of work that a configuration names: how it is checked, set up, begun and summed up.
//!
//! Each kind implements [`Kind`] in its own folder. `run` lists the kinds, walks over the list, and names none of them
//! elsewhere.
//!
//! ```text
//! Kind::set_up -> Ready::begin -> Loop (runs to its end) -> Summary
//!                |      |                                      |
//!                |      +------------- Ready::stop <-----------+
//!                +----> plan
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::sync::{OnceCell, mpsc, oneshot, watch};
use trueup_base::fence::Fence;
use trueup_config::{Config, World};
use trueup_instance::Worlds;
use trueup_sources::Batch;

use crate::cluster;
use crate::event::Event;
use crate::host_context::{HostContext, Supervision, Version};
use crate::input::Input;
pub use crate::keyed::Summary;
use crate::keyed::{Keyed, KeyedSetup, LoopContext, Reconciler};
use crate::leading::Leadership;
use crate::lifecycle::quarantine::Quarantine;
use crate::needs::Needs;
use crate::plan::Plan;
use crate::setup::SetupError;
use crate::swap::{self, FallBack, Managed, Manager};

/// The maximum number of versions that wait to be handed over. Changes of one guest come one after another.
const HANDOVERS_MAX: usize = 1;

/// One kind of work.
pub trait Kind: Sync {
    /// The name of its summary in the JSON document of a run. Summaries are in the order of these names.
    fn name(&self) -> &'static str;

    /// The worlds that its guests may implement.
    fn worlds(&self) -> Worlds;

    /// How its sections of the configuration are read.
    fn sections(&self) -> &'static dyn World;

    /// Whether it reads `[source]`. The first such kind that the configuration names reports the source's problems.
    fn reads_source(&self) -> bool {
        true
    }

    /// The guest whose keys have a file in `keys/` while they exist. `None` if none has.
    fn keyed_guest(&self) -> Option<&'static str> {
        None
    }

    /// The setting that says how long a request to its backend may take, and its value. `None` if none does.
    fn longest_request(&self, _config: &Config) -> Option<(&'static str, Duration)> {
        None
    }

    /// What it needs before it can be set up. Reads files, but asks no backend and changes nothing. Empty if the
    /// configuration does not name it.
    fn needs<'a>(&self, config: &'a Config) -> Needs<'a>;

    /// Opens what it keeps in the state folder, as a run and a plan do when they begin, and changes nothing. Called if
    /// the configuration names it.
    ///
    /// # Errors
    /// Why a run can't begin: one line, after the last `; ` of which is what to do.
    fn check_state(&self, _config: &Config) -> Result<(), SetupError> {
        Ok(())
    }

    /// The files of a first configuration of it, with `trueup.toml` first: names, and what they hold. Empty if it has
    /// none.
    fn example(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Loads its guests and connects to its backends. `None` if the configuration does not name it.
    ///
    /// # Errors
    /// One line: what can't be used.
    fn set_up<'a>(&'a self, on: On<'a>) -> Fallible<'a, Option<Box<dyn Ready + 'a>>>;
}

/// Work that may fail before anything has begun.
pub type Fallible<'a, T> = LocalBoxFuture<'a, Result<T, SetupError>>;

/// A loop, to its end. Returns no summary if it has none to show. An error: nothing could be begun.
pub type Loop<'a> = Fallible<'a, Option<Summary>>;

/// For a loop that was begun before.
pub fn nothing<'a>() -> Loop<'a> {
    Box::pin(std::future::ready(Ok(None)))
}

/// With what a kind is set up. The fence: how long requests to backends are let through.
pub type On<'a> = (&'a Config, &'a HostContext, RunMode, Fence);

/// What is planned.
#[derive(Clone, Copy)]
pub struct Planning<'a> {
    /// The name of the kind.
    pub name: &'static str,
    /// What the source says. Empty without a source.
    pub all: &'a Batch,
    /// Whether to list objects that belong to no key.
    pub orphans: bool,
}

/// When a run ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// When nothing is left to do.
    Once,
    /// When the host is stopped.
    UntilStopped,
}

/// A kind that is set up.
pub trait Ready {
    /// Its loop, ready to run. Called once.
    ///
    /// # Errors
    /// If the state folder can't be read, or the source does not exist any more.
    fn begin<'a>(&'a mut self, with: &mut Begin<'a>) -> Result<Loop<'a>, SetupError>;

    /// Adds what a run would do now. Writes neither to backends nor to the state folder. Called once, in place of
    /// `begin`.
    ///
    /// # Errors
    /// One line: why planning can't begin.
    fn plan<'a>(&'a mut self, of: Planning<'a>, plan: &'a mut Plan) -> Fallible<'a, ()>;

    /// Ends what was started for it.
    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// With what a loop begins.
pub struct Begin<'a> {
    /// Connects guests with the manager of versions.
    pub management: Management<'a>,
    /// Whether this host acts.
    pub leadership: Leadership,
    /// What all loops observe.
    pub context: &'a RunContext<'a>,
    /// Where events go.
    pub report: &'a dyn Fn(Event),
    /// Another loop reads the same source and reports its problems.
    pub source_is_reported: bool,
    /// Where an operator's requests for error states go. `None` if no loop takes them.
    pub error_states: Option<mpsc::Sender<SetErrorState>>,
    /// What the source says, once for each loop that reads it.
    pub inputs: Vec<Input>,
}

impl<'a> Begin<'a> {
    /// A loop of keys, ready to run. `world`: the world, given what is set aside and what the source says.
    ///
    /// # Errors
    /// If the state folder can't be read, or the configuration has no source.
    pub fn keyed<W: Reconciler + 'a>(
        &mut self,
        setup: &KeyedSetup<'_>,
        world: impl FnOnce(Arc<Quarantine>, &Input) -> Result<W, SetupError>,
    ) -> Result<Loop<'a>, SetupError> {
        let Some(version) = setup.version.lock().take() else {
            return Ok(nothing());
        };
        let loop_context = LoopContext {
            supervision: self.management.connect(version),
            leadership: self.leadership.clone(),
            source_is_reported: self.source_is_reported,
            once: self.context.is_once(),
            report: self.report,
        };
        let input = self.input()?;
        let world = world(Arc::clone(&loop_context.supervision.quarantine), &input)?;
        let keyed = Keyed::new(setup, world, loop_context)?;
        let context = self.context;
        Ok(Box::pin(async move {
            let summary = keyed.run(input, context.belongs(), context.stopped()).await;
            summary.map(Some).map_err(SetupError::failed)
        }))
    }

    /// What the source says, for one loop.
    ///
    /// # Errors
    /// If the configuration has no source.
    pub fn input(&mut self) -> Result<Input, SetupError> {
        let input = self.inputs.pop();
        input.ok_or_else(|| SetupError::Failed("the configuration has no source".to_owned()))
    }
}

/// An operator's request to set a key's error state.
pub struct SetErrorState {
    /// The key, as text.
    pub key: String,
    /// Whether the key is to be in its error state.
    pub on: bool,
    /// Whether the request was accepted, or why not, in one line.
    pub reply: oneshot::Sender<Result<(), String>>,
}

/// What all loops of a run observe.
pub struct RunContext<'a> {
    extent: RunMode,
    stop: watch::Sender<bool>,
    state_dir: &'a Path,
    /// `None` if there is no cluster, or the check ran before anything was listed.
    client: Option<kube::Client>,
    belongs: OnceCell<Result<(), String>>,
}

impl<'a> RunContext<'a> {
    /// `client`: for the cluster of the source, to which the state folder must belong. `None`: that is not checked.
    pub fn new(state_dir: &'a Path, client: Option<kube::Client>, extent: RunMode) -> Self {
        Self {
            extent,
            stop: watch::Sender::new(false),
            state_dir,
            client,
            belongs: OnceCell::new(),
        }
    }

    /// Whether the run ends by itself.
    pub fn is_once(&self) -> bool {
        self.extent == RunMode::Once
    }

    /// Whether the state folder belongs to the cluster of the source. Asked once, and all loops wait for the answer.
    pub async fn belongs(&self) -> Result<(), String> {
        let Some(client) = &self.client else { return Ok(()) };
        let ask = || cluster::belongs(self.state_dir, client);
        self.belongs.get_or_init(ask).await.clone()
    }

    /// Stops all loops.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// A loop that can't go on ends the others too, unless each was to end by itself.
    pub fn one_ended(&self) {
        if !self.is_once() {
            self.stop();
        }
    }

    /// Returns when the loops are to end.
    pub async fn stopped(&self) {
        // The sender outlives the loops.
        _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

/// Connects each guest of a run with the manager of versions: what the manager needs of each, collected before the
/// guests run.
pub struct Management<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// What all guests share.
    pub host_context: &'a HostContext,
    managed: BTreeMap<&'static str, Managed>,
    /// Why versions that the configuration names are not active.
    pub problems: Vec<String>,
    fall_back: mpsc::UnboundedSender<FallBack>,
}

impl<'a> Management<'a> {
    /// Also returns the requests for the versions that failure policies name.
    pub fn new(config: &'a Config, host_context: &'a HostContext) -> (Self, mpsc::UnboundedReceiver<FallBack>) {
        let (fall_back, wanted) = mpsc::unbounded_channel();
        let management = Self {
            config,
            host_context,
            managed: BTreeMap::new(),
            problems: Vec::new(),
            fall_back,
        };
        (management, wanted)
    }

    /// The manager of all these guests. It reports to `events`.
    pub fn manager(self, events: mpsc::UnboundedSender<swap::Event>) -> Arc<Manager> {
        Arc::new(Manager {
            guests: self.host_context.guests.clone(),
            managed: self.managed,
            events,
            audit: self.host_context.audit.clone(),
        })
    }

    /// Passes a guest with its revisions to the manager.
    pub fn connect(&mut self, version: Version) -> Supervision {
        let name = version.name;
        let (hand_over, handovers) = mpsc::channel(HANDOVERS_MAX);
        let mut quarantine = Quarantine::load(&self.config.state_dir, name);
        quarantine.audit.clone_from(&self.host_context.audit);
        let host_status = &self.host_context.host_status;
        for entry in quarantine.all() {
            host_status.failed_before(name, &entry.instance, entry.at_ms);
        }
        let quarantine = Arc::new(quarantine);
        self.problems.extend(version.problem);
        let managed = Managed {
            name,
            worlds: version.worlds,
            config: version.guest,
            active: version.active,
            revisions: Arc::new(version.revisions.into()),
            handovers: hand_over,
            quarantine: Arc::clone(&quarantine),
            metrics: Arc::clone(&self.host_context.metrics),
            changing: tokio::sync::Mutex::default(),
            compared: parking_lot::Mutex::default(),
            promotion: parking_lot::Mutex::default(),
        };
        self.managed.insert(name, managed);
        Supervision {
            quarantine,
            handovers,
            fall_back: self.fall_back.clone(),
        }
    }
}
