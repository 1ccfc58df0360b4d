//! The operator's view of a running host: `trueup status` and `top`, the admin address, health and metrics.
//!
//! Uses the real binary, and Prometheus' own `promtool`. Requests are written by hand, so that they can contain what no
//! client would send.

use needs::needs;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::{Engine, Ran, Site, Started, program, ran, trueup, wait_until};

/// The answer to a request.
pub(crate) struct Answer {
    status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.head, self.body))
    }

    fn has(&self, header: &str) -> bool {
        self.head
            .to_lowercase()
            .lines()
            .any(|line| line == header.to_lowercase())
    }
}

/// Writes a request, and reads the answer to its end.
#[track_caller]
fn asked(mut stream: impl Read + Write, method: &str, path: &str, host: &str) -> Answer {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer to {path}: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
        unchunked(body)
    } else {
        body.to_owned()
    };
    Answer {
        status,
        head: head.to_owned(),
        body,
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        body.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}

/// The `n`th address that a host printed as one it listens on.
#[track_caller]
pub(crate) fn address(host: &mut Started, n: usize) -> String {
    let said = |host: &Started| -> Vec<String> {
        let stderr = host.stderr();
        let lines = stderr.lines().filter_map(|line| line.split_once("admin address: "));
        lines.map(|(_, address)| address.trim().to_owned()).collect()
    };
    host.wait_for_warning("admin address: ");
    wait_until("the addresses", || said(host).len() > n);
    said(host)[n].clone()
}

#[track_caller]
pub(crate) fn get(address: &str, path: &str) -> Answer {
    let place = address.strip_prefix("http://").unwrap();
    asked(TcpStream::connect(place).unwrap(), "GET", path, place)
}

/// A site that listens on one free port for everything, and on another for health and metrics.
pub(crate) fn listening(site: Site) -> Site {
    let config = fs::read_to_string(site.path("trueup.toml")).unwrap();
    let admin = "\n[admin]\nlisten = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\n";
    fs::write(site.path("trueup.toml"), config + admin).unwrap();
    site
}

/// A host whose three keys have failed with this message and wait, and its address.
pub(crate) fn in_trouble(engine: &Engine, message: &str) -> (Site, Started, String) {
    let site = listening(Site::against(engine));
    site.edit(
        "trueup.toml",
        "backoff_initial_ms = 10\n",
        "backoff_initial_ms = 60000\n",
    );
    engine.fault(&json!({ "method": "POST", "path": "*/backend.json", "status": 400, "message": message }));
    let mut host = site.start("run", &[]);
    let address = address(&mut host, 0);
    for key in ["default/api", "default/web", "kube-system/dns"] {
        host.wait_for_warning(&format!("{key}: "));
    }
    (site, host, address)
}

fn status(site: &Site, args: &[&str]) -> Ran {
    ran(program().arg("status").args(args).arg("--config").arg(site.folder()))
}

/// Waits until three services of the quickstart are in sync.
fn wait_for_three(host: &mut Started) {
    for key in ["default/api", "default/web", "kube-system/dns"] {
        host.wait_for(&format!("{key:<24} true"));
    }
}

/// A tool of Prometheus.
fn promtool(args: &[&str]) -> Command {
    let mut command = Command::new("promtool");
    command.args(args);
    command
}

/// Checks that `promtool` has no complaint about a text.
#[track_caller]
fn accepted(mut command: Command, text: &str) {
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "promtool: {}\n{said}\nof\n{text}",
        output.status
    );
    assert_eq!(output.stderr, b"", "promtool has something against\n{text}");
}

/// The value of a series.
#[track_caller]
fn number(metrics: &str, series: &str) -> f64 {
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no `{series}` in\n{metrics}"))
        .parse()
        .unwrap()
}

#[track_caller]
fn golden(name: &str, said: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/it/admin")
        .join(format!("{name}.golden"));
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, said).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(said, expected, "{} is otherwise; BLESS=1 rewrites it", file.display());
}

