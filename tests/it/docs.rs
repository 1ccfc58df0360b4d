//! The README and the pages of `docs/`: their links lead somewhere, their commands are commands, and a page that shows
//! a session shows what the programs print.
//!
//! A session is a page's blocks of type `console`, in order. A line that begins with `$ ` is a command, and the lines
//! after it are its output, in any order; `...` leaves lines out, or the rest of a line. Times, sizes, digests and the
//! like may differ from those that the page shows. Blocks of type `LANGUAGE file=PATH` are files that the page has the
//! reader write.

use needs::needs;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};
use std::thread;

use regex::Regex;

use support::plugins::trueup_cni;
use support::{TRUEUP, files_under, ran};

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The pages whose sessions run.
const SESSIONS: &[&str] = &[
    "README.md",
    "docs/tour.md",
    "docs/on-call.md",
    "docs/try-a-version.md",
    "docs/write-a-guest.md",
    "docs/pod-addresses.md",
    "docs/move.md",
    "docs/versions.md",
    "docs/grants.md",
    "docs/journal.md",
    "docs/guests.md",
    "docs/services.md",
    "docs/neg.md",
    "docs/operators.md",
    "docs/observing.md",
    "docs/tracing.md",
    "docs/compute.md",
];

/// Pages whose sessions run at once. A session mostly compiles guests, or sleeps.
const AT_ONCE: usize = 4;

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The README and all pages, by their paths in the repository.
fn pages() -> Vec<String> {
    let docs = files_under(&Path::new(ROOT).join("docs"));
    let pages = docs
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    let names = pages.map(|file| format!("docs/{}", file.file_name().unwrap().to_str().unwrap()));
    names
        .chain(["README.md".to_owned(), "CHANGELOG.md".to_owned()])
        .collect()
}

/// A fenced block.
struct Block {
    /// What is after the fence.
    kind: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        let text = line.trim_start();
        if let Some(kind) = text.strip_prefix("```") {
            is_inside = !is_inside;
            if is_inside {
                let (kind, text) = (kind.to_owned(), String::new());
                blocks.push(Block { kind, text });
            }
        } else if let (true, Some(block)) = (is_inside, blocks.last_mut()) {
            writeln!(block.text, "{line}").unwrap();
        }
    }
    blocks
}

/// A command of a session, with the output that the page shows.
struct Typed {
    command: String,
    shown: Vec<String>,
}

impl Typed {
    /// Whether it goes on until it is stopped.
    fn is_endless(&self) -> bool {
        match *self.command.split_whitespace().collect::<Vec<_>>() {
            ["trueup", "run", ref arguments @ ..] => !arguments.contains(&"--once"),
            ["trueup", "sim", ..] => true,
            _ => false,
        }
    }
}

fn session(page: &str) -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    for block in blocks(page) {
        if let Some(file) = block.kind.split_once(" file=").map(|(_, file)| file) {
            let command = format!(
                "mkdir -p \"$(dirname {file})\" && cat > {file} <<'END-OF-FILE'\n{}END-OF-FILE",
                block.text
            );
            all.push(Typed {
                command,
                shown: Vec::new(),
            });
        }
        if block.kind != "console" {
            continue;
        }
        for line in block.text.lines() {
            match (line.strip_prefix("$ "), all.last_mut()) {
                (Some(command), _) => all.push(Typed {
                    command: command.replace("cargo run --release -- ", "trueup "),
                    shown: Vec::new(),
                }),
                (None, Some(typed)) if typed.command.ends_with('\\') => {
                    typed.command += "\n";
                    typed.command += line;
                }
                (None, Some(typed)) => typed.shown.push(line.to_owned()),
                (None, None) => panic!("output without a command: {line}"),
            }
        }
    }
    all
}

/// A copy of this checkout: as it is, changes included.
pub(crate) fn copied_checkout() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    // What an operator tried and what was built is not part of it.
    let copy = "tar -c --exclude=./.git --exclude=./target --exclude=.trueup . | tar -x -C \"$0\"";
    ran(Command::new("sh")
        .args(["-c", copy])
        .arg(folder.path())
        .current_dir(ROOT))
    .exits(0);
    folder
}

/// The folder that a session is typed in: a copy of this checkout, with the programs.
fn checkout() -> tempfile::TempDir {
    let folder = copied_checkout();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("bin")).unwrap();
    for (name, program) in [("trueup", TRUEUP.as_path()), ("trueup-cni", trueup_cni())] {
        std::os::unix::fs::symlink(program, at("bin").join(name)).unwrap();
    }
    folder
}

