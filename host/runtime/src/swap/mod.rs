//! Which version of each guest decides, and how another comes to: proven first, then all at once or not at all.
//!
//! ```text
//! swap, promote, edit of the configuration --> prove --> hand over --> revision N+1 on disk, active
//! rollback, fall-back ----------------------> (no gate) -^
//! ```
//! Whatever fails on the way leaves the active version as it is and says why. The calls themselves are the loop's and the
//! IPAM actor's: they take the handover between two calls.

mod fetch;
mod manager;
mod proof;
mod revisions;
mod start;

pub use self::manager::{Activated, Candidate, Event, ManageError, Manager, Promotion, Standing};
pub use self::proof::{Refused, Report, Step};
pub use self::revisions::{By, Configured, REVISIONS_MAX, Revision, Revisions};

pub(crate) use self::fetch::Guests;
pub(crate) use self::manager::{FallBack, Managed, fall_back};
pub(crate) use self::start::{Wish, begin};
