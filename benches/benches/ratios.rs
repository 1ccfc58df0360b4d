//! Prints the README's table: each cost as a ratio, with both sides measured in one run.
//!
//! `cargo bench -p trueup-benches --bench ratios`, or parts of it: `... --bench ratios -- checks recording`. Without
//! `--bench`, as `cargo test` runs it, it does everything once and small, which only shows that it works.

use std::hint::black_box;
use std::time::Duration;

use trueup_benches::http::{self, Latency};
use trueup_benches::measure::{digits, quickest, ratio, show, timed};
use trueup_benches::probe::Probe;
use trueup_benches::service::{self, Listed, Size};
use trueup_benches::stage::{self, Stage};
use trueup_benches::table::{self, against, row, times};
use trueup_engine::Guest;
use trueup_engine::{Engine, Options};

/// How much to measure.
struct Effort {
    /// For work that takes microseconds.
    quick_rounds: usize,
    /// For work that takes milliseconds.
    rounds: usize,
    /// For work that takes tens of milliseconds.
    slow_rounds: usize,
    /// Calls in one round of work that is too short for a clock.
    calls: u32,
    checks: [Size; 3],
    reconcile: Size,
    latency_ms: u64,
}

const FULL: Effort = Effort {
    quick_rounds: 300,
    rounds: 100,
    slow_rounds: 12,
    calls: 10_000,
    checks: [
        Size { ports: 10, servers: 10 },
        Size { ports: 50, servers: 50 },
        Size {
            ports: 100,
            servers: 100,
        },
    ],
    reconcile: Size { ports: 20, servers: 50 },
    latency_ms: 5,
};

const TRIAL: Effort = Effort {
    quick_rounds: 0,
    rounds: 0,
    slow_rounds: 0,
    calls: 10,
    checks: [
        Size { ports: 1, servers: 1 },
        Size { ports: 2, servers: 2 },
        Size { ports: 3, servers: 3 },
    ],
    reconcile: Size { ports: 2, servers: 3 },
    latency_ms: 0,
};

fn main() -> anyhow::Result<()> {
    let effort = if table::is_bench() { FULL } else { TRIAL };
    table::print(
        &Stage::new()?,
        &effort,
        &[
            ("boundary", boundary),
            ("starts", starts),
            ("checks", checks),
            ("recording", recording),
            ("concurrency", concurrency),
        ],
    )
}

/// How many for each call of a guest: a hundred of them take as long as one.
const DIRECT_CALLS: u32 = 100;

#[inline(never)]
fn nothing(argument: u32) -> u32 {
    argument
}

/// An empty call of a guest, and an empty question of one, compared with a call of a Rust function.
fn boundary(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let calls = effort.calls;
    let mut probe = stage
        .runtime
        .block_on(Probe::start(&stage.engine, stage.host(service::empty_engine())))?;
    let mut empty = || {
        timed(|| {
            stage.runtime.block_on(async {
                for _ in 0..calls {
                    probe.empty().await?;
                }
                Ok(())
            })
        })
    };
    let mut direct = || {
        timed(|| {
            for n in 0..calls * DIRECT_CALLS {
                black_box(nothing(black_box(n)));
            }
            Ok(())
        })
    };
    let [empty, direct_of_call] = quickest(effort.rounds, [&mut empty, &mut direct])?;
    let mut asked = || timed(|| stage.runtime.block_on(probe.ask(calls)));
    let [asked, direct_of_import] = quickest(effort.rounds, [&mut asked, &mut direct])?;
    let compare = |what: &str, time: Duration, direct: Duration| {
        let ns = |time: Duration, calls: u32| time.as_secs_f64() * 1e9 / f64::from(calls);
        let (time, direct) = (ns(time, calls), ns(direct, calls * DIRECT_CALLS));
        let absolute = format!("{} ns against {} ns", digits(time), digits(direct));
        row(what, &times(time / direct), &absolute, "");
    };
    compare("an empty guest call, against a direct Rust call", empty, direct_of_call);
    compare(
        "an empty import (`clock.now-ms` of a stopped clock), against the same",
        asked,
        direct_of_import,
    );
    Ok(())
}

/// The cost of an instance.
fn starts(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let api = service::empty_engine();
    let cache = tempfile::tempdir()?;
    let bytes = stage::lbaas()?.bytes;
    drop(stage::load_cached(&cache.path().join("cache"))?);
    let mut compile = || {
        let engine = Engine::new(&Options::default())?;
        timed(|| Ok::<Guest, anyhow::Error>(engine.load(bytes)?))
    };
    let mut load = || timed(|| stage::load_cached(&cache.path().join("cache")));
    let mut instantiate = || timed(|| stage.runtime.block_on(stage.instance(api.clone())));
    let [compile, load, _] = quickest(effort.slow_rounds, [&mut compile, &mut load, &mut instantiate])?;
    let [instantiate] = quickest(effort.quick_rounds, [&mut instantiate])?;
    let what = "a cold start from the compile cache, engine included, against compiling";
    row(
        what,
        &format!("1/{}", digits(ratio(compile, load))),
        &against(load, compile),
        "",
    );
    let what = "an instance, `init` included, against loading its guest from the cache";
    row(
        what,
        &format!("1/{}", digits(ratio(load, instantiate))),
        &show(instantiate),
        "",
    );
    Ok(())
}

