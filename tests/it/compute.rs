//! `trueup sim compute` in its own process: the parts that scripts rely on, and the behaviour for Google's own client.
//!
//! The client needs `python3` with its `venv`, and a package registry that `pip` reaches.

use needs::needs;
use std::fs;
use std::path::Path;
use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use support::{Simulation, TOKEN, program, ran};

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const NEGS: &str = "/compute/v1/projects/p/zones/z-a/networkEndpointGroups";

/// A running `trueup sim compute`; dropping the value ends it.
struct Compute(Simulation);

impl Compute {
    fn start(args: &[&str]) -> Self {
        Self(Simulation::start("compute", args))
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        // The client has no TLS provider of its own. Ignore the error: there may already be one.
        _ = rustls::crypto::ring::default_provider().install_default();
        let request = reqwest::Client::new().request(method, format!("{}{path}", self.0.url()));
        let request = request.bearer_auth(TOKEN).json(body);
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (
            status,
            serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default(),
        )
    }

    async fn attach(&self, ip: &str) -> (u16, Value) {
        let body = json!({"networkEndpoints": [{"ipAddress": ip}]});
        self.send(Method::POST, &format!("{NEGS}/n/attachNetworkEndpoints"), &body)
            .await
    }
}

#[tokio::test]
async fn what_it_has_outlives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("compute.json");
    let args = ["--state-file", state.to_str().unwrap()];
    let compute = Compute::start(&args);
    let wish = json!({"name": "n", "networkEndpointType": "GCE_VM_IP"});
    assert_eq!(compute.send(Method::POST, NEGS, &wish).await.0, 200);
    let (status, begun) = compute.attach("10.0.0.1").await;
    assert_eq!((status, &begun["status"]), (200, &json!("PENDING")));
    drop(compute);
    let compute = Compute::start(&args);
    let (_, negs) = compute.send(Method::GET, "/negs", &Value::Null).await;
    let path = "projects/p/zones/z-a/networkEndpointGroups/n";
    assert_eq!(negs["negs"][path]["endpoints"], json!([{"ipAddress": "10.0.0.1"}]));
    let (_, ledger) = compute.send(Method::GET, "/operations", &Value::Null).await;
    let types: Vec<_> = ledger
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| &operation["type"])
        .collect();
    assert_eq!(types, ["insert", "attachNetworkEndpoints"]);
}

#[tokio::test]
async fn faults_come_from_flags_and_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("compute.toml");
    fs::write(
        &file,
        "endpoints_max = 1\n[[faults]]\nmethod = \"GET\"\ntimes = 1\nstatus = 418\n",
    )
    .unwrap();
    let fault = r#"{"path": "*/attachNetworkEndpoints", "fail_next": 1, "code": "C", "message": "m"}"#;
    let compute = Compute::start(&["--config", file.to_str().unwrap(), "--fault", fault]);
    assert_eq!(compute.send(Method::GET, NEGS, &Value::Null).await.0, 418);
    let wish = json!({"name": "n", "networkEndpointType": "GCE_VM_IP"});
    assert_eq!(compute.send(Method::POST, NEGS, &wish).await.0, 200);
    compute.send(Method::GET, NEGS, &Value::Null).await;
    assert_eq!(compute.attach("10.0.0.1").await.0, 200);
    let (_, ledger) = compute.send(Method::GET, "/operations", &Value::Null).await;
    assert_eq!(ledger[1]["failure"], "C: m");
    assert_eq!(compute.attach("10.0.0.2").await.0, 200);
    compute.send(Method::GET, NEGS, &Value::Null).await;
    let (status, refused) = compute.attach("10.0.0.3").await;
    assert_eq!(
        (status, &refused["error"]["errors"][0]["reason"]),
        (403, &json!("quotaExceeded"))
    );
}

#[test]
fn what_it_cannot_start_with_is_named() {
    for (args, message) in [
        (&["--listen", "0.0.0.0:0"][..], "only loopback addresses"),
        (&["--fault", "{}"][..], "--fault `{}`: fault: must hold exactly one of"),
    ] {
        let mut command = program();
        let ended = ran(command.args(["sim", "compute"]).args(args));
        assert!(ended.code != Some(0) && ended.stderr.contains(message), "{ended}");
    }
}

#[needs(pypi)]
#[test]
fn googles_own_client_finds_all_as_it_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    let venv = folder.path().join("venv");
    let here = Path::new(ROOT).join("tests/it/compute");
    let hint = "install python3 and python3-venv, or see why PyPI does not answer";
    finished(Command::new("python3").args(["-m", "venv"]).arg(&venv), hint);
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]);
    finished(pip.arg(here.join("requirements.txt")), hint);

    let compute = Compute::start(&["--operation-ms", "100"]);
    let mut client = Command::new(venv.join("bin/python"));
    client
        .arg(here.join("official_client.py"))
        .args([compute.0.url(), TOKEN]);
    finished(
        &mut client,
        "the simulated Compute Engine is not what Google's client knows",
    );
}

fn finished(command: &mut Command, hint: &str) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}: {hint}"));
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}: {hint}");
}
