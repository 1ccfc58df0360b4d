//! `trueup-cni install FOLDER`: puts this program where a runtime looks for plugins.
//!
//! For an init container: the image has no shell and no `cp`. A runtime may call the plugin meanwhile, so the old file
//! stays complete until the new one replaces it.

use std::fs::{self, File, Permissions};
use std::{io, os::unix::fs::PermissionsExt, path::Path};

/// The plugin's name there: the `type` in `ipam`.
const NAME: &str = "trueup-cni";

/// Copies this program into a folder, and replaces an earlier one.
pub(crate) fn install(folder: &Path) -> Result<(), String> {
    let target = folder.join(NAME);
    // Not in the way of a runtime, which takes names without a dot.
    let new = folder.join(format!(".{NAME}.{}.tmp", std::process::id()));
    let copied = copy(&new).and_then(|()| fs::rename(&new, &target));
    copied.map_err(|error| {
        // Ignore the error: the file may not exist.
        let _ = fs::remove_file(&new);
        format!("can't install {}: {error}", target.display())
    })
}

fn copy(new: &Path) -> io::Result<()> {
    fs::copy("/proc/self/exe", new)?;
    fs::set_permissions(new, Permissions::from_mode(0o755))?;
    File::open(new)?.sync_all()
}
