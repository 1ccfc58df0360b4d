//! `trueup check` names each planted fault with its next step, changes nothing, and goes on to the end.

use needs::needs;
use std::any::Any;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use support::api_server::{ADMIN, ApiServer, Asked, Fault};
use support::{Engine, Ran, Site, program, ran};

/// What a fault is planted in, and what must live as long as it.
struct Planted {
    site: Site,
    command: Command,
    _keep: Vec<Box<dyn Any>>,
}

impl Planted {
    fn new(site: Site) -> Self {
        let state = site.state_dir();
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        let command = site.command("check", &["--output", "json"]);
        Self {
            site,
            command,
            _keep: Vec::new(),
        }
    }

    fn keeps(mut self, kept: impl Any) -> Self {
        self._keep.push(Box::new(kept));
        self
    }

    /// Replaces a text of the configuration.
    fn edit(self, from: &str, to: &str) -> Self {
        self.site.edit("trueup.toml", from, to);
        self
    }

    fn add(self, text: &str) -> Self {
        let file = self.site.path("trueup.toml");
        let config = fs::read_to_string(&file).unwrap();
        fs::write(file, format!("{config}\n{text}\n")).unwrap();
        self
    }

    /// Replaces the Engine's URL.
    fn engine_at(self, url: &str) -> Self {
        let config = fs::read_to_string(self.site.path("trueup.toml")).unwrap();
        let (_, after) = config.split_once("url = \"").unwrap();
        self.edit(after.split('"').next().unwrap(), url)
    }

    fn file(self, name: &str, text: &str) -> Self {
        fs::write(self.site.path(name), text).unwrap();
        self
    }

    /// A file of the state folder that is damaged.
    fn damaged(self, name: &str) -> Self {
        let file = self.site.state_dir().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "{").unwrap();
        self
    }
}

/// The quickstart without pod addresses, with an Engine in another process.
fn lbaas() -> Planted {
    let engine = Engine::start(&[]);
    Planted::new(Site::against(&engine)).keeps(engine)
}

/// The smallest world, with a store in memory.
fn toy() -> Planted {
    Planted::new(Site::example("toy"))
}

/// The smallest world, with a cluster as its source.
fn cluster(server: &ApiServer, user: &str) -> Planted {
    toy()
        .edit(
            "manifests = \"manifests\"",
            "kubernetes = { kubeconfig = \"kubeconfig\" }",
        )
        .file("kubeconfig", &server.kubeconfig(user, "a-token"))
}

/// A server that answers one request after another with 404, and whose clock is two hours behind.
fn late_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Ends with the test's process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let answer = "HTTP/1.1 404 Not Found\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

/// A public key of ECDSA P-256 that signed nothing.
const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEUqqGM/OpAk0uHlzPF9SWwqgVZT+d
gUNri58m9LCqcndBbBwiK8/5TUAdVHQ4dAz/9lYeG+MfWOcuXWWYT2dInA==
-----END PUBLIC KEY-----
";

/// A planted fault, and the beginning of the finding that must name it.
struct Case {
    plant: fn() -> Planted,
    check: &'static str,
    says: &'static str,
    next: &'static str,
}

