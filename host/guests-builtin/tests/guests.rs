//! The guests that ship: each uses only its world, reveals nothing of the build machine, and is the same wherever it is
//! built.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails where it stands"
)]

#[path = "../build/guests.rs"]
#[expect(dead_code, reason = "the build script needs more of it")]
mod guests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sha2::{Digest as _, Sha256};
use trueup_guests_builtin::GUESTS;
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Resolve, UnresolvedPackageGroup, World, WorldId, WorldItem, WorldKey};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The interfaces that a world imports and exports, as WIT names them.
fn interfaces(resolve: &Resolve, world: WorldId) -> (BTreeSet<String>, BTreeSet<String>) {
    let names = |items: &mut dyn Iterator<Item = (&WorldKey, &WorldItem)>| -> BTreeSet<String> {
        items.map(|(key, _)| resolve.name_world_key(key)).collect()
    };
    let world = &resolve.worlds[world];
    (names(&mut world.imports.iter()), names(&mut world.exports.iter()))
}

/// Every package of `wit/`.
fn wit() -> Resolve {
    let packages = std::fs::read_dir(root().join("wit")).unwrap();
    let parsed = packages.map(|package| UnresolvedPackageGroup::parse_dir(package.unwrap().path()).unwrap());
    let mut groups: Vec<UnresolvedPackageGroup> = parsed.collect();
    let last = groups.pop().unwrap();
    let mut resolve = Resolve::default();
    resolve.push_groups(last, groups).unwrap();
    resolve
}

/// The interfaces of the world of that name in `wit/`.
fn world_of(wit: &Resolve, name: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_it = |(_, world): &(WorldId, &World)| {
        let package = world.package.unwrap();
        wit.id_of_name(package, &world.name) == name
    };
    let (id, _) = wit.worlds.iter().find(is_it).unwrap();
    interfaces(wit, id)
}

#[test]
fn each_guest_imports_exactly_its_world_and_no_wasi() {
    assert!(!GUESTS.is_empty());
    let wit = wit();
    for guest in GUESTS {
        let DecodedWasm::Component(resolve, world) = decode(guest.bytes).unwrap() else {
            panic!("{}@{} is no component", guest.name, guest.version);
        };
        let (imports, exports) = interfaces(&resolve, world);
        assert_eq!(
            (imports.clone(), exports),
            world_of(&wit, guest.world),
            "{}@{} (left) must use each import of its world {} (right), and no other: the compiler drops what is not called",
            guest.name,
            guest.version,
            guest.world,
        );
        assert!(!imports.iter().any(|import| import.starts_with("wasi:")), "{imports:?}");
    }
}

#[test]
fn each_guest_says_its_name_and_version_and_has_the_digest_of_its_bytes() {
    for guest in GUESTS {
        let payload = wasm_metadata::Payload::from_binary(guest.bytes).unwrap();
        let metadata = payload.metadata();
        assert_eq!(metadata.name.as_deref(), Some(guest.name));
        assert_eq!(
            metadata.version.as_ref().map(ToString::to_string).as_deref(),
            Some(guest.version)
        );
        let digest: String = Sha256::digest(guest.bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(guest.digest, format!("sha256:{digest}"));
    }
    let names: BTreeSet<_> = GUESTS.iter().map(|guest| (guest.name, guest.version)).collect();
    assert_eq!(names.len(), GUESTS.len(), "each name and version stands for one guest");
    assert_eq!(
        trueup_guests_builtin::find("lbaas", "1").map(|guest| guest.version),
        Some("1")
    );
    assert_eq!(trueup_guests_builtin::find("lbaas", "0"), None);
}

#[test]
fn no_guest_holds_a_path_of_the_building_machine() {
    let home = std::env::home_dir().unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let cargo_home = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    for guest in GUESTS {
        for path in [root().as_path(), &home, target, &cargo_home] {
            let needle = path.to_str().unwrap().as_bytes();
            // A home of `/` alone would match every path.
            if needle.len() > 1 {
                let found = guest.bytes.windows(needle.len()).any(|window| window == needle);
                assert!(!found, "{}@{} holds {}", guest.name, guest.version, path.display());
            }
        }
    }
}

/// A copy of the workspace files that cargo needs, without build output.
fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if [".git", "target", ".trueup"].iter().any(|left_out| name == *left_out) {
            continue;
        }
        // What a link leads to: the SDK's `wit` is one.
        let path = entry.path();
        if path.is_dir() {
            copy_tree(&path, &to.join(&name));
        } else if path.is_file() {
            std::fs::copy(path, to.join(&name)).unwrap();
        }
    }
}

#[test]
fn building_in_another_folder_gives_the_same_bytes() {
    let elsewhere = tempfile::Builder::new().prefix("another folder ").tempdir().unwrap();
    let workspace = elsewhere.path().join("some").join("where");
    copy_tree(&root(), &workspace);
    for (source, shipped) in guests::SOURCES.iter().zip(GUESTS) {
        let built = guests::build(&workspace, &elsewhere.path().join("build"), source).unwrap();
        assert_eq!((source.name, source.version), (shipped.name, shipped.version));
        assert!(
            built == shipped.bytes,
            "{}@{} differs where it is built elsewhere",
            source.name,
            source.version
        );
    }
}

