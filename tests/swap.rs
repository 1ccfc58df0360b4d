//! Versions of a guest under load: swapped, rolled back, refused, and nothing lost.