/// Faults that fail a check, with exit code 1.
const FAULTS: &[Case] = &[
    Case {
        plant: || lbaas().file("token", "another"),
        check: "Engine",
        says: "refuses the token",
        next: "write a valid token into the file",
    },
    Case {
        plant: || lbaas().edit("token_file = \"token\"", "token_file = \"nowhere\""),
        check: "settings",
        says: "nowhere",
        next: "correct the file or the variable",
    },
    Case {
        plant: || lbaas().damaged("servers.json"),
        check: "state",
        says: "servers.json: ",
        next: "remove it: the servers of manifests that can't be read now go",
    },
    Case {
        plant: || lbaas().damaged("keys/lbaas/default%2Fweb.json"),
        check: "state",
        says: "default%2Fweb.json: EOF",
        next: "repair it: it says ",
    },
    Case {
        plant: || toy().damaged("held/toy.json"),
        check: "state",
        says: "held/toy.json: EOF",
        next: "remove it, and the counts are taken anew",
    },
    Case {
        plant: || lbaas().edit("load_balancers = [\"lb-1\"]", "load_balancers = [\"lb-9\"]"),
        check: "Engine",
        says: "load balancer `lb-9`: the Engine does not know",
        next: "correct `lb-9` in `load_balancers` of [adapter.lbaas]",
    },
    Case {
        plant: || lbaas().engine_at("http://127.0.0.1:1"),
        check: "Engine",
        says: "no connection",
        next: "curl -sS http://127.0.0.1:1",
    },
    Case {
        plant: || lbaas().engine_at(&late_server()),
        check: "clock",
        says: "s ahead of http://127.0.0.1:",
        next: "timedatectl set-ntp true",
    },
    Case {
        plant: || {
            let taken = TcpListener::bind("127.0.0.1:0").unwrap();
            let listen = format!("[admin]\nlisten = \"{}\"", taken.local_addr().unwrap());
            lbaas().add(&listen).keeps(taken)
        },
        check: "admin.listen",
        says: "in use",
        next: "ss -ltnp 'sport = :",
    },
    Case {
        plant: || {
            let site = lbaas().edit("builtin:lbaas@1", "file:broken.wasm");
            site.file("broken.wasm", "no component")
        },
        check: "guest lbaas",
        says: "broken.wasm",
        next: "correct `use` of [guests.lbaas]: trueup guest inspect ",
    },
    Case {
        plant: || {
            let planted = lbaas().edit(
                "use = \"builtin:lbaas@1\"",
                "use = \"file:lbaas.wasm\"\nverify = { keys = [\"key.pub\"] }",
            );
            let guest = trueup_guests_builtin::find("lbaas", "1").unwrap();
            // One more section, so that these are not the bytes that ship.
            let bytes = [guest.bytes, b"\x00\x06\x04more!"].concat();
            fs::write(planted.site.path("lbaas.wasm"), bytes).unwrap();
            planted.file("key.pub", KEY)
        },
        check: "guest lbaas",
        says: "is not signed",
        next: "lock it if the line says so, else sign it with one of `verify.keys`",
    },
    Case {
        plant: || {
            let signed = "oci:127.0.0.1:1/lbaas:1\"\nverify = { keys = [\"key.pub\"] }";
            lbaas().edit("builtin:lbaas@1\"", signed).file("key.pub", KEY)
        },
        check: "guest lbaas",
        says: "this one is not pinned",
        next: "lock it if the line says so",
    },
    Case {
        plant: || lbaas().edit("builtin:lbaas@1", "oci:127.0.0.1:1/lbaas:1"),
        check: "guest lbaas",
        says: "this one is not pinned",
        next: "correct `use` of [guests.lbaas]: trueup guest lock ",
    },
    Case {
        plant: || lbaas().edit("builtin:lbaas@1", &format!("oci:127.0.0.1:1/lbaas@sha256:{:064}", 7)),
        check: "guest lbaas",
        says: "127.0.0.1:1/lbaas",
        next: "check that the registry runs",
    },
    Case {
        plant: || lbaas().edit("builtin:lbaas@1", "builtin:toy@1"),
        check: "guest lbaas",
        says: "toy",
        next: "correct `use` or `settings` of [guests.lbaas]: trueup guest list",
    },
    Case {
        plant: || lbaas().edit("backoff_initial_ms = 20", "backoff_initial_ms = 0"),
        check: "guest lbaas",
        says: "backoff_initial_ms",
        next: "correct `use` or `settings` of [guests.lbaas]",
    },
    Case {
        plant: || {
            let planted = lbaas();
            fs::create_dir_all(planted.site.state_dir().join("guests")).unwrap();
            planted.file(".trueup/guests/lbaas.json", "{\"format\":2}")
        },
        check: "guest lbaas",
        says: "lbaas.json: format was 2, must be 1",
        next: "start the trueup that wrote it",
    },
    Case {
        plant: || lbaas().edit(", write = [\"lb-1\"]", ""),
        check: "grants lbaas",
        says: "no grant to write load balancer `lb-1`",
        next: "add `lbaas = { write = [\"lb-1\"] }` to `grants` of [guests.lbaas]",
    },
    Case {
        plant: || toy().edit("manifests = \"manifests\"", "manifests = \"nowhere\""),
        check: "manifests",
        says: "nowhere",
        next: "mkdir -p ",
    },
    Case {
        plant: || {
            toy().file(
                "manifests/web.yaml",
                "kind: Servce\napiVersion: v1\nmetadata: {name: web}\n",
            )
        },
        check: "manifests",
        says: "web.yaml",
        next: "correct it, then: trueup plan ",
    },
    Case {
        plant: || {
            toy()
                .edit("[source]", "state_dir = \"token\"\n[source]")
                .file("token", "")
        },
        check: "state folder",
        says: "is no folder",
        next: "name another one in `state_dir`",
    },
    Case {
        plant: || {
            toy().add("[backend.etcd]\nkind = \"etcd\"\nendpoints = [\"http://127.0.0.1:1\"]\nrequest_timeout_ms = 500")
        },
        check: "etcd",
        says: "http://127.0.0.1:1",
        next: "etcdctl --endpoints=http://127.0.0.1:1 endpoint health",
    },
    Case {
        plant: || Planted::new(Site::ipam()).add("[backend.cri]\nsocket = \"nowhere.sock\""),
        check: "container runtime",
        says: "can't connect to the container runtime",
        next: "crictl info",
    },
    Case {
        plant: || Planted::new(Site::ipam()).file("enis.json", "{"),
        check: "settings",
        says: "enis.json",
        next: "correct the file",
    },
    Case {
        plant: || {
            let site = Planted::new(Site::services());
            site.edit(
                "[backend.nftables]\nkind = \"simulated\"",
                "[backend.nftables]\nnft = \"no-such-nft\"",
            )
        },
        check: "nftables",
        says: "`no-such-nft` is not there",
        next: "apt-get install nftables",
    },
    Case {
        plant: || {
            let server = ApiServer::start();
            server.go_away();
            cluster(&server, ADMIN).keeps(server)
        },
        check: "API server",
        says: "refused",
        next: "kubectl cluster-info",
    },
    Case {
        plant: || {
            let server = ApiServer::start();
            server.enforce_rbac(true);
            cluster(&server, "somebody").keeps(server)
        },
        check: "rights",
        says: "this account may not list services",
        next: "kubectl apply -f deploy/trueup.yaml",
    },
    Case {
        plant: || {
            let server = ApiServer::start();
            let planted = lbaas()
                .edit(
                    "manifests = \"manifests\"",
                    "kubernetes = { kubeconfig = \"kubeconfig\" }",
                )
                .file("kubeconfig", &server.kubeconfig(ADMIN, "a-token"))
                .add("[election]\nnamespace = \"trueup\"");
            planted.keeps(server)
        },
        check: "Lease",
        says: "namespace `trueup` does not exist",
        next: "kubectl create namespace trueup",
    },
    Case {
        plant: || {
            let server = ApiServer::start();
            let planted = cluster(&server, ADMIN);
            let refused = Fault::Refused {
                code: 401,
                retry_after_s: None,
            };
            server.fault(|asked| asked.path.contains("selfsubjectaccessreviews"), refused, None);
            planted.keeps(server)
        },
        check: "rights",
        says: "(401)",
        next: "kubectl auth whoami",
    },
];

