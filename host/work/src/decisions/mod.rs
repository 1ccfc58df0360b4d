//! Why the host did what it did: each decision has an id, and the host keeps the chain that led to it.
//!
//! One decision is one call of a guest for a key. Its id is `GUEST/KEY#N`, where `N` is the number of the call's entry
//! in the journal of that instance, recorded or not: `lbaas/default/web#57`. For each job of a key (one or several
//! decisions) the host keeps one line: the preceding changes or other causes, and the result. What a decision asked and
//! wrote is only in the journal; [`explain()`] reads both.
//!
//! This module decides nothing, and neither guests nor journals see its data.
//!
//! ```text
//! change of an object -> Pending (by key) -> job -> Record -> state_dir/decisions/<guest>/<key>.jsonl
//!                                             |                             |
//!                                             +-> journal ------------------+-> explain
//! ```

mod calls;
mod cause;
mod explain;
mod fields;
mod record;
mod recorded;

pub use self::calls::{CallReport, DesiredChange, WRITES_MAX};
pub use self::cause::{CAUSES_MAX, Cause, ChangeKind, ChangedNodes, ChangedObject, Input, TimedCause};
pub use self::explain::{Explained, Explanation, Now, Origin, ReportedCall, Selection, explain, nearest};
pub use self::fields::{FIELDS_MAX, Field, Fields, differing};
pub use self::record::{Decision, FILE_BYTES_MAX, FORMAT, JobResult, Record, SPAN_TARGET, name_traces};
pub use trueup_capabilities::reading::{Action, Operation, OperationEnd, Write};

pub(crate) use self::cause::{Causes, PendingCauses};
pub(crate) use self::record::{JobRecorder, came, path, span};
