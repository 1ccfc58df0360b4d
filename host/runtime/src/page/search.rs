//! Searches recordings for a text: in all their content, and in how decisions ended.
//!
//! It reads the files from beginning to end, line by line, with or without an index. ASCII letters match in both cases.
//! If the reader disconnects, the search ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use trueup_base::regular;

use super::growth::LINE_BYTES_MAX;
use super::index::Outcome;

/// The maximum number of hits shown. The others are counted.
pub(super) const HITS_MAX: u64 = 500;

/// The characters of context shown before and after a hit.
const BEFORE_CHARS: usize = 48;
const AFTER_CHARS: usize = 96;

/// The search reports its progress after this many bytes.
const PROGRESS_BYTES: u64 = 16 << 20;

/// The output of a search, one line each.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Said {
    Hit(Hit),
    Progress {
        read: u64,
        size: u64,
        hits: u64,
    },
    Done {
        done: bool,
        hits: u64,
        decisions: u64,
        shown: u64,
    },
}

/// A line that contains the text.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Hit {
    /// The recording.
    r: String,
    /// The first entry of the decision.
    n: u64,
    /// The entry.
    entry: u64,
    before: String,
    hit: String,
    after: String,
}

/// A text to search for.
#[derive(Debug, Clone)]
pub(super) struct Needle {
    /// In lower case: the text itself, and as it appears in JSON.
    texts: Vec<String>,
    outcome: Option<Outcome>,
}

/// The state of a search.
#[derive(Debug)]
pub(super) struct Search<'t, T: FnMut(Said) -> bool> {
    needle: &'t Needle,
    tell: T,
    hits: u64,
    decisions: u64,
    read: u64,
    size: u64,
    told_at: u64,
}

impl Needle {
    /// `None` for a text that every line contains.
    pub(super) fn new(text: &str) -> Option<Self> {
        let plain = text.to_ascii_lowercase();
        if plain.trim().is_empty() {
            return None;
        }
        let written = serde_json::to_string(&plain).unwrap_or_default();
        // Removes the two quotes of JSON and keeps those of the text.
        let written = written.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let written = written.unwrap_or_default().to_owned();
        let outcomes = [
            Outcome::Ok,
            Outcome::Error,
            Outcome::Trap,
            Outcome::Deadline,
            Outcome::Memory,
            Outcome::Cancelled,
        ];
        let outcome = outcomes.into_iter().find(|outcome| outcome.word() == plain.trim());
        let mut texts = vec![plain];
        if texts.iter().all(|text| *text != written) && !written.is_empty() {
            texts.push(written);
        }
        Some(Self { texts, outcome })
    }

    /// The position in the line. `small` is the line in lower case.
    fn find(&self, small: &str) -> Option<(usize, usize)> {
        let found = self
            .texts
            .iter()
            .find_map(|text| small.find(text.as_str()).map(|at| (at, at + text.len())));
        found.or_else(|| {
            let ending = after_number(small)?;
            let is_it = match self.outcome? {
                Outcome::Ok => ending.starts_with("\"result\":") && !ending.starts_with("\"result\":{\"err\""),
                Outcome::Error => ending.starts_with("\"result\":{\"err\""),
                // Their lines already contain these words.
                _ => false,
            };
            let at = small.len() - ending.len();
            is_it.then(|| (at + 1, at + "\"result".len()))
        })
    }
}

impl<'t, T: FnMut(Said) -> bool> Search<'t, T> {
    /// Passes every hit to `tell`, which returns `false` to end the search.
    pub(super) fn new(needle: &'t Needle, size: u64, tell: T) -> Self {
        Self {
            needle,
            tell,
            hits: 0,
            decisions: 0,
            read: 0,
            size,
            told_at: 0,
        }
    }

    /// Searches the files of one recording. Returns whether to continue.
    pub(super) fn recording(&mut self, id: &str, files: &[PathBuf]) -> bool {
        // A file that is gone or unreadable has no hits. The list shows what is wrong with it.
        files.iter().all(|file| self.file(id, file).unwrap_or(true))
    }

    fn file(&mut self, id: &str, file: &Path) -> std::io::Result<bool> {
        let mut reader = BufReader::with_capacity(1 << 20, regular::open(file)?);
        let (mut line, mut small) = (Vec::new(), Vec::new());
        let mut decision = 0;
        let mut counted = None;
        loop {
            line.clear();
            let bytes = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? as u64;
            if bytes == 0 || line.pop() != Some(b'\n') {
                return Ok(true);
            }
            self.read += bytes;
            small.clear();
            small.extend(line.iter().map(u8::to_ascii_lowercase));
            let (Ok(text), Ok(small)) = (std::str::from_utf8(&line), std::str::from_utf8(&small)) else {
                return Ok(true);
            };
            let begins = after_number(text).is_some_and(|rest| rest.starts_with("\"at_ms\""));
            if begins || decision == 0 {
                decision = number(text).unwrap_or(decision);
            }
            if let Some(place) = self.needle.find(small) {
                self.hits += 1;
                if counted != Some(decision) {
                    counted = Some(decision);
                    self.decisions += 1;
                }
                if self.hits <= HITS_MAX && !(self.tell)(Said::Hit(Hit::new(id, decision, text, place))) {
                    return Ok(false);
                }
            }
            if self.read - self.told_at > PROGRESS_BYTES && !self.progress() {
                return Ok(false);
            }
        }
    }

