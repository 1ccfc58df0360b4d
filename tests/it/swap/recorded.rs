//! The contents of a site's journals: which guest was called when, and what it created.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use support::{Site, trueup};

/// One segment of a journal.
pub(crate) struct Recorded {
    pub(crate) file: PathBuf,
    /// The digest of the guest that made it.
    pub(crate) digest: String,
    pub(crate) calls: Vec<Called>,
    /// The number of objects that it asked to create.
    pub(crate) created: usize,
}

/// One call of a guest.
pub(crate) struct Called {
    pub(crate) at_ms: u64,
    pub(crate) name: String,
    /// The number of ports in the wish.
    pub(crate) ports: usize,
}

/// Every segment of the guest `lbaas`.
pub(crate) fn all(site: &Site) -> Vec<Recorded> {
    let of_lbaas = site.state_dir().join("journals").join("lbaas");
    let files = site.journals().into_iter().filter(|file| file.starts_with(&of_lbaas));
    files.map(read).collect()
}

fn read(file: PathBuf) -> Recorded {
    let text = fs::read_to_string(&file).unwrap();
    // A running host may be in the middle of the last line.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut recorded = Recorded {
        file,
        digest: String::new(),
        calls: Vec::new(),
        created: 0,
    };
    for line in whole.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(header) = line.get("header") {
            header["digest"].as_str().unwrap().clone_into(&mut recorded.digest);
        } else if let Some(name) = line.get("call") {
            recorded.calls.push(Called {
                at_ms: line["at_ms"].as_u64().unwrap(),
                name: name.as_str().unwrap().to_owned(),
                ports: line["args"]["desired"]["ports"].as_array().unwrap().len(),
            });
        } else if line.get("ask").is_some_and(|ask| ask == "api.create") {
            recorded.created += line["args"]["specs"].as_array().unwrap().len();
        }
    }
    recorded
}

/// Every call, of any version.
pub(crate) fn calls(site: &Site) -> Vec<Called> {
    all(site).into_iter().flat_map(|recorded| recorded.calls).collect()
}

/// Replays every segment with the guest that made it; guests that are not built in are in `files`, by digest. Returns
/// the number of segments.
#[track_caller]
pub(crate) fn replays(recorded: &[Recorded], files: &BTreeMap<String, String>) -> usize {
    let mut by_guest: BTreeMap<Option<&String>, Vec<&str>> = BTreeMap::new();
    for segment in recorded {
        let guest = files.get(&segment.digest);
        by_guest.entry(guest).or_default().push(segment.file.to_str().unwrap());
    }
    let mut identical = 0;
    for (guest, segments) in by_guest {
        let guest = guest.map_or(Vec::new(), |guest| vec!["--guest", guest]);
        let ran = trueup([&["replay"], &guest[..], &segments].concat()).exits(0);
        assert_eq!(ran.said("recorded by another guest"), Vec::<&str>::new(), "{ran}");
        identical += ran.stdout.lines().filter(|line| line.contains(": identical")).count();
    }
    identical
}
