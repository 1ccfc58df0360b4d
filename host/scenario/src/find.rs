//! Finds scenario files under paths, and reads them.

use std::io;
use std::path::{Path, PathBuf};

use trueup_base::regular;

use crate::file::{self, Scenario};

/// The scenarios of one file.
#[derive(Debug)]
pub struct ScenarioFile {
    /// The path as given or found.
    pub path: PathBuf,
    /// In order.
    pub scenarios: Vec<Scenario>,
}

fn unreadable(path: &Path, cause: &io::Error) -> String {
    format!("could not read `{}`: {cause}", path.display())
}

/// Reads every scenario file under `paths`: folders recursively, in order of name; a given file with any extension. A
/// file that is found twice is read once.
pub(crate) fn read(paths: &[PathBuf]) -> (Vec<ScenarioFile>, Vec<String>) {
    let mut files: Vec<ScenarioFile> = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        let mut found = Vec::new();
        collect(path, true, &mut found, &mut errors);
        let mut scenarios = 0;
        for path in found {
            match read_file(&path) {
                Ok(file) => {
                    scenarios += file.scenarios.len();
                    if !files.iter().any(|other| other.path == file.path) {
                        files.push(file);
                    }
                }
                Err(error) => {
                    scenarios += 1;
                    errors.push(error);
                }
            }
        }
        let unreadable = format!("could not read `{}`: ", path.display());
        let is_unreadable = errors.iter().any(|error| error.starts_with(&unreadable));
        if scenarios == 0 && !is_unreadable {
            errors.push(format!(
                "no scenario under `{}`: looked for files that end in .yaml, .yml or .json",
                path.display()
            ));
        }
    }
    (files, errors)
}

/// The scenario files under `paths`, as [`read`] finds them.
pub fn files(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        collect(path, true, &mut found, &mut Vec::new());
    }
    found
}

fn collect(path: &Path, named: bool, found: &mut Vec<PathBuf>, errors: &mut Vec<String>) {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => match entries(path) {
            Ok(entries) => entries.iter().for_each(|entry| collect(entry, false, found, errors)),
            Err(cause) => errors.push(unreadable(path, &cause)),
        },
        Ok(_) if named || has_ending(path) => found.push(path.to_owned()),
        Ok(_) => {}
        Err(cause) => errors.push(unreadable(path, &cause)),
    }
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

fn has_ending(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
}

fn read_file(path: &Path) -> Result<ScenarioFile, String> {
    let text = regular::read_text(path, regular::LIST).map_err(|cause| unreadable(path, &cause))?;
    let scenarios = file::parse(&text).map_err(|cause| {
        let line = cause.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{line}: {cause}", path.display())
    })?;
    Ok(ScenarioFile {
        path: path.to_owned(),
        scenarios,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = "{name: a, guest: g, steps: []}";

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn folders_are_read_in_order_and_only_by_their_endings() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a/z.yml", "a/c.json", "c/notes.md"] {
            write(folder.path(), name, SCENARIO);
        }
        let (files, errors) = read(&[folder.path().to_owned(), folder.path().join("b.yaml")]);
        let names: Vec<_> = files
            .iter()
            .map(|file| file.path.strip_prefix(folder.path()).unwrap())
            .collect();
        assert_eq!(
            names,
            [Path::new("a/c.json"), Path::new("a/z.yml"), Path::new("b.yaml")]
        );
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[test]
    fn a_path_without_a_scenario_is_an_error_and_so_is_one_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "empty/notes.md", "");
        write(folder.path(), "none.yaml", "[]");
        write(folder.path(), "odd.txt", SCENARIO);
        let at = |name: &str| folder.path().join(name);
        let (files, errors) = read(&[at("empty"), at("none.yaml"), at("absent"), at("odd.txt")]);
        assert_eq!(files.iter().filter(|file| !file.scenarios.is_empty()).count(), 1);
        let said = errors;
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("no scenario under `"), "{said:?}");
        assert!(said[1].starts_with("no scenario under `"), "{said:?}");
        assert!(said[2].starts_with("could not read `"), "{said:?}");
    }

    #[test]
    fn a_file_that_is_no_scenario_is_named_with_its_line_and_the_rest_is_read() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a.yaml", "name: a\nguest: g\nstep: []\n");
        write(folder.path(), "b.yaml", SCENARIO);
        let (files, errors) = read(&[folder.path().to_owned()]);
        assert_eq!(files.len(), 1);
        let said = errors[0].to_string();
        let wanted = format!(
            "{}:3: step: unknown field; did you mean `steps`?",
            folder.path().join("a.yaml").display()
        );
        assert!(said.starts_with(&wanted), "{said}");
        assert_eq!(errors.len(), 1);
    }
}
