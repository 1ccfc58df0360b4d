//! The page to look at recordings with: what was decided, what was asked and answered on the way, and how two decisions
//! differ. It reads files and changes nothing.
//!
//! A recording may be larger than memory is to be: of each decision an index keeps where it stands and what a line in the
//! list shows of it, built in one pass and continued as the file grows. Everything else is read when it is looked at.
//!
//! ```text
//! browser --GET--> local_only -> routes -> Source -> catalog   which recordings there are
//!                                             |----> Opened    index (growth) of one -> rows, overview
//!                                             +----> decision, difference, search, against: read from the files
//! ```
//!
//! Recordings are named by what the catalog calls them; nothing that comes from a browser is ever part of a path.

mod against;
mod catalog;
mod decision;
mod difference;
mod growth;
mod index;
pub use trueup_sims::local_only;
mod routes;
mod search;
mod source;

pub use against::Against;
pub(crate) use routes::SLOW_READS;
pub use routes::{router, serve, under};
pub use source::Source;
