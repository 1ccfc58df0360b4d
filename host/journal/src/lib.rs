//! Entries, writer, reader, tape and divergence of trueup's recordings.
//!
//! A journal is a folder of segments; a segment is a file of JSON lines: a header with the guest and its state, then
//! every call of the guest, every question that it asked with its answer, and how each call ended. The tape sits
//! between a guest and the host's answers: it records them, keeps them in memory, replays them, or does nothing.
//!
//! Knows nothing of WebAssembly, of any guest or of any capability, and has no async runtime, no threads and no clock:
//! times are arguments, durations use `Instant`.
//!
//! ```text
//! guest --question--> Tape --record--> Journal --> <root>/<guest>/<key>/<first entry>.jsonl
//!                      |  <--replay--- Segment <------------------+
//!                      +--> Outcome: identical, or where and how the guest diverged
//! ```
#![forbid(unsafe_code)]

mod accepted;
mod difference;
mod divergence;
mod entry;
mod files;
mod folder;
mod interrupted;
mod line;
mod reader;
mod tape;
#[cfg(test)]
mod tests;
mod writer;

pub use accepted::{Accepted, Rule};
pub use difference::{DIFFERENCES_SHOWN_MAX, Difference, Differing, differences_under, path_below, render_differences};
pub use divergence::{Asked, Divergence, Outcome, Reads, Tally};
pub use entry::{Ask, By, Call, Ending, Entry, Event, FORMAT, Header, Origin, calls, first_asks};
pub use files::{Files, OPEN_FILES_MAX};
pub use folder::{
    SegmentFile, guest_dir, instance_dir, key_of, path_component, segment_files, segment_numbers, segment_path,
};
pub use interrupted::{AskedAnew, GivenAgain, Interrupted};
pub use reader::{ReadError, Scan, Segment, Torn};
pub use tape::{Kind, Question, Questions, Tape, TapeError};
pub use writer::{Journal, JournalError, Opened, Options, Sync};
