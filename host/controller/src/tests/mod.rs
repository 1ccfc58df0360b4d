//! The controller from outside, through what it offers to all: sentences in `behaviour`, any order of calls in `promises`.

mod behaviour;
mod promises;
