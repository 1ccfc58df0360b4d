//! A guest that fails takes nothing else down: retried, set aside, held, or another version takes over.
