//! Taggings in flight: which overlap, and which of those are lost.
//!
//! Pure: nothing is awaited.

use std::collections::BTreeMap;

/// The taggings in flight.
#[derive(Default)]
pub(super) struct Taggings {
    /// By number.
    in_flight: BTreeMap<u64, Tagging>,
    begun: u64,
}

struct Tagging {
    resource: String,
    is_lost: bool,
}

impl Taggings {
    /// Notes a tagging until [`Self::end`]. Returns its number, and whether it is lost: the first of those that overlap
    /// is not.
    pub(super) fn begin(&mut self, resource: &str, lose_overlapping: bool) -> (u64, bool) {
        let number = self.begun;
        self.begun += 1;
        let mut others = self.in_flight.values().filter(|other| other.resource != resource);
        let is_lost = lose_overlapping && others.any(|other| !other.is_lost);
        let resource = resource.to_owned();
        self.in_flight.insert(number, Tagging { resource, is_lost });
        (number, is_lost)
    }

    pub(super) fn end(&mut self, number: u64) {
        self.in_flight.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_taggings_that_overlap_the_first_one_stays() {
        let mut taggings = Taggings::default();
        let (first, first_lost) = taggings.begin("a", true);
        let (_, second_lost) = taggings.begin("b", true);
        let (_, same_resource_lost) = taggings.begin("a", true);
        assert_eq!((first_lost, second_lost, same_resource_lost), (false, true, false));
        taggings.end(first);

        let mut taggings = Taggings::default();
        let (first, _) = taggings.begin("a", true);
        taggings.end(first);
        assert!(!taggings.begin("b", true).1, "they do not overlap");
        assert!(!taggings.begin("c", false).1, "losing is switched off");
    }
}
