//! Files that are no guests, guests that fit no world, or that fail before they decide anything.
//!
//! Most are texts in `guests/`. Modules there get the type section of their world here, as wit-bindgen would add it.

use std::fs;
use std::path::Path;

use wit_component::{DecodedWasm, StringEncoding};

use super::case::{Case, inputs};
use super::{RUN, lbaas};

/// The command that loads a guest.
const INSPECT: &str = "guest inspect CASE/guest.wasm";

/// Guests in a file, `guest.wasm`, that another command than a run reports.
const FILES: &[(&str, usize, &str)] = &[
    ("asks-for-the-network", 1, INSPECT),
    ("exports-without-functions", 1, INSPECT),
    ("later-version-of-its-world", 1, INSPECT),
    ("text", 1, INSPECT),
];

/// A guest from one of the texts, as bytes.
fn built(file: &Path) -> Vec<u8> {
    if file.extension().is_some_and(|extension| extension == "wasm") {
        return fs::read(file).unwrap();
    }
    let text = fs::read_to_string(file).unwrap();
    let mut bytes = wat::parse_str(&text).unwrap();
    if text.contains("trueup:guest/lifecycle@0.1.0#init") {
        // The built-in guest knows the world.
        let DecodedWasm::Component(resolve, world) = wit_component::decode(lbaas()).unwrap() else {
            panic!("the guest that ships is a component");
        };
        wit_component::embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8).unwrap();
    }
    bytes
}

/// A component with this name and version in its metadata.
fn named(name: Option<&str>, version: Option<&str>) -> Vec<u8> {
    use wasm_metadata::{AddMetadata, AddMetadataField, Version};
    let mut metadata = AddMetadata::default();
    if let Some(name) = name {
        metadata.name = AddMetadataField::Set(name.to_owned());
    }
    if let Some(version) = version {
        metadata.version = AddMetadataField::Set(Version::new(version.to_owned()));
    }
    metadata.to_wasm(&wat::parse_str("(component)").unwrap()).unwrap()
}

#[test]
fn guests_in_a_file() {
    super::check("guests", RUN, FILES, |case, _, file| {
        case.put("guest.wasm", built(file));
        case.configure(
            "use = \"builtin:lbaas@1\"\n",
            "use = \"file:guest.wasm\"\nlimits = { cpu_ms = 50, memory_bytes = 1048576 }\n",
        );
    });
}

/// Prepares the case, and returns the guest to use.
type Made = fn(&Case) -> &'static str;

#[test]
fn guests_that_are_made_here() {
    let cases: [(&str, Made); 11] = [
        ("cut-off-component", |case| {
            let text = format!(
                "(component (core module (memory 1) (data (i32.const 0) \"{}\")))",
                "a".repeat(1000)
            );
            case.put("guest.wasm", &wat::parse_str(text).unwrap()[..500]);
            "file:guest.wasm"
        }),
        ("cut-off-module", |case| {
            let module = built(&inputs("guests").join("traps-in-init.wat"));
            case.put("guest.wasm", &module[..200]);
            "file:guest.wasm"
        }),
        ("cut-off-at-once", |case| {
            case.put("guest.wasm", &lbaas()[..6]);
            "file:guest.wasm"
        }),
        ("of-another-world", |_| "builtin:ipam@1"),
        ("built-from-another-wit", |case| {
            let mut bytes = built(&inputs("guests").join("traps-in-init.wat"));
            let name = b"internal";
            while let Some(at) = bytes.windows(name.len()).position(|part| part == name) {
                bytes[at..at + name.len()].copy_from_slice(b"interior");
            }
            case.put("guest.wasm", bytes);
            "file:guest.wasm"
        }),
        ("folder-without-guests", |case| {
            case.put("guests/README.md", "");
            "file:guests"
        }),
        ("folder-with-two-of-one-version", |case| {
            case.put("guests/a.wasm", named(Some("lbaas"), Some("1.0")));
            case.put("guests/b.wasm", named(Some("lbaas"), Some("1")));
            "file:guests"
        }),
        ("folder-with-two-guests", |case| {
            case.put("guests/a.wasm", named(Some("lbaas"), Some("1")));
            case.put("guests/b.wasm", named(Some("ipam"), Some("2")));
            "file:guests"
        }),
        ("folder-with-one-that-says-no-version", |case| {
            case.put("guests/a.wasm", named(Some("lbaas"), Some("1")));
            case.put("guests/b.wasm", named(Some("lbaas"), None));
            "file:guests"
        }),
        ("folder-without-that-version", |case| {
            case.put("guests/a.wasm", named(Some("lbaas"), Some("1.9")));
            case.put("guests/b.wasm", named(Some("lbaas"), Some("1.10")));
            "file:guests@2"
        }),
        ("folder-with-text", |case| {
            case.put("guests/a.wasm", "no module");
            "file:guests"
        }),
    ];
    let wrong = cases.iter().filter_map(|(name, make)| {
        let case = Case::new("made", name);
        let reference = make(&case);
        case.configure("builtin:lbaas@1", reference);
        case.check(RUN, 1).err()
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
