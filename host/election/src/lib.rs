//! Leader election: several hosts run, one acts. Uses a Lease of the Kubernetes API (`coordination.k8s.io/v1`) by the
//! rules of client-go, so that `kubectl get lease` shows the expected fields and other observers read it correctly.
//!
//! ```text
//! API server <- run: what is next? -> campaign: what is known, and what follows (no I/O, no clock)
//!                |
//!                v
//!       Fence, Role, Status
//! ```
//!
//! # Why two hosts never act at once
//!
//! Let *D* be the lease duration and *m* the [margin](Times::margin).
//!
//! 1. A write of the Lease names the version that it replaces, and the API server serializes writes. So each record
//!    follows one that its writer had seen, or the server refuses it (409).
//! 2. A host acts only before *s + D - m* by its own clock, where *s* is read just before its last successful write
//!    was **sent**. A write whose answer was lost counts for nothing. The [`Fence`] enforces this at the socket, by a
//!    clock that goes on while the process is stopped or the machine is suspended.
//! 3. Another host takes the Lease only after it has waited, by its own clock, for the duration that the record names
//!    (*D*, rounded up to seconds) since the moment *o* at which it saw that record **first**, and if it then
//!    replaces that same record. It acts only afterwards.
//! 4. No record is seen before it was sent, so *o* is after *s*. By 1, no later write of the old holder succeeded, or
//!    the version would be another. So the old holder's time ends at least *m* before the new holder's begins, less
//!    how far their two clocks drifted apart during one lease. No clock is ever compared with another one. The only
//!    assumption is that the *rates* of two hosts' clocks differ by less than *m / D*, one part in ten. Clocks of
//!    machines differ by one part in ten thousand. The rest of *m* lets a request that was sent at the last moment
//!    arrive.
//! 5. A Lease that is given back has no holder and lasts for a second. The host writes it after it closed its fence,
//!    so another host that sees it may act at once.
//!
//! Exceptions: a person who writes into the Lease by hand, or deletes it, overrules it. Hosts that saw a record
//! before it was deleted still wait for its time, and the holder writes it again at once. A host that starts in just
//! that moment can't know, and takes it. And no fence can stop a request whose process was stopped between the last
//! check of the clock and the system call for longer than *m*: the Engine knows no fencing tokens.
//!
//! [`Fence`]: trueup_base::fence::Fence
#![forbid(unsafe_code)]

mod campaign;
mod record;
mod run;
mod settings;

#[cfg(test)]
mod model_tests;

pub use self::campaign::{Action, Campaign, Seen, Why};
pub use self::record::Record;
pub use self::run::{Election, Role, Status};
pub use self::settings::{Settings, Times, identity_of_this_process};
