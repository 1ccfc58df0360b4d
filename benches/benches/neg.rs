//! Prints the README's table of NEGs: `cargo bench -p trueup-benches --bench neg`, or parts of it: `... --bench neg --
//! filter sync`.
//!
//! Times are ratios, with both sides measured in one run. Without `--bench`, as `cargo test` runs it, it does
//! everything once and small, which only shows that it works.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::ensure;
use trueup_benches::endpoints::{self, NativeSets, Sets, Stack, ZONES, native_groups, native_location};
use trueup_benches::measure::{digits, pss_kib, quickest, ratio, show, timed};
use trueup_benches::negs::{self, Filling, Native, Stage};
use trueup_benches::probe::Probe;
use trueup_benches::stage::host;
use trueup_benches::table::{self, against, row, times};
use trueup_guest_neg::entry::united;
use trueup_guest_neg::filter::{Committed, decide};
use trueup_guest_neg::settings::Settings;
use trueup_worlds::neg::guest::Filtered;

/// How much to measure.
struct Effort {
    /// Migrating endpoints, each with the number of rounds.
    filters: [(u32, usize); 3],
    /// The one of them for which other sets are measured too.
    usual: (u32, usize),
    /// Existing endpoints, and the number of rounds.
    sync: (u32, usize),
    instances: u32,
}

const FULL: Effort = Effort {
    filters: [(1_000, 300), (10_000, 60), (100_000, 12)],
    usual: (10_000, 60),
    sync: (10_000, 60),
    instances: 2_000,
};

const TRIAL: Effort = Effort {
    filters: [(3, 0), (30, 0), (90, 0)],
    usual: (30, 0),
    sync: (30, 0),
    instances: 5,
};

/// The best time of the guest's model, a Go controller, for 10,000 endpoints on such a machine.
const ORIGINAL: &str = "24 ms";

fn main() -> anyhow::Result<()> {
    let effort = if table::is_bench() { FULL } else { TRIAL };
    table::print(
        &Stage::new()?,
        &effort,
        &[("filter", filters), ("sync", syncs), ("instances", instances)],
    )
}

/// `filter` of a migration to dual-stack: the guest across the boundary, and the same code natively.
fn filters(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let mut grown = Vec::new();
    for (count, rounds) in effort.filters {
        let seen = measure(stage, &Sets::migration(count, count), rounds)?;
        let what = format!(
            "`filter` of {count} endpoints in {} zones that turn dual-stack, beside {count} committed, against native",
            ZONES.len()
        );
        let is_usual = count == effort.usual.0;
        let goal = if is_usual {
            format!("3x, below {ORIGINAL}")
        } else {
            "3x".to_owned()
        };
        seen.row(&what, &goal);
        let what = "— the boundary apart: the three sets, into a guest that ignores them, against a copy";
        row(
            what,
            &times(ratio(seen.crossed, seen.copied)),
            &against(seen.crossed, seen.copied),
            "",
        );
        let decided = seen.guest.saturating_sub(seen.crossed);
        let what = "— the decision: the rest, against native";
        row(
            what,
            &times(ratio(decided, seen.native)),
            &against(decided, seen.native),
            "",
        );
        if is_usual {
            others(stage, effort.usual)?;
        }
        grown.push((f64::from(count), seen.guest));
    }
    for pair in grown.windows(2) {
        let [(few, quick), (many, slow)] = pair else { continue };
        let expected = (many * many.log2()) / (few * few.log2());
        row(
            &format!("— {many} endpoints against {few}"),
            &times(ratio(*slow, *quick)),
            &against(*slow, *quick),
            &format!("n log n: {}", times(expected)),
        );
    }
    Ok(())
}

/// The same number of endpoints in other sets.
fn others(stage: &Stage, (count, rounds): (u32, usize)) -> anyhow::Result<()> {
    for (what, sets) in [
        ("— with nothing committed", Sets::migration(count, 0)),
        (
            "— half of them on their way and half committed",
            Sets::migration(count / 2, count / 2),
        ),
        (
            "— as many committed, all written in no order",
            Sets::migration(count, count).in_no_order(),
        ),
    ] {
        measure(stage, &sets, rounds)?.row(what, "3x");
    }
    Ok(())
}

/// The measurements of one size.
struct Seen {
    /// The guest's call, with its arguments and its answer across the boundary.
    guest: Duration,
    /// The same decision of the same code, from owned arguments copied beforehand.
    native: Duration,
    /// The arguments sent across the boundary and dropped.
    crossed: Duration,
    /// The arguments copied natively.
    copied: Duration,
}

impl Seen {
    fn row(&self, what: &str, goal: &str) {
        row(
            what,
            &times(ratio(self.guest, self.native)),
            &against(self.guest, self.native),
            goal,
        );
    }
}

