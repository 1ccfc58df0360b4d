//! The process: errors if it can't be started or does not end, serialization, and its input.

use needs::needs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trueup_capabilities::nftables::Api as _;
use trueup_capabilities::nftables::nft::{Nft, Settings};

use super::{Namespace, PATIENCE, add_table, transaction};

/// Normal waits end much sooner; this allows for a busy machine.
const GUARD: Duration = Duration::from_secs(120);

/// A program in place of nft.
fn fake(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/nftables/fake")
        .join(name)
}

fn settings(program: PathBuf) -> Settings {
    Settings {
        program,
        timeout: PATIENCE,
        ..Settings::default()
    }
}

/// How many times a program wrote one of its lines.
fn lines(folder: &Path, line: &str) -> usize {
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    log.lines().filter(|written| *written == line).count()
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < GUARD, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process with these words in its command line is running.
fn runs(words: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let command = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    processes
        .filter_map(command)
        .any(|line| String::from_utf8_lossy(&line).contains(words))
}

#[needs(netns, nft, root)]
#[tokio::test]
async fn what_is_missing_is_named_with_what_to_install() {
    let empty = transaction(&[]);
    let told = async |settings: Settings| Nft::new(settings).apply(&empty).await.unwrap_err();
    let missing = told(settings("no-such-nft".into())).await;
    assert_eq!(missing, "`no-such-nft` is not there: apt-get install nftables");
    let namespace = Settings {
        namespace: Some("/run/netns/no-such-namespace".into()),
        ..settings("nft".into())
    };
    assert_eq!(
        told(namespace).await,
        "the network namespace `/run/netns/no-such-namespace` is not there: ip netns add no-such-namespace"
    );
    let forbidden = told(settings("/etc/hostname".into())).await;
    assert!(forbidden.starts_with("starting `/etc/hostname`: "), "{forbidden}");

    let namespace = Namespace::new();
    let within = Settings {
        namespace: Some(namespace.file()),
        ..settings("no-such-nft".into())
    };
    assert_eq!(
        told(within).await,
        "`no-such-nft` is not there: apt-get install nftables"
    );
}

#[tokio::test]
async fn a_hanging_program_is_killed_and_its_transaction_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    // A unique name, to search for.
    let program = folder.path().join("nft");
    std::os::unix::fs::symlink(fake("hangs"), &program).unwrap();
    let nft = Nft::new(Settings {
        timeout: Duration::from_secs(2),
        ..settings(program.clone())
    });
    let name = program.display().to_string();
    let expected = format!(
        "`{name}` took longer than 2000 ms, the `timeout_ms` of [backend.nftables], and was killed: whether the kernel \
         took the transaction is not known, so a resync must come next"
    );
    // The next one has a turn of its own.
    for _ in 0..2 {
        assert_eq!(nft.apply(&transaction(&[add_table("a")])).await, Err(expected.clone()));
        wait_until("the program to be gone", || !runs(&name)).await;
    }
}

/// The program `counts` ran this often, and each time to its end before the next began.
#[track_caller]
fn assert_ran_in_turn(folder: &Path, times: usize) {
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    assert_eq!(log, "begins\nends\n".repeat(times));
}

#[tokio::test]
async fn transactions_are_applied_one_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let nft = Nft::new(settings(fake("counts")));
    let mut asked = tokio::task::JoinSet::new();
    let nft = std::sync::Arc::new(nft);
    for _ in 0..4 {
        let (nft, path) = (nft.clone(), format!("{path}\n"));
        asked.spawn(async move { nft.apply(&path).await });
    }
    assert_eq!(asked.join_all().await, vec![Ok(()); 4]);
    assert_ran_in_turn(folder.path(), 4);
}

#[tokio::test]
async fn a_caller_who_goes_away_leaves_the_transaction_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}\n", folder.path().display());
    let nft = Nft::new(settings(fake("counts")));
    {
        let gone = nft.apply(&path);
        tokio::select! {
            answer = gone => panic!("{answer:?}"),
            () = wait_until("the program to begin", || lines(folder.path(), "begins") == 1) => {}
        }
    }
    assert_eq!(nft.apply(&path).await, Ok(()));
    assert_ran_in_turn(folder.path(), 2);
}

#[tokio::test]
async fn a_program_is_given_a_search_path_and_a_language() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}\n", folder.path().display());
    assert_eq!(Nft::new(settings(fake("counts"))).apply(&path).await, Ok(()));
    let environment = std::fs::read_to_string(folder.path().join("environment")).unwrap();
    let names: BTreeSet<&str> = environment
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    // The shell's own variables.
    let expected = BTreeSet::from(["LANG", "LC_ALL", "PATH"]);
    let of_shell = BTreeSet::from(["OLDPWD", "PWD", "SHLVL", "_"]);
    assert_eq!(&names - &of_shell, expected);
}

#[tokio::test]
async fn many_words_are_cut_and_a_signal_is_named() {
    let error = Nft::new(settings(fake("refuses"))).apply("").await.unwrap_err();
    assert!(
        error.contains("refused the transaction: no such chain 0; no such chain 1; "),
        "{error}"
    );
    assert!(error.len() < 800 && !error.contains('\n'), "{error}");
    let error = Nft::new(settings(fake("dies"))).apply("").await.unwrap_err();
    let said = "was ended by signal 15: whether the kernel took the transaction is not known";
    assert!(error.contains(said), "{error}");
}
