//! The simulated Engine, asked over HTTP as a client would ask it.
//!
//! Each test starts its own server on a free port. What needs no network is tested beside the code.
mod client;
mod requests;
mod state;
mod trouble;
