//! Whole calls against simulated renderers, by rule, and what holds for any sequence of them.

mod scenarios;
