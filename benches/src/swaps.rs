//! A whole host whose guest is swapped while Services change: the cost of a swap for waiting work.
//!
//! The recordings give the pause: the times when calls of any instance began. A change makes so much work that some key
//! could always run; the pauses away from swaps show how far that holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use trueup_config::Config;
use trueup_journal::{Event, Segment, segment_files};
use trueup_runtime::control::{Client, Swap};
use trueup_runtime::run;
use trueup_work::swap::Activated;
use trueup_worlds::sections;

/// How much to do.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Services that change in turn. There are enough of them that each rests for a while, since the host does not
    /// trust a file that is still changing.
    pub services: usize,
    /// Total changes a second.
    pub changes_per_second: u32,
    /// Swaps between `lbaas@1` and `lbaas@2`.
    pub swaps: usize,
    /// The time between two swaps.
    pub between: Duration,
}

/// The measurements.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Calls of all instances.
    pub calls: usize,
    /// The longest time in which no call began, in a window around a swap.
    pub pause_at_swaps: Duration,
    /// The same, away from swaps.
    pub pause_otherwise: Duration,
}

/// A host that takes longer to start never will.
const UP_MAX: Duration = Duration::from_secs(60);

/// A pause this close to a swap counts as the swap's.
const WINDOW_MS: u64 = 200;

/// Runs a host under load and swaps its guest.
///
/// # Errors
/// If a change is lost, a swap is refused, or a key does not get in sync.
pub fn swap_under_load(load: Load) -> anyhow::Result<Seen> {
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    std::fs::create_dir(folder.path().join("manifests"))?;
    std::fs::write(folder.path().join("trueup.toml"), CONFIGURATION)?;
    std::fs::write(folder.path().join("manifests/nodes.yaml"), NODE)?;
    for service in 0..load.services {
        write(folder.path(), service, 0)?;
    }
    // The test's environment variables do not apply to the host.
    let config = Config::load_with(folder.path(), &BTreeMap::new(), &sections()).map_err(anyhow::Error::from)?;
    let registry = crate::stage::registry();
    let done = Arc::new(AtomicBool::new(false));
    let changing = {
        let (folder, done) = (folder.path().to_owned(), Arc::clone(&done));
        std::thread::spawn(move || change(&folder, load, &done))
    };
    let swaps = runtime.block_on(async {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let host = run::watch(
            config.clone(),
            &registry,
            None,
            async {
                // The sender is dropped at the end.
                let _ = stopped.await;
            },
            |_| (),
        );
        let swaps = async {
            let swaps = swap(&config, load).await;
            done.store(true, Ordering::SeqCst);
            drop(stop);
            swaps
        };
        let (ended, swaps) = tokio::join!(host, swaps);
        let ended = ended?;
        let services = ended.of("summary").context("a host that has Services")?;
        if !services.is_true {
            bail!("{services:?}");
        }
        swaps
    });
    // Even if the host ended first.
    done.store(true, Ordering::SeqCst);
    changing
        .join()
        .map_err(|_| anyhow::anyhow!("the thread that changes Services panicked"))??;
    let swaps = swaps?;
    read(&config.state_dir, &swaps)
}

async fn swap(config: &Config, load: Load) -> anyhow::Result<Vec<u64>> {
    // The host listens once it is up.
    let begun = Instant::now();
    let client = loop {
        match Client::new(&config.state_dir) {
            Ok(client) if client.get::<serde_json::Value>("guests").await.is_ok() => break client,
            _ if begun.elapsed() > UP_MAX => bail!("the host does not listen after {} s", UP_MAX.as_secs()),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let journals = config.state_dir.join("journals/lbaas");
    while !journals.exists() {
        if begun.elapsed() > UP_MAX {
            bail!("the host makes no call after {} s", UP_MAX.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(load.between * 2).await;
    let mut at = Vec::new();
    for number in 0..load.swaps {
        let swap = Swap {
            reference: format!("builtin:lbaas@{}", 2 - number % 2),
            gate: None,
            dry_run: false,
            afresh: false,
        };
        let _: Activated = client.post("guests/lbaas/swap", &swap).await?;
        at.push(u64::try_from(
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)?
                .as_millis(),
        )?);
        tokio::time::sleep(load.between).await;
    }
    Ok(at)
}

/// Changes Services in turn until the end.
fn change(folder: &Path, load: Load, done: &AtomicBool) -> anyhow::Result<()> {
    let pause = Duration::from_secs(1) / load.changes_per_second;
    let begun = Instant::now();
    let mut changes = 0;
    while !done.load(Ordering::SeqCst) {
        changes += 1;
        write(folder, changes as usize % load.services, changes)?;
        std::thread::sleep((pause * changes).saturating_sub(begun.elapsed()));
    }
    Ok(())
}

fn write(folder: &Path, service: usize, change: u32) -> anyhow::Result<()> {
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: s{service}, namespace: default}}\nspec:\n  type: LoadBalancer\n  ports:\n"
    );
    for port in 0..PORTS {
        let node_port = 30_000 + (change + port) % 2_000;
        writeln!(
            text,
            "    - {{name: p{port}, port: {}, nodePort: {node_port}}}",
            80 + port
        )?;
    }
    let file = folder.join(format!("manifests/s{service}.yaml"));
    let part = folder.join(format!("manifests/.s{service}.part"));
    std::fs::write(&part, text)?;
    Ok(std::fs::rename(part, file)?)
}

/// When calls began, and the longest pauses between two of them.
fn read(state_dir: &Path, swaps: &[u64]) -> anyhow::Result<Seen> {
    let mut began = BTreeSet::new();
    let mut calls = 0;
    for instance in std::fs::read_dir(state_dir.join("journals/lbaas"))? {
        for file in segment_files(&instance?.path())? {
            for entry in Segment::read(&file.path)?.entries {
                if let Event::Call(call) = entry.event {
                    calls += 1;
                    began.insert(call.at_ms);
                }
            }
        }
    }
    let (Some(first), Some(last)) = (swaps.first(), swaps.last()) else {
        bail!("there was no swap");
    };
    let is_near = |ms: u64| swaps.iter().any(|swap| ms.abs_diff(*swap) <= WINDOW_MS);
    let (mut near, mut far) = (0, 0);
    let under_load: Vec<u64> = began.range(*first..=*last).copied().collect();
    for pair in under_load.windows(2) {
        let [from, to] = pair else { continue };
        let longest = if is_near(*from) || is_near(*to) {
            &mut near
        } else {
            &mut far
        };
        *longest = (to - from).max(*longest);
    }
    Ok(Seen {
        calls,
        pause_at_swaps: Duration::from_millis(near),
        pause_otherwise: Duration::from_millis(far),
    })
}

/// Ports of each Service: each change destroys and creates this many servers for each Node.
const PORTS: u32 = 10;

const CONFIGURATION: &str = r#"
[source]
manifests = "manifests"
[guests.lbaas]
use = "builtin:lbaas@1"
settings = { backoff_initial_ms = 1 }
grants = { lbaas = { read = ["lb-1"], write = ["lb-1"] } }
[adapter.lbaas]
cluster = "bench"
load_balancers = ["lb-1"]
addresses = ["203.0.113.10"]
[backend.lbaas]
kind = "simulated"
"#;

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus:\n  addresses: [{type: InternalIP, address: 192.0.2.11}]\n  \
                    conditions: [{type: Ready, status: \"True\"}]\n";
