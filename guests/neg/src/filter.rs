//! The decision of the dual-stack migrator: which endpoints wait, and which start to migrate now.
//!
//! Pure: the same sets and facts give the same answer. Knows neither timers nor operations; `migrator` keeps the facts,
//! `syncer` acts.
//!
//! ```text
//! add, remove -> migration endpoints taken out -> congestion? -> largest location -> first few put back into remove
//! ```

use crate::bindings::exports::trueup::neg::migrator::Filtered;
use crate::bindings::trueup::neg::types::{EndpointGroup, Location};
use crate::entry::{self, Groups, Mark, Set, View};
use crate::settings::Settings;

/// Subtracted from a product before rounding up: 0.07 of 100 is 7, though the product in binary is slightly above it.
const ROUNDING: f64 = 0.000_000_001;

/// The endpoints that are desired and already exist, by their stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// All, including those without any address.
    pub all: usize,
    /// Those with only `ip`.
    pub ipv4: usize,
    /// Those with only `ipv6`.
    pub ipv6: usize,
    /// Those with both.
    pub dual: usize,
}

impl Committed {
    /// Counts one more.
    pub fn count(&mut self, view: View<'_>) {
        self.all = self.all.saturating_add(1);
        let stack = match (view.has_ip(), view.has_ipv6()) {
            (true, true) => &mut self.dual,
            (true, false) => &mut self.ipv4,
            (false, true) => &mut self.ipv6,
            (false, false) => return,
        };
        *stack = stack.saturating_add(1);
    }

    /// Counts sets in the input form of `filter`.
    pub fn of(groups: Vec<EndpointGroup>) -> Self {
        Self::of_ascending(&groups).unwrap_or_else(|| {
            let mut committed = Self::default();
            for entry in entry::united(groups).values().flatten() {
                committed.count(entry.view());
            }
            committed
        })
    }

    /// Counts sorted input, which a caller's sets mostly are: without duplicates, and without storing anything. `None`
    /// if the input is not sorted.
    fn of_ascending(groups: &[EndpointGroup]) -> Option<Self> {
        if !groups.is_sorted_by(|left, right| left.location < right.location) {
            return None;
        }
        let mut committed = Self::default();
        for group in groups {
            let mut latest = None;
            for view in group.endpoints.iter().map(View::of) {
                if latest.is_some_and(|latest| latest >= view) {
                    return None;
                }
                committed.count(view);
                latest = Some(view);
            }
        }
        Some(committed)
    }
}

/// The decision.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Without migration endpoints.
    pub add: Groups,
    /// Without migration endpoints except those whose migration starts now, which have the mark [`Mark::PutBack`].
    pub remove: Groups,
    /// The location of a detachment that starts now.
    pub detaching: Option<Location>,
    /// How many were taken out of `remove`.
    pub migrating: usize,
    /// How many of them were put back.
    pub put_back: usize,
}

impl Decision {
    /// The contract's form.
    pub fn answer(self) -> Filtered {
        Filtered {
            add: entry::answered(self.add),
            remove: entry::answered(self.remove),
            detaching: self.detaching,
            // A 32-bit memory can't hold more than u32::MAX endpoints.
            migrating: u32::try_from(self.migrating).unwrap_or(u32::MAX),
        }
    }
}

/// Decides over sorted sets. `is_paused`: a detachment is under way, or the wait after it. `is_troubled`: the previous
/// detachment ended less than the threshold ago, or the caller set the error state.
pub fn decide(
    settings: &Settings,
    (is_paused, is_troubled): (bool, bool),
    mut add: Groups,
    mut remove: Groups,
    committed: Committed,
) -> Decision {
    // All migration endpoints of both sides are marked, based on the sets as given.
    for (location, add) in &mut add {
        if let Some(remove) = remove.get_mut(location) {
            mark_with_twins(add, remove);
            mark_with_twins(remove, add);
        }
    }
    let migrating = remove.values().map(taken_out).sum();
    drop_taken_out(&mut add);
    let n = committed.all.saturating_add(migrating);
    let pending_most = share(settings.fraction_for_pending_attachment_threshold, n);
    let pending: usize = add.values().map(Vec::len).sum();
    let is_congested = pending >= pending_most && is_troubled;
    let mut detaching = None;
    let mut put_back = 0;
    if migrating > 0 && !is_paused && !is_congested {
        (detaching, put_back) = choose(&mut remove, share(settings.fraction_of_migrating_endpoints, n));
    }
    drop_taken_out(&mut remove);
    Decision {
        add,
        remove,
        detaching,
        migrating,
        put_back,
    }
}

/// Marks the dual-stack endpoints of one side with a twin on the other, and those twins.
fn mark_with_twins(side: &mut Set, opposite: &mut Set) {
    // The twins without `ipv6` ascend, and so do those without `ip`.
    let mut latest = [0, 0];
    for entry in side {
        let mut is_migrating = false;
        for (twin, latest) in entry.view().twins().into_iter().flatten().zip(&mut latest) {
            let found = entry::find_near(opposite, latest, twin);
            if let Some(found) = found.and_then(|index| opposite.get_mut(index)) {
                found.mark = Mark::TakenOut;
                is_migrating = true;
            }
        }
        if is_migrating {
            entry.mark = Mark::TakenOut;
        }
    }
}

fn taken_out(set: &Set) -> usize {
    set.iter().filter(|entry| entry.mark == Mark::TakenOut).count()
}

/// Puts back the first few of the location with the most, but at least one; returns the location and the number.
fn choose(remove: &mut Groups, few: usize) -> (Option<Location>, usize) {
    let mut largest = None;
    for (location, set) in remove {
        let count = taken_out(set);
        // Of equal ones the first stays.
        if count > largest.as_ref().map_or(0, |&(most, _, _)| most) {
            largest = Some((count, location, set));
        }
    }
    let Some((count, location, set)) = largest else {
        return (None, 0);
    };
    let few = few.clamp(1, count);
    let first = set.iter_mut().filter(|entry| entry.mark == Mark::TakenOut).take(few);
    first.for_each(|entry| entry.mark = Mark::PutBack);
    (Some(location.clone()), few)
}

fn drop_taken_out(groups: &mut Groups) {
    for set in groups.values_mut() {
        set.retain(|entry| entry.mark != Mark::TakenOut);
    }
}

/// This fraction of `n`, rounded up from the fraction's decimal meaning. Numbers of endpoints are far below 2^52, and
/// what is too large saturates.
fn share(fraction: f64, n: usize) -> usize {
    (fraction * n as f64 - ROUNDING).ceil().max(0.0) as usize
}
