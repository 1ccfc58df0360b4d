//! Why there is nothing to explain: what an operator asked for that no decision is about.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::calls::Recordings;
use super::explain::known;
use super::record::Record;

/// How many known keys are suggested for an unknown one.
const OFFERED_MAX: usize = 3;

/// The minimum similarity of a suggested key.
const LIKENESS_MIN: f64 = 0.5;

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// There is no such folder.
    #[error("no state folder at {folder}: give it with --state-dir, or the host's configuration with --config", folder = .0.display())]
    NoState(PathBuf),
    /// No decision about this key was ever made.
    #[error("nothing is known of `{key}` of guest `{guest}`{offered}")]
    Unknown {
        /// The guest.
        guest: String,
        /// The key.
        key: String,
        /// `; did you mean ...?`, or the known keys.
        offered: String,
    },
    /// No guest has decided about it.
    #[error("nothing is known of `{key}`{offered}; {choice}", choice = choice(guests))]
    NoGuest {
        /// The key.
        key: String,
        /// `; did you mean ...?`, or how many keys are known.
        offered: String,
        /// The guests with any data.
        guests: Vec<String>,
    },
    /// Several guests have decided about a key with that name.
    #[error("several guests have decided about `{key}`; {choice}", choice = choice(guests))]
    Several {
        /// The key.
        key: String,
        /// The guests.
        guests: Vec<String>,
    },
    /// The key is known, but no decision about it is kept.
    #[error("no decision about `{key}` of guest `{guest}` is kept{recording}")]
    NoDecisions {
        /// The guest.
        guest: String,
        /// The key.
        key: String,
        /// The location of its recording, if there is one.
        recording: String,
    },
    /// The decision is not kept, or no longer.
    #[error("decision {wanted} of `{key}` is not kept; kept are {kept}")]
    NoSuchDecision {
        /// The key.
        key: String,
        /// The number.
        wanted: u64,
        /// The range of decisions that are kept.
        kept: String,
    },
    /// The folder cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn choice(guests: &[String]) -> String {
    if guests.is_empty() {
        return "no decision of any guest is kept here".to_owned();
    }
    format!("name a guest with --guest, of {}", guests.join(", "))
}

/// Why there is nothing to explain about a key.
pub(super) fn nothing(state_dir: &Path, guest: &str, key: &str, recordings: &Recordings) -> io::Result<ExplainError> {
    let known = known(state_dir, guest)?;
    let (guest, key) = (guest.to_owned(), key.to_owned());
    if known.contains(&key) {
        let recording = recordings.folder();
        let recording = recording.map(|folder| format!("; its recording is in {}", folder.display()));
        return Ok(ExplainError::NoDecisions {
            guest,
            key,
            recording: recording.unwrap_or_default(),
        });
    }
    let offered = match known.is_empty() {
        true => "; no decision of this guest is kept at all".to_owned(),
        false => offered(&key, &known.into_iter().collect()),
    };
    Ok(ExplainError::Unknown { guest, key, offered })
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

pub(super) fn no_such(key: &str, wanted: u64, records: &[Record]) -> ExplainError {
    let mut numbers = records
        .iter()
        .flat_map(|record| record.decisions.iter().filter_map(|made| made.n));
    let first = numbers.next();
    let kept = match (first, numbers.last().or(first)) {
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => "none".to_owned(),
    };
    ExplainError::NoSuchDecision {
        key: key.to_owned(),
        wanted,
        kept,
    }
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
