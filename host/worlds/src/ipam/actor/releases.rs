//! Releases in the spool: works them off, some in each turn.

use std::time::Duration;

use tokio::time::Instant;
use trueup_work::lifecycle::failure::Failure;
use trueup_work::status::pods::Event;

use super::{Actor, Task, Worked};
use crate::ipam::protocol::Refusal;
use crate::ipam::spool::Release;

/// How often the actor looks at the spool. Retries failed releases and finds new ones.
const SPOOL_PERIOD: Duration = Duration::from_secs(30);

/// The maximum number of releases in one turn. Each is a call of some microseconds, and requests wait meanwhile.
const SPOOL_AT_ONCE_MAX: usize = 64;

impl Actor {
    pub(super) fn look_at_spool(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        self.due.insert(Task::Spool, Instant::now() + SPOOL_PERIOD);
        if self.unread.is_none() && self.releases.is_empty() {
            self.worked_off = Worked::default();
            self.releases = spool.releases(&self.settings.instance).into();
        }
    }

    pub(super) fn has_releases(&self) -> bool {
        self.is_serving() && !self.releases.is_empty()
    }

    /// Works off some releases in this turn. No other call comes between a release, its sync and the removal of its
    /// file.
    pub(super) async fn work_off_some(&mut self) {
        if !self.has_releases() {
            return;
        }
        let some = self.releases.len().min(SPOOL_AT_ONCE_MAX);
        let some: Vec<Release> = self.releases.drain(..some).collect();
        let (mut files, mut freed, mut ended) = (Vec::new(), Vec::new(), None);
        for release in some {
            // The file was taken back: the pod's key is in use again.
            if !release.is_there() {
                continue;
            }
            let worked_off = match &ended {
                None => self.free(release.key, &mut freed).await,
                Some(_) => Ok(Err(Refusal::later("the instance ended"))),
            };
            match worked_off {
                Ok(Ok(())) => files.push(release.file),
                Ok(Err(refusal)) => self.keep_release(&release.file, &refusal.msg),
                Err(Failure { error, .. }) => {
                    self.keep_release(&release.file, &error);
                    ended = Some(error);
                }
            }
        }
        self.remove_releases(&files).await;
        match ended {
            Some(error) => self.recover(error).await,
            None => self.after(&freed).await,
        }
        let worked_off = self.worked_off;
        if self.releases.is_empty() && worked_off != Worked::default() {
            self.report(Event::Spool {
                instance: self.name(),
                done: worked_off.done,
                kept: worked_off.kept,
            });
        }
    }

    fn keep_release(&mut self, file: &std::path::Path, why: &str) {
        self.worked_off.kept += 1;
        tracing::warn!(
            instance = self.settings.instance,
            "the release `{}` could not be worked off, and is tried again: {why}",
            file.display()
        );
    }

    async fn remove_releases(&mut self, files: &[std::path::PathBuf]) {
        if files.is_empty() {
            return;
        }
        let settled = self.answers.settle(self.datastore.last_entry()).await;
        let removed = match (settled, &self.spool) {
            (Ok(()), Some(spool)) => spool.remove(files).map_err(|error| error.to_string()),
            (Ok(()), None) => Ok(()),
            (Err(error), _) => Err(error),
        };
        match removed {
            Ok(()) => self.worked_off.done += files.len(),
            Err(error) => {
                self.worked_off.kept += files.len();
                tracing::warn!(
                    instance = self.settings.instance,
                    "{} releases stay in the spool: {error}",
                    files.len()
                );
            }
        }
    }
}
