//! The engine with guests of a few lines: the compile cache, deterministic computation, and limits.
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::{Backends, Host, Identity};
use trueup_engine::{CallError, Engine, Guest, Instance, Options};
use trueup_journal::Tape;
use wasmtime::component;

const CPU_MAX: Duration = Duration::from_secs(10);

/// A component that exports `answer`, a function of this core code.
fn component(core: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
            (core module $module {core})
            (core instance $instance (instantiate $module))
            (func (export "answer") (result u32) (canon lift (core func $instance "answer"))))"#
    );
    wat::parse_str(text).unwrap()
}

fn constant(number: u32) -> Vec<u8> {
    component(&format!(r#"(func (export "answer") (result i32) i32.const {number})"#))
}

fn host(limits: Limits) -> Host {
    let identity = Identity {
        guest: "test".into(),
        version: "1".into(),
        ..Identity::default()
    };
    Host::new(identity, Tape::off(), Grants::default(), Backends::default(), limits)
}

async fn start(
    engine: &Engine,
    guest: &Guest,
    limits: Limits,
    cpu_max: Duration,
) -> Result<Instance<component::Instance>, CallError> {
    let linker = component::Linker::new(&engine.wasmtime);
    let instantiate = async |store: &mut wasmtime::Store<_>| linker.instantiate_async(store, &guest.component).await;
    Instance::new(engine, host(limits), cpu_max, instantiate)
        .await
        .map_err(|(_, error)| error)
}

async fn ask(instance: &mut Instance<component::Instance>) -> Result<u32, CallError> {
    let (store, exports) = instance.enter();
    let answer = exports.get_typed_func::<(), (u32,)>(&mut *store, "answer").unwrap();
    let result = answer.call_async(store, ()).await.map(|(number,)| number);
    instance.leave("answer", result)
}

async fn answer(engine: &Engine, bytes: &[u8]) -> Result<u32, CallError> {
    let guest = engine.load(bytes).unwrap();
    let mut instance = start(engine, &guest, Limits::default(), CPU_MAX).await?;
    ask(&mut instance).await
}

fn engine(cache_dir: Option<PathBuf>) -> Engine {
    Engine::new(&Options {
        cache_dir,
        instances_max: 10,
        ..Options::default()
    })
    .unwrap()
}

/// The entries of a cache, with a value that changes if an entry is rewritten.
fn entries(folder: &Path) -> Vec<(PathBuf, u64)> {
    let inode = |file: PathBuf| (file.clone(), fs::metadata(file).unwrap().ino());
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| inode(entry.unwrap().path()))
        .collect();
    entries.sort();
    entries
}

/// A cache that holds the guest which answers 42, in a folder of its own.
async fn cached() -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("state/cache");
    assert_eq!(answer(&engine(Some(folder.clone())), &constant(42)).await.unwrap(), 42);
    let [(entry, _)] = <[_; 1]>::try_from(entries(&folder)).unwrap();
    (dir, folder, entry)
}

#[tokio::test]
async fn what_was_compiled_before_is_not_compiled_again() {
    let (_dir, folder, entry) = cached().await;
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
    let digest = trueup_engine::Digest::of(&constant(42)).hex();
    assert!(name.starts_with(&digest) && name.ends_with(".cwasm"), "{name}");
    let before = entries(&folder);
    assert_eq!(answer(&engine(Some(folder.clone())), &constant(42)).await.unwrap(), 42);
    assert_eq!(entries(&folder), before, "a hit writes nothing");
    assert_eq!(answer(&engine(Some(folder.clone())), &constant(43)).await.unwrap(), 43);
    assert_eq!(entries(&folder).len(), 2, "another guest is another entry");
}

#[tokio::test]
async fn an_entry_that_can_not_be_trusted_is_compiled_again() {
    let (_dir, folder, entry) = cached().await;
    let good = fs::read(&entry).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut bad: Vec<Vec<u8>> = [0, 31, 32, good.len() / 2, good.len() - 1].map(flipped).to_vec();
    bad.extend([0, 1, 31, 32, 33, good.len() / 2, good.len() - 1].map(|length| good[..length].to_vec()));
    bad.push([good.as_slice(), b"more"].concat());
    // Another guest's entry, intact, under this one's name.
    answer(&engine(Some(folder.clone())), &constant(43)).await.unwrap();
    let other = entries(&folder).into_iter().find(|(file, _)| *file != entry).unwrap().0;
    bad.push(fs::read(other).unwrap());
    for bytes in bad {
        fs::write(&entry, &bytes).unwrap();
        let before = fs::metadata(&entry).unwrap().ino();
        assert_eq!(answer(&engine(Some(folder.clone())), &constant(42)).await.unwrap(), 42);
        assert_ne!(
            fs::metadata(&entry).unwrap().ino(),
            before,
            "{} bytes: replaced",
            bytes.len()
        );
        assert_ne!(fs::read(&entry).unwrap(), bytes);
    }
}

