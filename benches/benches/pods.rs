//! Prints the README's table of pod addresses: each cost as a ratio, with both sides measured in one run, on one disk.
//!
//! `cargo bench -p trueup-benches --bench pods`, or parts of it: `... --bench pods -- growth plugin`. `plugin` first
//! needs `cargo build --release -p trueup-cni`. Without `--bench`, as `cargo test` runs it, it does everything once and
//! small, which only shows that it works.

use std::sync::Arc;
use std::time::Duration;

use trueup_benches::measure::{digits, quickest, ratio, show, timed};
use trueup_benches::plugin::{self, Plugin};
use trueup_benches::pods::{self, Stage};
use trueup_benches::table::{self, against, row, times};
use trueup_capabilities::checkpoint::Simulated;
use trueup_worlds::ipam::Serving;

/// How much to measure.
struct Effort {
    rounds: usize,
    /// Addresses in the store.
    sizes: &'static [usize],
    /// Pairs of assign and unassign in one round.
    pairs: u32,
    /// Pairs of each pod in one round, where each is one or two syncs of the disk.
    synced_pairs: u32,
    /// Processes of each plugin.
    processes: usize,
}

const FULL: Effort = Effort {
    rounds: 30,
    sizes: &[50, 500, 5_000, 50_000],
    pairs: 500,
    synced_pairs: 100,
    processes: 200,
};

const TRIAL: Effort = Effort {
    rounds: 0,
    sizes: &[4, 8],
    pairs: 2,
    synced_pairs: 2,
    processes: 2,
};

fn main() -> anyhow::Result<()> {
    if plugin::launch()? {
        return Ok(());
    }
    let is_bench = table::is_bench();
    let effort = if is_bench { FULL } else { TRIAL };
    let mut parts: Vec<(&str, table::Part<Stage, Effort>)> =
        vec![("growth", growth), ("syncs", syncs), ("sharing", sharing)];
    if is_bench {
        // In a trial the plugin may not be built yet; its own tests check it.
        parts.push(("plugin", plugins));
    }
    table::print(&Stage::new()?, &effort, &parts)
}

fn per(time: Duration, count: u32) -> Duration {
    time / count.max(1)
}

/// A pair of assign and unassign by the number of addresses, half of them used: the guest's instance alone, and the
/// whole host around it, which records and now and then writes a snapshot of everything. The store is in memory.
fn growth(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut instances = Vec::new();
    let mut hosts = Vec::new();
    for &size in effort.sizes {
        let store = || Arc::new(Simulated::default());
        instances.push(stage.runtime.block_on(stage.half_used(size, store()))?);
        let served = stage.served(&folder.path().join(size.to_string()), size, store())?;
        stage.runtime.block_on(pods::residents(&served, size / 2))?;
        hosts.push(served);
    }
    let mut alone = vec![Duration::MAX; instances.len()];
    // Occasional work belongs to the price: count all rounds, not the fastest.
    let mut whole = vec![Duration::ZERO; hosts.len()];
    let rounds = u32::try_from(effort.rounds.max(1))?;
    for _ in 0..rounds {
        for (instance, best) in instances.iter_mut().zip(&mut alone) {
            *best = timed(|| stage.runtime.block_on(pods::pairs(instance, effort.pairs)))?.min(*best);
        }
        for (served, total) in hosts.iter().zip(&mut whole) {
            *total += timed(|| stage.runtime.block_on(pods::pods(served, 1, effort.pairs)))?;
        }
    }
    let smallest = effort.sizes.first().copied().unwrap_or_default();
    for (what, times_of, pairs, goal) in [
        ("the guest through the host", &alone, effort.pairs, "2x at 50,000"),
        ("the whole host, recording", &whole, effort.pairs * rounds, ""),
    ] {
        let first = times_of.first().copied().unwrap_or_default();
        for (size, time) in effort.sizes.iter().zip(times_of) {
            row(
                &format!("assign and unassign with {size} addresses, half used, against {smallest}: {what}"),
                &times(ratio(*time, first)),
                &format!("{} a pair", show(per(*time, pairs))),
                goal,
            );
        }
    }
    Ok(())
}

