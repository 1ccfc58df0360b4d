//! A world of keys that keeps everything in backends which worlds share, such as etcd: its sections are
//! `[adapter.NAME]` and `[guests.NAME]` alone, and serde reads the first.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use trueup_sources::Kind;

use super::guest::Guest;
use super::keyed::{Backend, Keyed, SimServer, say_what_is_missing};
use super::world::{About, Sections, Tables, World};

/// Such a world. It acts for a whole cluster, so the hosts of a cluster elect one.
pub struct PlainWorld<A> {
    /// `NAME`: what the operator calls it, its guest and its adapter.
    pub name: &'static str,
    /// What it makes from the objects of `[source]`, in the plural: `etcd keys of Services`.
    pub subject: &'static str,
    /// Its adapter's section as an operator may write it: `` `[adapter.NAME]` with `cluster = "c1"` ``.
    pub adapter: &'static str,
    /// Its guest's section, in the same way.
    pub guest: &'static str,
    /// The kinds of objects of `[source]` that it needs.
    pub needs: &'static [Kind],
    /// Its adapter.
    pub of: PhantomData<fn() -> A>,
}

/// What the sections of such a world say. `A` are the keys of `[adapter.NAME]`. Only the file sets them: variables do
/// not.
pub type Plain<A> = Keyed<A, Shared, SimServer<(), ()>>;

/// The backends that worlds share.
#[derive(Debug, Clone, Copy)]
pub struct Shared;

impl Backend for Shared {
    const SIM: &'static str = "";

    fn is_simulated(&self) -> bool {
        false
    }

    fn use_sim(&mut self, _address: SocketAddr) {}
}

impl<A> World for PlainWorld<A>
where
    A: DeserializeOwned + Debug + Clone + Send + Sync + 'static,
{
    fn about(&self) -> About {
        About {
            name: self.name,
            subject: self.subject,
            made: self.subject,
            needs: self.needs,
            acts_for_cluster: true,
            guests: vec![self.name],
            adapter: self.adapter,
        }
    }

    fn sections<'d>(&'static self, tables: &mut Tables<'d>) -> Sections<'d> {
        let guest = tables.guests.section(self.name);
        let adapter = tables.adapters.section(self.name);
        let others = [(&guest, Some(("guest that decides", self.guest)))];
        let is_any_present = say_what_is_missing(&adapter, self.adapter, &others);
        Sections::new(is_any_present, move |reading| {
            let (guest, adapter) = (Guest::read(guest), adapter.typed());
            Some(Plain::<A> {
                name: self.name,
                source: reading.source.clone()?,
                guest: guest?,
                adapter: adapter?,
                backend: Shared,
                sim: None,
            })
        })
    }
}
