//! The world `trueup:lbaas/lbaas-reconciler`: its bindings, and its exports by name.

use serde::Deserialize;
use trueup_instance::{bindings, world};

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "lbaas";

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/lbaas"],
    "trueup:lbaas/lbaas-reconciler",
    {
        "trueup:lbaas": trueup_capabilities::bindings::lbaas,
    }
}

pub use bindings::exports::trueup::lbaas::reconciliation::{AddressPorts, Desired, Error, Plan, Port, Report, Target};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfDesired {
    desired: Desired,
}

world! {
    "trueup:lbaas/lbaas-reconciler" as LbaasReconciler, LbaasReconcilerPre;
    imports: ["host/clock", "host/log", "host/metrics", "host/random", "lbaas/api", "lbaas/types"];
    exports: ["guest/lifecycle", "lbaas/reconciliation"];
    is_stateless: true; trueup_lbaas_reconciliation:
    "reconciliation.reconcile": OfDesired => |e, s, a| e.call_reconcile(s, &a.desired);
    "reconciliation.reconcile-check": OfDesired => |e, s, a| e.call_reconcile_check(s, &a.desired);
    "reconciliation.status": OfDesired => |e, s, a| e.call_status(s, &a.desired);
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::OfDesired;
    use trueup_instance::dispatch::args;

    #[test]
    fn a_key_that_nothing_knows_is_named_wherever_it_is() {
        let text = |more: &str, in_port: &str| {
            format!(
                r#"{{"desired": {{"load_balancers": ["lb-1"], "name_suffix": "web", "service_uid": "u", "external_addresses": [],
                "ports": [{{"name": "a", "external": 1, "internal": 2}}, {{"name": "b", "external": 3, "internal": 4{in_port}}}],
                "servers": [], "backoff_steps": 3{more}}}}}"#
            )
        };
        let read = |text: String| {
            let args = args::<OfDesired>("a.b", &RawValue::from_string(text).unwrap());
            args.map(|args| args.desired)
        };
        assert_eq!(read(text("", "")).unwrap().ports.len(), 2);
        for (more, in_port, key) in [
            (r#", "serverss": []"#, "", "unknown key `desired.serverss`"),
            (
                "",
                r#", "protocol": {"x": 1}"#,
                "unknown key `desired.ports.1.protocol`",
            ),
            (
                "",
                r#"}, {"name": "c", "external": "one""#,
                "desired.ports[2].external: invalid type: string \"one\", expected u16",
            ),
            (
                r#", "backoff_steps": 4"#,
                "",
                "desired: duplicate field `backoff_steps`",
            ),
        ] {
            let error = read(text(more, in_port)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("arguments of `a.b`: {key}")), "{error}");
        }
        let error = read(r#"{"desired": {}, "more": 1}"#.to_owned())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("arguments of `a.b`: desired: missing field"),
            "{error}"
        );
    }
}