/// Operations of one pod after another with the file store, each durable before its answer, compared with bare syncs.
fn syncs(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let served = stage.served(folder.path(), 100, pods::file(folder.path(), false)?)?;
    let operations = effort.synced_pairs * 2;
    let mut host = || timed(|| stage.runtime.block_on(pods::pods(&served, 1, effort.synced_pairs)));
    let mut disk = || pods::syncs(folder.path(), operations);
    let [host, disk] = quickest(effort.rounds, [&mut host, &mut disk])?;
    let rate = |time: Duration| digits(f64::from(operations) / time.as_secs_f64());
    row(
        "an operation of the host, file store, `shared_sync` off, against a write and `fdatasync`",
        &times(ratio(host, disk)),
        &format!("{} against {} a second", rate(host), rate(disk)),
        "1.3x",
    );
    Ok(())
}

/// 16 pods at once: a sync for each operation, compared with shared syncs.
fn sharing(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    const AT_ONCE: u32 = 16;
    let folder = tempfile::tempdir()?;
    let host = |name: &str, shared_sync| {
        let folder = folder.path().join(name);
        stage.served(&folder, 100, pods::file(&folder, shared_sync)?)
    };
    let (own, shared) = (host("own", false)?, host("shared", true)?);
    let pods = |served| timed(|| stage.runtime.block_on(pods::pods(served, AT_ONCE, effort.synced_pairs)));
    let [own, shared] = quickest(effort.rounds, [&mut || pods(&own), &mut || pods(&shared)])?;
    let operations = AT_ONCE * effort.synced_pairs * 2;
    row(
        &format!("an operation with {AT_ONCE} pods at once, file store: `shared_sync` off against on"),
        &times(ratio(own, shared)),
        &against(per(own, operations), per(shared, operations)),
        "3x",
    );
    Ok(())
}

/// ADD as a process, compared with Debian's `host-local`.
fn plugins(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(host_local) = Plugin::host_local(folder.path()) else {
        anyhow::bail!("`host-local` is not installed: apt-get install containernetworking-plugins");
    };
    let (settings, instances, backends) = stage.parts(folder.path(), pods::file(folder.path(), true)?)?;
    let trueup = Plugin::trueup(&settings.socket)?;
    let (_list, enis) = tokio::sync::watch::channel(pods::enis(1_000));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (told, listening) = std::sync::mpsc::channel();
    let serving = Serving {
        settings,
        managed: instances.into(),
        backends,
        enis,
    };
    let host = stage.runtime.spawn(trueup_worlds::ipam::serve(
        serving,
        async {
            // The sender is dropped on a failure, which also stops the server.
            let _ = stopped.await;
        },
        move |event| {
            if let trueup_worlds::ipam::Event::Listening { .. } = event {
                let _ = told.send(());
            }
        },
    ));
    listening.recv_timeout(Duration::from_secs(60))?;
    let (mut ours, mut theirs, mut disk) = (Vec::new(), Vec::new(), Vec::new());
    let (mut our_bytes, mut their_bytes) = (Vec::new(), Vec::new());
    for n in 0..effort.processes {
        let container = format!("pod{n}");
        ours.push(trueup.run("ADD", &container)?);
        theirs.push(host_local.run("ADD", &container)?);
        disk.push(pods::syncs(folder.path(), 1)?);
        let container = format!("measured{n}");
        our_bytes.push(trueup.resident("ADD", &container)?);
        their_bytes.push(host_local.resident("ADD", &container)?);
    }
    let _ = stop.send(());
    stage.runtime.block_on(host)??;
    let (ours, theirs, disk) = (median(ours), median(theirs), median(disk));
    row(
        &format!(
            "`trueup-cni` ADD end to end, against `host-local`: medians of {}",
            effort.processes
        ),
        &times(ratio(ours, theirs)),
        &format!("{}; of that a sync {}", against(ours, theirs), show(disk)),
        "1x",
    );
    let megabytes = |bytes: Vec<u64>| u32::try_from(median(bytes) / 1000).map(|kb| f64::from(kb) / 1e3);
    let (ours, theirs) = (megabytes(our_bytes)?, megabytes(their_bytes)?);
    row(
        "— resident at most, the launcher's own memory included",
        &times(ours / theirs),
        &format!("{} MB against {} MB", digits(ours), digits(theirs)),
        "under 8 MB",
    );
    Ok(())
}

fn median<T: Ord + Copy + Default>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