/// The findings of a check.
pub(crate) fn findings(ran: &Ran) -> Vec<Value> {
    ran.json()["checks"].as_array().unwrap().clone()
}

/// Whether one of them names the fault and the next step.
pub(crate) fn names(found: &[Value], mark: &str, (check, says, next): (&str, &str, &str)) -> bool {
    found.iter().any(|finding| {
        finding["check"] == check
            && finding["mark"] == mark
            && finding["text"].as_str().unwrap().contains(says)
            && finding["next"].as_str().unwrap_or_default().starts_with(next)
    })
}

#[test]
fn each_fault_is_named_with_its_next_step() {
    for fault in FAULTS {
        let mut planted = (fault.plant)();
        let before = planted.site.state();
        let ran = ran(&mut planted.command).exits(1);
        let found = findings(&ran);
        let wanted = (fault.check, fault.says, fault.next);
        assert!(names(&found, "failed", wanted), "{wanted:?}\n{ran}");
        assert_eq!(planted.site.state(), before, "a check changes nothing: {wanted:?}");
    }
}

#[test]
fn without_a_fault_everything_is_ok_and_nothing_changes() {
    let server = ApiServer::start();
    server.enforce_rbac(true);
    let all = [lbaas(), cluster(&server, ADMIN), Planted::new(Site::ipam())];
    for mut planted in all {
        let before = planted.site.state();
        let ran = ran(&mut planted.command).exits(0);
        let found = findings(&ran);
        assert!(
            found.len() > 3 && found.iter().all(|one| one["mark"] == "ok" && one["next"].is_null()),
            "{ran}"
        );
        assert_eq!(ran.json()["ok"], found.len(), "{ran}");
        assert_eq!(planted.site.state(), before);
    }
    let writes = |asked: &str| !matches!(asked, "get" | "list" | "watch");
    let written = server.requests().into_iter().filter(|one| writes(&one.asked.verb));
    let written: Vec<_> = written.map(|one| one.asked.path).collect();
    assert!(
        written.iter().all(|path| path.ends_with("/selfsubjectaccessreviews")),
        "{written:?}"
    );
}

