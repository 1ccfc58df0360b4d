//! The page for reading recordings: what was decided, the questions and answers, and how two decisions differ. It reads
//! files and changes nothing.
//!
//! A recording may be larger than the available memory. So an index keeps, for each decision, its position and what the
//! list shows. It is built in one pass and continued as the file grows. Everything else is read on demand.
//!
//! ```text
//! browser --GET--> local_only -> routes -> Source -> catalog   which recordings there are
//!                                             |----> Opened    index (growth) of one -> rows, overview
//!                                             |----> newest    what it opens with: read from the newest files
//!                                             +----> decision, difference, against: read from the files
//! ```
//!
//! Requests name recordings by their ids in the catalog; no text from a browser ever becomes part of a path.

mod against;
mod catalog;
mod decision;
mod difference;
mod growth;
mod index;
mod newest;
mod routes;
mod source;

pub use against::Against;
pub use routes::{router, serve, under};
pub use source::Source;
