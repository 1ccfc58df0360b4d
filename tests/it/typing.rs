//! What helps to type commands: completions and manual pages.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use needs::needs;
use support::{Engine, Site, TRUEUP, program, ran, trueup};

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

/// What a command shows on a terminal of this width.
fn on_a_terminal(columns: u16, words: &str, cache: &Path) -> String {
    let line = format!("stty rows 24 cols {columns}; exec {} {words}", TRUEUP.display());
    let ran = ran(support::starter("script")
        .args(["-qec", &line, "/dev/null"])
        .env("XDG_CACHE_HOME", cache)
        .env("TERM", "xterm"));
    ran.stdout.replace('\r', "")
}

#[needs(script)]
#[test]
fn a_terminal_shows_what_takes_long_and_tables_that_fit_it() {
    let cold = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let shown = on_a_terminal(100, "guest list -o wide", cold.path());
    let took = began.elapsed();
    let line = |text: &str| text.contains("\u{1b}[Kcompiling ");
    assert!(line(&shown) || took < Duration::from_secs(2), "{took:?}: {shown:?}");
    // The line is gone before the first line of data.
    let head = shown.lines().find(|line| line.contains("GUEST ")).unwrap();
    assert!(head.starts_with("\u{1b}[K") || head.starts_with("GUEST "), "{head:?}");
    assert!(
        shown.contains("IMPORTS") && shown.contains("trueup:lbaas/api@"),
        "{shown}"
    );
    for words in ["-q guest list", "guest list 2> /dev/null"] {
        let cold = tempfile::tempdir().unwrap();
        assert!(!line(&on_a_terminal(100, words, cold.path())), "{words}");
    }

    let site = Site::quickstart();
    site.run_once().exits(0);
    let words = |output: &str| format!("guest history lbaas --config {} -o {output}", site.folder().display());
    let cut = on_a_terminal(40, &words("text"), cold.path());
    assert!(cut.lines().all(|line| line.chars().count() <= 40), "{cut}");
    assert!(cut.contains('…'), "{cut}");
    let whole = on_a_terminal(40, &words("wide"), cold.path());
    assert!(!whole.contains('…') && whole.contains("sha256:"), "{whole}");
    let missing = format!("guest swap lbaas {}", "no-such-guest-".repeat(6));
    let refused = on_a_terminal(
        60,
        &format!("{missing} --config {}", site.folder().display()),
        cold.path(),
    );
    assert!(refused.contains("error:") && refused.lines().count() > 1, "{refused}");
}
