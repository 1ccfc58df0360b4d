//! Every scenario under `tests/scenarios` passes when run like `trueup test` does: with the built-in guests, as
//! WebAssembly.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use trueup_registry::{Builtin, Registry};
use trueup_scenario::run_named;
use trueup_work::load::Loader;
use trueup_worlds::worlds;

use crate::programs::ENGINE;

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_of_the_project_passes() {
    let shipped = trueup_guests_builtin::GUESTS.iter();
    let builtins = shipped.map(|guest| Builtin {
        name: guest.name,
        version: guest.version,
        world: guest.world,
        bytes: guest.bytes,
    });
    let loader = Loader {
        engine: ENGINE.clone(),
        registry: Registry::new(builtins.collect()),
        worlds: worlds(),
    };
    let guests = loader.for_scenarios(BTreeMap::new());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let mut failures = Vec::new();
    let summary = run_named(Arc::new(guests), &[folder], "", |outcome| {
        if outcome.failure.is_some() {
            failures.push(outcome.to_string());
        }
    })
    .await;
    assert_eq!(
        summary.exit_code(),
        0,
        "{summary}\n{}\n{}",
        summary.errors.join("\n"),
        failures.join("\n")
    );
}
