//! The guests of a node: their worlds, and what the host makes of the source for them.

pub mod nodesync;
pub mod renderer;
pub mod service;