/// `reconcile-check` of a service in sync, compared with the same decision in Rust and a copy of the list.
fn checks(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let mut grown = Vec::new();
    for size in effort.checks {
        let engine = stage.runtime.block_on(size.filled())?;
        let listed = stage.runtime.block_on(service::listed(&engine))?;
        let (desired, args, tag) = (size.desired(), size.args()?, Size::tag());
        let list = stage.runtime.block_on(Listed::of(&engine))?;
        let mut instance = stage.runtime.block_on(stage.instance(list.clone()))?;
        let mut simulated = stage.runtime.block_on(stage.instance(engine))?;
        let mut probe = stage.runtime.block_on(Probe::start(&stage.engine, stage.host(list)))?;
        let mut guest = || timed(|| stage.runtime.block_on(stage::check(&mut instance, &args)));
        let mut native = || timed(|| Ok(service::check_natively(&desired, listed.clone())));
        let mut copied = || {
            timed(|| {
                drop(black_box(listed.clone()));
                Ok(())
            })
        };
        let mut looked_up = || timed(|| stage.runtime.block_on(stage::check(&mut simulated, &args)));
        let mut crossed = || timed(|| stage.runtime.block_on(probe.listed(&tag)));
        let [guest, native] = quickest(effort.rounds, [&mut guest, &mut native])?;
        let [crossed, copied] = quickest(effort.rounds, [&mut crossed, &mut copied])?;
        let [looked_up] = quickest(effort.rounds, [&mut looked_up])?;
        let what = format!(
            "`reconcile-check` of {size}, true already ({} objects), against native and a copy of the list",
            size.objects()
        );
        row(&what, &times(ratio(guest, native)), &against(guest, native), "3x");
        let what = "— the boundary apart: the list alone, into a guest that ignores it, against a copy";
        row(what, &times(ratio(crossed, copied)), &against(crossed, copied), "");
        let (decided, natively) = (guest.saturating_sub(crossed), native.saturating_sub(copied));
        row(
            "— without either",
            &times(ratio(decided, natively)),
            &against(decided, natively),
            "",
        );
        let what = "— with the simulated Engine in place of the list, against native and a copy";
        row(what, &times(ratio(looked_up, native)), &against(looked_up, native), "");
        grown.push((f64::from(size.objects()), guest));
    }
    for pair in grown.windows(2) {
        let [(few, quick), (many, slow)] = pair else { continue };
        let what = format!("— {many} objects against {few}");
        let expected = (many * many.log2()) / (few * few.log2());
        row(
            &what,
            &times(ratio(*slow, *quick)),
            &against(*slow, *quick),
            &format!("n log n: {}", times(expected)),
        );
    }
    Ok(())
}

/// A reconcile from nothing in memory: not recorded, recorded, and replayed.
fn recording(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let size = effort.reconcile;
    let args = size.args()?;
    let folder = tempfile::tempdir()?;
    let mut off = || {
        let mut instance = stage.runtime.block_on(stage.instance(service::empty_engine()))?;
        timed(|| {
            stage
                .runtime
                .block_on(stage::reconcile(&mut instance, &args, size.objects()))
        })
    };
    let mut n = 0;
    let mut on = || {
        n += 1;
        let folder = folder.path().join(format!("{n}"));
        let mut instance = stage
            .runtime
            .block_on(stage.recorded(&folder, service::empty_engine()))?;
        timed(|| {
            stage
                .runtime
                .block_on(stage::reconcile(&mut instance, &args, size.objects()))
        })
    };
    let mut recorded = stage
        .runtime
        .block_on(stage.recorded(&folder.path().join("0"), service::empty_engine()))?;
    stage
        .runtime
        .block_on(stage::reconcile(&mut recorded, &args, size.objects()))?;
    let mut replayed = || {
        let segment = stage::segment(&recorded)?;
        timed(|| stage.runtime.block_on(stage.replay(segment)))
    };
    let mut read = || timed(|| stage::segment(&recorded));
    let rounds = effort.rounds;
    let [off, on, replayed, read] = quickest(rounds, [&mut off, &mut on, &mut replayed, &mut read])?;
    let bytes = std::fs::metadata(stage::segment_file(&recorded)?)?.len() / 1024;
    let what = format!("`reconcile` of {size} from nothing, in memory: recorded ({bytes} KiB) against not");
    row(
        &what,
        &format!("{} % more", digits((ratio(on, off) - 1.0) * 100.0)),
        &against(on, off),
        "30 % more",
    );
    row(
        "— replayed, instance included, against not recorded",
        &times(ratio(replayed, off)),
        &against(replayed, off),
        "2x",
    );
    row(
        "— reading the recording, against not recorded",
        &times(ratio(read, off)),
        &against(read, off),
        "",
    );
    Ok(())
}

/// A reconcile from nothing over HTTP: one request at a time, compared with a host's default concurrency.
fn concurrency(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    const CONCURRENT: u16 = 16;
    let size = effort.reconcile;
    let ms = effort.latency_ms;
    for (of_taggings, goal) in [(true, "3.5x"), (false, "10x")] {
        let latency = Latency { ms, of_taggings };
        let one = http::reconcile(stage, size, latency, 1)?;
        let many = http::reconcile(stage, size, latency, CONCURRENT)?;
        let what = if of_taggings {
            format!(
                "`reconcile` of {size} from nothing over HTTP, {ms} ms an answer: 1 request at a time against {CONCURRENT}; \
                 {} taggings are one at a time, {} requests are not: at most {}",
                many.taggings,
                many.others,
                times(many.bound(CONCURRENT)),
            )
        } else {
            format!(
                "— everything but tagging: the same where taggings are answered at once: at most {}",
                times(f64::from(CONCURRENT))
            )
        };
        row(
            &what,
            &times(ratio(one.time, many.time)),
            &against(one.time, many.time),
            goal,
        );
    }
    Ok(())
}
