//! What the host does without any guest: when it may act, what time it is, its requests over HTTP, what it serves on
//! loopback, how it reads and replaces files, what bytes a guest is, limits of how often something happens, and texts
//! that are safe to show.
//!
//! Compiles and runs no guest, and knows nothing of configuration files.
#![forbid(unsafe_code)]

pub mod address;
pub mod clock;
pub mod component;
pub mod fence;
pub mod file_lock;
pub mod folder;
pub mod http;
pub mod local_only;
pub mod progress;
pub mod regular;
pub mod replace;
pub mod text;
pub mod window;
