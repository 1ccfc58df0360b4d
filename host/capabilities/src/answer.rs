//! What the methods of every backend return.

use std::pin::Pin;

/// The return type of a backend's methods: boxed, so that backends can be `Arc<dyn ...>`.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
