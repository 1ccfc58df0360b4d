//! Fetches a guest, and checks what a candidate must pass before it becomes the active version.
//!
//! Nothing here changes the active version: the candidate runs beside it, on its own instances without access to
//! anything.
//!
//! ```text
//! load -> world -> grants -> settings -> self-test -> gate (recorded calls, recorded states) -> Report
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Handle, RuntimeFlavor};
use trueup_base::text::counted;
use trueup_capabilities::grants::Access;
use trueup_capabilities::questions::granted_by;
use trueup_config::{GATE_CALLS, Proof};
use trueup_instance::{Instances, Program, StartError, Worlds, names};
use trueup_journal::{Accepted, Event};
use trueup_registry::{NotLoaded, Reference, Store, Verify, Vouched};

use super::revisions::HOST;
use crate::gate::{self, Gate, Mode, Verdict};
use crate::load::{Loader, named};

/// The step at which a candidate was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Step {
    /// It is not available, not a guest, or fails before it decides anything.
    Load,
    /// It is of another world.
    World,
    /// It imports what the configuration does not grant.
    Grants,
    /// It refuses its settings.
    Settings,
    /// It fails a scenario of the self-test.
    SelfTest,
    /// It decides differently from the recordings.
    Gate,
    /// It refuses the state of the active version.
    State,
    /// It could not be recorded.
    Commit,
}

/// Why a candidate does not become the active version. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("refused at {step}: {why}")]
pub struct Refused {
    /// The step.
    pub step: Step,
    /// One line.
    pub why: String,
}

impl Refused {
    pub(super) fn new(step: Step, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { step, why }
    }
}

/// A [`Refused`] of this step, with its causes on one line.
pub(crate) fn refused(step: Step) -> impl Fn(anyhow::Error) -> Refused {
    move |error| Refused::new(step, format!("{error:#}"))
}

/// The results of a candidate that passed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How many scenarios it passed. `None` if the configuration names no self-test.
    pub self_test: Option<usize>,
    /// The gate's verdict. `None` if there was nothing to compare it with.
    pub gate: Option<Verdict>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.self_test {
            None => f.write_str("no self-test")?,
            Some(passed) => write!(f, "{} passed", counted(passed, "scenario", "scenarios"))?,
        }
        self.gate.as_ref().map_or(Ok(()), |gate| write!(f, "; gate: {gate}"))
    }
}

/// How often the gate is tried again until the active version has decided something.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// What a candidate is checked against.
pub(crate) struct Against<'a> {
    /// The setup of the active version. The candidate gets the same.
    pub(crate) active: &'a Instances,
    /// The worlds that the candidate may be of.
    pub(crate) worlds: Worlds,
    /// The required checks.
    pub(crate) proof: &'a Proof,
    /// The candidate's reference.
    pub(crate) reference: &'a str,
    /// The file with the candidate's settings.
    pub(crate) config: &'a str,
    /// How long the active version may take to decide something, if it has not decided anything yet.
    pub(crate) patience: Duration,
}

/// # Errors
/// If it is of none of these worlds.
pub(crate) fn of_world(program: &Program, worlds: Worlds) -> Result<(), Refused> {
    if worlds.iter().any(|world| world.name == program.world.name) {
        return Ok(());
    }
    let guest = named(&program.guest);
    let world = program.world.name;
    let wanted = names(worlds, " or ");
    let why = format!("guest `{guest}` is of the world {world}, must be of {wanted}");
    Err(Refused::new(Step::World, why))
}

/// # Errors
/// If it is to begin without a state that only the active version has.
pub(crate) fn may_begin_afresh(program: &Program, afresh: bool) -> Result<(), Refused> {
    if !afresh || program.world.may_start_without_state() {
        return Ok(());
    }
    let world = program.world.name;
    let why = format!("a guest of the world {world} can't begin afresh: it would lose what only its state holds");
    Err(Refused::new(Step::State, why))
}

/// Checks that something is granted of each capability that the candidate imports and the active version does not.
/// Otherwise it would fail at each call.
fn granted(program: &Program, active: &Instances) -> Result<(), Refused> {
    let grants = &active.grants;
    let imports = program.guest.imports.iter();
    let imports = imports.filter(|import| !active.program.guest.imports.contains(import));
    for (import, (_, granted)) in imports.filter_map(|import| Some((import, granted_by(import)?))) {
        let capability = granted.name;
        if !grants.allow_some(capability, Access::Read) && !grants.allow_some(capability, Access::Write) {
            let section = format!("[guests.{}] grants nothing of `{capability}`", active.name);
            let why = format!("it asks `{import}`, which the active version does not, and {section}");
            return Err(Refused::new(Step::Grants, why));
        }
    }
    Ok(())
}

