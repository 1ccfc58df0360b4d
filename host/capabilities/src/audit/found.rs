//! What a host finds when it opens an audit log: where the log continues, or why it cannot.
//!
//! Checks only the newest file and `head`; `verify` checks the whole chain.

use std::fs::{self, OpenOptions};
use std::path::Path;

use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::regular;

use super::line::{AuditError, Kind, Line, NO_HASH, failed, line_of, sha256};
use super::verify::{Walk, segments};
use super::writer::{Head, Open, segment_name};
use crate::identity::Identity;

/// The state of a log's folder before the log continues. The default is a new log's.
#[derive(Default)]
pub(super) struct Found {
    /// The position after the last line. For a broken log, the position where it continues.
    pub(super) head: Head,
    pub(super) segment: Option<Open>,
    /// The line about what is wrong with the newest file.
    pub(super) broken: Option<Line>,
}

impl Found {
    pub(super) fn look(folder: &Path) -> Result<Self, AuditError> {
        let head = Head::read(folder)?;
        let files = segments(folder)?;
        if files.is_empty() && head.is_none() {
            return Ok(Self::default());
        }
        let counted = head.as_ref().and_then(|head| head.as_ref().ok());
        let counted = counted.map_or(0, |head| head.lines);
        for (first, path) in files.into_iter().rev() {
            let bytes = regular::read(&path, regular::RECORDS).map_err(failed("read", &path))?;
            if !bytes.contains(&b'\n') && counted <= first {
                // The host stopped while it began this file, so the file holds no confirmed line.
                tracing::warn!("`{}` holds no whole line: removed", path.display());
                fs::remove_file(&path).map_err(failed("remove", &path))?;
                continue;
            }
            let mut walk = Walk::from(head, first);
            walk.file(first, bytes, |_| ());
            return Self::after(&path, &segment_name(first), walk);
        }
        // There is a head but no file. This is valid only if the head counts no lines.
        let walk = Walk::from(head, 0);
        Ok(match walk.against_head() {
            None => Self::default(),
            Some((file, what)) => Self::broken(&walk, &file, &what, 0),
        })
    }

    fn after(path: &Path, name: &str, walk: Walk) -> Result<Self, AuditError> {
        if let Some((file, what)) = walk.damage.clone().or_else(|| walk.against_head()) {
            // A torn line counts as one, too.
            let after = walk.next_n.saturating_add(u64::from(walk.torn_bytes > 0));
            return Ok(Self::broken(&walk, &file, &what, after));
        }
        let whole = walk.last_bytes().map_or(0, <[u8]>::len) - walk.torn_bytes;
        let file = regular::open_own(OpenOptions::new().append(true), path).map_err(failed("open", path))?;
        if walk.torn_bytes > 0 {
            tracing::warn!(
                "`{name}` of the audit log ended in a torn line of {} bytes: the host was stopped while it wrote; cut off",
                walk.torn_bytes
            );
            file.set_len(whole as u64)
                .and_then(|()| file.sync_all())
                .map_err(failed("cut the torn end off", path))?;
        }
        Ok(Self {
            head: Head {
                lines: walk.next_n,
                // Known after an intact line, and there is one.
                hash: walk.prev.unwrap_or_else(|| NO_HASH.to_owned()),
            },
            segment: Some(Open {
                file,
                path: path.to_owned(),
                bytes: whole as u64,
            }),
            broken: None,
        })
    }

    /// The log continues in a new file, after every number that may have been used.
    fn broken(walk: &Walk, file: &str, what: &str, after: u64) -> Self {
        let at_ms = SystemClock.now_ms();
        let mut line = line_of(Kind::Broken, at_ms, &Identity::default(), "audit.open", file, what);
        line.prev = walk.last_bytes().map_or_else(|| NO_HASH.to_owned(), sha256);
        let counted = walk.head.as_ref().and_then(|head| head.as_ref().ok());
        let lines = after.max(counted.map_or(0, |head| head.lines));
        let hash = NO_HASH.to_owned();
        Self {
            head: Head { lines, hash },
            segment: None,
            broken: Some(line),
        }
    }
}
