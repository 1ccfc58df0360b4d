//! The figures: what each counts, and its places.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Crate, Edges, knots};
use crate::repeats::repeats;
use crate::source::{Function, Source};
use crate::workspace::{Workspace, room};

/// A number that must not rise.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: usize,
    /// The places that count, worst first, each with its room.
    pub(crate) places: Vec<Place>,
}

/// One counted place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) room: String,
    /// The location and what was found.
    pub(crate) text: String,
    /// Its share of the figure.
    pub(crate) count: usize,
}

const FILE_LINES_MAX: usize = 600;
const COMMENT_WIDTH_MAX: usize = 120;
const TEST_NAME_MAX: usize = 70;

impl Figure {
    /// A figure that is the sum of its places.
    fn sum(name: &'static str, places: Vec<Place>) -> Self {
        let value = places.iter().map(|place| place.count).sum();
        Self { name, value, places }
    }
}

impl Place {
    /// At a line, counted from 0.
    fn at(path: &str, line: usize, what: &str, count: usize) -> Self {
        let text = format!("{path}:{} {what}", line + 1);
        Self::new(path, text.trim_end().to_owned(), count)
    }

    fn new(path: &str, text: String, count: usize) -> Self {
        let room = room(path).to_owned();
        Self { room, text, count }
    }
}

/// Every figure, in display order.
pub(crate) fn figures(workspace: &Workspace) -> Vec<Figure> {
    let product: Vec<_> = workspace.product().collect();
    let mut figures = Vec::from(lines(&product));
    figures.extend(imports(&product));
    figures.push(functions("functions over 60 lines", &product, 60));
    figures.push(functions("functions over 100 lines", &product, 100));
    figures.push(long_files(&product));
    figures.push(worlds_named(&product, &workspace.worlds));
    figures.extend(repeated(workspace, &product));
    figures.push(words(workspace));
    figures.push(wide_comments(workspace));
    figures.push(long_test_names(workspace));
    figures.extend(crates(workspace));
    figures
}

fn lines(product: &[&Source]) -> [Figure; 2] {
    let mut rooms = BTreeMap::<&str, usize>::new();
    for source in product {
        *rooms.entry(room(&source.path)).or_default() += source.code_lines();
    }
    let mut rooms: Vec<_> = rooms.into_iter().collect();
    rooms.sort_by_key(|(room, count)| (std::cmp::Reverse(*count), *room));
    let total: usize = rooms.iter().map(|(_, count)| count).sum();
    let percent = |count: usize| (count * 100).div_ceil(total.max(1));
    let place = |(room, count): &(&str, usize)| Place {
        room: (*room).to_owned(),
        text: format!("{room} {count} lines, {} %", percent(*count)),
        count: *count,
    };
    let largest = rooms.first().map_or(0, |(_, count)| percent(*count));
    [
        Figure::sum("code lines", rooms.iter().map(place).collect()),
        Figure {
            name: "largest crate in percent",
            value: largest,
            places: rooms
                .iter()
                .take(1)
                .map(|room| Place {
                    count: largest,
                    ..place(room)
                })
                .collect(),
        },
    ]
}

/// The module path of a file below a crate's `src/`.
fn module(path: &str) -> Option<Vec<&str>> {
    let inside = path
        .strip_prefix(room(path))?
        .strip_prefix("/src/")?
        .strip_suffix(".rs")?;
    let mut module: Vec<_> = inside.split('/').collect();
    if module.last().is_some_and(|last| *last == "mod") || ["lib", "main"].contains(&inside) {
        module.pop();
    }
    Some(module)
}

/// Imports between files and folders: the largest knot of files, and the folders in a cycle.
fn imports(product: &[&Source]) -> [Figure; 2] {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    for source in product {
        if let Some(module) = module(&source.path) {
            let files = &mut crates.entry(room(&source.path)).or_default().files;
            files.insert(module, source);
        }
    }
    let (mut files, mut folders) = (Edges::new(), Edges::new());
    for (name, of_crate) in &crates {
        for (from, source) in &of_crate.files {
            // A module does not depend on what it only re-exports.
            let needed = source.uses.iter();
            for target in needed.filter_map(|used| of_crate.target(from, used)) {
                files
                    .entry(source.path.clone())
                    .or_default()
                    .insert(target.path.clone());
                let to = module(&target.path).unwrap_or_default();
                if let Some((from, to)) = siblings(name, of_crate, from, &to) {
                    folders.entry(from).or_default().insert(to);
                }
            }
        }
    }
    let largest = knots(&files).into_iter().next().unwrap_or_default();
    let place = |path: String| Place::new(&path.clone(), path, 1);
    [
        Figure::sum("largest import knot", largest.into_iter().map(place).collect()),
        Figure::sum(
            "folders in cycles",
            knots(&folders).into_iter().flatten().map(place).collect(),
        ),
    ]
}

/// The sibling folders that contain `from` and `to`; `None` if one contains the other, or if one is a single file.
fn siblings(name: &str, of_crate: &Crate<'_>, from: &[&str], to: &[&str]) -> Option<(String, String)> {
    let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let (from, to) = (from.get(..=same)?, to.get(..=same)?);
    let is_folder = |folder: &[&str]| {
        of_crate
            .files
            .keys()
            .any(|module| module.len() > folder.len() && module.starts_with(folder))
    };
    let path = |folder: &[&str]| format!("{name}/src/{}", folder.join("/"));
    (is_folder(from) && is_folder(to)).then(|| (path(from), path(to)))
}

