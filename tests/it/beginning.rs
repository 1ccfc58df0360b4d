//! What comes before the first run: `trueup init` writes what a check and a plan accept, and these leave nothing behind
//! that keeps a host of another user from starting.

use needs::needs;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use support::api_server::{ADMIN, ApiServer};
use support::{Ran, Site, program, ran};

use crate::check::{findings, names};

/// All that is in a folder, with owners: nothing may come, and what another user owns must stay that user's.
fn tree(folder: &Path) -> Vec<String> {
    let listed = ran(Command::new("find").arg(folder).args(["-printf", "%P %u %m\n"])).exits(0);
    let mut lines: Vec<String> = listed.stdout.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Examples, two of them with a simulated server, whose state folder is to be `above/state`.
fn examples() -> [Site; 3] {
    [Site::quickstart(), Site::example("neg"), Site::services()].map(|site| {
        let config = fs::read_to_string(site.path("trueup.toml")).unwrap();
        let config = config.replace("listen = \"127.0.0.1:9481\"", "listen = \"127.0.0.1:0\"");
        let config = config.replace("\".trueup/", "\"above/state/");
        fs::write(
            site.path("trueup.toml"),
            format!("state_dir = \"above/state\"\n{config}"),
        )
        .unwrap();
        site
    })
}

#[test]
fn a_check_and_a_plan_leave_nothing_behind() {
    for site in examples() {
        let before = tree(site.folder());
        ran(&mut site.command("check", &[])).exits(0);
        assert_eq!(tree(site.folder()), before);
        ran(&mut site.command("plan", &[])).exits(3);
        assert_eq!(tree(site.folder()), before);
        // A run makes the folder for its user alone, and those above it as others would.
        let mut run = support::starter("sh");
        run.args(["-c", "umask 022; exec \"$@\"", "sh"])
            .arg(program().get_program());
        let once = ran(run.arg("run").arg(site.folder()).arg("--once")).exits(0);
        let said = once.stderr.matches("compiling guests for this machine: ").count();
        assert_eq!(said, 1, "a host that is silent for seconds looks stuck: {once}");
        let mode = |path: &str| fs::metadata(site.path(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("above"), mode("above/state")), (0o755, 0o700));
    }
}

#[needs(root)]
#[test]
fn a_check_and_a_plan_by_root_leave_the_folder_to_its_owner() {
    for site in examples() {
        let state = site.path("above/state");
        fs::create_dir_all(state.join("cache")).unwrap();
        fs::create_dir_all(state.join("registry")).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        ran(Command::new("chown").arg("-R").arg("65534:65534").arg(&state)).exits(0);
        let before = tree(site.folder());
        for (command, code) in [("check", 0), ("plan", 3)] {
            let ran = ran(&mut site.command(command, &[])).exits(code);
            assert!(!ran.stderr.contains("compile cache"), "{ran}");
            assert_eq!(tree(site.folder()), before, "{command}");
        }
        let run = site.run_once().exits(1);
        assert!(
            run.stderr.contains("belongs to user 65534 alone: run as that user"),
            "{run}"
        );
        assert_eq!(tree(site.folder()), before);
    }
}

#[test]
fn a_simulated_backend_for_a_cluster_is_a_warning() {
    let server = ApiServer::start();
    for (world, check, next) in [
        (
            "lbaas",
            "Engine",
            "for the real one, leave out `url` of [backend.lbaas] and [sim.lbaas]",
        ),
        ("neg", "Compute Engine", "for the real one, give [backend.neg]"),
        ("node", "nftables", "for the real one, leave out `kind = \"simulated\"`"),
    ] {
        let site = Site::of("");
        fs::write(site.path("kubeconfig"), server.kubeconfig(ADMIN, "a-token")).unwrap();
        let folder = site.path("new");
        init(&folder, &["--world", world, "--source", "kubernetes"]).exits(0);
        let config = fs::read_to_string(folder.join("trueup.toml")).unwrap();
        let config = config.replace("url = \"http://127.0.0.1:9480\"\n", "");
        fs::write(
            folder.join("trueup.toml"),
            config.replace(":9480\"", ":0\"").replace(":9481\"", ":0\""),
        )
        .unwrap();
        let mut command = program();
        command.arg("check").arg(&folder).args(["--output", "json"]);
        let ran = ran(command.env("KUBECONFIG", site.path("kubeconfig"))).exits(0);
        let wanted = (check, "but [source] is a cluster: ", next);
        assert!(names(&findings(&ran), "warning", wanted), "{wanted:?}\n{ran}");
    }
}

/// Runs `trueup init` on a folder.
fn init(folder: &Path, args: &[&str]) -> Ran {
    let kubeconfig = folder.with_file_name("kubeconfig");
    ran(program()
        .arg("init")
        .arg(folder)
        .args(args)
        .env("KUBECONFIG", kubeconfig))
}

#[test]
fn what_init_writes_passes_a_check_and_a_plan() {
    let server = ApiServer::start();
    server
        .apply(serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}))
        .unwrap();
    for (world, sources) in [
        ("lbaas", &["manifests", "kubernetes"][..]),
        ("neg", &["manifests", "kubernetes"]),
        ("node", &["manifests", "kubernetes"]),
        ("ipam", &[""]),
    ] {
        for source in sources {
            let site = Site::of("");
            fs::write(site.path("kubeconfig"), server.kubeconfig(ADMIN, "a-token")).unwrap();
            let folder = site.path("new");
            let flags: &[&str] = if source.is_empty() { &[] } else { &["--source", source] };
            let args = [&["--world", world], flags].concat();
            let written = init(&folder, &args).exits(0);
            assert!(written.stdout.contains("next: trueup check "), "{written}");
            if let Ok(token) = fs::metadata(folder.join("token")) {
                assert_eq!(token.permissions().mode() & 0o777, 0o600);
            }
            // Several tests run at once, and each server needs a port of its own.
            let file = folder.join("trueup.toml");
            let config = fs::read_to_string(&file).unwrap();
            assert!(config.contains("\nstate_dir = \".trueup\"\n"), "{config}");
            let config = config.replace("url = \"http://127.0.0.1:9480\"\n", "");
            fs::write(&file, config.replace(":9480\"", ":0\"").replace(":9481\"", ":0\"")).unwrap();
            for (command, codes) in [("check", [0, 0]), ("plan", [0, 3])] {
                let ran = ran(program()
                    .arg(command)
                    .arg(&folder)
                    .env("KUBECONFIG", site.path("kubeconfig")));
                let said = format!(
                    "{world} {source} {command}\n{config}\n{ran}",
                    config = fs::read_to_string(&file).unwrap()
                );
                assert!(ran.code.is_some_and(|code| codes.contains(&code)), "{said}");
                assert!(!ran.stdout.contains("failed "), "{said}");
            }
        }
    }
}

#[test]
fn init_overwrites_nothing_and_says_what_to_type() {
    let site = Site::of("mine");
    let refused = init(site.folder(), &["--world", "ipam"]).exits(2);
    assert!(refused.stderr.contains("trueup.toml exists already"), "{refused}");
    assert_eq!(fs::read_to_string(site.path("trueup.toml")).unwrap(), "mine");
    assert!(!site.path("enis.json").exists(), "nothing else is written either");
    for (args, said) in [
        (&[][..], "with as WORLD one of ipam, lbaas, neg, node\n"),
        (
            &["--world", "lbaas"],
            "--world lbaas --source SOURCE, with as SOURCE one of manifests, kubernetes",
        ),
        (
            &["--world", "ipam", "--source", "manifests"],
            "the world `ipam` reads no source: trueup init ",
        ),
    ] {
        let refused = init(&site.path("new"), args).exits(2);
        assert!(refused.stderr.contains(said), "{said}\n{refused}");
        assert!(!site.path("new").exists());
    }
}
