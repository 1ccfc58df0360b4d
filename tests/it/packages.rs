//! What operators install: the chart, the image's files, the units, the Debian package, alerts and the dashboard.
//!
//! Each is checked with the real tools that read it: Helm's engine, kubectl, systemd, dpkg, Prometheus. There is no
//! container engine here: the image's files are made by the script that makes them there, and run in a `chroot`.
//! `kubernetes/deploy.rs` runs hosts with what the chart gives them.

mod containerfile;

use needs::needs;
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::admin::{address, listening};
use support::api_server::{ADMIN, ApiServer};
use support::plugins::trueup_cni;
use support::{Ran, Site, TRUEUP, ran, wait_until};

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The user in the image.
const USER: u32 = 65532;

fn shipped(path: &str) -> PathBuf {
    Path::new(ROOT).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(shipped(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A program in `sbin` too, which a user's `PATH` may lack.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Compares with a file, or writes it with `BLESS=1`.
#[track_caller]
fn same_as(path: &str, text: &str) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(shipped(path), text).unwrap();
    }
    let expected = fs::read_to_string(shipped(path)).unwrap_or_default();
    assert_eq!(text, expected, "{path} is otherwise; BLESS=1 rewrites it");
}

// The chart.

/// Python with Helm's engine and a linter of Containerfiles.
static VENV: LazyLock<PathBuf> = LazyLock::new(|| {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let wanted = read("tests/it/packages/requirements.txt");
    let installed = venv.join("requirements.txt");
    // An earlier run may have installed the same.
    if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return venv;
    }
    ran(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv)).exits(0);
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "-r",
    ]);
    ran(pip.arg(shipped("tests/it/packages/requirements.txt"))).exits(0);
    fs::write(installed, wanted).unwrap();
    venv
});

/// The chart with some values.
#[derive(Deserialize)]
pub(crate) struct Rendered {
    /// What `helm lint` has against it.
    faults: Vec<String>,
    /// Its `appVersion`.
    version: String,
    /// Manifests for kubectl.
    pub(crate) text: String,
    objects: Vec<Value>,
}

fn helm(values: &Value) -> Ran {
    let mut python = Command::new(VENV.join("bin/python"));
    python.arg(shipped("tests/it/packages/chart.py"));
    ran(python.arg(shipped("deploy/helm/trueup")).arg(values.to_string()))
}

#[track_caller]
pub(crate) fn rendered(values: &Value) -> Rendered {
    let chart: Rendered = serde_json::from_value(helm(values).exits(0).json()).unwrap();
    assert_eq!(chart.faults, [""; 0], "{values}");
    chart
}

fn everything() -> Value {
    json!({
        "image": "registry.example/trueup:1",
        "imagePullSecrets": [{"name": "pull"}],
        "controller": {"serviceAccountAnnotations": {"iam.gke.io/gcp-service-account": "trueup@p.iam.gserviceaccount.com"}},
        "ipam": {"enabled": true, "config": "# mine\n"},
        "node": {"enabled": true, "args": ["run", "/var/lib/trueup/node.toml"]},
        "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
        "monitoring": {"enabled": true, "docs": "https://docs.example/trueup"},
    })
}

/// Whether one value holds all of the other: objects may have more members, which a server adds.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(name, part)| holds(whole.get(name).unwrap_or(&Value::Null), part)),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| holds(whole, part))
        }
        _ => whole == part,
    }
}

#[needs(pypi)]
#[test]
fn the_chart_renders_what_plain_kubectl_applies() {
    let chart = rendered(&json!({}));
    assert_eq!(chart.version, env!("CARGO_PKG_VERSION"));
    let head = "# The chart with its defaults, for `kubectl apply` (docs/install.md). A test renders it: BLESS=1 rewrites it.\n";
    same_as("deploy/trueup.yaml", &format!("{head}{}", chart.text));
    // A misspelt value is refused, not ignored.
    let refused = helm(&json!({"controller": {"replica": 3}})).exits(1);
    assert!(refused.stderr.contains("'replica' not allowed"), "{refused}");
}

