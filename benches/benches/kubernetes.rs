//! Prints the README's table of the costs in a cluster: `cargo bench -p trueup-benches --bench kubernetes`, or parts of
//! it: `... --bench kubernetes -- load growth`.
//!
//! One process runs the API server of the tests, a simulated Engine over HTTP, and the host with its election.
//! Everything must be in sync at the end; otherwise the benchmark fails without a table. Without `--bench`, as `cargo
//! test` runs it, it does everything once and small, which only shows that it works.
#![expect(clippy::expect_used, reason = "a benchmark whose threads don't work has no figures")]

#[path = "kubernetes/cluster.rs"]
mod cluster;
#[path = "kubernetes/engine.rs"]
mod engine;

use std::time::{Duration, Instant};

use trueup_benches::effects::Times;
use trueup_benches::measure::{digits, ratio, show};
use trueup_benches::table;

use cluster::{Cluster, Seen};

/// How much to measure.
struct Effort {
    /// Numbers of Services that change under load, one after another.
    loaded: &'static [usize],
    changes_per_second: u32,
    lasts: Duration,
    /// Services of type LoadBalancer, and others beside them, while one changes.
    sizes: &'static [(usize, usize)],
    /// How many changes the fastest and the median are taken from.
    changes: usize,
}

/// A cluster has 2,768 node ports (30000-32767), so at most that many of 10,000 Services can be of type LoadBalancer.
const FULL: Effort = Effort {
    loaded: &[100, 1_000],
    changes_per_second: 200,
    lasts: Duration::from_secs(30),
    sizes: &[(100, 0), (1_000, 0), (2_500, 7_500)],
    changes: 200,
};

const TRIAL: Effort = Effort {
    loaded: &[5],
    changes_per_second: 50,
    lasts: Duration::from_millis(500),
    sizes: &[(2, 0), (4, 4)],
    changes: 2,
};

/// How many Services change in turn, one at a time, while all others rest. A single one would always be warm.
const TURNS: usize = 5;

fn main() -> anyhow::Result<()> {
    let is_bench = table::is_bench();
    let effort = if is_bench { FULL } else { TRIAL };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |part: &str| !is_bench || wanted.is_empty() || wanted.iter().any(|wanted| wanted == part);
    println!("| what | p50 | p99 | longest |");
    println!("|---|---|---|---|");
    if is_wanted("load") {
        for services in effort.loaded {
            load(*services, &effort)?;
        }
    }
    if is_wanted("growth") {
        growth(&effort)?;
    }
    Ok(())
}

/// Changes all Services in turn at this rate, and measures how long each change takes.
fn load(services: usize, effort: &Effort) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(services, 0)?;
    cluster.wait_until_true()?;
    let first = cluster.made();
    let (begun, worked) = (Instant::now(), cluster.worked()?);
    let changes = (effort.lasts.as_secs_f64() * f64::from(effort.changes_per_second)) as u32;
    for number in 0..changes {
        let due = Duration::from_secs(1) / effort.changes_per_second * number;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        cluster.change(number as usize % services)?;
    }
    let offered = begun.elapsed();
    cluster.wait_until_true()?;
    let converged = begun.elapsed();
    let worked = cluster.worked()?.saturating_sub(worked);
    let Seen {
        engine,
        status,
        told,
        jobs,
    } = cluster.end(first)?;
    println!(
        "| {services} Services, {} changes a second for {} ({} of {changes} superseded, {jobs} jobs, the host busy for {} of a processor's time; all true {} after the last): \
         from the change until the Engine has it | {} |",
        effort.changes_per_second,
        show(offered),
        engine.superseded,
        show(worked),
        show(converged.saturating_sub(offered)),
        row(&engine)
    );
    println!(
        "| — until the patch of the Service's status is at the API server | {} |",
        row(&status)
    );
    println!("| — until the host says that it is true | {} |", row(&told));
    Ok(())
}

fn row(times: &Times) -> String {
    [50, 99, 100].map(|percent| show(times.percentile(percent))).join(" | ")
}

/// One change while everything else rests, among more and more Services.
fn growth(effort: &Effort) -> anyhow::Result<()> {
    let mut fewest = None;
    for (ours, others) in effort.sizes {
        let begun = Instant::now();
        let mut cluster = Cluster::start(*ours, *others)?;
        cluster.wait_until_true()?;
        let up = begun.elapsed();
        let turns = TURNS.min(*ours);
        // The host rebuilds an evicted instance from its recording, once.
        for service in 0..turns {
            cluster.change(service)?;
            cluster.wait_until_true()?;
        }
        let (first, worked) = (cluster.made(), cluster.worked()?);
        for number in 0..effort.changes {
            cluster.change(number % turns)?;
            cluster.wait_until_true()?;
        }
        let worked = cluster.worked()?.saturating_sub(worked) / u32::try_from(effort.changes)?;
        let Seen { told, .. } = cluster.end(first)?;
        let of = *fewest.get_or_insert(worked);
        println!(
            "| {} Services, {ours} of them of type LoadBalancer (all true from nothing in {}): one change takes {} of a processor's \
             time in the host, {}x; until the host says that it is true | {} |",
            ours + others,
            show(up),
            show(worked),
            digits(ratio(worked, of)),
            row(&told)
        );
    }
    Ok(())
}
