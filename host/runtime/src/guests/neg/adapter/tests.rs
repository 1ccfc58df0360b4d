//! Objects in, wishes out: one sentence a test.
