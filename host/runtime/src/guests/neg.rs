//! Network endpoint groups: what Services wish for.

pub mod adapter;
