//! The simulated Engine over HTTP, as a client uses it.
//!
//! Each test starts its own server on a free port. Tests without a network are beside the code.
mod client;
mod requests;
mod state;
mod trouble;
