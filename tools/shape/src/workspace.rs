//! The workspace's files, parsed and sorted into crates and rooms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::source::{Source, TestModule};

/// Everything that is counted.
pub(crate) struct Workspace {
    /// Every Rust file, by path.
    pub(crate) rust: Vec<Source>,
    /// The versions of every crate in Cargo.lock, by name.
    pub(crate) locked: BTreeMap<String, Vec<String>>,
    /// The folders of the guests' worlds, which have the worlds' names.
    pub(crate) worlds: BTreeSet<String>,
}

/// Folders of `guests/` without a world. `service` is a word of Kubernetes, which all rooms must use.
const NO_WORLDS: [&str; 4] = ["common", "misbehaving", "sdk", "service"];

impl Workspace {
    /// Reads the workspace at `root`.
    ///
    /// # Errors
    /// One line: what could not be read.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        collect(root, &mut files)?;
        files.sort();
        let mut texts = Vec::new();
        for file in files {
            let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&file).map_err(|error| format!("reading {path}: {error}"))?;
            texts.push((path, text));
        }
        let lock = std::fs::read_to_string(root.join("Cargo.lock"));
        Ok(Self {
            locked: locked(&lock.map_err(|error| format!("reading Cargo.lock: {error}"))?),
            worlds: worlds(&texts),
            rust: read_all(texts),
        })
    }

    /// The files with product code: those of the crates in `host/`, `guests/` and `sims/`, without tests.
    pub(crate) fn product(&self) -> impl Iterator<Item = &Source> {
        self.rust.iter().filter(|source| is_product(&source.path))
    }
}

/// The crate or folder that a path belongs to, such as `host/runtime` or `docs`.
pub(crate) fn room(path: &str) -> &str {
    let deep = ["host/", "guests/", "tools/"]
        .iter()
        .any(|parent| path.starts_with(parent));
    let ends = path.match_indices('/').map(|(at, _)| at).nth(usize::from(deep));
    ends.and_then(|end| path.get(..end)).unwrap_or(path)
}

/// `host/`, `guests/` and `sims/` hold the product, except a guest that only tests load, and each crate's tests.
fn is_product(path: &str) -> bool {
    let inside = path.strip_prefix(room(path)).unwrap_or_default();
    ["host/", "guests/", "sims/"]
        .iter()
        .any(|folder| path.starts_with(folder))
        && !path.starts_with("guests/misbehaving/")
        && !inside.starts_with("/tests/")
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error| format!("reading {}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        // Skip build output, the state of runs, and version control.
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            collect(&entry.path(), files)?;
        } else if kind.is_file() && entry.path().extension().is_some_and(|extension| extension == "rs") {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// The versions of each crate in a lock file.
fn locked(lock: &str) -> BTreeMap<String, Vec<String>> {
    let mut crates: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let value = |line: &str, key: &str| {
        Some(
            line.strip_prefix(key)?
                .strip_prefix(" = ")?
                .trim_matches('"')
                .to_owned(),
        )
    };
    let mut name = String::new();
    for line in lock.lines() {
        if let Some(found) = value(line, "name") {
            name = found;
        } else if let Some(version) = value(line, "version").filter(|_| !name.is_empty()) {
            crates.entry(std::mem::take(&mut name)).or_default().push(version);
        }
    }
    crates
}

fn worlds(texts: &[(String, String)]) -> BTreeSet<String> {
    let folders = texts
        .iter()
        .filter_map(|(path, _)| path.strip_prefix("guests/")?.split('/').next());
    folders
        .filter(|folder| !NO_WORLDS.contains(folder))
        .map(str::to_owned)
        .collect()
}

fn read_all(texts: Vec<(String, String)>) -> Vec<Source> {
    let read = |path: &String, text: &str, is_test| Source::read(path.clone(), text, is_test || !is_product(path));
    let first: Vec<_> = texts.iter().map(|(path, text)| read(path, text, false)).collect();
    let mut in_tests = BTreeMap::new();
    for source in &first {
        for module in &source.test_modules {
            let (file, folder) = place_of(&source.path, module);
            in_tests.insert(file, folder);
        }
    }
    let is_test = |path: &str| {
        in_tests.contains_key(path)
            || in_tests.values().any(|folder| path.starts_with(folder.as_str()))
            || in_tests.contains_key(&path.replace("/mod.rs", ".rs"))
    };
    let sources = first.into_iter().zip(&texts);
    sources
        .map(|(source, (path, text))| if is_test(path) { read(path, text, true) } else { source })
        .collect()
}

/// The file of a module that `path` declares, and the folder of that module's own modules.
fn place_of(path: &str, module: &TestModule) -> (String, String) {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let own = match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        file => format!("{folder}/{}", file.trim_end_matches(".rs")),
    };
    match module {
        TestModule::Named(name) => (format!("{own}/{name}.rs"), format!("{own}/{name}/")),
        TestModule::At(at) => {
            let mut parts: Vec<&str> = folder.split('/').collect();
            for part in at.split('/') {
                if part == ".." {
                    parts.pop();
                } else {
                    parts.push(part);
                }
            }
            let file = parts.join("/");
            let own = format!("{}/", file.trim_end_matches(".rs").trim_end_matches("/mod"));
            (file, own)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_module_takes_its_file_and_its_folder() {
        let named = |path| place_of(path, &TestModule::Named("tests".to_owned()));
        assert_eq!(
            named("host/a/src/lib.rs"),
            ("host/a/src/tests.rs".to_owned(), "host/a/src/tests/".to_owned())
        );
        assert_eq!(
            named("host/a/src/b.rs"),
            ("host/a/src/b/tests.rs".to_owned(), "host/a/src/b/tests/".to_owned())
        );
        let at = place_of("host/a/src/b.rs", &TestModule::At("b_tests.rs".to_owned()));
        assert_eq!(at.0, "host/a/src/b_tests.rs");
    }

    #[test]
    fn a_lock_file_names_crates_and_versions() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"a\"\nversion = \"2.0.0\"\n";
        let expected = BTreeMap::from([("a".to_owned(), vec!["1.0.0".to_owned(), "2.0.0".to_owned()])]);
        assert_eq!(locked(lock), expected);
    }

    #[test]
    fn product_is_the_host_and_the_guests_without_tests() {
        assert!(is_product("sims/src/lib.rs"));
        assert!(is_product("host/a/src/lib.rs") && is_product("host/a/build.rs") && is_product("guests/b/src/lib.rs"));
        assert!(
            !is_product("host/a/tests/x.rs")
                && !is_product("sims/tests/x.rs")
                && !is_product("tests/x.rs")
                && !is_product("guests/misbehaving/src/lib.rs")
        );
        assert_eq!(
            (room("host/a/src/lib.rs"), room("docs/x.md"), room("README.md")),
            ("host/a", "docs", "README.md")
        );
    }
}