/// The gate of a swap, as configured.
///
/// # Errors
/// One line: why the file of accepted differences can't be used.
pub(super) fn accepted(proof: &Proof) -> Result<Arc<Accepted>, String> {
    match &proof.accepted_differences {
        Some(file) if proof.gate != Mode::Off => gate::read_accepted(file).map(Arc::new),
        _ => Ok(Arc::default()),
    }
}

/// The state of an instance that received only its settings. If the guest refuses its settings, or fails, this fails
/// once, before anything runs.
pub(crate) async fn initial_state(instances: &Instances) -> Result<String, Refused> {
    let started = instances.start_unrecorded("setup", Instances::trial(), None).await;
    let mut instance = started.map_err(|error| match error {
        StartError::Settings { .. } => refused(Step::Settings)(error.into()),
        StartError::Snapshot { .. } | StartError::Call(_) => refused(Step::Load)(error.into()),
    })?;
    instance.host_mut().tape.take_entries();
    let snapshot = instance.snapshot().await.map_err(|it| refused(Step::Load)(it.into()))?;
    // A snapshot is taken between calls, where a recording has no place for questions.
    let mut entries = instance.host_mut().tape.take_entries().into_iter();
    if let Some(Event::Ask(ask)) = entries.next().map(|entry| entry.event) {
        let guest = named(&instances.program.guest);
        let asked = ask.name;
        let may = "which may use nothing but log and metrics";
        let why = format!("guest `{guest}` asks `{asked}` in `lifecycle.snapshot`, {may}");
        return Err(Refused::new(Step::Load, why));
    }
    Ok(snapshot)
}

/// How many scenarios of the self-test a version passes. `None` if the configuration names none.
///
/// # Errors
/// The first that it does not pass.
pub(crate) async fn self_test(instances: &Instances, proof: &Proof, loader: &Loader) -> Result<Option<usize>, Refused> {
    let Some(folder) = &proof.self_test else {
        return Ok(None);
    };
    let stage = loader.for_scenarios(BTreeMap::new());
    let stage = stage.with(instances.name, Arc::clone(&instances.program));
    let folders = std::slice::from_ref(folder);
    let summary = trueup_scenario::run_named(Arc::new(stage), folders, "", |_| ()).await;
    let failure = summary.errors.first().cloned().or_else(|| summary.first_failure());
    let none = || format!("{}: holds no scenario", folder.display());
    match failure.or_else(|| (summary.passed == 0).then(none)) {
        Some(why) => Err(Refused::new(Step::SelfTest, why)),
        None => Ok(Some(summary.passed)),
    }
}

/// The checks of a version that was once active, or is trusted: that it runs, and accepts the state unless it begins
/// afresh.
pub(crate) fn trusted(afresh: bool) -> Proof {
    Proof {
        gate: Mode::Off,
        gate_calls: GATE_CALLS,
        accepted_differences: None,
        self_test: None,
        afresh,
    }
}

/// A fetched guest.
#[derive(Clone)]
pub(crate) struct Fetched {
    pub(crate) program: Arc<Program>,
    /// The original bytes, to which the digest belongs. `None` if they are already in the store.
    pub(crate) bytes: Option<Arc<[u8]>>,
    /// In the format of [`super::Revision::vouched`].
    pub(crate) vouched: Option<String>,
}

/// The maximum number of compiled guests kept in memory for reuse. One in Python has 35 MB.
const LOADED_MAX: usize = 16;

/// The sources of guests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Guests {
    pub(super) loader: Loader,
    store: Store,
    /// Loaded guests, by digest.
    loaded: Arc<Mutex<BTreeMap<String, Arc<Program>>>>,
}

impl Guests {
    pub(crate) fn new(loader: Loader, store: Store) -> Self {
        let loaded = Arc::default();
        Self { loader, store, loaded }
    }

    /// The guest that a reference names, as the configuration requires: pinned by its lock, and signed if signatures
    /// are required.
    ///
    /// # Errors
    /// Why it is not available.
    pub(crate) async fn named(&self, reference: &Reference, verify: &Verify) -> Result<Fetched, Refused> {
        let loaded = self.load(reference, verify).await;
        loaded.map_err(|error| refused(Step::Load)(error.into()))
    }

