//! The plan of a world of keys: each key's own turn, in which real reads fill simulated backends.
//!
//! ```text
//! look -> keys -> wanted -> turn (unrecorded instance, backends of a plan, virtual clock) -> the writes it asked for
//! ```
//!
//! What a turn does beside its calls is up to its world: one that is planned gets
//! records that stay in memory, and publishes nothing. [`Reconciler::prepare`] and what follows a turn are left
//! out.

use std::collections::BTreeMap;
use std::sync::Arc;

use trueup_base::fence::Fence;
use trueup_capabilities::Backends;
use trueup_capabilities::holdings::Holdings;
use trueup_capabilities::reading::{Action, Write};
use trueup_sources::Batch;

use super::turn::{Shared, Turn};
use super::{KeyedSetup, Reconciler, Wanted};
use crate::decisions::{Causes, JobRecorder};
use crate::lifecycle::quarantine::{SetAside, way_out};
use crate::plan::{KeyPlan, Plan};
use crate::setup::SetupError;
use crate::slot::InstanceSlot;
use crate::supervisor::Supervisor;
use crate::swap::Revisions;

/// Adds what a run would do with the keys of a world, if the source says this. `kind`: the name of its summary.
///
/// # Errors
/// If the state folder can't be read.
pub async fn plan<W: Reconciler>(
    world: &mut W,
    kind: &'static str,
    setup: &KeyedSetup<'_>,
    all: &Batch,
    plan: &mut Plan,
) -> Result<(), SetupError> {
    let shared = Shared::new(&setup.active, 1, W::RULES.cut);
    let mut planned = Vec::new();
    for (key, desired) in wanted(world, setup, all, None, plan) {
        let mut one = KeyPlan {
            key: key.to_string(),
            guest: W::RULES.guest,
            ..KeyPlan::default()
        };
        match desired {
            Ok(desired) => turn(world, &shared, &key, desired, &mut one).await,
            Err(error) => one.error = Some(error),
        }
        one.gone = !world.is_desired(&key);
        planned.push(one);
    }
    let writes = planned.iter().flat_map(|key| &key.writes);
    let going = writes.filter(|write| write.action == Action::Destroy).count() as u64;
    let found = found(&setup.active.quotas.holdings, &planned);
    plan.note_if_waits(setup.config, (W::RULES.guest, setup.guest), found, |_| going)?;
    plan.add(kind, W::RULES.word, planned);
    Ok(())
}

/// How many objects each key has when the first of them is destroyed: those that it has after its turn, and those that
/// this destroyed, without those that it created later. A key that the world does not count by objects counts once.
fn found(holdings: &Holdings, planned: &[KeyPlan]) -> BTreeMap<String, u64> {
    let found = |key: &KeyPlan| {
        let count = |action, writes: &[Write]| writes.iter().filter(|write| write.action == action).count() as u64;
        let first = key.writes.iter().position(|write| write.action == Action::Destroy);
        let (_, later) = key.writes.split_at(first.unwrap_or_default());
        let had = holdings.held(&key.key) + count(Action::Destroy, later);
        (key.key.clone(), had.saturating_sub(count(Action::Create, later)).max(1))
    };
    planned.iter().map(found).collect()
}

/// Keys that a run would work on, each with its desired state, or why there is none.
pub type WantedKeys<W> = Vec<(<W as Reconciler>::Key, Result<<W as Reconciler>::Desired, String>)>;

/// The keys that a run would work on if the source says this, each with its desired state, or why it would not: for
/// example, a key that is set aside. Looks at `known` keys too. Adds to the plan what the look shows beside.
pub fn wanted<W: Reconciler>(
    world: &mut W,
    setup: &KeyedSetup<'_>,
    all: &Batch,
    known: impl IntoIterator<Item = W::Key>,
    plan: &mut Plan,
) -> WantedKeys<W> {
    let looked = world.look(all);
    if let Some(problem) = looked.lost(setup.source) {
        plan.problem(problem);
    }
    plan.notes.extend(looked.notes);
    let mut keys = world.keys();
    keys.extend(looked.held);
    keys.extend(known);
    let supervisor = Supervisor::alone(&setup.active.instances());
    let revisions = Revisions::load(&setup.config.state_dir, W::RULES.guest).ok();
    let revision = revisions.and_then(|revisions| Some(revisions.active()?.revision));
    let mut all_wanted = Vec::new();
    for key in keys {
        match world.wanted(&key) {
            Wanted::Work(desired) => {
                let version = world.version(setup.active.instances(), &desired);
                let work = match supervisor.held(&version, &key.to_string(), &desired) {
                    Some(SetAside { error, .. }) => {
                        let next = way_out(W::RULES.guest, revision);
                        Err(format!("set aside: {error}; {next}"))
                    }
                    None => Ok(desired),
                };
                all_wanted.push((key, work));
            }
            Wanted::Refused(error) | Wanted::Waits(error) => all_wanted.push((key, Err(error))),
            Wanted::Held => plan.held.push(key.to_string()),
            Wanted::Nothing | Wanted::Forget => {}
        }
    }
    all_wanted
}

async fn turn<W: Reconciler>(
    world: &mut W,
    shared: &Arc<Shared>,
    key: &W::Key,
    desired: W::Desired,
    planned: &mut KeyPlan,
) {
    let slot = InstanceSlot::new(Arc::clone(&shared.active), &planned.key, Backends::default());
    let decided = JobRecorder::new(None, planned.key.clone(), Causes::default(), 0);
    let turn = Turn::new(Arc::clone(shared), slot, decided, Fence::open(), Arc::default());
    let done = world.turn(key, desired, turn).await;
    planned.error = done.end.err().map(|failure| failure.error);
    if let Some(plan) = &shared.active.plan {
        (planned.writes, planned.untagged) = plan.take(&planned.key);
    }
}
