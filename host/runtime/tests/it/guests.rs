//! Which guests are valid: a core module, converted to a component, and nothing that does not fit a world.
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use serde_json::value::to_raw_value;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::{Backends, Host, Identity};
use trueup_engine::{Engine, Options as EngineOptions};
use trueup_instance::{Instance, Program, REPLAY_GUARD, Start};
use trueup_journal::Tape;
use trueup_worlds::worlds;

use crate::misbehaving;

fn engine() -> Engine {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    Engine::new(&EngineOptions {
        cache_dir,
        ..EngineOptions::default()
    })
    .unwrap()
}

/// The guest's answers to one call of each kind, as JSON.
async fn answers(engine: &Engine, program: &Arc<Program>) -> Vec<String> {
    let host = Host::new(
        Identity::default(),
        Tape::memory(),
        Grants::default(),
        Backends::default(),
        Limits::default(),
    );
    let start = Start {
        settings: &json!({}),
        snapshot: Some("7"),
        cpu_max: REPLAY_GUARD,
    };
    let mut instance = Instance::start(engine, program, host, start)
        .await
        .map_err(|(_, error)| error)
        .unwrap();
    let args = to_raw_value(&json!({ "desired": {
        "load_balancers": [], "name_suffix": "web", "service_uid": "uid", "external_addresses": [],
        "ports": [], "servers": [], "backoff_steps": 1,
    } }))
    .unwrap();
    let mut answers = Vec::new();
    for call in [
        "reconciliation.reconcile-check",
        "reconciliation.reconcile",
        "reconciliation.status",
    ] {
        answers.push(instance.call(call, &args).await.unwrap().get().to_owned());
    }
    answers.push(instance.snapshot().await.unwrap());
    let asked = instance.host_mut().tape.take_entries();
    answers.push(format!("{} entries", asked.len()));
    answers
}

#[tokio::test]
async fn a_core_module_with_its_type_section_is_the_component_that_it_becomes() {
    let engine = engine();
    let component = engine
        .load(&misbehaving::built("1", misbehaving::guests::build))
        .unwrap();
    let module = engine
        .load(&misbehaving::built("1", misbehaving::guests::compile))
        .unwrap();
    assert_eq!(
        (component.name.as_str(), component.version.as_str()),
        ("misbehaving", "1")
    );
    assert_eq!(
        (module.name.as_str(), module.version.as_str()),
        ("trueup_guest_misbehaving", "0.1.0"),
        "those of its package"
    );
    assert_ne!(component.digest, module.digest, "of the bytes as they were given");
    assert_eq!(
        (&component.imports, &component.exports),
        (&module.imports, &module.exports)
    );
    let [component, module] =
        [component, module].map(|guest| Arc::new(Program::new(&engine, guest, worlds()).unwrap()));
    let expected = answers(&engine, &component).await;
    assert_eq!(
        expected.last().unwrap(),
        "7 entries",
        "three calls, of which one asks something"
    );
    assert_eq!(answers(&engine, &module).await, expected);
}

#[test]
fn a_component_that_fits_no_world_is_refused_with_what_may_be() {
    let world = "trueup:lbaas/lbaas-reconciler@0.1.0";
    let known: Vec<&str> = worlds().iter().map(|world| world.name).collect();
    let known = known.join(", ");
    let exports = |imports: &str| {
        format!(
            r#"(component {imports} (instance $empty)
                (export "trueup:guest/lifecycle@0.1.0" (instance $empty))
                (export "trueup:lbaas/reconciliation@0.1.0" (instance $empty)))"#
        )
    };
    for (text, expected) in [
        (
            "(component)".to_owned(),
            format!(
                "guest `unknown@unknown` exports nothing, which is no world of this host; the worlds are: {known}"
            ),
        ),
        (
            r#"(component (instance $empty) (export "wasi:cli/run@0.2.0" (instance $empty)))"#.to_owned(),
            format!(
                "guest `unknown@unknown` exports wasi:cli/run@0.2.0, which is no world of this host; the worlds are: {known}"
            ),
        ),
        (
            exports(r#"(import "wasi:http/outgoing-handler@0.2.0" (instance))"#),
            "guest `unknown@unknown` imports `wasi:http/outgoing-handler@0.2.0`, which this host does not have; of `wasi:*` a \
             guest may import, in any version 0.2.x: wasi:cli/environment, wasi:cli/exit, "
                .to_owned(),
        ),
        (
            exports(r#"(import "wasi:cli/environment@0.3.0" (instance))"#),
            "guest `unknown@unknown` imports `wasi:cli/environment@0.3.0`, which this host does not have".to_owned(),
        ),
        (
            exports(r#"(import "wasi:cli/environment@0.2.0" (instance))"#),
            format!("guest `unknown@unknown` is built from another `wit/` than this host's {world}: "),
        ),
        (
            exports(r#"(import "trueup:host/timers@0.1.0" (instance))"#),
            format!(
                "guest `unknown@unknown` imports `trueup:host/timers@0.1.0`, which its world {world} does not have; it may import: \
                 trueup:host/clock@0.1.0, trueup:host/log@0.1.0, trueup:host/metrics@0.1.0, trueup:host/random@0.1.0, \
                 trueup:lbaas/api@0.1.0, trueup:lbaas/types@0.1.0"
            ),
        ),
        (
            exports(""),
            format!("guest `unknown@unknown` is built from another `wit/` than this host's {world}: "),
        ),
    ] {
        let engine = engine();
        let guest = engine.load(&wat::parse_str(&text).unwrap()).unwrap();
        let error = Program::new(&engine, guest, worlds()).err().unwrap();
        assert!(error.starts_with(&expected) && !error.contains('\n'), "{error}");
    }
}