#[needs(kubectl, pypi)]
#[test]
fn every_part_of_the_chart_is_applied_as_it_was_rendered() {
    let chart = rendered(&everything());
    let server = ApiServer::start();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("kubeconfig"), server.kubeconfig(ADMIN, "admin")).unwrap();
    fs::write(home.path().join("all.yaml"), &chart.text).unwrap();
    let kubectl = |args: &[&str]| {
        let mut kubectl = Command::new("kubectl");
        kubectl.env("HOME", home.path()).env("KUBECONFIG", "kubeconfig");
        ran(kubectl.current_dir(home.path()).args(args)).exits(0)
    };
    kubectl(&["create", "namespace", "trueup"]);
    let applied = kubectl(&["apply", "-f", "all.yaml"]);
    assert_eq!(
        applied.stdout.matches(" created\n").count(),
        chart.objects.len(),
        "{applied}"
    );
    for object in &chart.objects {
        let kind = object["kind"].as_str().unwrap();
        let plural = match kind {
            "NetworkPolicy" => "networkpolicies".to_owned(),
            _ => kind.to_lowercase() + "s",
        };
        let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let stored = server.get(&plural, of("namespace"), of("name")).unwrap();
        assert!(holds(&stored, object), "a field of {object} is not in {stored}");
    }

    // The values arrive.
    let of = |kind: &str, name: &str| {
        let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        chart.objects.iter().find(is).unwrap().clone()
    };
    assert_eq!(of("ConfigMap", "trueup-ipam")["data"]["trueup.toml"], "# mine\n");
    let account = of("ServiceAccount", "trueup")["metadata"]["annotations"].clone();
    assert_eq!(
        account,
        json!({"iam.gke.io/gcp-service-account": "trueup@p.iam.gserviceaccount.com"})
    );
    let dashboard = &of("ConfigMap", "trueup-dashboard")["data"]["trueup.json"];
    assert_eq!(dashboard, &read("deploy/helm/trueup/dashboard.json"));
    let rules = of("PrometheusRule", "trueup")["spec"]["groups"][0]["rules"].clone();
    for rule in rules.as_array().unwrap() {
        let runbook = rule["annotations"]["runbook_url"].as_str().unwrap();
        assert!(
            runbook.starts_with("https://docs.example/trueup/observing.md#"),
            "{rule}"
        );
    }
    for (kind, name, rights) in [
        ("StatefulSet", "trueup", Value::Null),
        ("DaemonSet", "trueup-ipam", Value::Null),
        ("DaemonSet", "trueup-node", json!(["NET_ADMIN"])),
    ] {
        let pod = of(kind, name)["spec"]["template"]["spec"].clone();
        let containers = ["initContainers", "containers"].map(|kind| pod[kind].as_array().cloned().unwrap_or_default());
        for container in containers.iter().flatten() {
            assert_eq!(container["image"], "registry.example/trueup:1");
            let may = &container["securityContext"];
            assert_eq!(
                (&may["allowPrivilegeEscalation"], &may["readOnlyRootFilesystem"]),
                (&json!(false), &json!(true))
            );
            assert_eq!(
                (&may["capabilities"]["drop"], &may["capabilities"]["add"]),
                (&json!(["ALL"]), &rights)
            );
        }
        assert_eq!(pod["securityContext"]["runAsNonRoot"] == true, kind == "StatefulSet");
    }
    let node = of("DaemonSet", "trueup-node")["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    assert_eq!(node, json!(["run", "/var/lib/trueup/node.toml"]));
}

// The image.

#[test]
fn the_plugin_installs_itself_and_replaces_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("trueup-cni");
    fs::write(&plugin, "of an earlier version").unwrap();
    for _ in 0..2 {
        let done = ran(Command::new(trueup_cni()).arg("install").arg(folder.path())).exits(0);
        assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("", ""));
        assert_eq!(fs::metadata(&plugin).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
    let version = ran(Command::new(&plugin).arg("--version")).exits(0);
    assert_eq!(version.stdout, concat!("trueup-cni ", env!("CARGO_PKG_VERSION"), "\n"));
    let missing = folder.path().join("missing");
    let refused = ran(Command::new(trueup_cni()).arg("install").arg(&missing)).exits(1);
    let why = format!(
        "trueup-cni: can't install {}/trueup-cni: No such file",
        missing.display()
    );
    assert!(refused.stderr.starts_with(&why), "{refused}");
}

/// A folder with both programs under their names, and completions.
fn built() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Of a debug build, most is for debuggers.
    ran(Command::new("strip")
        .arg("-o")
        .arg(folder.path().join("trueup"))
        .arg(&*TRUEUP))
    .exits(0);
    fs::copy(trueup_cni(), folder.path().join("trueup-cni")).unwrap();
    ran(Command::new(shipped("deploy/build")).arg(folder.path())).exits(0);
    folder
}

