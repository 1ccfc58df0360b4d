//! Several hosts run, one acts: leader election by a Lease of the Kubernetes API (`coordination.k8s.io/v1`), by the rules of
//! client-go, so that `kubectl get lease` shows what one expects and other observers read it as it is meant.
//!
//! ```text
//! API server <- requests <- run: what is next? -> decide (pure)
//!                            |        ^
//!                            v        campaign: what is known (no I/O, no clock)
//!                   Fence, Standing, Status
//! ```
//!
//! # Why never two act at once
//!
//! Let *D* be the lease duration and *m* the [margin](Times::margin).
//!
//! 1. A write of the Lease names the version that it replaces, and the API server does one write after the other. So each
//!    record follows one that its writer had seen, or else is refused (409).
//! 2. A host acts only before *s + D - m* by its own clock, where *s* is read just before the write was **sent** that
//!    succeeded last. A write whose answer was lost counts for nothing. The [`Fence`] keeps this at the socket, by a clock
//!    that counts on while the process is stopped or the machine is suspended.
//! 3. Another host takes the Lease only when it has waited, by its own clock, for the duration that the record names (*D*,
//!    rounded up to seconds) since the moment *o* at which it saw that record **first**, and the record is still the one
//!    that it then replaces. It acts only afterwards.
//! 4. No record is seen before it was sent, so *o* is after *s*; and by 1 no later write of the old holder succeeded, or the
//!    version would be another. So the old holder's time ends at least *m* before the new holder's begins, less what their
//!    two clocks went apart while one lease lasted. No clock is ever compared with another one: what is assumed is that
//!    the *rates* of two hosts' clocks differ by less than *m / D*, one part in ten. Clocks of machines differ by one part
//!    in ten thousand. What remains of *m* is for a request that was sent at the last moment to arrive.
//! 5. A Lease that is given back has no holder and lasts for a second. It is written after this host's fence was closed, so
//!    whoever sees it may act at once.
//!
//! What is outside of this: whoever writes into the Lease by hand, or deletes it, overrules it. Hosts that saw a record before
//! it was deleted wait for its time all the same, and the holder writes it again at once; a host that is started in
//! just that moment can't know, and takes it. And no fence can stop a request whose process was stopped between the last
//! look at the clock and the system call, for longer than *m*: the Engine knows no fencing tokens.
//!
//! [`Fence`]: trueup_capabilities::fence::Fence

mod campaign;
mod decide;
mod identity;
mod record;
mod requests;
mod run;
mod settings;
mod status;

#[cfg(test)]
mod model_tests;

pub use self::campaign::Campaign;
pub use self::decide::{Action, Facts, Me, Seen, Why, decide};
pub use self::record::Record;
pub use self::run::{Election, Standing, Tried};
pub use self::settings::{Settings, Times};
pub use self::status::Status;
