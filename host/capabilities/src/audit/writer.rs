//! The audit log's thread: takes queued lines, writes them to the disk in batches, and notifies the waiting callers.
//!
//! ```text
//! refused -> budget -> queue --\
//! managed -----------> queue ---+-> all queued lines: chained, written, synced once -> head -> callers notified
//! ```
//!
//! One sync covers all lines that arrived during the previous one. A guest with many refusals therefore costs the disk
//! no more than a guest with one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use trueup_base::text;

use super::budget::Budgets;
use super::error::{AuditError, failed};
use super::head::{self, Head};
use super::line::{Kind, Line};
use super::segment::Open;

/// The maximum number of queued refusals; the log only counts the rest. A line has 400 bytes.
pub(super) const QUEUE_LINES_MAX: usize = 1_000;

/// The state that the callers and the thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folder: PathBuf,
    segment_bytes_max: u64,
    waiting: Mutex<Waiting>,
    /// The queue is not empty, or the log is closing.
    queued: Condvar,
    pub(super) end: Mutex<End>,
}

#[derive(Debug)]
struct Waiting {
    queue: VecDeque<Job>,
    budgets: Budgets,
    /// No more lines will be queued.
    closing: bool,
    /// The log can't write any more.
    stopped: bool,
}

/// A line to write, and the caller that waits for it. Without a line, the caller waits for all earlier ones.
#[derive(Debug)]
struct Job {
    line: Option<Line>,
    reply: Option<SyncSender<Result<(), AuditError>>>,
}

/// The position of the next line.
#[derive(Debug)]
pub(super) struct End {
    pub(super) head: Head,
    pub(super) head_file: File,
    /// The file that grows; `None` before the first line of a log.
    pub(super) segment: Option<Open>,
    /// A write failed and left bytes behind.
    pub(super) stopped: bool,
    /// This process has reported that the lines before this one were removed.
    pub(super) dropped_before: u64,
}

impl Shared {
    pub(super) fn new(folder: &Path, segment_bytes_max: u64, budgets: Budgets, end: End) -> Self {
        Self {
            folder: folder.to_owned(),
            segment_bytes_max,
            waiting: Mutex::new(Waiting {
                queue: VecDeque::new(),
                budgets,
                closing: false,
                stopped: false,
            }),
            queued: Condvar::new(),
            end: Mutex::new(end),
        }
    }

    /// Queues a refusal's line, or counts it. Does not block.
    pub(super) fn hand_over(&self, line: Line) -> Result<(), AuditError> {
        let mut waiting = self.waiting.lock();
        if waiting.stopped {
            return Err(AuditError::Stopped);
        }
        let room = QUEUE_LINES_MAX.saturating_sub(waiting.queue.len());
        let lines = waiting.budgets.admit(line, room, Instant::now());
        waiting.queue.extend(lines.into_iter().map(Job::of));
        drop(waiting);
        self.queued.notify_one();
        Ok(())
    }

    /// Queues the line, if any, and waits until it and all earlier lines are on the disk.
    pub(super) fn wait_for(&self, line: Option<Line>) -> Result<(), AuditError> {
        let (reply, replied) = sync_channel(1);
        self.waiting.lock().queue.push_back(Job {
            line,
            reply: Some(reply),
        });
        self.queued.notify_one();
        replied.recv().unwrap_or(Err(AuditError::Stopped))
    }

    /// Asks the thread to write what is queued, and to end.
    pub(super) fn close(&self) {
        self.waiting.lock().closing = true;
        self.queued.notify_one();
    }

    /// The body of the thread.
    pub(super) fn work(&self) {
        loop {
            let (jobs, closing) = self.next();
            self.write(jobs);
            if closing {
                return;
            }
        }
    }

    /// Waits until there are lines to write.
    fn next(&self) -> (VecDeque<Job>, bool) {
        let mut waiting = self.waiting.lock();
        loop {
            let now = Instant::now();
            let over = waiting.budgets.over(now);
            waiting.queue.extend(over.into_iter().map(Job::of));
            if waiting.closing {
                let rest = waiting.budgets.rest();
                waiting.queue.extend(rest.into_iter().map(Job::of));
            }
            if waiting.closing || !waiting.queue.is_empty() {
                return (std::mem::take(&mut waiting.queue), waiting.closing);
            }
            match waiting.budgets.due() {
                None => self.queued.wait(&mut waiting),
                Some(due) => drop(self.queued.wait_until(&mut waiting, due)),
            }
        }
    }