/// What a session's commands find in their shell.
const SHELL: &str = r#"
ip link set lo up
# Five times as long as the page says: the machine may be slow.
sleep() { command sleep $(($1 * 5)); }
# Waits for a line that begins with the word: a minute at most.
printed() { for _ in $(seq 600); do grep -q "^$1 " "$2" && break; command sleep 0.1; done; }
"#;

/// A script that types the session: one file of output for each command.
fn script(session: &[Typed]) -> String {
    let mut script = SHELL.to_owned();
    for (n, typed) in session.iter().enumerate() {
        let command = &typed.command;
        if typed.is_endless() {
            writeln!(script, "{command} > out/{n} 2>&1 &").unwrap();
            for line in typed.shown.iter().filter(|line| *line != "...") {
                let word = line.split_whitespace().next().unwrap();
                writeln!(script, "printed {word} out/{n}").unwrap();
            }
        } else {
            writeln!(script, "{{ {command}\n}} > out/{n} 2>&1\necho $? > out/{n}.code").unwrap();
        }
    }
    script + "kill $(jobs -p) 2> /dev/null\nwait\n"
}

/// What differs from one run to another.
static PASSING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let masks = [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"sha256:[0-9a-f]{12,64}", "DIGEST"),
        (r"\b[0-9a-f]{32}\b", "ID"),
        (r"\b\d+(\.\d+)? (ms|s|MiB|KiB|bytes|entries)\b", "SIZE"),
        (r"\bprocess \d+", "PROCESS"),
        (
            r"\b\d+ (calls?|decisions?|lines?|questions?|recordings?|snapshots?)\b",
            "CALLS",
        ),
        (r"\b(entry|line) \d+", "ENTRY"),
        (r"\bx\d+\b", "TIMES"),
        (r"#\d+", "NUMBER"),
        (r" {2,}", "  "),
        (r"\s+$", ""),
    ];
    masks.map(|(mask, name)| (Regex::new(mask).unwrap(), name)).into()
});

fn lasting(line: &str) -> String {
    let masked = |line: String, (mask, name): &(Regex, &str)| mask.replace_all(&line, *name).into_owned();
    PASSING.iter().fold(line.to_owned(), masked)
}

/// Why a command's output is not what the page shows.
fn difference(typed: &Typed, output: &str) -> Option<String> {
    let shown: Vec<String> = typed.shown.iter().map(|line| lasting(line)).collect();
    let printed: BTreeSet<String> = output.lines().map(lasting).collect();
    let leaves_out = typed.is_endless() || shown.iter().any(|line| line.trim() == "...");
    let is_of = |shown: &str, printed: &str| match shown.strip_suffix("...") {
        Some(begin) => printed.starts_with(begin),
        None => printed == shown,
    };
    let is_missing = |line: &&String| line.trim() != "..." && !printed.iter().any(|one| is_of(line, one));
    let missing = shown.iter().find(is_missing);
    let is_more = |line: &&String| !leaves_out && !shown.iter().any(|one| is_of(one, line));
    let more = printed.iter().find(is_more);
    let why = match (missing, more) {
        (Some(line), _) => format!("this line is not printed: {line}"),
        (None, Some(line)) => format!("this line is not shown: {line}"),
        (None, None) => return None,
    };
    Some(format!("$ {}\n{why}\nit prints:\n{output}", typed.command))
}

