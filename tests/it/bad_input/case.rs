//! One piece of bad input: its folder, the command for it, and the golden file of the output.
//!
//! A golden file holds the exit code, stdout, stderr, and the new files of the state folder. In it, `CASE` is the
//! folder of the case. It leaves out the folder of the user's cache.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use support::{Ran, files_under, program, ran};

/// The initial configuration of each case, which is valid.
pub(crate) const CONFIGURATION: &str = r#"[source]
manifests = "manifests"

[guests.lbaas]
use = "builtin:lbaas@1"
grants = { lbaas = { read = ["lb-1"], write = ["lb-1"] } }

[adapter.lbaas]
cluster = "c1"
load_balancers = ["lb-1"]
addresses = ["203.0.113.10"]

[backend.lbaas]
kind = "simulated"

[run]
backoff_initial_ms = 1
"#;

/// A valid Service and Node, which show that the mistake breaks nothing else.
const MANIFEST: &str = r#"apiVersion: v1
kind: Service
metadata: { name: good, uid: 5d3c0f5e-8a7d-4f64-9d3b-2f0c1f1f9f01 }
spec:
  type: LoadBalancer
  ports: [{ name: http, port: 80, nodePort: 30080 }]
---
apiVersion: v1
kind: Node
metadata: { name: node-0 }
status:
  addresses: [{ type: InternalIP, address: 192.0.2.10 }]
  conditions: [{ type: Ready, status: "True" }]
"#;

/// The cache of commands without a configuration: all cases share the cost of compiling the built-in guests.
static CACHE: LazyLock<PathBuf> = LazyLock::new(|| {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad_input");
    for guest in ["lbaas", "ipam"] {
        ran(program()
            .args(["guest", "inspect", guest])
            .env("XDG_CACHE_HOME", &cache))
        .exits(0);
    }
    cache
});

/// The folder of one case.
pub(crate) struct Case {
    folder: tempfile::TempDir,
    golden: PathBuf,
}

impl Case {
    /// A valid folder; `kind` and `name` determine its golden file.
    pub(crate) fn new(kind: &str, name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let golden = inputs(kind).join(format!("{name}.golden"));
        let case = Self { folder, golden };
        case.put("trueup.toml", CONFIGURATION);
        case.put("manifests/good.yaml", MANIFEST);
        // The cache of the state folder gets another cache's entries, as after a copy.
        let own = case.path(".trueup/cache");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&own).unwrap();
        for entry in fs::read_dir(CACHE.join("trueup")).unwrap() {
            let entry = entry.unwrap();
            if entry.path().extension().is_some_and(|extension| extension == "cwasm") {
                let copied = fs::copy(entry.path(), own.join(entry.file_name()));
                // Another test's program may have removed an old entry meanwhile.
                assert!(copied.is_ok() || !entry.path().exists(), "{copied:?}");
            }
        }
        case
    }

    /// Writes a file into the folder.
    pub(crate) fn put(&self, file: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Replaces a text that the configuration contains once.
    #[track_caller]
    pub(crate) fn configure(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.path("trueup.toml")).unwrap();
        assert_eq!(text.matches(from).count(), 1, "`{from}` must stand once in\n{text}");
        self.put("trueup.toml", text.replacen(from, to, 1));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the program with these arguments, with `CASE` replaced by the folder.
    pub(crate) fn run(&self, args: &str) -> Ran {
        let here = self.folder.path().to_str().unwrap();
        let args = args.split(' ').map(|arg| OsString::from(arg.replace("CASE", here)));
        ran(program()
            .args(args)
            .env("XDG_CACHE_HOME", CACHE.as_os_str())
            .current_dir("/"))
    }

    /// Runs the program and compares the result with the golden file. `mistakes` is the number of lines that must
    /// report one. Returns what does not match.
    pub(crate) fn check(&self, args: &str, mistakes: usize) -> Result<(), String> {
        let before = self.state();
        let ran = self.run(args);
        let new: Vec<String> = self.state().difference(&before).cloned().collect();
        let mut said = format!(
            "$ trueup {args}\nexit code {}\n",
            ran.code.map_or("none".to_owned(), |code| code.to_string())
        );
        for (name, text) in [
            ("stdout", &ran.stdout),
            ("stderr", &ran.stderr),
            ("new in the state folder", &new.join("\n")),
        ] {
            if !text.is_empty() {
                _ = write!(said, "--- {name}\n{}\n", self.told(text).trim_end());
            }
        }
        let wrong = lines_of_mistakes(&ran);
        if wrong.len() != mistakes {
            return Err(format!(
                "{} lines say what is wrong, must be {mistakes}:\n{said}",
                wrong.len()
            ));
        }
        // Output that was not written for the program's user.
        for never in [
            "panicked",
            "RUST_BACKTRACE",
            "Error(",
            "Some(",
            "{ kind:",
            "\u{1b}",
            "\\n",
        ] {
            if said.contains(never) {
                return Err(format!("`{never}` is for no operator:\n{said}"));
            }
        }
        if new.iter().any(|file| file.ends_with(".tmp") || file.contains(".new")) {
            return Err(format!("something was left half done:\n{said}"));
        }
        self.hold(&said)
    }

    fn hold(&self, said: &str) -> Result<(), String> {
        if std::env::var_os("BLESS").is_some() {
            fs::write(&self.golden, said).unwrap();
            return Ok(());
        }
        let golden = fs::read_to_string(&self.golden).unwrap_or_default();
        if golden == said {
            return Ok(());
        }
        let name = self.golden.display();
        Err(format!(
            "{name} holds\n{golden}--- but it was\n{said}--- rewrite it with BLESS=1 where that is better"
        ))
    }

    /// The files of the state folder, without compiled guests.
    fn state(&self) -> BTreeSet<String> {
        let folder = self.path(".trueup");
        let name = |file: &PathBuf| {
            let name = file.strip_prefix(&folder).unwrap().to_str().unwrap();
            name.split('/')
                .map(|part| if part.len() == 64 { "DIGEST" } else { part })
                .collect::<Vec<_>>()
                .join("/")
        };
        let files = files_under(&folder);
        files
            .iter()
            .map(name)
            .filter(|name| !name.starts_with("cache/"))
            .collect()
    }

    /// Without what belongs only to this run or build: the folder, times, digests of guests built here, its worlds.
    fn told(&self, text: &str) -> String {
        let text = text.replace(self.folder.path().to_str().unwrap(), "CASE");
        text.lines()
            .map(|line| without_time(&without_worlds(&without_digests(line))) + "\n")
            .collect()
    }
}