#[tokio::test]
async fn an_entry_of_another_engine_is_compiled_again() {
    let (_dir, folder, entry) = cached().await;
    // Without epochs, a guest of this entry could not be stopped. Its checksum is valid.
    let other = wasmtime::Engine::new(&wasmtime::Config::new()).unwrap();
    let content = component::Component::from_binary(&other, &constant(42))
        .unwrap()
        .serialize()
        .unwrap();
    let name = entry.file_name().unwrap().to_str().unwrap();
    let checksum = Sha256::new().chain_update(name).chain_update(&content).finalize();
    let foreign = [checksum.as_slice(), &content].concat();
    fs::write(&entry, &foreign).unwrap();
    assert_eq!(answer(&engine(Some(folder)), &constant(42)).await.unwrap(), 42);
    assert_ne!(fs::read(&entry).unwrap(), foreign);
}

#[tokio::test]
async fn a_folder_that_is_not_this_users_alone_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str, mode: u32| {
        let folder = dir.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        folder
    };
    let open = folder("open", 0o755);
    let group = folder("group", 0o770);
    let target = folder("target", 0o700);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let mut unsafe_ones = vec![open, group, link, file];
    let foreign = folder("foreign", 0o700);
    // Only root can give a folder away.
    if std::os::unix::fs::chown(&foreign, Some(12345), None).is_ok() {
        unsafe_ones.push(foreign);
    }
    for unsafe_one in unsafe_ones {
        assert_eq!(
            answer(&engine(Some(unsafe_one.clone())), &constant(42)).await.unwrap(),
            42
        );
        if unsafe_one.is_dir() {
            assert_eq!(
                entries(&unsafe_one),
                [],
                "{}: nothing is written there",
                unsafe_one.display()
            );
        }
    }
    let safe = folder("safe", 0o700);
    answer(&engine(Some(safe.clone())), &constant(42)).await.unwrap();
    assert_eq!(entries(&safe).len(), 1);
}

#[tokio::test]
async fn there_is_one_nan() {
    // A NaN with a payload: machines propagate it differently.
    let core = r#"(func (export "answer") (result i32)
        (i32.reinterpret_f32 (f32.add (f32.reinterpret_i32 (i32.const 0xffa00001)) (f32.const 1))))"#;
    assert_eq!(answer(&engine(None), &component(core)).await.unwrap(), 0x7fc0_0000);
}

#[tokio::test]
async fn relaxed_simd_is_not() {
    // x86 has 0x80000000 here, Arm 0.
    let core = r#"(func (export "answer") (result i32)
        (i32x4.extract_lane 0 (i32x4.relaxed_trunc_f32x4_s (v128.const f32x4 nan nan nan nan))))"#;
    assert_eq!(answer(&engine(None), &component(core)).await.unwrap(), 0);
}

#[test]
fn only_interfaces_are_listed_as_exports() {
    let bytes = wat::parse_str(
        r#"(component
            (instance $of)
            (export "exports" (instance $of))
            (export "my:world/decisions@0.1.0" (instance $of)))"#,
    );
    let guest = engine(None).load(&bytes.unwrap()).unwrap();
    assert_eq!(guest.exports, ["my:world/decisions@0.1.0"]);
}

