//! A folder of versions of one guest: finds the newest, or the requested one.
//!
//! Name and version come from the metadata of each component, and file names mean nothing. This module compiles
//! nothing.
//!
//! ```text
//! guests/a.wasm  lbaas 1.9     file:guests        -> b.wasm
//! guests/b.wasm  lbaas 1.10    file:guests@1.9    -> a.wasm
//! ```

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use trueup_base::component::GUEST_BYTES_MAX;
use trueup_base::regular;

use super::store::{NoGuest, one_line};

/// Each file is read completely to find its version. More than this is the wrong folder.
const VERSIONS_MAX: usize = 256;

/// One file of a folder.
struct Version {
    file: PathBuf,
    name: String,
    text: String,
    numbers: Vec<u64>,
}

/// The bytes of a guest's file.
///
/// # Errors
/// One line: the file, and why it can't be read or is too long.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, NoGuest> {
    let wrong = |error: &dyn std::fmt::Display| NoGuest(format!("guest {}: {error}", file.display()));
    regular::read(file, GUEST_BYTES_MAX as u64).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => wrong(&format_args!("longer than {GUEST_BYTES_MAX} bytes, so no guest")),
        _ => wrong(&error),
    })
}

/// The file of a path: the path itself, or a file in that folder.
///
/// # Errors
/// One line: why the folder has no such version, or is not a folder of versions of one guest.
pub(super) fn locate(path: &Path) -> Result<PathBuf, NoGuest> {
    if path.is_dir() {
        let newest = read_folder(path)?.pop().map(|version| version.file);
        return newest.ok_or_else(|| wrong(path, "holds no *.wasm, so no version of a guest"));
    }
    // `DIR@V`.
    let name = path.file_name().and_then(|name| name.to_str()?.rsplit_once('@'));
    let at = name.map(|(folder, wanted)| (path.with_file_name(folder), wanted));
    let Some((folder, wanted)) = at.filter(|(folder, _)| !path.exists() && folder.is_dir()) else {
        return Ok(path.to_owned());
    };
    let folder = folder.as_path();
    let versions = read_folder(folder)?;
    let Some(numbers) = numbers(wanted) else {
        let what = format!("`{wanted}` is no version, must be dotted numbers such as 1.10");
        return Err(wrong(folder, &what));
    };
    if let Some(found) = versions.iter().find(|version| version.numbers == numbers) {
        return Ok(found.file.clone());
    }
    let all: Vec<&str> = versions.iter().map(|version| version.text.as_str()).collect();
    let there = match all.is_empty() {
        true => "it holds no *.wasm".to_owned(),
        false => format!("there are: {}", all.join(", ")),
    };
    Err(wrong(folder, &format!("has no version {wanted}; {there}")))
}

/// All versions, ascending.
fn read_folder(folder: &Path) -> Result<Vec<Version>, NoGuest> {
    let paths = |all: fs::ReadDir| all.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let files = fs::read_dir(folder).and_then(paths);
    let mut files = files.map_err(|error| wrong(folder, &format!("can't be read: {error}")))?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "wasm"));
    if files.len() > VERSIONS_MAX {
        let count = files.len();
        let what = format!("holds {count} *.wasm, at most {VERSIONS_MAX} versions are looked at");
        return Err(wrong(folder, &what));
    }
    files.sort();
    let mut versions = files.into_iter().map(version).collect::<Result<Vec<_>, _>>()?;
    // Versions of one number stay in the order of their files.
    versions.sort_by(|left, right| left.numbers.cmp(&right.numbers));
    for (left, right) in versions.iter().zip(versions.iter().skip(1)) {
        let both = format!("{} and {}", left.file.display(), right.file.display());
        if left.name != right.name {
            let names = format!("`{}` and `{}`", left.name, right.name);
            let what = format!("holds two guests, must hold versions of one: {both} are {names}");
            return Err(wrong(folder, &what));
        }
        if left.numbers == right.numbers {
            return Err(wrong(folder, &format!("holds version {} twice: {both}", right.text)));
        }
    }
    Ok(versions)
}

fn version(file: PathBuf) -> Result<Version, NoGuest> {
    let bytes = read(&file)?;
    let named = |what: &str| NoGuest(format!("guest {}: {what}", file.display()));
    if let Some(what) = trueup_base::component::not_webassembly(&bytes) {
        return Err(named(&format!("not WebAssembly: {what}")));
    }
    let payload = wasm_metadata::Payload::from_binary(&bytes)
        .map_err(|error| named(&format!("not WebAssembly: {}", one_line(&format!("{error:#}")))))?;
    let metadata = payload.metadata();
    let (Some(name), Some(version)) = (metadata.name.as_deref(), metadata.version.as_ref()) else {
        let what = "says no name and version of itself, which a folder of versions needs: \
                    add them with `wasm-tools metadata add`";
        return Err(named(what));
    };
    let text = version.to_string();
    let must = "must be dotted numbers such as 1.10 in a folder of versions";
    let numbers = numbers(&text).ok_or_else(|| named(&format!("its version is `{text}`, {must}")))?;
    Ok(Version {
        file,
        // A linker names a core module after its file.
        name: name.strip_suffix(".wasm").unwrap_or(name).to_owned(),
        text,
        numbers,
    })
}

