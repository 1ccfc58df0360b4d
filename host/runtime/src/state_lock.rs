//! Lets one host at a time work with a state folder, and only its user read it. Two hosts would write one recording,
//! and recordings hold requests and answers.

use std::fmt;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use trueup_base::file_lock::{FileLock, NotLocked};
use trueup_base::folder::{Held, LOCK};
use trueup_base::regular;
use trueup_work::needs::Problem;
use trueup_work::setup::SetupError;

/// The mode of the state folder.
const DIR_MODE: u32 = 0o700;

/// Holds the state folder until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct StateLock {
    _lock: FileLock,
    _held: Held,
}

impl StateLock {
    /// Takes the folder, and creates it if it is missing. Narrows it to mode 0700. From here on, only its user can
    /// access what this process creates. Folders above it that are missing get the mode that others would have.
    ///
    /// # Errors
    /// One line: which process has it, or why it can't be used.
    pub fn take(state_dir: &Path) -> Result<Self, SetupError> {
        let shown = state_dir.display();
        let failed = |error: &dyn fmt::Display| SetupError::Failed(format!("state folder {shown}: {error}"));
        if state_dir.exists() && !state_dir.is_dir() {
            let why = format!("state folder {shown} is no folder; name another one in `state_dir`");
            return Err(SetupError::Misused(why));
        }
        if let Some(Problem { text, next }) = nested(state_dir) {
            return Err(SetupError::Misused(format!("state folder {text}: {next}")));
        }
        if let Some(owner) = another_owner(state_dir) {
            let next = "run as that user, or name another folder in `state_dir`";
            return Err(failed(&format!("it belongs to user {owner} alone: {next}")));
        }
        let above = state_dir.parent().map_or(Ok(()), std::fs::create_dir_all);
        umask(Mode::RWXG | Mode::RWXO);
        let made = above.and_then(|()| DirBuilder::new().recursive(true).mode(DIR_MODE).create(state_dir));
        made.and_then(|()| narrow(state_dir)).map_err(|error| failed(&error))?;
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        let file = regular::open_own(&mut options, &state_dir.join(LOCK)).map_err(|error| failed(&error))?;
        let _lock = FileLock::take(file).map_err(|error| match error {
            NotLocked::Taken(pid) => SetupError::Failed(taken_by(state_dir, pid)),
            NotLocked::Failed(error) => failed(&error),
        })?;
        let _held = Held::begin(state_dir).map_err(|error| failed(&error))?;
        Ok(Self { _lock, _held })
    }

    /// Whether another process has the folder, and which if it says so, without taking or changing anything.
    ///
    /// # Errors
    /// One line: why that can't be seen.
    pub fn taken(state_dir: &Path) -> Result<Option<Option<u32>>, SetupError> {
        let path = state_dir.join(LOCK);
        match regular::open_own(File::options().read(true), &path).and_then(FileLock::held) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            held => held.map_err(|error| SetupError::Failed(format!("{}: {error}", path.display()))),
        }
    }
}

/// That another process works with the state folder, which may have said its number.
pub fn taken_by(state_dir: &Path, pid: Option<u32>) -> String {
    let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    let next = "stop that one, or give this one a `state_dir` of its own";
    let state_dir = state_dir.display();
    format!("state folder {state_dir}: another trueup runs with it{pid}; {next}")
}

/// The user to whom alone a state folder belongs, if that is not this process's. What root creates in it, its owner
/// could not read.
pub(crate) fn another_owner(state_dir: &Path) -> Option<u32> {
    let found = std::fs::metadata(state_dir).ok()?;
    let is_closed = found.permissions().mode() & 0o077 == 0;
    (is_closed && found.uid() != geteuid().as_raw()).then_some(found.uid())
}

/// That another state folder is directly in this one. `mv` puts one there if a new one took its place.
pub(crate) fn nested(state_dir: &Path) -> Option<Problem> {
    let mut inside = std::fs::read_dir(state_dir).ok()?.flatten().map(|entry| entry.path());
    let nested = inside.find(|path| path.join(LOCK).is_file())?;
    let (shown, name) = (state_dir.display(), nested.file_name()?.display());
    let mv = format!("mv {shown} {shown}.before && mv {shown}.before/{name} {shown}");
    let next = format!("to go on with that one, type `{mv}`; to go on with this one, move that one elsewhere");
    let text = format!("{shown}: another state folder is in it, {}", nested.display());
    Some(Problem::new(text, next))
}

/// Removes other users' access to the state folder. Leaves an open folder of another owner as it is, such as a
/// Kubernetes volume.
fn narrow(state_dir: &Path) -> io::Result<()> {
    let found = std::fs::metadata(state_dir)?;
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let shown = state_dir.display();
    let owner = found.uid();
    if owner != geteuid().as_raw() {
        let is = "what is created in it is for this user alone";
        tracing::info!("state folder {shown}: user {owner} owns it, and its mode {mode:o} stays; {is}");
        return Ok(());
    }
    tracing::info!("state folder {shown}: its mode was {mode:o}, and is 700 from now on");
    std::fs::set_permissions(state_dir, Permissions::from_mode(DIR_MODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_taken_names_the_process_that_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let lock = StateLock::take(dir.path()).unwrap();
        let pid = std::process::id();
        let said = StateLock::take(dir.path()).unwrap_err().to_string();
        assert!(
            said.contains(&format!("another trueup runs with it (process {pid})")),
            "{said}"
        );
        drop(lock);
        assert!(StateLock::take(dir.path()).is_ok());
    }

    #[test]
    fn a_folder_with_another_state_folder_in_it_says_what_to_type() {
        let dir = tempfile::tempdir().unwrap();
        let (state_dir, real) = (dir.path().join("state"), dir.path().join("real"));
        drop(StateLock::take(&real).unwrap());
        drop(StateLock::take(&state_dir).unwrap());
        std::fs::create_dir_all(state_dir.join("journals/lock")).unwrap();
        std::fs::rename(&real, state_dir.join("real")).unwrap();
        let said = StateLock::take(&state_dir).unwrap_err().to_string();
        let state = state_dir.display();
        let types = format!("mv {state} {state}.before && mv {state}.before/real {state}");
        assert!(said.contains(&types), "{said}");
        let typed = std::process::Command::new("sh").args(["-c", &types]).status().unwrap();
        assert!(typed.success() && !state_dir.join("journals").exists());
        StateLock::take(&state_dir).unwrap();
    }

    #[test]
    fn the_state_folder_is_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let new = dir.path().join("new");
        let wide = dir.path().join("wide");
        std::fs::create_dir(&wide).unwrap();
        std::fs::set_permissions(&wide, Permissions::from_mode(0o755)).unwrap();
        for state_dir in [new, wide] {
            let lock = StateLock::take(&state_dir).unwrap();
            assert_eq!((mode(&state_dir), mode(&state_dir.join("lock"))), (0o700, 0o600));
            std::fs::create_dir_all(state_dir.join("journals/lbaas")).unwrap();
            std::fs::write(state_dir.join("journals/0.jsonl"), "").unwrap();
            assert_eq!(mode(&state_dir.join("journals/lbaas")), 0o700);
            assert_eq!(mode(&state_dir.join("journals/0.jsonl")), 0o600);
            drop(lock);
        }
    }
}
