//! Runs what a configuration names, and answers what operators ask.
//!
//! This crate implements commands, but not the command line itself, and not the shipped guests. Its modules lie in
//! layers; none imports from one above it:
//!
//! ```text
//! http, folders           errors and guards of every server; lists of folders
//! infer                   reads the grants that a guest needs from its recordings
//! run, plan, check, init  begins what the configuration names, joins the loops, ends them
//! control, admin, page    what operators see and ask
//! ```
#![forbid(unsafe_code)]

pub mod admin;
pub mod check;
pub mod control;
mod folders;
mod http;
pub mod infer;
pub mod init;
pub mod page;
pub mod plan;
pub mod run;
pub mod state_lock;