/// `1.10` is greater than `1.9`, and `1.0` equals `1`.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| part.parse().ok().filter(|_| is_number(part));
    let mut numbers: Vec<u64> = text.split('.').map(number).collect::<Option<_>>()?;
    while numbers.len() > 1 && numbers.last() == Some(&0) {
        numbers.pop();
    }
    Some(numbers)
}

fn wrong(folder: &Path, what: &str) -> NoGuest {
    NoGuest(format!("folder of guests {}: {what}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty component with a name and a version.
    fn component(name: Option<&str>, version: Option<&str>) -> Vec<u8> {
        let bytes = wat::parse_str("(component)").unwrap();
        let mut add = wasm_metadata::AddMetadata::default();
        if let Some(name) = name {
            add.name = wasm_metadata::AddMetadataField::Set(name.to_owned());
        }
        if let Some(version) = version {
            add.version = wasm_metadata::AddMetadataField::Set(wasm_metadata::Version::new(version.to_owned()));
        }
        add.to_wasm(&bytes).unwrap()
    }

    fn folder(files: &[(&str, Option<&str>, Option<&str>)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (file, name, version) in files {
            fs::write(folder.path().join(file), component(*name, *version)).unwrap();
        }
        folder
    }

    fn at(folder: &tempfile::TempDir, version: &str) -> Result<String, String> {
        let path = PathBuf::from(format!("{}{version}", folder.path().display()));
        let file = locate(&path).map_err(|error| error.to_string())?;
        Ok(file.file_name().unwrap().to_str().unwrap().to_owned())
    }

    #[test]
    fn the_newest_is_found_by_number_and_not_by_file_name() {
        let folder = folder(&[
            ("a.wasm", Some("lbaas"), Some("1.10")),
            ("b.wasm", Some("lbaas"), Some("1.9.3")),
            ("c.wasm", Some("lbaas"), Some("1.0")),
            ("notes.txt", None, None),
        ]);
        assert_eq!(at(&folder, "").unwrap(), "a.wasm");
        assert_eq!(at(&folder, "@1.9.3").unwrap(), "b.wasm");
        assert_eq!(at(&folder, "@1").unwrap(), "c.wasm", "1 and 1.0 are one version");
        let error = at(&folder, "@2").unwrap_err();
        assert!(
            error.contains("has no version 2; there are: 1.0, 1.9.3, 1.10"),
            "{error}"
        );
        let error = at(&folder, "@latest").unwrap_err();
        assert!(error.contains("`latest` is no version"), "{error}");
    }

    #[test]
    fn a_folder_that_is_none_of_versions_is_one_line() {
        for (files, said) in [
            (&[][..], "holds no *.wasm"),
            (
                &[
                    ("a.wasm", Some("lbaas"), Some("1")),
                    ("b.wasm", Some("lbaas"), Some("1.0")),
                ][..],
                "holds version 1.0 twice: ",
            ),
            (
                &[
                    ("a.wasm", Some("lbaas"), Some("1")),
                    ("b.wasm", Some("ipam"), Some("2")),
                ][..],
                "are `lbaas` and `ipam`",
            ),
            (&[("a.wasm", Some("lbaas"), None)][..], "says no name and version"),
            (&[("a.wasm", None, Some("1"))][..], "says no name and version"),
            (
                &[("a.wasm", Some("lbaas"), Some("1.0-rc1"))][..],
                "its version is `1.0-rc1`",
            ),
        ] {
            let error = at(&folder(files), "").unwrap_err();
            assert!(error.contains(said), "{said}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
        let text = folder(&[]);
        fs::write(text.path().join("a.wasm"), "no module").unwrap();
        assert!(at(&text, "").unwrap_err().contains("a.wasm: not WebAssembly"));
    }

    #[test]
    fn a_file_is_itself_whatever_its_name() {
        let folder = folder(&[("lbaas@2", None, None)]);
        assert_eq!(at(&folder, "/lbaas@2").unwrap(), "lbaas@2");
        assert_eq!(
            at(&folder, "/nothing@2").unwrap(),
            "nothing@2",
            "opening it reports that it is not there"
        );
    }
}