#[test]
fn what_is_no_guest_is_refused_in_one_line() {
    let threads = wat::parse_str("(component (core module (memory 1 1 shared)))").unwrap();
    let cut = constant(42)[..40].to_vec();
    let module = wat::parse_str(r#"(module (func (export "answer") (result i32) i32.const 42))"#).unwrap();
    let foreign_section = wat::parse_str(r#"(module (@custom "component-type:x" "no type"))"#).unwrap();
    for (bytes, expected) in [
        (
            &b"random bytes"[..],
            "not WebAssembly: it starts with `random bytes`, must be a component, or a core module",
        ),
        (b"", "not WebAssembly: it is empty, must be"),
        (b"\0asm", "not WebAssembly: it is cut off after 4 bytes, must be"),
        (&threads, "compiling the guest: "),
        (&cut, "it is damaged, or cut off after 40 bytes: get it again"),
        (
            &module,
            "a core module without wit-bindgen's type section (`component-type`); build it with wit-bindgen, or give a component",
        ),
        (&foreign_section, "a core module that is no component: "),
    ] {
        let error = engine(None).load(bytes).err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with(expected) && !text.contains('\n'), "{text}");
    }
}

#[tokio::test]
async fn without_room_for_a_pool_each_instance_is_allocated_by_itself() {
    // More address space than any machine has.
    let engine = Engine::new(&Options {
        instances_max: u32::MAX,
        ..Options::default()
    })
    .unwrap();
    assert_eq!(answer(&engine, &constant(42)).await.unwrap(), 42);
}

#[tokio::test]
async fn a_guest_may_grow_to_its_limit_and_no_further() {
    const GIB: u64 = 1 << 30;
    const PAGE: u64 = 1 << 16;
    let grow = |pages: u64| {
        component(&format!(
            r#"(memory 1) (func (export "answer") (result i32) (memory.grow (i32.const {pages})))"#
        ))
    };
    let engine = engine(None);
    for (memory_bytes, pages, expected) in [
        (1 << 20, 15, 1),
        (1 << 20, 16, u32::MAX),
        (3 * GIB, 3 * GIB / PAGE - 1, 1),
        (4 * GIB, 4 * GIB / PAGE - 1, 1),
    ] {
        let guest = engine.load(&grow(pages)).unwrap();
        let limits = Limits {
            memory_bytes,
            ..Limits::default()
        };
        let mut instance = start(&engine, &guest, limits, CPU_MAX).await.unwrap();
        assert_eq!(
            ask(&mut instance).await.unwrap(),
            expected,
            "{pages} more pages in {memory_bytes} bytes"
        );
        let grown = if expected == 1 { (pages + 1) * PAGE } else { PAGE };
        assert_eq!(instance.host().backends.usage.memory_bytes(), grown);
    }
    // Its initial memory counts, too.
    let guest = engine
        .load(&component(
            r#"(memory 100) (func (export "answer") (result i32) (i32.const 0))"#,
        ))
        .unwrap();
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..Limits::default()
    };
    let refused = start(&engine, &guest, limits, CPU_MAX).await.err().unwrap();
    assert!(matches!(refused, CallError::Memory(_)), "{refused}");
    let expected =
        "guest `test@1` in `instantiate`: wanted 6553600 bytes of memory, above the limit `memory_bytes` of 1048576";
    assert_eq!(refused.to_string(), expected);
}

#[tokio::test]
async fn a_table_has_its_limit_too() {
    let core = |elements: u32| {
        component(&format!(
            r#"(table 1 funcref) (func (export "answer") (result i32) (table.grow (ref.null func) (i32.const {elements})))"#
        ))
    };
    assert_eq!(answer(&engine(None), &core(99_999)).await.unwrap(), 1);
    assert_eq!(answer(&engine(None), &core(100_000)).await.unwrap(), u32::MAX);
}

#[tokio::test]
async fn each_call_has_its_own_cpu_time_and_one_that_was_dropped_is_the_last() {
    let core = r#"(func $spin_for_ever (loop (br 0)))
        (func $answer (export "answer") (result i32) (call $spin_for_ever) (i32.const 0))"#;
    let engine = engine(None);
    let guest = engine.load(&component(core)).unwrap();
    let limit = Duration::from_millis(500);
    let mut instance = start(&engine, &guest, Limits::default(), limit).await.unwrap();
    // Time between instantiation and call does not count.
    tokio::time::sleep(limit * 2).await;
    let stopped = ask(&mut instance).await.unwrap_err();
    assert!(
        matches!(stopped, CallError::Deadline(_)) && !instance.is_usable(),
        "{stopped}"
    );
    let expected = "guest `test@1` in `answer`: computed for more than 500 ms by the wall clock, its limit `cpu_ms` (at spin_for_ever <- answer)";
    assert_eq!(stopped.to_string(), expected);

    let mut instance = start(&engine, &guest, Limits::default(), CPU_MAX).await.unwrap();
    assert!(instance.is_usable());
    assert!(
        tokio::time::timeout(limit, ask(&mut instance)).await.is_err(),
        "the host is not held up by the loop"
    );
    assert!(!instance.is_usable());
    assert_eq!(instance.into_host().identity.guest, "test");
}
