//! What a run would do now, as a plan shows it.

use std::collections::BTreeMap;

use serde::Serialize;
use trueup_base::text::counted;
use trueup_capabilities::holdings::{Kept, Waiting};
pub use trueup_capabilities::planned::Orphan;
pub use trueup_capabilities::reading::{Action, Write};
use trueup_config::{Config, Guest};

use super::object_counts::ObjectCounts;
use crate::setup::SetupError;

/// What a run would do for one key.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KeyPlan {
    /// The key, such as `namespace/name`.
    pub key: String,
    /// The name of its guest in `[guests.NAME]`.
    pub guest: &'static str,
    /// The key is gone: its objects would be removed.
    pub gone: bool,
    /// Objects that a killed host created and did not tag. A run first tags them, and then does what `writes` contains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untagged: Vec<Orphan>,
    /// In order. References to objects that do not exist yet are `(new KIND NAME)`.
    pub writes: Vec<Write>,
    /// How long the guest waits in total before the last write, in milliseconds. The duration of what it starts comes
    /// on top. `None` if it does not wait between its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_ms: Option<u64>,
    /// Why it would fail. `None` if it would succeed.
    pub error: Option<String>,
}

/// What a run would do.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// By guest and key.
    pub keys: Vec<KeyPlan>,
    /// Notes about the source that change nothing; which versions decide in place of those that the configuration
    /// names; and what a run would wait for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What in the source can't be read, or is not used.
    pub problems: Vec<String>,
    /// Keys that the source does not name but whose objects a run would keep, since something unreadable may name them.
    pub held: Vec<String>,
    /// Objects that belong to no key, if requested.
    pub orphans: Vec<Orphan>,
    /// One line for each kind of work, by its name.
    #[serde(skip)]
    pub summaries: BTreeMap<&'static str, String>,
}

impl Plan {
    /// Whether something would fail, or could not be read.
    pub fn has_failed(&self) -> bool {
        !self.problems.is_empty() || self.keys.iter().any(|key| key.error.is_some())
    }

    /// Whether a run would write something.
    pub fn has_changes(&self) -> bool {
        let changes = |key: &KeyPlan| !key.writes.is_empty() || !key.untagged.is_empty();
        self.keys.iter().any(changes)
    }

    /// Adds a problem, unless another kind of work reported it.
    pub fn problem(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Adds the keys of one guest with their summary. `word`: what one key is called.
    pub fn add(&mut self, kind: &'static str, word: &str, keys: Vec<KeyPlan>) {
        let count = |action| -> usize {
            let writes = keys.iter().flat_map(|key| &key.writes);
            writes.filter(|write| write.action == action).map(objects).sum()
        };
        let also = |action, words: &str| match count(action) {
            0 => String::new(),
            count => format!(", {count} {words}"),
        };
        let line = format!(
            "{}: {} to create, {} to destroy{}{}{}{}, {} failed",
            counted(keys.len(), word, &format!("{word}s")),
            count(Action::Create),
            count(Action::Destroy),
            also(Action::Attach, "to attach"),
            also(Action::Detach, "to detach"),
            also(Action::Store, "to store"),
            also(Action::Reset, "to apply again"),
            keys.iter().filter(|key| key.error.is_some()).count()
        );
        self.summaries.insert(kind, line);
        self.keys.extend(keys);
    }

    /// Notes that a run would wait for an approval first. `found`: how many objects the keys have, as far as the plan
    /// read that. `going`: how many objects a run destroys, from what it holds.
    pub fn note_if_waits(
        &mut self,
        config: &Config,
        (name, guest): (&str, &Guest),
        found: BTreeMap<String, u64>,
        going: impl FnOnce(&Kept) -> u64,
    ) -> Result<(), SetupError> {
        let ObjectCounts { mut kept, .. } = ObjectCounts::open(&config.state_dir, name).map_err(SetupError::misused)?;
        // What was just read is newer than what a host wrote down.
        kept.held.extend(found);
        let waiting = Waiting {
            keys: Vec::new(),
            objects: going(&kept),
            destroyed: kept.destroyed,
            of: kept.held.values().sum::<u64>() + kept.destroyed,
        };
        let all = waiting.of.max(waiting.objects);
        if guest.approve_above.is_above(waiting.objects + waiting.destroyed, all) {
            let objects = waiting.text("objects");
            self.notes.push(format!(
                "a run waits for an approval before it destroys these {objects}: `trueup approve {name}`, or `trueup run --once \
                 --approve`"
            ));
        }
        Ok(())
    }
}

impl KeyPlan {
    /// How many objects are written with each sign of [`sign`].
    pub fn counts(&self) -> BTreeMap<char, usize> {
        let mut counts = BTreeMap::new();
        for write in &self.writes {
            *counts.entry(sign(write.action)).or_default() += objects(write);
        }
        counts
    }
}

/// How many objects a write is about: one, or the endpoints that it attaches or detaches.
fn objects(write: &Write) -> usize {
    write.operation.as_ref().map_or(1, |started| started.endpoints.len())
}

/// The sign of an action in a plan's lines.
pub fn sign(action: Action) -> char {
    match action {
        Action::Create | Action::Attach => '+',
        Action::Destroy | Action::Detach => '-',
        Action::Store => '=',
        Action::Reset => '~',
    }
}