    /// Writes one line directly, without the queue.
    pub(super) fn write_under(&self, end: &mut End, line: Line) -> Result<(), AuditError> {
        let (reply, replied) = sync_channel(1);
        let job = Job {
            line: Some(line),
            reply: Some(reply),
        };
        self.write_all(end, VecDeque::from([job]));
        replied.recv().unwrap_or(Err(AuditError::Stopped))
    }

    fn write(&self, jobs: VecDeque<Job>) {
        let mut end = self.end.lock();
        self.write_all(&mut end, jobs);
        let stopped = end.stopped;
        drop(end);
        if stopped {
            self.waiting.lock().stopped = true;
        }
    }

    fn write_all(&self, end: &mut End, mut jobs: VecDeque<Job>) {
        while !jobs.is_empty() {
            let (group, written) = self.write_some(end, &mut jobs);
            reply(group, written.as_ref().err());
        }
    }

    /// Numbers, chains and writes the lines that fit into one file.
    fn write_some(&self, end: &mut End, jobs: &mut VecDeque<Job>) -> (Vec<Job>, Result<(), AuditError>) {
        let (mut group, mut bytes, mut head) = (Vec::new(), Vec::new(), end.head.clone());
        let mut before = end.segment.as_ref().map_or(0, |open| open.bytes);
        let mut in_new_file = end.segment.is_none();
        while let Some(mut job) = jobs.pop_front() {
            if let Some(line) = &mut job.line {
                line.n = head.lines;
                if line.kind != Kind::Broken {
                    line.prev.clone_from(&head.hash);
                }
                let sealed = match line.seal() {
                    Ok(sealed) => sealed,
                    Err(error) => {
                        reply(vec![job], Some(&failed("write", &self.folder)(error.into())));
                        continue;
                    }
                };
                let length = before + (bytes.len() + sealed.len()) as u64;
                if length > self.segment_bytes_max && !bytes.is_empty() {
                    // The line is chained again in the next file.
                    jobs.push_front(job);
                    break;
                }
                if length > self.segment_bytes_max && before > 0 {
                    (in_new_file, before) = (true, 0);
                }
                bytes.extend_from_slice(&sealed);
                head = Head {
                    lines: line.n + 1,
                    hash: line.hash.clone(),
                };
            }
            group.push(job);
        }
        let written = if bytes.is_empty() {
            Ok(())
        } else {
            end.append(&self.folder, in_new_file, &bytes, head)
        };
        (group, written)
    }
}

impl End {
    /// Writes whole lines to the disk, all or none of them.
    fn append(&mut self, folder: &Path, in_new_file: bool, bytes: &[u8], head: Head) -> Result<(), AuditError> {
        if self.stopped {
            return Err(AuditError::Stopped);
        }
        let mut open = match self.segment.take() {
            Some(open) if !in_new_file => open,
            _ => Open::create(folder, self.head.lines)?,
        };
        let written = open.file.write_all(bytes).and_then(|()| open.file.sync_data());
        if let Err(error) = written {
            // The lines are not confirmed yet, so remove what was written of them.
            self.stopped = open.file.set_len(open.bytes).is_err();
            let path = open.path.clone();
            self.segment = Some(open);
            return Err(failed("write", &path)(error));
        }
        open.bytes += bytes.len() as u64;
        self.segment = Some(open);
        self.head = head;
        // A head that is behind is no damage: the lines remain valid, and the next write tries again.
        if let Err(error) = self.head.write(&self.head_file) {
            tracing::warn!("can't write `{}`: {error}", folder.join(head::NAME).display());
        }
        Ok(())
    }
}

impl Job {
    fn of(line: Line) -> Self {
        Self {
            line: Some(line),
            reply: None,
        }
    }
}

/// Notifies the waiting callers of the result. Logs an error once for lost lines without a waiting caller.
fn reply(group: Vec<Job>, error: Option<&AuditError>) {
    let mut lost = 0u64;
    for job in group {
        match job.reply {
            // Ignore the error: the caller no longer waits.
            Some(reply) => drop(reply.send(error.map_or(Ok(()), |error| Err(error.clone())))),
            None => lost += 1,
        }
    }
    if let Some(error) = error.filter(|_| lost > 0) {
        tracing::error!("{lost} refusals are not in the audit log: {}", text::causes(error));
    }
}
