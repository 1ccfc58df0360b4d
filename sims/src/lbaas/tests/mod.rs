//! Tests over HTTP, with requests such as a client sends. Each starts its own server on a free port.

mod client;
mod requests;
mod state;
mod trouble;
