//! A world as this crate sees it: which sections it has, and what they say.
//!
//! The caller of [`Config::load_with`](super::Config::load_with) lists the worlds. So a new world adds its sections,
//! and nothing else of this crate changes.
//!
//! ```text
//! World -> Sections (out of Tables) -> Settings -> Config::world::<T>()
//! ```

use std::any::Any;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use dyn_clone::DynClone;
use trueup_sources::{Kind, Source};

use super::document::Document;
use super::guest::Guest;
use super::section::Section;
use super::source;

/// How the sections of one world are read.
pub trait World: Sync {
    /// What the operator reads about it, and how it fits together with the other sections.
    fn about(&self) -> About;

    /// Takes its sections out of their tables.
    fn sections<'d>(&'static self, tables: &mut Tables<'d>) -> Sections<'d>;
}

/// What a world makes, and from what.
#[derive(Debug, Clone)]
pub struct About {
    /// What `trueup init --world` calls it.
    pub name: &'static str,
    /// What an operator who wants it looks for, such as `load balancers`.
    pub subject: &'static str,
    /// What it makes from the objects of `[source]`, in the plural. Mostly the same.
    pub made: &'static str,
    /// The kinds of objects of `[source]` that it needs. Empty: it reads no `[source]`.
    pub needs: &'static [Kind],
    /// Whether it acts for a whole cluster, so that the hosts of a cluster elect one. False: it acts for its own node.
    pub acts_for_cluster: bool,
    /// The names of its guests in `[guests]`. No renderer has such a name.
    pub guests: Vec<&'static str>,
    /// Its adapter's section as an operator may write it.
    pub adapter: &'static str,
}

/// The tables that the worlds take their sections from.
pub struct Tables<'d> {
    pub(super) guests: Section<'d>,
    pub(super) adapters: Section<'d>,
    pub(super) backends: Section<'d>,
    pub(super) sims: Section<'d>,
    /// The names of all worlds' guests, sorted.
    pub(super) guests_of_worlds: Vec<&'static str>,
}

/// The sections of one world.
pub struct Sections<'d> {
    pub(super) is_any_present: bool,
    /// The node whose Pods it reads. `None`: it reads no Pods.
    pub(super) pods_of: Option<String>,
    pub(super) read: Read<'d>,
}

/// Reads the sections of one world. `None` if none of them is present, or a problem was found.
type Read<'d> = Box<dyn FnOnce(&Reading<'d>) -> Option<Box<dyn Settings>> + 'd>;

/// With what sections are read.
pub struct Reading<'d> {
    pub(super) document: &'d Document<'d>,
    pub(super) state_dir: PathBuf,
    /// The host's own seed.
    pub(super) seed: u64,
    /// `None` if `[source]` is missing or has a problem.
    pub(super) source: Option<Source>,
}

/// What the sections of one world say. [`Config::world`](super::Config::world) finds it by its type.
pub trait Settings: Any + Debug + Send + Sync + DynClone {
    /// Its guests, by the names of their sections.
    fn guests(&self) -> Vec<(&'static str, &Guest)>;

    /// `[source]`. `None` if it reads none.
    fn source(&self) -> Option<&Source> {
        None
    }

    /// Lets its guests destroy anything without an approval.
    fn approve(&mut self) {}

    /// Whether the host starts a simulated server for it.
    fn has_own_server(&self) -> bool {
        false
    }

    /// Uses the simulated server of the host that runs with this state folder instead of starting one. False if that
    /// host has not noted its port.
    fn use_running_server(&mut self, _state_dir: &Path) -> bool {
        true
    }
}

dyn_clone::clone_trait_object!(Settings);

/// Takes the tables of all worlds out of the outermost section.
pub(super) fn tables<'d>(root: &mut Section<'d>, worlds: &[About]) -> Tables<'d> {
    let mut guests_of_worlds: Vec<_> = worlds.iter().flat_map(|about| about.guests.clone()).collect();
    guests_of_worlds.sort_unstable();
    let note = "; a guest is named as its adapter, a renderer as `renderers` of [adapter.service] lists it";
    Tables {
        guests: root.section("guests").of_names("guest", note),
        adapters: root.section("adapter"),
        backends: root.section("backend"),
        sims: root.section("sim"),
        guests_of_worlds,
    }
}

impl<'d> Sections<'d> {
    pub(super) fn new<S: Settings>(is_any_present: bool, read: impl FnOnce(&Reading<'d>) -> Option<S> + 'd) -> Self {
        Self {
            is_any_present,
            pods_of: None,
            read: Box::new(|reading| read(reading).map(|settings| Box::new(settings) as _)),
        }
    }
}

/// What the sections of each world say, for the worlds with a section. `None` only if a problem was found.
pub(super) fn read<'d>(all: Vec<Sections<'d>>, reading: &Reading<'d>) -> Option<Vec<Box<dyn Settings>>> {
    // Absent sections are read too: only so are their keys and variables known.
    let read = |sections: Sections<'d>| (sections.is_any_present, (sections.read)(reading));
    let all: Vec<_> = all.into_iter().map(read).collect();
    let present = all.into_iter().filter(|(is_any_present, _)| *is_any_present);
    present.map(|(_, settings)| settings).collect()
}

/// Reports if there is nothing to do, or if `[source]` is missing or read by nothing. `present` are the worlds with a
/// section.
pub(super) fn check_fit(document: &Document<'_>, source: &Section<'_>, worlds: &[About], present: &[&About]) {
    let reads_source = present.iter().any(|about| !about.needs.is_empty());
    if present.is_empty() {
        let next = "`trueup init FOLDER` lists the worlds, and writes a configuration";
        document.wrong_on(None, format_args!("nothing to do: no section names any work; {next}"));
    } else if reads_source && !source.is_present {
        document.missing_on(None, "source", source::MISSING);
    } else if !reads_source && source.is_present {
        let readers = worlds.iter().filter(|about| !about.needs.is_empty());
        let adapters: Vec<_> = readers.map(|about| about.adapter).collect();
        let adapters = adapters.join(", or ");
        let text = format_args!("[source] needs an adapter that takes from it: add {adapters}");
        source.wrong(text);
    }
}

/// The kinds of objects that these worlds need, each with what the first of them makes from it.
pub(super) fn needed(present: &[&About]) -> Vec<(Kind, &'static str)> {
    let mut needed: Vec<(Kind, &'static str)> = Vec::new();
    for about in present {
        for kind in about.needs {
            if !needed.iter().any(|(known, _)| known == kind) {
                needed.push((*kind, about.made));
            }
        }
    }
    needed
}

/// Whether the hosts of a cluster elect one for these worlds. If none of them acts for a cluster, `[election]` is a
/// problem: the hosts of a cluster's nodes do not wait for each other, and none may hold the lease of the hosts that
/// act for the cluster.
pub(super) fn check_election(root: &Section<'_>, is_on: bool, worlds: &[About], present: &[&About]) -> bool {
    let is_elected = present.iter().any(|about| about.acts_for_cluster);
    if is_on && !is_elected && present.iter().any(|about| !about.needs.is_empty()) && root.has("election") {
        let acting = worlds.iter().filter(|about| about.acts_for_cluster);
        let subjects: Vec<_> = acting.map(|about| about.subject).collect();
        let subjects = subjects.join(" and ");
        let text = format_args!("is about {subjects}: a host acts for its node whatever other hosts run");
        root.wrong_key("election", text);
    }
    is_elected
}