#[test]
fn clocks_are_compared_as_soon_as_their_server_answers() {
    let server = ApiServer::start();
    let rights = |asked: &Asked| asked.path.contains("selfsubjectaccessreviews");
    server.fault(rights, Fault::AnsweredLate(Duration::from_secs(8)), Some(1));
    let ran = ran(&mut cluster(&server, ADMIN).command).exits(0);
    let found = findings(&ran);
    let clock = found.iter().find(|finding| finding["check"] == "clock").unwrap();
    let text = clock["text"].as_str().unwrap();
    let seconds = text
        .strip_prefix("this machine is ")
        .and_then(|text| text.split_once(" s "));
    assert!(seconds.unwrap().0.parse::<u64>().unwrap() < 8, "{text}");
}

#[test]
fn a_check_goes_on_after_a_fault_and_its_text_has_a_line_for_each() {
    let planted = lbaas()
        .file("token", "another")
        .edit("manifests = \"manifests\"", "manifests = \"nowhere\"");
    let ran = ran(&mut planted.site.command("check", &[])).exits(1);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    for begin in [
        "ok       configuration        ",
        "ok       state folder         ",
        "ok       disk                 ",
        "failed   manifests            ",
        "         next: mkdir -p ",
        "ok       guest lbaas          lbaas@1 of builtin:lbaas@1",
        "failed   Engine               load balancer `lb-1`: the Engine refuses the token",
        "         next: write a valid token",
        "ok       clock                ",
        "5 ok, 0 warnings, 2 failed",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(begin)), "{begin}\n{ran}");
    }
    assert!(
        !ran.stdout.contains(support::TOKEN) && !ran.stderr.contains(support::TOKEN),
        "{ran}"
    );
}

#[test]
fn the_texts_of_a_check_begin_in_one_column() {
    let listen = "[admin]\nlisten = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"";
    let planted = Planted::new(Site::ipam()).add(listen);
    let ran = ran(&mut planted.site.command("check", &[])).exits(0);
    assert!(ran.stdout.contains("admin.metrics_listen 127.0.0.1:0 is free"), "{ran}");
    for line in ran.stdout.lines().filter(|line| line.starts_with("ok ")) {
        let (name, text) = line.split_at(30);
        assert!(name.ends_with(' ') && text.starts_with(|c| c != ' '), "{line}\n{ran}");
    }
}

#[test]
fn a_warning_does_not_fail_a_check() {
    let planted = lbaas().add("[admin]\nlisten = \"unix:admin.sock\"");
    let mut host = planted.site.start("run", &[]);
    host.wait_for("true");
    let mut planted = planted;
    let beside_its_own = ran(&mut planted.command).exits(0);
    let of_host = "this configuration's host runs, process ";
    assert!(
        names(&findings(&beside_its_own), "ok", ("state folder", of_host, "")),
        "{beside_its_own}"
    );
    fs::copy(planted.site.path("trueup.toml"), planted.site.path("other.toml")).unwrap();
    planted.command = program();
    planted
        .command
        .arg("check")
        .arg(planted.site.path("other.toml"))
        .args(["--output", "json"]);
    let ran_beside = ran(&mut planted.command).exits(0);
    let taken = (
        "state folder",
        "another trueup runs with it (process ",
        "nothing if that is this host: trueup status",
    );
    let found = findings(&ran_beside);
    assert!(names(&found, "warning", taken), "{ran_beside}");
    assert!(
        found
            .iter()
            .any(|one| one["check"] == "admin.listen" && one["text"].as_str().unwrap().contains("the host that runs")),
        "{ran_beside}"
    );
    drop(host);

    let server = ApiServer::start();
    let mut planted = cluster(&server, ADMIN);
    let refused = Fault::Refused {
        code: 404,
        retry_after_s: None,
    };
    server.fault(|asked| asked.path == "/apis/discovery.k8s.io/v1", refused, None);
    let ran = ran(&mut planted.command).exits(0);
    let missing = (
        "kinds",
        "does not serve discovery.k8s.io/v1 endpointslices",
        "kubectl api-resources --api-group=discovery.k8s.io",
    );
    assert!(names(&findings(&ran), "warning", missing), "{ran}");
}

