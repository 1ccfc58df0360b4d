//! The engine with real components.

#![cfg(test)]

mod engine;
mod types;
mod wasi;