#[needs(gcc, nft, root)]
#[test]
fn the_image_runs_without_root_and_has_no_shell() {
    let programs = built();
    let tree = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let in_tree = |path: &str| tree.path().join(path.trim_start_matches('/'));
    let mut make = command(shipped("deploy/tree").to_str().unwrap());
    ran(make.arg(tree.path()).arg(programs.path())).exits(0);
    // No program but these, nor what a shell or a package manager would leave.
    let programs: BTreeSet<PathBuf> = support::files_under(tree.path())
        .into_iter()
        .filter(|file| fs::metadata(tree.path().join(file)).unwrap().permissions().mode() & 0o111 != 0)
        .filter(|file| file.extension().is_none() && !file.to_string_lossy().contains(".so."))
        .map(|file| file.strip_prefix(tree.path()).unwrap_or(&file).to_owned())
        .collect();
    let expected = ["usr/bin/trueup", "usr/bin/trueup-cni", "usr/sbin/nft"].map(PathBuf::from);
    assert_eq!(programs, expected.into());
    let nftables = fs::read_to_string(in_tree("var/lib/dpkg/status.d/nftables")).unwrap();
    assert!(nftables.contains("\nVersion: "), "{nftables}");
    assert!(in_tree("etc/ssl/certs/ca-certificates.crt").is_file());

    // What the Containerfile starts, as the user that it names, on a disk where only one folder is writable.
    let containerfile = read("deploy/Containerfile");
    assert!(containerfile.contains(&format!("\nUSER {USER}:{USER}\nENTRYPOINT [\"/usr/bin/trueup\"]\n")));
    let site = Site::quickstart();
    ran(Command::new("cp").arg("-r").arg(site.folder()).arg(in_tree("/site"))).exits(0);
    let owner = format!("{USER}:{USER}");
    ran(Command::new("chown").args(["-R", &owner]).arg(in_tree("/site"))).exits(0);
    let user = format!("--userspec={owner}");
    let run = |args: &[&str]| {
        let mut chroot = Command::new("/usr/sbin/chroot");
        ran(chroot
            .args(["--groups=", &user])
            .arg(tree.path())
            .args(args)
            .env_clear())
    };
    let once = run(&["/usr/bin/trueup", "run", "/site", "--once"]).exits(0);
    assert!(once.last_line().starts_with("3 services: 3 true, 0 failed"), "{once}");
    run(&["/usr/bin/trueup-cni", "--version"]).exits(0);
    assert!(
        run(&["/usr/sbin/nft", "--version"])
            .exits(0)
            .stdout
            .starts_with("nftables v")
    );
}

// The Debian package, and its units.

/// The package, of the programs that these tests run.
static DEB: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let target = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::rename(built().keep(), target.path().join("release")).unwrap();
    let mut deb = Command::new("cargo");
    deb.args(["deb", "-p", "trueup", "--no-build", "--no-strip", "--fast", "--locked"])
        .env("CARGO_TARGET_DIR", target.path())
        .current_dir(ROOT);
    let said = ran(&mut deb).exits(0);
    let path = PathBuf::from(said.last_line());
    assert!(path.is_file(), "{said}");
    (target, path)
});

/// dpkg on a root of its own, whose maintainer scripts run here with `DPKG_ROOT`.
fn dpkg(root: &Path, args: &[&str]) -> Ran {
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let status = root.join("var/lib/dpkg/status");
    if !status.exists() {
        fs::write(status, "").unwrap();
    }
    let mut dpkg = command("dpkg");
    dpkg.arg("--root").arg(root);
    dpkg.args(["--force-script-chrootless", "--force-depends", "--force-confold"]);
    ran(dpkg.args(args)).exits(0)
}

