//! Finds repeated lines.

use std::collections::BTreeMap;

use crate::source::{Line, Source};

/// The number of lines in a row that make a repeat.
const RUN: usize = 6;
/// Runs with fewer words, three for each line, are alike by chance: braces, a call, a field.
const WORDS_MIN: usize = 3 * RUN;
/// A run in more places than this is a habit of the language, not a copy.
const PLACES_MAX: usize = 8;

/// Two places with the same lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) first: String,
    pub(crate) second: String,
    /// Lines of code in the run.
    pub(crate) length: usize,
}

/// A line to compare.
#[derive(Default, Clone, Copy)]
struct Place {
    /// The number of the line's contents: 0 is the end of a file, and equals nothing.
    said: usize,
    words: usize,
    file: usize,
    line: usize,
}

/// The pairs of files that share a run, each with its longest one, longest first. `said` picks the compared contents of
/// a line. A line without any does not count and does not end a run.
pub(crate) fn repeats<'a>(sources: impl Iterator<Item = &'a Source>, said: impl Fn(&Line) -> &str) -> Vec<Repeat> {
    let sources: Vec<_> = sources.collect();
    let places = places(&sources, said);
    let mut runs: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (at, run) in places.windows(RUN).enumerate() {
        let is_in_one_file = run.iter().all(|place| place.said > 0);
        if is_in_one_file && run.iter().map(|place| place.words).sum::<usize>() >= WORDS_MIN {
            runs.entry(run.iter().map(|place| place.said).collect())
                .or_default()
                .push(at);
        }
    }
    let mut longest: BTreeMap<(usize, usize), (usize, Place, Place)> = BTreeMap::new();
    for found in runs.values().filter(|found| found.len() <= PLACES_MAX) {
        for (nth, first) in found.iter().enumerate() {
            for second in found.iter().skip(nth + 1) {
                let length = shared(&places, *first, *second);
                let (Some(from), Some(to)) = (places.get(*first), places.get(*second)) else {
                    continue;
                };
                let best = longest.entry((from.file, to.file)).or_default();
                if length >= RUN && length > best.0 {
                    *best = (length, *from, *to);
                }
            }
        }
    }
    let at = |place: Place| Some(format!("{}:{}", sources.get(place.file)?.path, place.line + 1));
    let found = longest.into_values().filter(|(length, ..)| *length > 0);
    let mut repeats: Vec<_> = found
        .filter_map(|(length, from, to)| {
            let (first, second) = (at(from)?, at(to)?);
            Some(Repeat { first, second, length })
        })
        .collect();
    repeats.sort_by(|a, b| b.length.cmp(&a.length).then_with(|| a.first.cmp(&b.first)));
    repeats
}

/// Every line with contents, followed by the end of the file.
fn places(sources: &[&Source], said: impl Fn(&Line) -> &str) -> Vec<Place> {
    let mut numbers = BTreeMap::new();
    let mut places = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        for (at, line) in source.lines.iter().enumerate() {
            let text = said(line);
            if !text.is_empty() {
                let next = numbers.len() + 1;
                places.push(Place {
                    said: *numbers.entry(text.to_owned()).or_insert(next),
                    words: line.words,
                    file,
                    line: at,
                });
            }
        }
        places.push(Place::default());
    }
    places
}

/// How many lines are the same from both places on. A run does not reach into its own repeat.
fn shared(places: &[Place], first: usize, second: usize) -> usize {
    let same = places.iter().skip(first).zip(places.iter().skip(second));
    same.take(second - first)
        .take_while(|(a, b)| a.said == b.said && a.said > 0)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, lines: &[&str]) -> Source {
        Source::read(path.to_owned(), &lines.join("\n"), false)
    }

    #[test]
    fn six_lines_that_stand_again_are_a_repeat() {
        let run = ["a(1, x);", "b(2, x);", "c(3, x);", "d(4, x);", "e(5, x);", "f(6, x);"];
        let one = [&run[..2], &["", "// Not counted."], &run[2..]].concat();
        let two = [&["x();"], &run[..], &["y();"]].concat();
        let sources = [source("one", &one), source("two", &two)];
        let found = repeats(sources.iter(), |line| &line.exact);
        let expected = Repeat {
            first: "one:1".to_owned(),
            second: "two:2".to_owned(),
            length: 6,
        };
        assert_eq!(found, [expected]);
        let sources = [source("one", &one), source("two", &two[2..])];
        assert_eq!(repeats(sources.iter(), |line| &line.exact), []);
    }

    #[test]
    fn other_names_and_numbers_are_the_same_shape() {
        let lines = [
            "a(1, x);",
            "b(2, x);",
            "c(3, x);",
            "d(4, x);",
            "e(5, x);",
            "let f = g(\"6\");",
        ];
        let other = [
            "h(7, y);",
            "i(8, y);",
            "j(9, y);",
            "k(0, y);",
            "l(1, y);",
            "let m = n(\"o\");",
        ];
        let sources = [source("one", &lines), source("two", &other)];
        assert_eq!(repeats(sources.iter(), |line| &line.exact), []);
        assert_eq!(repeats(sources.iter(), |line| &line.shape).len(), 1);
    }

    #[test]
    fn lines_with_few_words_are_alike_by_chance() {
        let lines = ["a(", "b,", "c,", "d,", "e,", "f)", "g;"];
        let sources = [source("one", &lines), source("two", &lines)];
        assert_eq!(repeats(sources.iter(), |line| &line.exact), []);
    }

    #[test]
    fn a_run_does_not_overlap_itself() {
        let sources = [source("one", &["a(1, b);"; 11])];
        assert_eq!(repeats(sources.iter(), |line| &line.exact), []);
    }
}
