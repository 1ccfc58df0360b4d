//! The operator's view of NEGs: what a run would do (`plan`), what a candidate would do (`shadow`), what was done and
//! why (`explain`), and the present state (`status`). With the real binary, against a simulated Compute Engine over
//! HTTP.

use crate::guests::forgetful;
use crate::guests::misbehaving;
use crate::guests::renumbered;
use crate::neg::cluster;
use crate::neg::compute;
use crate::neg::stage;

mod explain;
mod plan;
mod shadow;

/// In each of three zones: six endpoints, of which one moves at a time.
const FEW: u8 = 2;