/// The folder with the inputs of a kind.
pub(crate) fn inputs(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/it/bad_input")
        .join(kind)
}

/// The distinct lines that report mistakes, without the log and the total at the end.
fn lines_of_mistakes(ran: &Ran) -> Vec<&str> {
    /// How commands report a mistake about one item inside their answer, which is data.
    const IN_ANSWERS: [&str; 4] = ["  fails: ", "  WRONG  ", "FAILED  ", "corrupt: "];
    let is_mistake = |line: &&str| {
        (line.starts_with("error: ") || line.starts_with("warning: ")) && !line.ends_with("in the manifests, see above")
    };
    let is_answer = |line: &&str| IN_ANSWERS.iter().any(|word| line.contains(word)) || line.starts_with('`');
    let answers = ran.stdout.lines().filter(is_answer);
    ran.stderr.lines().filter(is_mistake).chain(answers).collect()
}

/// `2026-01-02T03:04:05.678901Z  WARN ...` without its first word, and the outcome of a scenario without `(7 ms)`.
fn without_time(line: &str) -> String {
    let is_time = |word: &str| word.ends_with('Z') && word.contains('T') && word.starts_with("20");
    let line = match line.strip_suffix(" ms)").and_then(|outcome| outcome.rsplit_once(" (")) {
        Some((outcome, took)) if took.parse::<u64>().is_ok() => outcome,
        _ => line,
    };
    match line.split_once(' ') {
        Some((first, rest)) if is_time(first) => format!("TIME {}", rest.trim_start()),
        _ => line.to_owned(),
    }
}

/// Masks digests except those of the inputs, which follow one pattern.
fn without_digests(line: &str) -> String {
    const HEAD: &str = "sha256:";
    let mut told = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once(HEAD) {
        let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (digest, behind) = after.split_at(digits);
        let is_built = digits == 64 && !digest.to_lowercase().starts_with("0123456789abcdef");
        told.push_str(before);
        told.push_str(HEAD);
        told.push_str(if is_built { "DIGEST" } else { digest });
        rest = behind;
    }
    told + rest
}

/// Masks what grows with each world and guest of this build. The tests of their crates hold the full texts.
fn without_worlds(line: &str) -> String {
    /// What comes before such a list, and what comes after it. The list may end the line, if that is empty.
    const LISTS: [(&str, &str); 4] = [
        ("(known: ", "; a guest is named"),
        ("ships with this host; there are: ", "; a guest of your own"),
        ("ships with this host; there are: ", ""),
        ("the worlds are: ", ""),
    ];
    let masked = LISTS.into_iter().find_map(|(before, after)| {
        let (told, list) = line.split_once(before)?;
        let (_, rest) = if after.is_empty() {
            (list, "")
        } else {
            list.split_once(after)?
        };
        Some(format!("{told}{before}WORLDS{after}{rest}"))
    });
    masked.unwrap_or_else(|| line.to_owned())
}
