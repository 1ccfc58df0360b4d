//! Decides which version of each guest is active, and how another becomes so: proven first, then all at once or not
//! at all.
//!
//! ```text
//! swap, promote, edit of the configuration --> prove --> hand over --> revision N+1 on disk, active
//! rollback, fall-back ----------------------> (no gate) -^
//! ```
//! A failure on the way leaves the active version as it is and says why. The loops and the IPAM actor make the calls,
//! and take the handover between two calls.

mod fall_back;
mod fetch;
mod managed;
mod manager;
mod proof;
mod revisions;
mod shadowing;
mod start;

pub use self::managed::{Activated, Candidate, Event, GuestStatus, ManageError, Promotion};
pub use self::manager::Manager;
pub use self::proof::{Refused, Report, Step};
pub use self::revisions::{By, Configured, REVISIONS_MAX, Revision, Revisions};

pub(crate) use self::fall_back::FallBackRequests;
pub use self::fall_back::{FallBack, fall_back};
pub(crate) use self::fetch::Guests;
pub(crate) use self::managed::Managed;
pub(crate) use self::start::{GuestSection, begin};