fn functions(name: &'static str, product: &[&Source], lines_max: usize) -> Figure {
    let long = |function: &&Function| !function.is_test && function.lines.len() > lines_max;
    let all = product.iter().flat_map(|source| {
        source
            .functions
            .iter()
            .filter(long)
            .map(move |function| (source, function))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, function)| std::cmp::Reverse(function.lines.len()));
    let place = |(source, function): &(&&Source, &Function)| {
        let what = format!("{}: {} lines", function.name, function.lines.len());
        Place::at(&source.path, function.lines.start, &what, 1)
    };
    Figure::sum(name, all.iter().map(place).collect())
}

fn long_files(product: &[&Source]) -> Figure {
    let mut long: Vec<_> = product
        .iter()
        .filter(|source| source.lines.len() > FILE_LINES_MAX)
        .collect();
    long.sort_by_key(|source| std::cmp::Reverse(source.lines.len()));
    let place = |source: &&&Source| {
        Place::new(
            &source.path,
            format!("{}: {} lines", source.path, source.lines.len()),
            1,
        )
    };
    Figure::sum("files over 600 lines", long.iter().map(place).collect())
}

/// Files that mention a world's name, although neither they nor their folders are called by it.
fn worlds_named(product: &[&Source], worlds: &BTreeSet<String>) -> Figure {
    let mut places = Vec::new();
    // The simulators name what their APIs name, and know no guest.
    for source in product.iter().filter(|source| !source.path.starts_with("sims/")) {
        let own: BTreeSet<_> = parts(&source.path).collect();
        let named = source.words.iter().find_map(|(word, line)| {
            let world = parts(word).find(|part| worlds.contains(part) && !own.contains(part))?;
            Some(Place::at(&source.path, *line, &world, 1))
        });
        places.extend(named);
    }
    Figure::sum("files that name a world", places)
}

/// The words in a name or text, in lower case: `NegSettings` and `neg_settings` hold `neg` and `settings`.
fn parts(text: &str) -> impl Iterator<Item = String> {
    let mut found = vec![String::new()];
    let mut before = ' ';
    for c in text.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && !before.is_uppercase()) {
            found.push(String::new());
        }
        if let Some(last) = found.last_mut().filter(|_| c.is_alphanumeric()) {
            last.extend(c.to_lowercase());
        }
        before = c;
    }
    found.into_iter().filter(|part| !part.is_empty())
}

fn repeated(workspace: &Workspace, product: &[&Source]) -> [Figure; 2] {
    let all = repeats(workspace.rust.iter(), |line| &line.shape);
    let of_host = product
        .iter()
        .filter(|source| source.path.starts_with("host/"))
        .copied();
    let longest = repeats(of_host, |line| if line.is_test { "" } else { &line.exact });
    let place = |repeat: &crate::repeats::Repeat| {
        let text = format!("{} ~ {}: {} lines", repeat.first, repeat.second, repeat.length);
        Place::new(&repeat.first, text, 1)
    };
    [
        Figure::sum("pairs of files that repeat six lines", all.iter().map(place).collect()),
        Figure {
            name: "longest repeat in host",
            value: longest.first().map_or(0, |repeat| repeat.length),
            places: longest.iter().take(1).map(place).collect(),
        },
    ]
}

/// Words that hide the actor, in the code and comments of the product, including tests.
fn words(workspace: &Workspace) -> Figure {
    const WORDS: [&str; 2] = ["nobody", "whoever"];
    let mut places = Vec::new();
    let sources = workspace.rust.iter();
    let folders = ["host/", "guests/", "sims/"];
    for source in sources.filter(|source| folders.iter().any(|folder| source.path.starts_with(folder))) {
        for (at, line) in source.text.lines().enumerate() {
            let words = line
                .split(|c: char| c != '_' && !c.is_alphanumeric())
                .map(str::to_lowercase);
            let count = words.filter(|word| WORDS.contains(&word.as_str())).count();
            if count > 0 {
                places.push(Place::at(&source.path, at, "", count));
            }
        }
    }
    Figure::sum("uses of `nobody` and `whoever`", places)
}

fn wide_comments(workspace: &Workspace) -> Figure {
    let places = workspace.rust.iter().flat_map(|source| {
        let lines = source.lines.iter().enumerate();
        let wide = lines.filter(|(_, line)| line.is_comment && line.width > COMMENT_WIDTH_MAX);
        wide.map(|(at, line)| Place::at(&source.path, at, &format!("{} characters", line.width), 1))
    });
    Figure::sum("comment lines over 120 characters", places.collect())
}

fn long_test_names(workspace: &Workspace) -> Figure {
    let places = workspace.rust.iter().flat_map(|source| {
        let tests = source.functions.iter().filter(|function| function.runs);
        let long = tests.filter(|function| function.name.len() > TEST_NAME_MAX);
        long.map(|function| Place::at(&source.path, function.lines.start, &function.name, 1))
    });
    Figure::sum("test names over 70 characters", places.collect())
}

/// The contents of the lock file: all crates, and names with several versions.
fn crates(workspace: &Workspace) -> [Figure; 2] {
    const LOCK: &str = "Cargo.lock";
    let versions = |(name, versions): (&String, &Vec<String>)| format!("{name} {}", versions.join(", "));
    let all = workspace
        .locked
        .iter()
        .map(|one| Place::new(LOCK, versions(one), one.1.len()));
    let several = workspace.locked.iter().filter(|(_, versions)| versions.len() > 1);
    [
        Figure::sum("crates in Cargo.lock", all.collect()),
        Figure::sum(
            "crates in several versions",
            several.map(|one| Place::new(LOCK, versions(one), 1)).collect(),
        ),
    ]
}