    fn progress(&mut self) -> bool {
        self.told_at = self.read;
        let (read, size, hits) = (self.read, self.size, self.hits);
        (self.tell)(Said::Progress { read, size, hits })
    }

    /// Reports the result.
    pub(super) fn finish(mut self) {
        let _ = (self.tell)(Said::Done {
            done: true,
            hits: self.hits,
            decisions: self.decisions,
            shown: self.hits.min(HITS_MAX),
        });
    }
}

impl Hit {
    fn new(id: &str, decision: u64, line: &str, (from, to): (usize, usize)) -> Self {
        let before = line.get(..from).unwrap_or_default();
        let begin = before
            .char_indices()
            .rev()
            .nth(BEFORE_CHARS - 1)
            .map_or(0, |(at, _)| at);
        let after = line.get(to..).unwrap_or_default();
        let end = after.char_indices().nth(AFTER_CHARS).map_or(after.len(), |(at, _)| at);
        let cut = |text: &str, is_cut: bool, front: bool| match (is_cut, front) {
            (false, _) => text.to_owned(),
            (true, true) => format!("…{text}"),
            (true, false) => format!("{text}…"),
        };
        Self {
            r: id.to_owned(),
            n: decision,
            entry: number(line).unwrap_or(decision),
            before: cut(before.get(begin..).unwrap_or_default(), begin > 0, true),
            hit: line.get(from..to).unwrap_or_default().to_owned(),
            after: cut(after.get(..end).unwrap_or_default(), end < after.len(), false),
        }
    }
}

/// The number at the start of a line: each begins with `{"n":NUMBER,`.
fn number(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("{\"n\":")?;
    rest.get(..rest.find(',')?)?.parse().ok()
}

/// The text after the number.
fn after_number(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("{\"n\":")?;
    rest.get(rest.find(',')? + 1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"n":0,"header":{"format":1,"guest":"g"}}
{"n":1,"at_ms":5,"call":"a.b","args":{"name":"Web-1"}}
{"n":2,"ask":"api.get","args":{"text":"say \"hi\" to web-1"},"answer":1}
{"n":3,"result":{"Ok":1}}
{"n":4,"at_ms":6,"call":"a.b","args":{}}
{"n":5,"result":{"Err":"no"}}
{"n":6,"at_ms":7,"call":"a.b","args":{}}
{"n":7,"trap":"it broke"}
{"n":8,"at_ms"#;

    fn search(text: &str) -> Vec<Said> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("0.jsonl");
        std::fs::write(&file, LINES).unwrap();
        let needle = Needle::new(text).unwrap();
        let mut said = Vec::new();
        let mut search = Search::new(&needle, 0, |what| {
            said.push(what);
            true
        });
        assert!(search.recording("r", &[file]));
        search.finish();
        said
    }

    fn places(text: &str) -> Vec<(u64, u64)> {
        let place = |said: Said| match said {
            Said::Hit(hit) => Some((hit.n, hit.entry)),
            _ => None,
        };
        search(text).into_iter().filter_map(place).collect()
    }

    #[test]
    fn texts_names_and_outcomes_are_found() {
        assert_eq!(places("web-1"), [(1, 1), (1, 2)]);
        assert_eq!(places("API.GET"), [(1, 2)]);
        assert_eq!(places("say \"hi\""), [(1, 2)], "as it reads, not as it is written");
        assert_eq!(places("hi\""), [(1, 2)]);
        assert_eq!(places("to\""), [], "a quote of the text belongs to it");
        assert_eq!(places("error"), [(4, 5)]);
        assert_eq!(places("ok"), [(1, 3), (6, 7)], "in `broke`, too");
        assert_eq!(places("trap"), [(6, 7)]);
        assert_eq!(places("nowhere"), []);
        assert!(Needle::new("  ").is_none());
    }

    #[test]
    fn hits_are_counted_and_shown_with_what_is_around_them() {
        let said = search("web-1");
        let Some(Said::Hit(hit)) = said.first() else {
            panic!("{said:?}");
        };
        assert_eq!((hit.before.ends_with("\"name\":\""), hit.hit.as_str()), (true, "Web-1"));
        assert_eq!(
            said.last(),
            Some(&Said::Done {
                done: true,
                hits: 2,
                decisions: 1,
                shown: 2
            })
        );
    }

    #[test]
    fn context_is_cut_between_characters() {
        let line = format!("{{\"n\":1,\"x\":\"{}needle{}\"}}", "ä".repeat(100), "ö".repeat(200));
        let at = line.find("needle").unwrap();
        let hit = Hit::new("r", 1, &line, (at, at + 6));
        assert_eq!((hit.before.chars().count(), hit.after.chars().count()), (49, 97));
        assert!(hit.before.starts_with('…') && hit.after.ends_with('…'));
    }
}
