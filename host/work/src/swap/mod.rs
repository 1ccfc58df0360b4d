//! Decides which version of each guest is active, and how another becomes so: proven first, then all at once or not
//! at all.
//!
//! ```text
//! swap, promote, edit of the configuration --> prove --> hand over --> revision N+1 on disk, active
//! rollback, fall-back ----------------------> (no gate) -^
//! ```
//! A failure on the way leaves the active version as it is and says why. The loops and the IPAM actor make the calls,
//! and take the handover between two calls.

mod managed;
mod manager;
mod proof;
mod revisions;
mod start;

pub use self::managed::{Activated, Candidate, Event, FallBack, GuestStatus, ManageError, Promotion, fall_back};
pub use self::manager::Manager;
pub(crate) use self::proof::Guests;
pub use self::proof::{Refused, Report, Step};
pub use self::revisions::{By, Configured, REVISIONS_MAX, Revision, Revisions};
pub use self::start::Version;

pub(crate) use self::managed::{FallBackRequests, Managed};
pub(crate) use self::start::{GuestSection, begin};