/// A status without what differs from run to run, which becomes `#`; columns are two blanks apart.
fn steady(text: &str, site: &Site) -> String {
    let text = text.replace(site.folder().to_str().unwrap(), "SITE");
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == '.') && !word.is_empty();
    let lines = text.lines().map(|line| {
        let mut words: Vec<String> = Vec::new();
        let all: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        for (index, word) in all.iter().enumerate() {
            let next = all.get(index + 1).copied().unwrap_or_default();
            let unit = ["B", "KiB", "MiB", "GiB", "s", "min"].contains(&next.trim_end_matches([',', ';', '(', ')']));
            let bare = word.trim_start_matches('(').trim_end_matches(',');
            let after_process = index > 0 && all[index - 1] == "process";
            words.push(if is_number(bare) && (unit || after_process) {
                word.replace(bare, "#")
            } else if word.starts_with("sha256:") {
                "sha256:#".to_owned()
            } else if word.starts_with("http://") {
                "http://#".to_owned()
            } else {
                (*word).to_owned()
            });
        }
        words.join(" ")
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[needs(promtool)]
#[test]
fn a_host_at_work_is_seen_as_it_is() {
    let site = listening(Site::quickstart());
    let mut host = site.start("run", &[]);
    let (all, public) = (address(&mut host, 0), address(&mut host, 1));
    wait_for_three(&mut host);
    host.wait_for("listening on");

    // Health.
    assert_eq!(get(&all, "/healthz").body, "ok\n");
    let ready = get(&all, "/readyz?verbose");
    let checks = "[+]guests ok\n[+]backends ok\n[+]source ok\n[+]pod-addresses ok\n[+]stopping ok\n[+]loop-host ok\n\
                  [+]loop-services ok\nreadyz check passed\n";
    assert_eq!((ready.status, ready.body.as_str()), (200, checks));

    // Status: exactly the events so far.
    let now = get(&all, "/v1/status");
    assert!(
        now.has("x-content-type-options: nosniff") && now.has("cache-control: no-store"),
        "{}",
        now.head
    );
    assert!(!now.head.to_lowercase().contains("access-control"), "{}", now.head);
    let now = now.json();
    assert_eq!(now["keys"]["true"], 3);
    assert_eq!(now["problems"], json!([]));
    let objects = &now["source"]["objects"];
    assert_eq!((&objects["Node"], &objects["Service"]), (&json!(4), &json!(3)));
    assert_eq!(now["total"]["effects"]["destroyed"], 0);
    assert!(now["total"]["effects"]["created"].as_u64().unwrap() > 10, "{now}");
    assert_eq!(now["guests"][1]["guest"], "lbaas");
    assert_eq!(
        (&now["guests"][1]["working"], &now["guests"][1]["resting"]),
        (&json!(0), &json!(3))
    );
    assert!(now["guests"][1]["memory_bytes"].as_u64().unwrap() >= 3 << 20, "{now}");
    assert!(now["memory"]["resident_bytes"].as_u64().unwrap() > 1 << 20, "{now}");
    assert_eq!(now["pods"]["serving"], true);
    let said = status(&site, &["--output", "json"]).exits(0).json();
    assert_eq!(said["keys"], now["keys"], "the control socket says the same");
    golden("status", &steady(&status(&site, &["--keys"]).exits(0).stdout, &site));

    // Keys.
    let web = get(&all, "/v1/keys/default/web").json();
    assert_eq!(web, get(&all, "/v1/keys/default%2Fweb").json());
    assert_eq!((&web["state"], &web["error"]), (&json!("true"), &Value::Null));
    assert_eq!(web["recent"][0]["outcome"], "true");
    let page = get(&all, "/v1/keys?limit=2").json();
    assert_eq!(
        (page["keys"].as_array().unwrap().len(), &page["next"]),
        (2, &json!("lbaas/default/web"))
    );
    assert_eq!(get(&all, "/v1/keys?state=failed").json()["keys"], json!([]));
    let wrong = get(&all, "/v1/keys?state=broken");
    assert_eq!(wrong.status, 400);
    assert!(
        wrong.body.contains("must be one of failed, set-aside, held"),
        "{}",
        wrong.body
    );
    assert_eq!(get(&all, "/v1/keys/default/none").status, 404);

    // The data of the other commands.
    assert_eq!(get(&all, "/v1/guests").json()[1]["active"]["version"], "1");
    assert_eq!(
        get(&all, "/v1/guests/lbaas/history").json().as_array().unwrap().len(),
        1
    );
    assert_eq!(get(&all, "/v1/guests/lbaas/shadow").status, 404);
    assert_eq!(get(&all, "/v1/ipam").json()["stats"]["addresses"], 3);
    assert_eq!(get(&all, "/v1/audit?limit=5").json()["whole"], true);
    let journals = get(&all, "/v1/journals").json();
    assert_eq!(journals["journals"][1]["instance"], "default%2Fapi", "{journals}");
    assert_eq!(get(&all, "/v1/nothing").status, 404);

    // Only health and metrics, for clients from elsewhere.
    assert_eq!(get(&public, "/healthz").status, 200);
    assert_eq!(get(&public, "/v1/status").status, 404);
    let place = public.strip_prefix("http://").unwrap();
    let metrics = asked(
        TcpStream::connect(place).unwrap(),
        "GET",
        "/metrics",
        "trueup.example:9483",
    );
    assert_eq!(metrics.status, 200);
    assert!(
        metrics.has("content-type: text/plain; version=0.0.4"),
        "{}",
        metrics.head
    );
    let metrics = metrics.body;
    assert_eq!(
        number(&metrics, "trueup_decisions_total{guest=\"lbaas\",outcome=\"true\"}"),
        3.0
    );
    assert_eq!(
        number(&metrics, "trueup_change_to_effect_seconds_count{guest=\"lbaas\"}"),
        3.0
    );
    assert_eq!(number(&metrics, "trueup_keys{state=\"true\"}"), 3.0);
    assert_eq!(number(&metrics, "trueup_leader"), 1.0);
    assert!(
        number(&metrics, "trueup_lbaas_created_total{kind=\"backend\"}") > 2.0,
        "a guest's own"
    );
    assert!(
        metrics.contains("# HELP trueup_lbaas_created_total Kept by guest `lbaas`.\n"),
        "{metrics}"
    );
    assert!(number(&metrics, "process_resident_memory_bytes") > 1e6);
    accepted(promtool(&["check", "metrics"]), &metrics);
    host.terminate().0.exits(0);
}

#[test]
fn what_a_page_in_a_browser_could_send_is_refused() {
    let site = listening(Site::quickstart());
    let mut host = site.start("run", &[]);
    let all = address(&mut host, 0);
    let place = all.strip_prefix("http://").unwrap();
    let stream = || TcpStream::connect(place).unwrap();
    // A name that an attacker pointed at loopback.
    let rebound = asked(stream(), "GET", "/v1/status", "evil.example:9482");
    assert_eq!(rebound.status, 403);
    assert!(
        rebound
            .body
            .contains("asked as `evil.example:9482`: this is for this machine alone; ask as `localhost`"),
        "{}",
        rebound.body
    );
    for method in ["POST", "DELETE", "PUT", "OPTIONS"] {
        for path in ["/v1/guests/lbaas/swap", "/v1/status", "/v1/guests/lbaas/shadow"] {
            let refused = asked(stream(), method, path, place);
            assert_eq!(refused.status, 405, "{method} {path}: {}", refused.body);
        }
    }
    host.kill();
}

#[test]
fn a_file_that_was_broken_since_does_not_hide_the_host_that_runs() {
    let site = listening(Site::quickstart());
    let mut host = site.start("run", &[]);
    let all = address(&mut host, 0);
    wait_for_three(&mut host);
    let config = fs::read_to_string(site.path("trueup.toml")).unwrap();
    for (broken, says) in [("\n[journal\n", "not TOML"), ("\n[jurnal]\n", "jurnal")] {
        fs::write(site.path("trueup.toml"), format!("{config}{broken}")).unwrap();
        let seen = status(&site, &[]).exits(0);
        assert!(seen.stdout.contains("keys      3 true"), "{seen}");
        assert!(seen.stderr.contains(says), "{seen}");
        assert!(seen.stderr.contains("going on with the state folder "), "{seen}");
        assert!(seen.stderr.contains("--state-dir names another"), "{seen}");
        let why = ran(program()
            .args(["explain", "default/web", "--config"])
            .arg(site.folder()));
        assert!(why.exits(0).stdout.contains("the host started"));
    }
    // Nor does an address without a path.
    let paths = get(&all, "/");
    assert!(
        paths.status == 200 && paths.body.contains("/v1/status"),
        "{}",
        paths.body
    );
    host.kill();
}

#[test]
fn a_key_that_fails_is_shown_with_its_error_and_its_next_try() {
    let engine = Engine::start(&[]);
    let (site, host, all) = in_trouble(&engine, "no room");
    let now = status(&site, &["--output", "json"]).exits(1).json();
    assert_eq!(
        (&now["keys"]["failed"], &now["in_trouble_count"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(now["queue"]["delayed"], 3);
    let web = &now["in_trouble"][1];
    assert_eq!(
        (&web["key"], &web["state"], &web["failures"]),
        (&json!("default/web"), &json!("failed"), &json!(1))
    );
    assert!(web["error"].as_str().unwrap().contains("no room"), "{web}");
    assert!((1..=72_000).contains(&web["next_try_in_ms"].as_u64().unwrap()), "{web}");
    let text = status(&site, &[]).exits(1).stdout;
    let line = text.lines().find(|line| line.starts_with("default/web")).unwrap();
    assert!(line.contains("failed") && line.contains("no room"), "{text}");
    assert!(text.ends_with("not well: 3 keys failed\n"), "{text}");
    assert_eq!(
        get(&all, "/v1/keys?state=trouble").json()["keys"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(get(&all, "/readyz").status, 200, "it is the Engine that is in trouble");
    let metrics = get(&all, "/metrics").body;
    assert_eq!(
        number(&metrics, "trueup_decisions_total{guest=\"lbaas\",outcome=\"failed\"}"),
        3.0
    );
    host.kill();
}

#[test]
fn a_host_whose_pods_get_no_address_is_alive_and_not_ready() {
    let site = Site::ipam();
    site.edit(
        "trueup.toml",
        "{ cooling_period_ms = 30000 }",
        "{ checkpoint_migration_phase = 1 }",
    );
    site.edit(
        "trueup.toml",
        "grants = {",
        "grants = { cri = { read = [\"sandboxes\"] },",
    );
    let config = fs::read_to_string(site.path("trueup.toml")).unwrap();
    let more = "\n[backend.cri]\nsocket = \"no-runtime.sock\"\n[admin]\nlisten = \"unix:admin.sock\"\n";
    fs::write(site.path("trueup.toml"), config + more).unwrap();
    let mut host = site.start("run", &[]);
    let said = address(&mut host, 0);
    let socket = site.path("admin.sock");
    assert_eq!(said, format!("unix:{}", socket.display()));
    let get = |path: &str| asked(UnixStream::connect(&socket).unwrap(), "GET", path, "anything");
    host.wait_for_warning("the store can't be read");
    assert_eq!(get("/healthz").status, 200);
    let ready = get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(
        ready.body.contains("[+]guests ok\n") && ready.body.contains("[-]pod-addresses failed: "),
        "{}",
        ready.body
    );
    assert!(ready.body.ends_with("readyz check failed\n"), "{}", ready.body);
    let text = status(&site, &[]).exits(1).stdout;
    assert!(text.contains("not well: pod-addresses: "), "{text}");
    assert_eq!(
        asked(
            UnixStream::connect(&socket).unwrap(),
            "POST",
            "/v1/guests/ipam/rollback",
            "x"
        )
        .status,
        405
    );
    for (path, warning) in [
        (&socket, "admin.sock` was removed: the host made it again"),
        (
            &site.state_dir().join("control.sock"),
            "control.sock` was removed: the host made it again",
        ),
    ] {
        fs::remove_file(path).unwrap();
        host.wait_for_warning(warning);
        assert!(UnixStream::connect(path).is_ok(), "{}", path.display());
    }
    host.terminate().0.exits(0);
    assert!(!socket.exists(), "it is removed with the host");
}

#[test]
fn hundreds_who_ask_at_once_are_answered_and_disturb_nothing() {
    let site = listening(Site::quickstart());
    let mut host = site.start("run", &[]);
    let all = address(&mut host, 0);
    let paths = [
        "/v1/status",
        "/metrics",
        "/healthz",
        "/v1/keys",
        "/v1/journals",
        "/v1/audit",
        "/v1/ipam",
    ];
    let askers: Vec<_> = (0..40)
        .map(|asker| {
            let all = all.clone();
            std::thread::spawn(move || {
                for turn in 0..10 {
                    let answer = get(&all, paths[(asker + turn) % paths.len()]);
                    // The host serves pods once it has read the store.
                    assert!([200, 503].contains(&answer.status), "{}", answer.head);
                }
            })
        })
        .collect();
    wait_for_three(&mut host);
    for asker in askers {
        asker.join().unwrap();
    }
    assert_eq!(get(&all, "/healthz").status, 200);
    let (ended, _) = host.terminate();
    assert_eq!(
        ended.exits(0).last_line().split(';').next(),
        Some("3 services: 3 true, 0 failed")
    );
}

#[test]
fn everything_is_for_this_machine_alone() {
    let site = Site::quickstart();
    let config = fs::read_to_string(site.path("trueup.toml")).unwrap();
    fs::write(
        site.path("trueup.toml"),
        config + "\n[admin]\nlisten = \"0.0.0.0:9482\"\n",
    )
    .unwrap();
    let refused = ran(&mut site.command("run", &[])).exits(2);
    let line = refused
        .stderr
        .split_once(": admin.listen: ")
        .map(|(_, said)| said.trim_end());
    let said = "was \"0.0.0.0:9482\", must be a loopback address with a port, such as `127.0.0.1:9482`, or `unix:PATH`; health \
                and metrics alone may be on any address: `metrics_listen`";
    assert_eq!(line, Some(said), "{refused}");
    assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
}

#[test]
fn where_no_host_runs_that_is_one_line() {
    let site = Site::quickstart();
    let none = status(&site, &[]).exits(1);
    assert_eq!(none.stderr.lines().count(), 1, "{none}");
    assert!(
        none.stderr.starts_with("error: no host runs with the state folder of"),
        "{none}"
    );
    let top = trueup(["top"]).exits(2);
    assert_eq!(
        top.stderr,
        "error: `trueup top` draws on a terminal, and there is none; use `trueup status`, or `trueup status --output json`\n"
    );
}

/// A `trueup top` on its own terminal.
struct Top {
    script: Child,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Top {
    fn start(site: &Site) -> Self {
        let config = site.folder().display().to_string();
        let command = format!(
            "stty rows 24 cols 80; exec {} top --config {config}",
            support::TRUEUP.display()
        );
        let script = support::starter("script")
            .args(["-qefc", &command, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut script = script.unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (mut stdout, all) = (script.stdout.take().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut some) {
                all.lock().unwrap().extend_from_slice(&some[..count]);
            }
        });
        Self { script, said }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        wait_until(&format!("`{text}` on the terminal"), || {
            assert!(
                self.script.try_wait().unwrap().is_none() || self.said().contains(text),
                "{}",
                self.said()
            );
            self.said().contains(text)
        });
    }

    /// The process on the terminal.
    fn process(&self) -> rustix::process::Pid {
        let script = self.script.id();
        let children = fs::read_to_string(format!("/proc/{script}/task/{script}/children")).unwrap();
        let child = children.split_whitespace().next().unwrap().parse().unwrap();
        rustix::process::Pid::from_raw(child).unwrap()
    }

    /// Its exit code, once it has ended.
    fn end(&mut self) -> Option<i32> {
        let mut code = None;
        wait_until("the end of top", || {
            code = self.script.try_wait().unwrap();
            code.is_some()
        });
        code.and_then(|status| status.code())
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        // Ignore the error: it may have ended by itself.
        _ = self.script.kill();
        _ = self.script.wait();
    }
}

/// The program restores the previous screen (xterm's control sequences).
const GIVEN_BACK: &str = "\u{1b}[?1049l";

#[needs(script)]
#[test]
fn top_draws_on_a_terminal_and_gives_it_back() {
    let site = Site::quickstart();
    let mut host = site.start("run", &[]);
    wait_for_three(&mut host);
    let mut top = Top::start(&site);
    top.wait_for("default/web");
    top.script.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    assert_eq!(top.end(), Some(0), "{}", top.said());
    wait_until("the screen to be given back", || top.said().contains(GIVEN_BACK));

    let mut top = Top::start(&site);
    top.wait_for("default/web");
    rustix::process::kill_process(top.process(), rustix::process::Signal::TERM).unwrap();
    assert_eq!(top.end(), Some(0), "{}", top.said());
    wait_until("the screen to be given back", || top.said().contains(GIVEN_BACK));
    host.terminate().0.exits(0);
}