    /// The same, but distinguishes a guest that is not available from a load that failed just now.
    ///
    /// # Errors
    /// Why it is not available.
    pub(crate) async fn load(&self, reference: &Reference, verify: &Verify) -> Result<Fetched, NotLoaded> {
        let this = self.clone();
        let reference = reference.clone();
        let verify = verify.clone();
        // Compiling is slow, so it runs on a thread of its own.
        let loaded = tokio::task::spawn_blocking(move || {
            let loaded = Handle::current().block_on(this.loader.configured(&reference, &verify))?;
            remember(&mut this.loaded.lock(), &loaded.program);
            Ok::<_, NotLoaded>(loaded)
        });
        let loaded = loaded.await.map_err(|error| NotLoaded::Failed(error.to_string()))??;
        Ok(Fetched {
            program: loaded.program,
            bytes: Some(loaded.found.bytes.into()),
            vouched: match loaded.found.vouched {
                Vouched::Host => Some(HOST.to_owned()),
                Vouched::Key(key) => Some(key.display().to_string()),
                Vouched::NotAsked => None,
            },
        })
    }

    /// Runs a candidate's checks. Returns its instances, and what it passed.
    ///
    /// # Errors
    /// At which step it fails, and why.
    pub(crate) async fn prove(
        &self,
        program: Arc<Program>,
        against: &Against<'_>,
    ) -> Result<(Instances, Report), Refused> {
        let Against { active, proof, .. } = against;
        of_world(&program, against.worlds)?;
        may_begin_afresh(&program, proof.afresh)?;
        granted(&program, active)?;
        let mut instances = Instances {
            program,
            afresh: proof.afresh,
            ..(*active).clone()
        };
        instances.initial = initial_state(&instances).await?;
        let self_test = self_test(&instances, proof, &self.loader).await?;
        let gate = Gate {
            mode: proof.gate,
            calls: proof.gate_calls,
            accepted: accepted(proof).map_err(|why| Refused::new(Step::Gate, why))?,
            afresh: proof.afresh,
            settings: Some(instances.settings.clone()),
            ..Gate::default()
        };
        let digest = active.program.guest.digest.to_string();
        let begun = Instant::now();
        let verdict = loop {
            let (engine, candidate) = (&instances.engine, &instances.program);
            let verdict = gate::prove(engine, candidate, &active.state_dir, active.name, &digest, &gate).await;
            // Other versions of the guest recorded calls, but the active one has not yet.
            let nothing_to_compare = verdict.calls_read == 0 && verdict.by_others > 0 && verdict.refused.is_none();
            if verdict.passed || !nothing_to_compare || begun.elapsed() >= against.patience {
                break verdict;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        if !verdict.passed {
            let helps = verdict.what_helps(&active.state_dir, active.name);
            let shown = verdict.shown_by(against.reference, proof.afresh, against.config);
            return Err(Refused::new(Step::Gate, format!("{verdict}{helps}{shown}")));
        }
        let gate = Some(verdict);
        Ok((instances, Report { self_test, gate }))
    }

    /// Keeps a guest's bytes, so that a restart and a rollback find them whatever happens to their source.
    ///
    /// # Errors
    /// If they can't be written.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Result<(), Refused> {
        let kept = self.store.put(bytes);
        kept.map(drop).map_err(|error| refused(Step::Commit)(error.into()))
    }

    /// A guest that was once active. `None` if it is no longer kept. Slow if it is not loaded yet: other tasks go on
    /// meanwhile.
    ///
    /// # Errors
    /// Why it is not available now.
    pub(crate) fn kept(&self, digest: &str) -> Result<Option<Arc<Program>>, Refused> {
        beside_tasks(|| {
            // Held while the guest is loaded. After a start, many instances may ask for the same guest at once: it is
            // compiled once.
            let mut loaded = self.loaded.lock();
            if let Some(program) = loaded.get(digest) {
                return Ok(Some(Arc::clone(program)));
            }
            let stored = self.loader.stored(digest);
            let stored = stored.map_err(|error| refused(Step::Load)(error.into()))?;
            if let Some(program) = &stored {
                remember(&mut loaded, program);
            }
            Ok(stored)
        })
    }
}

/// Does slow work. The other tasks of this thread go on on another one, if the runtime has several.
fn beside_tasks<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn remember(loaded: &mut BTreeMap<String, Arc<Program>>, program: &Arc<Program>) {
    // Active guests are held elsewhere; the rest is loaded again from the compile cache.
    if loaded.len() >= LOADED_MAX {
        loaded.clear();
    }
    loaded.insert(program.guest.digest.to_string(), Arc::clone(program));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_while_a_guest_is_compiled() {
        let (end, ended) = std::sync::mpsc::channel();
        let compiles = tokio::spawn(async move {
            // The only worker runs this task, and must run the next one, too.
            tokio::spawn(async move { end.send(()) });
            beside_tasks(|| ended.recv_timeout(Duration::from_secs(60)))
        });
        assert_eq!(compiles.await.unwrap(), Ok(()));
    }
}
