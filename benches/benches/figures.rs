//! The single figures with their spread: `cargo bench -p trueup-benches --bench figures`.
#![expect(clippy::expect_used, reason = "a benchmark that does not work has no figure")]

use std::sync::LazyLock;

use divan::Bencher;
use trueup_benches::probe::Probe;
use trueup_benches::service::{self, Listed, Size};
use trueup_benches::stage::{self, Stage};
use trueup_engine::{Engine, Options};

const SIZES: [Size; 3] = [
    Size { ports: 10, servers: 10 },
    Size { ports: 50, servers: 50 },
    Size {
        ports: 100,
        servers: 100,
    },
];
const RECONCILED: Size = Size { ports: 20, servers: 50 };

static STAGE: LazyLock<Stage> = LazyLock::new(|| Stage::new().expect("the guest runs here"));

fn main() {
    divan::main();
}

fn probe() -> Probe {
    let api = service::empty_engine();
    STAGE
        .runtime
        .block_on(Probe::start(&STAGE.engine, STAGE.host(api)))
        .expect("the probe fits the host")
}

#[divan::bench]
fn empty_guest_call(bencher: Bencher<'_, '_>) {
    let mut probe = probe();
    bencher.bench_local(|| STAGE.runtime.block_on(probe.empty()).expect("an empty call"));
}

/// One call that asks a hundred times.
#[divan::bench]
fn hundred_imports(bencher: Bencher<'_, '_>) {
    let mut probe = probe();
    bencher.bench_local(|| STAGE.runtime.block_on(probe.ask(100)).expect("a hundred questions"));
}

#[divan::bench]
fn instantiate(bencher: Bencher<'_, '_>) {
    let api = service::empty_engine();
    bencher.bench_local(|| {
        STAGE
            .runtime
            .block_on(STAGE.instance(api.clone()))
            .expect("an instance")
    });
}

#[divan::bench(sample_count = 10)]
fn compile(bencher: Bencher<'_, '_>) {
    let bytes = stage::lbaas().expect("the guest is built in").bytes;
    let engine = || Engine::new(&Options::default()).expect("an engine");
    bencher
        .with_inputs(engine)
        .bench_local_values(|engine| engine.load(bytes).expect("the guest compiles"));
}

#[divan::bench]
fn load_from_cache(bencher: Bencher<'_, '_>) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("cache");
    drop(stage::load_cached(&folder).expect("the guest compiles"));
    bencher.bench_local(|| stage::load_cached(&folder).expect("the guest loads"));
}

#[divan::bench(args = SIZES)]
fn check_in_the_guest(bencher: Bencher<'_, '_>, size: Size) {
    let engine = STAGE.runtime.block_on(size.filled()).expect("a list");
    let list = STAGE.runtime.block_on(Listed::of(&engine)).expect("a list");
    let args = size.args().expect("arguments");
    let mut instance = STAGE.runtime.block_on(STAGE.instance(list)).expect("an instance");
    bencher.bench_local(|| {
        STAGE
            .runtime
            .block_on(stage::check(&mut instance, &args))
            .expect("nothing to do")
    });
}

#[divan::bench(args = SIZES)]
fn check_natively(bencher: Bencher<'_, '_>, size: Size) {
    let engine = STAGE.runtime.block_on(size.filled()).expect("a list");
    let listed = STAGE.runtime.block_on(service::listed(&engine)).expect("a list");
    let desired = size.desired();
    bencher.bench_local(|| service::check_natively(&desired, listed.clone()));
}

#[divan::bench(args = SIZES)]
fn list_across_the_boundary(bencher: Bencher<'_, '_>, size: Size) {
    let engine = STAGE.runtime.block_on(size.filled()).expect("a list");
    let list = STAGE.runtime.block_on(Listed::of(&engine)).expect("a list");
    let tag = Size::tag();
    let mut probe = STAGE
        .runtime
        .block_on(Probe::start(&STAGE.engine, STAGE.host(list)))
        .expect("the probe fits the host");
    bencher.bench_local(|| STAGE.runtime.block_on(probe.listed(&tag)).expect("a list"));
}

#[divan::bench]
fn reconcile(bencher: Bencher<'_, '_>) {
    let args = RECONCILED.args().expect("arguments");
    let instance = || {
        STAGE
            .runtime
            .block_on(STAGE.instance(service::empty_engine()))
            .expect("an instance")
    };
    bencher.with_inputs(instance).bench_local_values(|mut instance| {
        STAGE
            .runtime
            .block_on(stage::reconcile(&mut instance, &args, RECONCILED.objects()))
            .expect("a reconcile");
        instance
    });
}

#[divan::bench]
fn reconcile_recorded(bencher: Bencher<'_, '_>) {
    let args = RECONCILED.args().expect("arguments");
    let recorded = || {
        let folder = tempfile::tempdir().expect("a folder");
        let instance = STAGE
            .runtime
            .block_on(STAGE.recorded(folder.path(), service::empty_engine()))
            .expect("an instance");
        (folder, instance)
    };
    bencher
        .with_inputs(recorded)
        .bench_local_values(|(folder, mut instance)| {
            STAGE
                .runtime
                .block_on(stage::reconcile(&mut instance, &args, RECONCILED.objects()))
                .expect("a reconcile");
            (folder, instance)
        });
}

#[divan::bench]
fn replay(bencher: Bencher<'_, '_>) {
    let args = RECONCILED.args().expect("arguments");
    let folder = tempfile::tempdir().expect("a folder");
    let mut recorded = STAGE
        .runtime
        .block_on(STAGE.recorded(folder.path(), service::empty_engine()))
        .expect("an instance");
    STAGE
        .runtime
        .block_on(stage::reconcile(&mut recorded, &args, RECONCILED.objects()))
        .expect("a reconcile");
    let segment = || stage::segment(&recorded).expect("a recording");
    bencher.with_inputs(segment).bench_local_values(|segment| {
        STAGE
            .runtime
            .block_on(STAGE.replay(segment))
            .expect("an identical replay")
    });
}