#[needs(cargo_deb, gcc, systemd, root)]
#[test]
fn the_debian_package_installs_keeps_its_configuration_and_goes() {
    let (_, deb) = &*DEB;
    let deb = deb.to_str().unwrap();
    let root = tempfile::tempdir().unwrap();
    let installed = |path: &str| root.path().join(path);
    dpkg(root.path(), &["-i", deb]);
    let listed = dpkg(root.path(), &["-L", "trueup"]).stdout;
    let files: BTreeSet<&str> = listed
        .lines()
        .filter(|path| installed(path.trim_start_matches('/')).is_file())
        // One for each command.
        .filter(|path| !path.starts_with("/usr/share/man/man1/trueup-"))
        .collect();
    let lines: String = files.iter().map(|path| format!("{path}\n")).collect();
    same_as("tests/it/packages/deb.golden", &lines);
    let version = ran(Command::new(installed("usr/bin/trueup")).arg("--version")).exits(0);
    assert_eq!(version.stdout, concat!("trueup ", env!("CARGO_PKG_VERSION"), "\n"));
    // The units' user.
    let users = fs::read_to_string(installed("etc/passwd")).unwrap();
    assert!(users.contains("\ntrueup:") || users.starts_with("trueup:"), "{users}");
    // Nothing starts before it is configured.
    assert!(!installed("etc/systemd/system/multi-user.target.wants").exists());

    // An operator's configuration remains.
    for conffile in ["etc/trueup/trueup.toml", "etc/trueup/node.toml"] {
        fs::write(installed(conffile), "# mine\n").unwrap();
    }
    dpkg(root.path(), &["-i", deb]);
    assert_eq!(
        fs::read_to_string(installed("etc/trueup/trueup.toml")).unwrap(),
        "# mine\n"
    );
    dpkg(root.path(), &["-r", "trueup"]);
    assert!(!installed("usr/bin/trueup").exists() && installed("etc/trueup/node.toml").exists());
    dpkg(root.path(), &["-P", "trueup"]);
    assert!(!installed("etc/trueup").exists());
}

#[needs(systemd)]
#[test]
fn the_units_are_right_and_hardened() {
    let folder = tempfile::tempdir().unwrap();
    for (unit, exposure) in [("trueup", "15"), ("trueup-node", "20")] {
        let text = read(&format!("deploy/systemd/{unit}.service"));
        assert!(text.contains("\nExecStart=/usr/bin/trueup run /etc/trueup"));
        // The program is elsewhere in a test.
        let path = folder.path().join(format!("{unit}.service"));
        fs::write(&path, text.replace("/usr/bin/trueup", TRUEUP.to_str().unwrap())).unwrap();
        let said = ran(command("systemd-analyze").arg("verify").arg(&path)).exits(0);
        assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", ""));
        let mut security = command("systemd-analyze");
        security.args(["security", "--offline=true", "--threshold", exposure]);
        ran(security.arg(&path)).exits(0);
    }
    // A shell lacks what the units set: the configurations and the page name it.
    for (unit, config) in [("trueup", "controller"), ("trueup-node", "node")] {
        let text = read(&format!("deploy/systemd/{unit}.service"));
        let (_, after) = text.split_once("Environment=KUBECONFIG=").unwrap();
        let kubeconfig = after.lines().next().unwrap();
        assert!(read(&format!("deploy/helm/trueup/{config}.toml")).contains(kubeconfig));
        assert!(read("docs/install.md").contains(&format!("env KUBECONFIG={kubeconfig} trueup check /etc/trueup")));
    }
    // Root's rights on a node are what nft needs; the controller has none.
    let rights = |unit: &str| {
        let text = read(&format!("deploy/systemd/{unit}.service"));
        let rights = text
            .lines()
            .filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        rights.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        (rights("trueup"), rights("trueup-node")),
        (vec![String::new()], vec!["CAP_NET_ADMIN".to_owned()])
    );
}

#[test]
fn the_shipped_configurations_are_configurations() {
    let folder = tempfile::tempdir().unwrap();
    for part in ["controller", "ipam", "node"] {
        let path = folder.path().join("trueup.toml");
        fs::write(&path, read(&format!("deploy/helm/trueup/{part}.toml"))).unwrap();
        // Each gets as far as what a test's machine lacks: a cluster, or the list of interfaces.
        let mut plan = support::program();
        plan.arg("plan")
            .arg(&path)
            .env("TRUEUP_STATE_DIR", folder.path().join("state"));
        plan.env("KUBECONFIG", folder.path().join("kubeconfig"));
        if part == "node" {
            plan.env("TRUEUP_ADAPTER_NODE_NAME", "node-a")
                .env("TRUEUP_ADAPTER_NODE_NODE_IP", "10.0.0.1");
        }
        let said = ran(&mut plan);
        let lacks = if part == "ipam" {
            "/var/lib/trueup/enis.json"
        } else {
            "kubeconfig"
        };
        let lines: Vec<_> = said.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(lacks), "{part}: {said}");
    }
}

// Alerts and the dashboard.

