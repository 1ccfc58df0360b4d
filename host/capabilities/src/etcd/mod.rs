//! `trueup:etcd/kv`: a key-value database with etcd's semantics, and listings and watches of it for the host alone.
//!
//! Every change of a store gets the next *revision*. A listing states its revision, and a watch reports the changes
//! after it; [`Follow`] combines the two. This module knows nothing of the stored data.
//!
//! ```text
//! guest -> binding (tape, quota, grant) -> Api: embedded (redb) | remote (etcd)
//!                                               | planned (embedded, filled from one of the others)
//! host  -> Follow: listing, then watch after its revision; listing again where the history is gone
//! ```

mod api;
mod binding;
pub mod embedded;
mod follow;
mod history;
pub mod planned;
pub(crate) mod reading;
pub mod remote;
mod rules;
mod stored;

pub use crate::bindings::etcd::kv::{Compare, Error, KeyValue, Operation};
pub use api::{Api, Applied, FIRST_REVISION, Watch, WatchEnd};
pub use follow::{Follow, Followed};
pub use rules::{OPERATIONS_MAX, REQUEST_BYTES_MAX};
pub use stored::{Changes, Event, Listing, Stored};
