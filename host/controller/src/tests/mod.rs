//! The controller through its public API: single promises in `behaviour`, any order of calls in `promises`.

mod behaviour;
mod promises;
