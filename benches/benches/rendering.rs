//! Prints the README's table of Services on a node: `cargo bench -p trueup-benches --bench rendering`, or parts of it:
//! `... --bench rendering -- change resync kernel`. `kernel` needs root, `nft` and `ip` (Debian: `nftables`,
//! `iproute2`).
//!
//! Times are ratios, with both sides measured in one run. Without `--bench`, as `cargo test` runs it, it does
//! everything but the kernel once and small, which only shows that it works.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use trueup_benches::measure::{digits, quickest, ratio, show, timed};
use trueup_benches::rendering::{
    Alone, Given, Stage, backends, change, renderer_args, resync_args, state, taken, update_args,
};
use trueup_benches::table::{self, row};
use trueup_capabilities::nftables::nft::{Nft, Settings, TIMEOUT};
use trueup_capabilities::nftables::{Api as _, Simulated};
use trueup_capabilities::{Backends, etcd, renderer};

/// How much to measure.
struct Effort {
    /// Numbers of Services.
    sizes: &'static [usize],
    /// The same, with the kernel.
    kernel_sizes: &'static [usize],
    rounds: usize,
    kernel_rounds: usize,
    /// Changes in one round.
    changes: u32,
    /// Services, and backends of each, in a resync.
    resync: (usize, usize),
}

const FULL: Effort = Effort {
    sizes: &[100, 1_000, 10_000, 50_000],
    kernel_sizes: &[100, 1_000, 10_000],
    rounds: 20,
    kernel_rounds: 10,
    changes: 500,
    resync: (10_000, 10),
};

const TRIAL: Effort = Effort {
    sizes: &[3, 9],
    kernel_sizes: &[],
    rounds: 0,
    kernel_rounds: 0,
    changes: 2,
    resync: (5, 3),
};

/// Backends of each service while one changes.
const BACKENDS: usize = 3;

/// The time of the guest's model, a Go controller, for one update among 1,000 services; it grows with their number.
const ORIGINAL: &str = "0.48 ms among 1,000";

/// The argument that makes this program run only a resync.
const RESYNC_ALONE: &str = "--resync-alone";

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == RESYNC_ALONE) {
        let number = |at: usize| args.get(at).and_then(|arg| arg.parse().ok()).context("a number");
        return resync_alone(number(1)?, number(2)?);
    }
    let effort = if table::is_bench() { FULL } else { TRIAL };
    table::print(
        &Stage::new()?,
        &effort,
        &[("change", changes), ("resync", resyncs), ("kernel", kernel)],
    )
}

