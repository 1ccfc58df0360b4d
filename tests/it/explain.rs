//! The causes of the host's actions: `trueup explain`, log lines as JSON, and traces, with the real binary.
//!
//! ```text
//! manifests -> host -> Engine
//!                \-> state folder -> trueup explain KEY
//!                \-> stderr: JSON lines
//!                \-> OTLP over HTTP -> collector of the test
//! ```
//! Tests beside the code cover reasons, differences and files of lines.
mod chains;
mod collector;
mod lines;
mod traces;

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::Value;

use support::{Engine, Ran, Running, SETTLE, Site, files_under, ran};

const KEYS: [&str; 3] = ["default/api", "default/web", "kube-system/dns"];

/// The compiled code of a host's guests, shared by all tests, since compiling takes longer than they do.
static COMPILED: LazyLock<Vec<(PathBuf, Vec<u8>)>> = LazyLock::new(|| {
    let site = Site::quickstart();
    site.run_once().exits(0);
    let cache = site.state_dir().join("cache");
    let files = files_under(&cache).into_iter();
    let kept = |file: PathBuf| (file.strip_prefix(&cache).unwrap().to_owned(), fs::read(&file).unwrap());
    files.map(kept).collect()
});

/// The quickstart with an Engine in another process, and with the compiled code.
fn site(engine: &Engine) -> Site {
    let site = Site::against(engine);
    for (name, bytes) in &*COMPILED {
        let file = site.state_dir().join("cache").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }
    site
}

/// The quickstart with a running host, once everything is in sync.
fn running() -> Running {
    let engine = Engine::start(&SETTLE);
    let site = site(&engine);
    Running::start(engine, site)
}

/// `trueup explain KEY` with further arguments.
fn explain(site: &Site, key: &str, args: &[&str]) -> Ran {
    let folder = site.folder().to_str().unwrap();
    ran(support::program().args(["explain", key, "--config", folder]).args(args))
}

#[track_caller]
fn explained(site: &Site, key: &str, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--output", "json"]).collect();
    explain(site, key, &args).exits(0).json()
}

/// The jobs of an explanation, the oldest first.
#[track_caller]
fn jobs(explanation: &Value) -> &Vec<Value> {
    explanation["jobs"].as_array().unwrap()
}

/// The reasons of a job, each as `why` and its subject.
fn causes(job: &Value) -> Vec<(&str, String)> {
    let causes = job["job"]["causes"].as_array().unwrap().iter();
    let of = |cause: &Value| {
        let text = |name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        match cause["why"].as_str().unwrap() {
            "input" => format!("{} {} {}", text("kind"), text("name"), text("change")),
            "retry" => cause["failures"].to_string(),
            "version" => text("guest"),
            _ => String::new(),
        }
    };
    causes
        .map(|cause| (cause["why"].as_str().unwrap(), of(cause)))
        .collect()
}