fn measure(stage: &Stage, sets: &Sets, rounds: usize) -> anyhow::Result<Seen> {
    let native_sets = sets.native();
    let negs = negs::holding(&[]);
    let mut instance = stage.runtime.block_on(stage.typed(negs.clone()))?;
    let mut probe = stage
        .runtime
        .block_on(Probe::start(&stage.engine, host(negs::backends(negs))))?;
    check(
        &stage.runtime.block_on(instance.filter(sets))?,
        natively(native_sets.clone()),
    )?;
    let mut guest = || timed(|| stage.runtime.block_on(instance.filter(sets)));
    let mut native = || {
        let owned = native_sets.clone();
        timed(|| Ok(natively(owned)))
    };
    let mut crossed = || timed(|| stage.runtime.block_on(probe.taken(sets)));
    let mut copied = || {
        timed(|| {
            drop(black_box(native_sets.clone()));
            Ok(())
        })
    };
    let [guest, native, crossed, copied] = quickest(rounds, [&mut guest, &mut native, &mut crossed, &mut copied])?;
    Ok(Seen {
        guest,
        native,
        crossed,
        copied,
    })
}

fn natively(sets: NativeSets) -> trueup_guest_neg::bindings::exports::trueup::neg::migrator::Filtered {
    let NativeSets { add, remove, committed } = sets;
    let committed = Committed::of(committed);
    let facts = (false, false);
    decide(&Settings::default(), facts, united(add), united(remove), committed).answer()
}

/// Checks that both sides decide the same, and that a migration starts.
fn check(
    guest: &Filtered,
    native: trueup_guest_neg::bindings::exports::trueup::neg::migrator::Filtered,
) -> anyhow::Result<()> {
    ensure!(guest.detaching.is_some(), "no migration starts");
    ensure!(
        native_groups(&guest.add) == native.add
            && native_groups(&guest.remove) == native.remove
            && guest.detaching.as_ref().map(native_location) == native.detaching
            && guest.migrating == native.migrating,
        "the guest does not decide what native code decides"
    );
    Ok(())
}

/// `sync` when everything already exists.
fn syncs(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let (count, rounds) = effort.sync;
    let target = endpoints::groups(0, count, Stack::Dual);
    let native_target = native_groups(&target);
    let mut instance = stage.runtime.block_on(stage.typed(negs::holding(&target)))?;
    let mut guest = || timed(|| stage.runtime.block_on(instance.sync(&target)));
    let mut natively = Native::holding(&target)?;
    let mut native = || {
        let owned = native_target.clone();
        timed(|| natively.sync(owned))
    };
    let [guest, native] = quickest(rounds, [&mut guest, &mut native])?;
    let what = format!(
        "`sync` with {count} endpoints in {} zones, all there already, the simulated NEGs behind it, against native and a \
         copy of the lists",
        ZONES.len()
    );
    row(&what, &times(ratio(guest, native)), &against(guest, native), "");
    Ok(())
}

/// The memory of many instances in one host.
fn instances(stage: &Stage, effort: &Effort) -> anyhow::Result<()> {
    let count = effort.instances;
    let mut each = Vec::new();
    for (endpoints_per_zone, is_recorded) in [(0, false), (10, false), (10, true)] {
        each.push(many(stage, count, endpoints_per_zone, is_recorded)?);
    }
    let [empty, full, recorded] = each.as_slice() else {
        return Ok(());
    };
    let zones = ZONES.len();
    let kib = |kib: f64| format!("{} KiB", digits(kib));
    let what = format!(
        "{count} instances of `neg` in one host, each after syncs of {zones} NEGs without endpoints: memory (Pss) of each"
    );
    row(&what, "", &kib(empty.kib), "300 KiB");
    let what = format!("— {zones} NEGs that it filled with 10 endpoints each: beyond that");
    row(&what, "", &kib(full.kib - empty.kib), "");
    let what = "— such an instance recorded, as a host has them";
    row(what, "", &kib(recorded.kib), "300 KiB");
    let what = "— starting and filling them one after another, not recorded";
    row(what, "", &format!("{} each", show(full.time / count)), "");
    Ok(())
}

/// The cost of one of many instances.
struct Each {
    kib: f64,
    /// For all of them.
    time: Duration,
}

fn many(stage: &Stage, count: u32, endpoints_per_zone: u32, is_recorded: bool) -> anyhow::Result<Each> {
    let folder = tempfile::tempdir()?;
    let recorded = stage.runtime.block_on(stage.recorded(folder.path()))?;
    let mut filling = Filling::new(endpoints_per_zone)?;
    let mut start = |number: u32| {
        stage.runtime.block_on(async {
            let mut instance = if is_recorded {
                recorded
                    .open(&format!("default/web-{number}/80"), negs::backends(filling.negs()))
                    .await?
            } else {
                stage.instance(filling.negs()).await?
            };
            filling.fill(&mut instance).await?;
            anyhow::Ok(instance)
        })
    };
    // Exclude the one-time cost of the first instance.
    drop(start(0)?);
    let without = pss_kib()?;
    let began = Instant::now();
    let mut instances = Vec::new();
    for number in 1..=count {
        instances.push(start(number)?);
    }
    let time = began.elapsed();
    let with = pss_kib()?;
    drop(instances);
    Ok(Each {
        kib: f64::from(u32::try_from(with.saturating_sub(without))?) / f64::from(count),
        time,
    })
}
