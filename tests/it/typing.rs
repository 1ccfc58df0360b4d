//! What helps to type commands: completions and manual pages.

use std::fs;

use support::{Engine, Site, program, ran, trueup};

use crate::commands::COMMANDS;

/// What a shell offers after these words. The last one may be begun.
fn offered(site: Option<&Site>, words: &[&str]) -> Vec<String> {
    let index = words.len().to_string();
    let mut command = program();
    if let Some(site) = site {
        command.env("TRUEUP_CONFIG", site.folder());
    }
    let ran = ran(command
        .env("_TRUEUP_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", index)
        .env("_CLAP_IFS", "\n")
        .args(["--", "trueup"])
        .args(words));
    let ran = ran.exits(0);
    assert_eq!(ran.stderr, "", "{words:?}");
    ran.stdout.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn completions_know_commands_keys_guests_and_revisions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = trueup(["completions", shell]).exits(0).stdout;
        assert!(script.contains("_TRUEUP_COMPLETE"), "{shell}: {script}");
    }
    for command in COMMANDS {
        let offered = offered(None, command);
        assert!(
            offered.contains(&command[command.len() - 1].to_owned()),
            "{command:?}: {offered:?}"
        );
    }
    assert!(offered(None, &["run", "--no-r"]).contains(&"--no-record".to_owned()));

    let engine = Engine::start(&["--settle-ms", "20"]);
    let site = Site::against(&engine);
    assert_eq!(offered(Some(&site), &["explain", "def"]), [""; 0]);
    site.run_once().exits(0);
    assert_eq!(
        offered(Some(&site), &["explain", "def"]),
        ["default/api", "default/web"]
    );
    assert_eq!(offered(Some(&site), &["reconcile", "kube"]), ["kube-system/dns"]);
    assert_eq!(offered(Some(&site), &["guest", "swap", "l"]), ["lbaas"]);
    let candidates = offered(Some(&site), &["guest", "swap", "lbaas", "lbaas@"]);
    assert_eq!(candidates, ["lbaas@1", "lbaas@2"]);
    assert_eq!(offered(Some(&site), &["guest", "rollback", "lbaas", "--to", ""]), ["1"]);
    // `--config` comes before the variable, as when the command runs.
    let elsewhere = Site::quickstart();
    let config = elsewhere.folder().to_str().unwrap();
    assert_eq!(offered(Some(&site), &["explain", "--config", config, "def"]), [""; 0]);
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let man = folder.path().join("man/man1");
    trueup(["man", man.to_str().unwrap()]).exits(0);
    for command in COMMANDS {
        let name = format!("trueup-{}.1", command.join("-"));
        let page = fs::read_to_string(man.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let page = fs::read_to_string(man.join("trueup.1")).unwrap();
    assert!(page.contains("trueup test tests/scenarios"), "its examples too: {page}");
}