/// The metric names of a guest: string literals that begin with its name, with or without `trueup_`.
fn metric_names(guest: &str, folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            metric_names(guest, &path, names);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let literals = text.split('"').skip(1).step_by(2);
        let is_name = |text: &&str| {
            let own = text.strip_prefix("trueup_").unwrap_or(text);
            let rest = own.strip_prefix(guest).and_then(|rest| rest.strip_prefix('_'));
            rest.is_some_and(|rest| {
                rest.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            })
        };
        names.extend(literals.filter(is_name).map(str::to_owned));
    }
}

#[test]
fn the_docs_name_every_metric_of_every_guest() {
    let pages = std::fs::read_dir(root().join("docs")).unwrap();
    let pages = pages.map(|page| page.unwrap().path()).filter(|page| page.is_file());
    let docs: String = pages.map(|page| std::fs::read_to_string(page).unwrap()).collect();
    let mut found = 0;
    for guest in GUESTS.iter().map(|guest| guest.name).collect::<BTreeSet<_>>() {
        let mut names = BTreeSet::new();
        metric_names(guest, &root().join("guests").join(guest).join("src"), &mut names);
        found += names.len();
        for name in names {
            assert!(
                docs.contains(&format!("`{name}`")),
                "no page of docs/ names `{name}` of {guest}"
            );
        }
    }
    assert!(found > 0, "guests have metrics");
}

/// A toolchain without the guests' target, and a rustup that adds it, or cannot.
struct Toolchain {
    folder: tempfile::TempDir,
    rustc: PathBuf,
}

impl Toolchain {
    fn new(rustup: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sysroot = folder.path().join("toolchains/some");
        std::fs::create_dir_all(&sysroot).unwrap();
        let rustc = format!(
            "[ \"$1\" = --print ] && echo '{0}' && exit\n[ \"$1\" = -vV ] && echo 'rustc 1' && exit\necho \"compiled $*\"\n",
            sysroot.display()
        );
        let target = sysroot.join("lib/rustlib/wasm32-unknown-unknown/lib");
        let rustup = rustup.replace("TARGET", &target.display().to_string());
        for (name, script) in [("rustc", rustc), ("rustup", rustup)] {
            let file = folder.path().join(name);
            std::fs::write(
                &file,
                format!("#!/bin/sh\necho \"$*\" >>'{}.log'\n{script}", file.display()),
            )
            .unwrap();
            std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let rustc = folder.path().join("rustc");
        Self { folder, rustc }
    }

    /// Starts the wrapper as cargo does. Its parent's stderr is the shell's.
    fn start(&self, argument: &str) -> Child {
        let path = std::env::var("PATH").unwrap();
        Command::new("sh")
            .args(["-c", "\"$@\"; exit $?", "sh"])
            .arg(root().join("tools/guest-target/wrap"))
            .arg(&self.rustc)
            .arg(argument)
            .env("PATH", format!("{}:{path}", self.folder.path().display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn rustup_was_asked(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("rustup.log")).unwrap_or_default()
    }
}

#[test]
fn a_missing_target_is_added_once_by_builds_at_once() {
    let toolchain = Toolchain::new("sleep 0.2; mkdir -p 'TARGET'");
    let compiled = toolchain.start("--crate-name").wait_with_output().unwrap();
    assert_eq!(String::from_utf8(compiled.stdout).unwrap(), "compiled --crate-name\n");
    assert_eq!(toolchain.rustup_was_asked(), "");
    let builds: Vec<_> = (0..4).map(|_| toolchain.start("-vV")).collect();
    let mut said = BTreeSet::new();
    for build in builds {
        let output = build.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "rustc 1\n");
        said.insert(String::from_utf8(output.stderr).unwrap());
    }
    // A build that begins after the target was added prints nothing.
    said.remove("");
    let adding = "      Adding wasm32-unknown-unknown to some with rustup: guests are compiled for it\n";
    assert_eq!(said, BTreeSet::from([adding.to_owned()]));
    assert_eq!(
        toolchain.rustup_was_asked(),
        "target add --toolchain some wasm32-unknown-unknown\n"
    );
    let later = toolchain.start("-vV").wait_with_output().unwrap();
    assert!(later.status.success() && later.stderr.is_empty(), "{later:?}");
}

#[test]
fn a_target_that_cannot_be_added_ends_the_build_with_one_line() {
    let toolchain = Toolchain::new("echo 'info: trying'; echo 'error: no network'; echo 'error: for long' >&2; exit 1");
    let output = toolchain.start("-vV").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let last = stderr.lines().last().unwrap();
    assert!(
        last.starts_with("guests are compiled for wasm32-unknown-unknown, which "),
        "{stderr}"
    );
    let cause =
        "lacks: rustup could not add it (no network); type: rustup target add --toolchain some wasm32-unknown-unknown";
    assert!(last.ends_with(cause), "{stderr}");
    assert_eq!(stderr.lines().count(), 2, "{stderr}");

    let toolchain = Toolchain::new("echo 'info: component rust-std is up to date' >&2");
    let output = toolchain.start("-vV").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let cause = "lacks: rustup believes that it is installed, but its files are gone; type: rustup target remove --toolchain \
                 some wasm32-unknown-unknown; then build again\n";
    assert!(stderr.ends_with(cause), "{stderr}");
}
