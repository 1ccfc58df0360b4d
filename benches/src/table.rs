//! The table that a program of benchmarks prints.

use std::time::Duration;

use crate::measure::{digits, show};

/// Some rows of the table.
pub type Part<S, E> = fn(&S, &E) -> anyhow::Result<()>;

/// Whether to measure. `cargo test` runs the program without `--bench`, for a trial, which this says first.
#[must_use]
pub fn is_bench() -> bool {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    if !is_bench {
        println!("A trial, to see that it works; these numbers mean nothing.\n");
    }
    is_bench
}

/// Prints the head of the table, and the rows of the parts that the arguments name; without any, of all.
///
/// # Errors
/// The first one of a part.
pub fn print<S, E>(stage: &S, effort: &E, parts: &[(&str, Part<S, E>)]) -> anyhow::Result<()> {
    println!("| what | ratio | absolute | goal |");
    println!("|---|---|---|---|");
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part(stage, effort)?;
        }
    }
    Ok(())
}

/// Prints one row.
pub fn row(what: &str, ratio: &str, absolute: &str, goal: &str) {
    println!("| {what} | {ratio} | {absolute} | {goal} |");
}

/// `3.20x`.
#[must_use]
pub fn times(ratio: f64) -> String {
    format!("{}x", digits(ratio))
}

/// `1.00 ms against 2.00 ms`.
#[must_use]
pub fn against(left: Duration, right: Duration) -> String {
    format!("{} against {}", show(left), show(right))
}
