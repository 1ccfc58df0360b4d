//! Why there is nothing to explain: what an operator asked for that no decision is about.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::anyhow;

use super::calls::Recordings;
use super::explain::known;
use super::record::Record;

/// How many known keys are suggested for an unknown one.
const OFFERED_MAX: usize = 3;

/// The minimum similarity of a suggested key.
const LIKENESS_MIN: f64 = 0.5;

/// Which guest to name.
pub(super) fn choice<'g>(guests: impl IntoIterator<Item = &'g String>) -> String {
    let guests: Vec<&str> = guests.into_iter().map(String::as_str).collect();
    if guests.is_empty() {
        return "no decision of any guest is kept here".to_owned();
    }
    format!("name a guest with --guest, of {}", guests.join(", "))
}

/// Why there is nothing to explain about a key.
pub(super) fn nothing(state_dir: &Path, guest: &str, key: &str, recordings: &Recordings) -> anyhow::Error {
    let known = match known(state_dir, guest) {
        Ok(known) => known,
        Err(error) => return error.into(),
    };
    if known.contains(key) {
        let recording = recordings.folder();
        let recording = recording.map(|folder| format!("; its recording is in {}", folder.display()));
        let recording = recording.unwrap_or_default();
        return anyhow!("no decision about `{key}` of guest `{guest}` is kept{recording}");
    }
    let offered = match known.is_empty() {
        true => "; no decision of this guest is kept at all".to_owned(),
        false => offered(key, &known),
    };
    anyhow!("nothing is known of `{key}` of guest `{guest}`{offered}")
}

/// `; did you mean `default/web`?`, or how many keys are known.
pub(super) fn offered(key: &str, known: &BTreeSet<String>) -> String {
    let nearest = nearest(key, known);
    match (nearest.is_empty(), known.len()) {
        (false, _) => format!("; did you mean {}?", nearest.join(", ")),
        (true, 0) => String::new(),
        (true, 1) => "; 1 other key is known".to_owned(),
        (true, count) => format!("; {count} other keys are known"),
    }
}

/// The most similar keys, nearest first, in backticks. A name without its namespace counts as much as the full key.
pub fn nearest<'k>(wanted: &str, known: impl IntoIterator<Item = &'k String>) -> Vec<String> {
    let likeness = |key: &String| {
        let name = key.split_once('/').map_or(key.as_str(), |(_, name)| name);
        let alike = |text: &str| strsim::normalized_damerau_levenshtein(wanted, text);
        alike(key).max(alike(name))
    };
    let mut all: Vec<(f64, &String)> = known.into_iter().map(|key| (likeness(key), key)).collect();
    all.retain(|(likeness, _)| *likeness >= LIKENESS_MIN);
    all.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
    all.into_iter()
        .take(OFFERED_MAX)
        .map(|(_, key)| format!("`{key}`"))
        .collect()
}

/// The decision is not kept, or no longer.
pub(super) fn no_such(key: &str, wanted: u64, records: &[Record]) -> anyhow::Error {
    let mut numbers = records
        .iter()
        .flat_map(|record| record.decisions.iter().filter_map(|made| made.n));
    let first = numbers.next();
    let kept = match (first, numbers.last().or(first)) {
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => "none".to_owned(),
    };
    anyhow!("decision {wanted} of `{key}` is not kept; kept are {kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_keys_are_offered_and_a_name_alone_is_enough() {
        let known = ["default/api", "default/web", "kube-system/dns"].map(str::to_owned);
        assert_eq!(nearest("default/wbe", &known)[0], "`default/web`");
        assert_eq!(nearest("dns", &known), ["`kube-system/dns`"]);
        assert_eq!(nearest("zzzzzzzzzzzzzzzzzzzz", &known), Vec::<String>::new());
    }
}