/// Types a page's session on a network of its own.
fn wrong_of(page: &str) -> Vec<String> {
    let session = session(&read(page));
    assert!(!session.is_empty(), "{page} shows no session");
    let folder = checkout();
    fs::create_dir(folder.path().join("out")).unwrap();
    let path = format!(
        "{}:{}",
        folder.path().join("bin").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut shell = support::starter("timeout");
    // A session that hangs fails with code 124.
    shell
        .args(["1800", "unshare", "--net", "bash", "-c", &script(&session)])
        .current_dir(folder.path());
    shell.env("PATH", path).env("TRUEUP_LOG", "off");
    // There is no network. What a guest is built from is what this project is built from.
    shell.env("CARGO_NET_OFFLINE", "true").env_remove("CARGO_TARGET_DIR");
    ran(&mut shell).exits(0);
    let output = |name: String| fs::read_to_string(folder.path().join("out").join(name)).unwrap();
    let typed = session.iter().enumerate();
    let wrong = typed.filter_map(|(n, typed)| {
        let printed = output(n.to_string());
        if typed.shown.is_empty() && !typed.is_endless() {
            // 3 is the answer `differs`.
            let code = output(format!("{n}.code"));
            let is_fine = ["0", "3"].contains(&code.trim());
            return (!is_fine).then(|| format!("$ {}\nexits with {code}{printed}", typed.command));
        }
        difference(typed, &printed)
    });
    wrong.map(|wrong| format!("{page}: {wrong}")).collect()
}

#[needs(root, netns)]
#[test]
fn a_page_shows_what_the_programs_print() {
    let pages = Mutex::new(SESSIONS.iter());
    let next = || pages.lock().unwrap().next();
    let typist = || {
        std::iter::from_fn(next)
            .flat_map(|page| wrong_of(page))
            .collect::<Vec<_>>()
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let typists: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(typist)).collect();
        let ended = typists.into_iter().map(|typist| typist.join().unwrap());
        ended.flatten().collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The links of a page, without those to other hosts.
fn links(page: &str) -> Vec<String> {
    static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").unwrap());
    let found = LINK.captures_iter(page).map(|link| link[1].to_owned());
    found.filter(|link| !link.contains("://")).collect()
}

/// The anchors of a page: its headings as GitHub and mdBook write them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_inside = false;
    let headings = page.lines().filter(|line| {
        is_inside ^= line.starts_with("```");
        !is_inside && line.starts_with('#')
    });
    let anchor = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for page in pages() {
        let here = PathBuf::from(&page);
        for link in links(&read(&page)) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => here.clone(),
                _ => here.parent().unwrap().join(file),
            };
            let path = Path::new(ROOT).join(&target);
            let has_anchor = || anchors(&fs::read_to_string(&path).unwrap_or_default()).contains(anchor);
            // The site has the pages alone.
            let leaves_the_site = page.starts_with("docs/") && file.starts_with("../");
            if leaves_the_site || !path.exists() || !(anchor.is_empty() || has_anchor()) {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let listed: BTreeSet<String> = links(&read("docs/SUMMARY.md")).into_iter().collect();
    let pages = pages()
        .into_iter()
        .filter_map(|page| page.strip_prefix("docs/").map(str::to_owned));
    let missing: Vec<String> = pages
        .filter(|page| page != "SUMMARY.md" && !listed.contains(page))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The commands of `trueup` in a page's blocks, without what a shell does with them.
fn commands(page: &str) -> Vec<String> {
    let lines = blocks(page).into_iter().flat_map(|block| {
        let text = block.text.replace("\\\n", " ");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let commands = lines.filter_map(|line| {
        let line = line.trim_start_matches("$ ").trim_start_matches("# ").trim();
        let rest = line.strip_prefix("trueup ")?;
        // Some outputs begin so, too.
        if !rest.starts_with(|c: char| c.is_ascii_lowercase()) {
            return None;
        }
        let ends = ["  ", " |", " >", " &", ";", " #"];
        let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        Some(rest[..end].to_owned())
    });
    commands.collect()
}

#[test]
fn every_command_of_every_page_is_one() {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for page in pages() {
        for command in commands(&read(&page)) {
            seen.entry(command).or_insert_with(|| page.clone());
        }
    }
    assert!(seen.len() > 50, "{seen:?}");
    let wrong = seen.iter().filter_map(|(command, page)| {
        // `--help` ends it before anything happens, but after everything before it was understood.
        let ran = ran(support::program().args(command.split_whitespace()).arg("--help"));
        (ran.code != Some(0)).then(|| format!("{page}: trueup {command}: {}", ran.stderr))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_of_state_formats_is_the_codes() {
    let formats = [
        ("recordings", "host/journal/src/entry.rs", "const FORMAT: u32 = "),
        ("decisions", "host/work/src/decisions/record.rs", "const FORMAT: u32 = "),
        (
            "revisions of guests",
            "host/work/src/swap/revisions.rs",
            "const FORMAT: u32 = ",
        ),
        (
            "stores of guests",
            "host/capabilities/src/checkpoint/format.rs",
            "const VERSION: u32 = ",
        ),
        (
            "the embedded etcd",
            "host/capabilities/src/etcd/embedded/tables.rs",
            "const LAYOUT_VERSION: u64 = ",
        ),
        (
            "operations of Compute Engine",
            "host/capabilities/src/neg/compute/operations.rs",
            "const LAYOUT_VERSION: u32 = ",
        ),
        (
            "releases of pods' addresses",
            "host/cni/src/spool.rs",
            "const FORMAT: u32 = ",
        ),
        (
            "the lock of guests",
            "host/registry/src/lock.rs",
            "const VERSION: u64 = ",
        ),
    ];
    let changes = read("CHANGELOG.md");
    for (what, file, constant) in formats {
        let code = read(file);
        let (_, after) = code
            .split_once(constant)
            .unwrap_or_else(|| panic!("{file}: {constant}"));
        let format = after.split(';').next().unwrap();
        let row = changes
            .lines()
            .find(|line| line.starts_with(&format!("| {what} (")))
            .unwrap();
        assert_eq!(row.split('|').nth(2).unwrap().trim(), format, "{row}");
    }
}