#[test]
fn an_empty_folder_and_a_key_that_is_not_needed_yet_are_warnings() {
    let mut empty = toy();
    for file in fs::read_dir(empty.site.path("manifests")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let ran_empty = ran(&mut empty.command).exits(0);
    let said = ("manifests", "manifests: no object at all", "put manifests into ");
    assert!(names(&findings(&ran_empty), "warning", said), "{ran_empty}");

    let keys = "builtin:lbaas@1\"\nverify = { keys = [\"nokey.pem\"] }";
    let mut without_key = lbaas().edit("builtin:lbaas@1\"", keys);
    let ran_without_key = ran(&mut without_key.command).exits(0);
    let said = (
        "keys lbaas",
        "nokey.pem: No such file",
        "correct `keys` in `verify` of [guests.lbaas]",
    );
    assert!(names(&findings(&ran_without_key), "warning", said), "{ran_without_key}");
}

#[test]
fn a_configuration_that_cannot_be_used_ends_a_check_at_once() {
    let planted = lbaas().edit("cluster = ", "clutser = ");
    let mut planted = planted;
    let ran_typo = ran(&mut planted.command).exits(2);
    let wanted = (
        "configuration",
        "unknown key `clutser`",
        "correct it, then: trueup check ",
    );
    let found = findings(&ran_typo);
    assert!(names(&found, "failed", wanted), "{ran_typo}");
    assert!(found.iter().all(|one| one["check"] == "configuration"), "{ran_typo}");

    let site = Site::of("");
    let empty = ran(&mut site.command("check", &["--output", "json"])).exits(2);
    let wanted = ("configuration", "`trueup init FOLDER`", "correct it");
    assert!(names(&findings(&empty), "failed", wanted), "{empty}");
    for command in ["check", "plan"] {
        let missing = ran(program().arg(command).arg(site.path("nowhere"))).exits(2);
        let said = missing.stdout.clone() + &missing.stderr;
        assert!(said.contains("trueup init"), "{missing}");
    }
}

/// A check as the last part of another command.
fn under(command: &[&str], planted: &Planted) -> Command {
    let mut under = support::starter(command[0]);
    under.args(&command[1..]).arg(program().get_program()).arg("check");
    under.arg(planted.site.folder()).args(["--output", "json"]);
    under
}

/// A check by a user without rights, who may read the site.
fn by_another_user(planted: &Planted) -> Command {
    fs::set_permissions(planted.site.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    // The folder of the build may be closed to other users.
    let program = planted.site.path("program");
    fs::copy(support::program().get_program(), &program).unwrap();
    let mut command = support::starter("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command
        .arg(program)
        .arg("check")
        .arg(planted.site.folder())
        .args(["--output", "json"]);
    command
}

#[needs(root, netns)]
#[test]
fn a_full_disk_is_named() {
    let planted = toy().edit("[source]", "state_dir = \"small\"\n[source]");
    let small = planted.site.path("small");
    fs::create_dir(&small).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=1m,mode=700 small {0} && (head -c 2m /dev/zero > {0}/full; exec \"$@\")",
        small.display()
    );
    let ran = ran(&mut under(&["unshare", "--mount", "sh", "-c", &script, "sh"], &planted)).exits(1);
    let full = ("disk", "0 MiB free", "df -h ");
    assert!(names(&findings(&ran), "failed", full), "{ran}");
}

#[needs(root)]
#[test]
fn missing_rights_on_this_machine_are_named() {
    let planted = toy().edit("[source]", "state_dir = \"roots\"\n[source]");
    fs::create_dir(planted.site.path("roots")).unwrap();
    let ran = ran(&mut by_another_user(&planted)).exits(1);
    let unwritable = (
        "state folder",
        "can't be written: Permission denied",
        "run as the user that owns it",
    );
    assert!(names(&findings(&ran), "failed", unwritable), "{ran}");
}

#[needs(root, nft)]
#[test]
fn a_packet_filter_without_rights_is_named() {
    let planted = Planted::new(Site::services()).edit("[backend.nftables]\nkind = \"simulated\"", "[backend.nftables]");
    let ran = ran(&mut by_another_user(&planted)).exits(1);
    let refused = (
        "nftables",
        "Operation not permitted",
        "apt-get install nftables, and run the host as root",
    );
    assert!(names(&findings(&ran), "failed", refused), "{ran}");
}
