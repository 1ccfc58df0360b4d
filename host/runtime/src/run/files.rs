//! Small files of state, replaced whole: a reader sees the old one or the new one.

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

/// Replaces `file`, and creates the folders on its way.
///
/// # Errors
/// Where it can't be written, with its name; the old file is untouched then.
pub(crate) fn replace_json(file: &Path, value: &impl Serialize) -> io::Result<()> {
    let replace = || -> io::Result<()> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let part = file.with_extension("part");
        let mut out = std::fs::File::create(&part)?;
        out.write_all(&serde_json::to_vec_pretty(value)?)?;
        out.write_all(b"\n")?;
        out.sync_data()?;
        std::fs::rename(&part, file)?;
        // The name is on disk when the folder is. From here on readers see the new file, so it counts as written.
        let synced = file
            .parent()
            .map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_data());
        if let Err(error) = synced {
            tracing::warn!("{}: its folder is not synced: {error}", file.display());
        }
        Ok(())
    };
    replace().map_err(|error| io::Error::new(error.kind(), format!("writing {}: {error}", file.display())))
}

/// Removes `file`; one that is not there is as good as removed.
///
/// # Errors
/// Where it can't be removed, with its name.
pub(crate) fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io::Error::new(
            error.kind(),
            format!("removing {}: {error}", file.display()),
        )),
        _ => Ok(()),
    }
}