/// Guests and hosts with this many services, all at once, so that the sizes are measured in turn.
struct Sized {
    count: usize,
    service: Alone,
    /// Two changes that cancel each other out: as `service` receives them, and as renderers do.
    events: [Box<serde_json::value::RawValue>; 2],
    renderers: Vec<Alone>,
    calls: [(&'static str, Box<serde_json::value::RawValue>); 2],
    wired: trueup_benches::rendering::Wired,
    _folder: tempfile::TempDir,
}

const RENDERERS: [&str; 2] = ["nftables", "nat44"];

impl Sized {
    async fn new(stage: &Stage, count: usize) -> anyhow::Result<Self> {
        let heard = Arc::new(Given::default());
        let hearing = Backends {
            renderers: Some(heard.clone()),
            ..backends()?
        };
        let mut service = stage.alone("service", hearing).await?;
        service
            .call("processor.resync", &resync_args(state(count, BACKENDS))?)
            .await?;
        let told = heard.take();
        let resync = told.first().context("no resync was asked for")?;
        let (more, less) = (change(count / 2, BACKENDS + 1), change(count / 2, BACKENDS));
        let events = [update_args(more)?, update_args(less)?];
        for event in &events {
            service.call("processor.update", event).await?;
        }
        let told = heard.take();
        let [more, less] = told.as_slice() else {
            anyhow::bail!("{} calls for two changes", told.len());
        };
        let calls = [renderer_args(more)?, renderer_args(less)?];
        let mut renderers = Vec::new();
        for name in RENDERERS {
            let of_its_own = Backends {
                etcd: Some(Arc::new(etcd::embedded::Embedded::in_memory()?)),
                ..backends()?
            };
            let mut renderer = stage.alone(name, of_its_own).await?;
            let (call, args) = renderer_args(resync)?;
            renderer.call(call, &args).await?;
            renderers.push(renderer);
        }
        // From here on, drop the recorded calls.
        let quiet = Backends {
            renderers: Some(Arc::new(renderer::Simulated)),
            ..backends()?
        };
        let mut alone = stage.alone("service", quiet).await?;
        alone
            .call("processor.resync", &resync_args(state(count, BACKENDS))?)
            .await?;
        let folder = tempfile::tempdir()?;
        let mut wired = stage.wired(folder.path(), Arc::new(Simulated)).await?;
        taken(wired.resync(state(count, BACKENDS)).await)?;
        Ok(Self {
            count,
            service: alone,
            events,
            renderers,
            calls,
            wired,
            _folder: folder,
        })
    }

    async fn service(&mut self, changes: u32) -> anyhow::Result<()> {
        for event in self.events.iter().cycle().take(changes as usize) {
            self.service.call("processor.update", event).await?;
        }
        Ok(())
    }

    async fn renderer(&mut self, renderer: usize, changes: u32) -> anyhow::Result<()> {
        let Some(instance) = self.renderers.get_mut(renderer) else {
            return Ok(());
        };
        for (call, args) in self.calls.iter().cycle().take(changes as usize) {
            instance.call(call, args).await?;
        }
        Ok(())
    }

    async fn host(&mut self, changes: u32) -> anyhow::Result<()> {
        for n in 0..changes as usize {
            let endpoints = BACKENDS + 1 - n % 2;
            taken(self.wired.update(change(self.count / 2, endpoints)).await)?;
        }
        Ok(())
    }
}

/// One endpoint more or less of one service, among this many.
fn changes(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for count in effort.sizes {
        all.push(stage.runtime.block_on(Sized::new(stage, *count))?);
    }
    // An even number restores the initial state.
    let changes = effort.changes.next_multiple_of(2);
    type Side = fn(&Stage, &mut Sized, u32) -> anyhow::Result<()>;
    let sides: [(&str, Side); 4] = [
        ("guest `service`", |stage, sized, changes| {
            stage.runtime.block_on(sized.service(changes))
        }),
        ("guest `nftables`", |stage, sized, changes| {
            stage.runtime.block_on(sized.renderer(0, changes))
        }),
        ("guest `nat44`, its store in memory", |stage, sized, changes| {
            stage.runtime.block_on(sized.renderer(1, changes))
        }),
        (
            "host: `service` and `nftables` with their recordings, without the kernel",
            |stage, sized, changes| stage.runtime.block_on(sized.host(changes)),
        ),
    ];
    for (what, side) in sides {
        let mut times = vec![Duration::MAX; all.len()];
        for round in 0..=effort.rounds.max(1) {
            for (sized, time) in all.iter_mut().zip(&mut times) {
                let took = timed(|| side(stage, sized, changes))? / changes;
                if round > 0 {
                    *time = took.min(*time);
                }
            }
        }
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            continue;
        };
        let absolute: Vec<String> = times.iter().map(|time| show(*time)).collect();
        row(
            &format!("one endpoint change among {}: {what}", listed(effort.sizes)),
            &format!("{}x from first to last", digits(ratio(*last, *first))),
            &absolute.join(", "),
            &format!("2x ({ORIGINAL})"),
        );
    }
    Ok(())
}

fn listed(sizes: &[usize]) -> String {
    let all: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// Everything at once, in a process of its own: its time, and its peak memory.
fn resyncs(_stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let (services, endpoints) = effort.resync;
    let (nothing_took, least) = child(0, 0)?;
    let (took, most) = child(services, endpoints)?;
    row(
        &format!(
            "resync of {services} services x {endpoints} backends: host, `service` and `nftables`, without the kernel"
        ),
        &format!("{}x a resync of nothing", digits(ratio(took, nothing_took))),
        &format!(
            "{}; {} MiB at most, {} MiB without services",
            show(took),
            most >> 20,
            least >> 20
        ),
        "",
    );
    Ok(())
}

/// The time, and the peak memory in bytes.
fn child(services: usize, endpoints: usize) -> anyhow::Result<(Duration, u64)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([RESYNC_ALONE, &services.to_string(), &endpoints.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().context("no output")?, &mut said)?;
    let status = child.wait()?;
    ensure!(status.success(), "the resync: {status}");
    let (micros, kib) = said.trim().split_once(' ').context("the time and the memory")?;
    Ok((Duration::from_micros(micros.parse()?), kib.parse::<u64>()? << 10))
}

/// The peak memory of this process, in KiB. The kernel's figure for the parent would include the parent's own.
fn most_memory_kib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.context("no VmHWM in /proc/self/status")?.parse()?)
}

fn resync_alone(services: usize, endpoints: usize) -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let folder = tempfile::tempdir()?;
    let took = stage.runtime.block_on(async {
        let mut wired = stage.wired(folder.path(), Arc::new(Simulated)).await?;
        // Opens the instances.
        taken(wired.resync(state(0, 0)).await)?;
        let state = state(services, endpoints);
        let begun = Instant::now();
        taken(wired.resync(state).await)?;
        anyhow::Ok(begun.elapsed())
    })?;
    println!("{} {}", took.as_micros(), most_memory_kib()?);
    Ok(())
}

/// A network namespace that this process owns and removes.
struct Namespace(String);

impl Namespace {
    fn new() -> anyhow::Result<Self> {
        let name = format!("trueup-bench-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status();
        let made = made.context("`ip netns`: apt-get install iproute2")?;
        ensure!(made.success(), "making a network namespace needs root");
        Ok(Self(name))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

/// nft's own time for the guest's transactions.
fn kernel(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    for &count in effort.kernel_sizes {
        let namespace = Namespace::new()?;
        let nft = Nft::new(Settings {
            program: PathBuf::from("nft"),
            namespace: Some(PathBuf::from("/run/netns").join(&namespace.0)),
            timeout: TIMEOUT,
            ..Settings::default()
        });
        let transactions = Arc::new(Given::default());
        let (resync, pair) = stage.runtime.block_on(async {
            let folder = tempfile::tempdir()?;
            let mut wired = stage.wired(folder.path(), transactions.clone()).await?;
            taken(wired.resync(state(count, BACKENDS)).await)?;
            let resync = transactions.take();
            for endpoints in [BACKENDS + 1, BACKENDS] {
                taken(wired.update(change(count / 2, endpoints)).await)?;
            }
            anyhow::Ok((resync, transactions.take()))
        })?;
        let apply = |all: &[String]| -> anyhow::Result<()> {
            for ruleset in all {
                let applied = stage.runtime.block_on(nft.apply(ruleset));
                applied.map_err(anyhow::Error::msg)?;
            }
            Ok(())
        };
        let everything = timed(|| apply(&resync))?;
        let [both] = quickest(effort.kernel_rounds, [&mut || timed(|| apply(&pair))])?;
        let changes = u32::try_from(pair.len())?;
        row(
            &format!("`nft` and the kernel: one change among {count} services, its process included"),
            "",
            &format!("{}; all {count} at once: {}", show(both / changes), show(everything)),
            "",
        );
    }
    Ok(())
}
