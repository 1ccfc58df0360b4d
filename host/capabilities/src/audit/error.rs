//! Why an audit log can't be opened, read or written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why an audit log can't be opened, read or written. One line.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    /// There is no log.
    #[error("no audit log in `{}`; a host keeps it under `audit` in its state folder", .0.display())]
    None(PathBuf),
    /// The operating system returned an error.
    #[error("can't {tried} `{}`", path.display())]
    Io {
        /// The operation that failed.
        tried: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The host could not undo a failed write.
    #[error("nothing more is written to the audit log until the host is started again: a write failed in part")]
    Stopped,
}

pub(super) fn failed(tried: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AuditError {
    move |source| AuditError::Io {
        tried,
        path: path.to_owned(),
        source: Arc::new(source),
    }
}
