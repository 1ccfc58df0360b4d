//! Prints the README's table of the cost of versions: `cargo bench -p trueup-benches --bench versions`.
//!
//! Without `--bench`, as `cargo test` runs it, it does everything once and small, which only shows that it works.

use std::time::{Duration, Instant};

use trueup_benches::measure::{digits, pss_kib, show};
use trueup_benches::service::{Listed, Size};
use trueup_benches::stage::{self, Stage};
use trueup_benches::swaps::{Load, Seen, swap_under_load};
use trueup_benches::table;

/// The one question to every instance.
const SMALL: Size = Size { ports: 1, servers: 3 };

fn main() -> anyhow::Result<()> {
    let is_bench = table::is_bench();
    println!("| what | absolute | goal |");
    println!("|---|---|---|");
    instances(if is_bench { 2_000 } else { 20 })?;
    swaps(if is_bench {
        Load {
            services: 200,
            changes_per_second: 200,
            swaps: 20,
            between: Duration::from_millis(500),
        }
    } else {
        Load {
            services: 20,
            changes_per_second: 20,
            swaps: 2,
            between: Duration::from_millis(200),
        }
    })
}

/// Memory and time of many instances in one host, after one small check each.
fn instances(count: u32) -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let engine = stage.runtime.block_on(SMALL.filled())?;
    let list = stage.runtime.block_on(Listed::of(&engine))?;
    let args = SMALL.args()?;
    let start = async || {
        let mut instance = stage.instance(list.clone()).await?;
        stage::check(&mut instance, &args).await?;
        anyhow::Ok(instance)
    };
    // Exclude the one-time cost of the first instance.
    drop(stage.runtime.block_on(start())?);
    let without = pss_kib()?;
    let begun = Instant::now();
    let mut instances = Vec::new();
    for _ in 0..count {
        instances.push(stage.runtime.block_on(start())?);
    }
    let took = begun.elapsed();
    let with = pss_kib()?;
    let each = f64::from(u32::try_from(with.saturating_sub(without))?) / f64::from(count);
    println!(
        "| {count} instances of `lbaas` in one host, each after one small check: memory (Pss) of each | {} KiB | 300 KiB |",
        digits(each)
    );
    println!(
        "| — starting and asking them one after another | {} each, {} in all | |",
        show(took / count),
        show(took)
    );
    drop(instances);
    Ok(())
}

fn swaps(load: Load) -> anyhow::Result<()> {
    let Seen {
        calls,
        pause_at_swaps,
        pause_otherwise,
    } = swap_under_load(load)?;
    println!(
        "| {} swaps under {} changes a second ({calls} calls): the longest time in which no call began, near a swap | {} | 50 ms |",
        load.swaps,
        load.changes_per_second,
        show(pause_at_swaps)
    );
    println!("| — the same away from swaps | {} | |", show(pause_otherwise));
    Ok(())
}
