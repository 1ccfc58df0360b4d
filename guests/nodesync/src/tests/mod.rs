//! Whole calls against a simulated database, by rule, and what holds for any sequence of them.

mod scenarios;