#[needs(promtool)]
#[test]
fn alerts_fire_where_they_should_and_lead_to_what_to_do() {
    let rules = shipped("deploy/helm/trueup/alerts.yaml");
    let checked = ran(Command::new("promtool").args(["check", "rules"]).arg(&rules)).exits(0);
    assert_eq!(checked.stderr, "");
    let folder = tempfile::tempdir().unwrap();
    let tests = read("tests/it/packages/alerts.yaml").replace("RULES", rules.to_str().unwrap());
    fs::write(folder.path().join("alerts.yaml"), &tests).unwrap();
    ran(Command::new("promtool")
        .args(["test", "rules"])
        .arg(folder.path().join("alerts.yaml")))
    .exits(0);

    let rules = read("deploy/helm/trueup/alerts.yaml");
    let after = |start: &'static str| rules.lines().filter_map(move |line| line.trim().strip_prefix(start));
    let alerts: Vec<&str> = after("- alert: ").collect();
    let runbooks: Vec<&str> = after("runbook_url: docs/observing.md#").collect();
    assert_eq!(alerts.len(), runbooks.len());
    let pages = read("docs/observing.md");
    for (alert, runbook) in alerts.iter().zip(runbooks) {
        // A heading of one word is its own anchor.
        assert_eq!(alert.to_lowercase(), runbook);
        assert!(
            pages.contains(&format!("\n### {alert}\n")),
            "docs/observing.md has nothing about {alert}"
        );
        assert!(
            tests.contains(&format!("alertname=\"{alert}\"")),
            "no test fires {alert}"
        );
    }
}

/// A Prometheus that scrapes one address each second.
struct Prometheus {
    url: String,
    process: Child,
    _folder: TempDir,
}

impl Prometheus {
    fn scraping(host: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "trueup", "static_configs": [{"targets": [host]}]}],
        });
        fs::write(folder.path().join("prometheus.yml"), config.to_string()).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let process = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={free}"))
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            url: format!("http://{free}"),
            process: process.unwrap(),
            _folder: folder,
        }
    }

    /// The labels of each series of an answer, or what is wrong.
    fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let mut promtool = Command::new("promtool");
        // In brackets: a leading minus is no flag.
        let expression = format!("({expression})");
        let said = ran(promtool.args(["query", "instant", "-o", "json", &self.url, &expression]));
        if said.code != Some(0) {
            return Err(said.to_string());
        }
        let answer = said.json();
        let series = answer.as_array().ok_or(said.stdout)?.iter();
        Ok(series.map(|series| series["metric"].clone()).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Ignore the error: it may have ended.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Words of a legend, such as `{{guest}}`.
fn labels(legend: &str) -> Vec<&str> {
    let parts = legend.split("{{").skip(1);
    parts
        .filter_map(|part| part.split_once("}}"))
        .map(|(label, _)| label)
        .collect()
}

#[needs(promtool)]
#[test]
fn a_real_prometheus_answers_each_query_of_the_dashboard_and_the_alerts() {
    let site = listening(Site::quickstart());
    let mut host = site.start("run", &[]);
    let metrics = address(&mut host, 1);
    let prometheus = Prometheus::scraping(metrics.strip_prefix("http://").unwrap());
    host.wait_for("kube-system/dns          true");
    // A counter exists once it counts.
    site.remove_manifest("dns.yaml");
    host.wait_for("kube-system/dns          gone");
    let dashboard: Value = serde_json::from_str(&read("deploy/helm/trueup/dashboard.json")).unwrap();
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$__rate_interval", "1m").replace("$instance", ".*");
            let mut series = Err("not asked".to_owned());
            // Until the second scrape with it.
            wait_until(&format!("an answer to {expression}"), || {
                std::thread::sleep(Duration::from_millis(100));
                series = prometheus.query(&expression);
                series.as_ref().is_ok_and(|series| !series.is_empty())
            });
            for labels_of in series.unwrap() {
                for label in labels(target["legendFormat"].as_str().unwrap()) {
                    assert!(
                        labels_of[label].is_string(),
                        "no `{label}` in {labels_of} of {expression}"
                    );
                }
            }
            asked += 1;
        }
    }
    assert!(asked >= 20, "{asked}");
    // Of an alert that does not fire, the series exist.
    let rules = read("deploy/helm/trueup/alerts.yaml");
    let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let words = expressions.flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let series: BTreeSet<&str> = words.filter(|word| word.starts_with("trueup_")).collect();
    for name in series {
        let found = prometheus.query(name).unwrap();
        assert!(!found.is_empty(), "no series {name}");
    }
    host.terminate().0.exits(0);
}
