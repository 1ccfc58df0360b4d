//! A guest: a compiled component, and its metadata.

use std::sync::atomic::Ordering;

use trueup_base::component::{Digest, not_webassembly};
use trueup_base::progress;
use wasmtime::component::Component;

use crate::Engine;
use crate::cache::Cache;

/// The name and the version of a guest without metadata.
pub const UNKNOWN: &str = "unknown";

/// Why a guest can't be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub(crate) String);

/// Guests of this size take seconds to compile: those with an interpreter.
const SLOW_BYTES: usize = 2_000_000;

/// Guests of this size take a noticeable time, with others of a host some seconds: those in Rust.
const NOTICED_BYTES: usize = 50_000;

/// A compiled guest, cheap to clone.
#[derive(Clone)]
pub struct Guest {
    /// The name in its metadata, for a core module without `.wasm`; `unknown` without one.
    pub name: String,
    /// The version in its metadata; `unknown` without one.
    pub version: String,
    /// The digest of the original bytes.
    pub digest: Digest,
    /// Length of the original bytes.
    pub size: usize,
    /// The imported interfaces, as WIT names them, ascending.
    pub imports: Vec<String>,
    /// The exported interfaces, as WIT names them, ascending.
    pub exports: Vec<String>,
    /// The component, for a linker to instantiate.
    pub component: Component,
}

impl Guest {
    pub(crate) fn load(engine: &Engine, cache: &Cache, bytes: &[u8]) -> Result<Self, LoadError> {
        let digest = Digest::of(bytes);
        let encoded;
        let component_bytes = if wasmparser::Parser::is_component(bytes) {
            bytes
        } else if wasmparser::Parser::is_core_wasm(bytes) {
            encoded = componentise(bytes)?;
            &encoded
        } else {
            let what = not_webassembly(bytes).unwrap_or_default();
            return Err(LoadError(format!(
                "not WebAssembly: {what}, must be a component, or a core module with wit-bindgen's type section"
            )));
        };
        // Of a core module, its own metadata: its component has none yet.
        let (name, version) = name_and_version(bytes);
        let component = match cache.get(&engine.wasmtime, &digest) {
            Some(component) => component,
            None => {
                log_what_takes_long(engine, bytes, &digest);
                let _doing = progress::doing(|| format!("compiling {name}@{version}"));
                let not_compiled = |error| LoadError(format!("compiling the guest: {}", one_line(&error)));
                let compiled = Component::from_binary(&engine.wasmtime, component_bytes);
                let component = compiled.map_err(|error| cut_off(bytes).unwrap_or_else(|| not_compiled(error)))?;
                cache.put(&digest, &component);
                component
            }
        };
        let kind = component.component_type();
        let names = kind.imports(&engine.wasmtime).map(|(name, _)| name);
        let mut imports: Vec<String> = names.map(str::to_owned).collect();
        // Toolchains add exports of their own, as componentize-py its `exports`. An interface's name has a namespace.
        let names = kind.exports(&engine.wasmtime).map(|(name, _)| name);
        let mut exports: Vec<String> = names.filter(|name| name.contains(':')).map(str::to_owned).collect();
        imports.sort();
        exports.sort();
        Ok(Self {
            name,
            version,
            digest,
            size: bytes.len(),
            imports,
            exports,
            component,
        })
    }
}

/// The name and the version in the metadata of a component or a core module.
fn name_and_version(bytes: &[u8]) -> (String, String) {
    let payload = wasm_metadata::Payload::from_binary(bytes).ok();
    let metadata = payload.as_ref().map(wasm_metadata::Payload::metadata);
    let name = metadata.and_then(|metadata| metadata.name.as_deref());
    // A linker names a core module after its file.
    let name = name.map(|name| name.strip_suffix(".wasm").unwrap_or(name));
    let version = metadata.and_then(|metadata| metadata.version.as_ref());
    let version = version.map_or_else(|| UNKNOWN.to_owned(), ToString::to_string);
    (name.unwrap_or(UNKNOWN).to_owned(), version)
}

fn log_what_takes_long(engine: &Engine, bytes: &[u8], digest: &Digest) {
    if bytes.len() >= SLOW_BYTES {
        let size = bytes.len() / 1_000_000;
        tracing::info!("compiling a guest of {size} MB, {digest}: this takes up to a minute, and is done once");
    } else if bytes.len() >= NOTICED_BYTES && engine.tells_compiling.swap(false, Ordering::Relaxed) {
        tracing::info!("compiling guests for this machine: this takes some seconds, and their code is kept");
    }
}

/// Detects missing sections: from an aborted download, or a full disk.
fn cut_off(bytes: &[u8]) -> Option<LoadError> {
    let error = wasmparser::Parser::new(0).parse_all(bytes).find_map(Result::err)?;
    let message = error.message();
    let is_short = message.contains("out of bounds") || message.contains("unexpected end");
    let what = format!("it is damaged, or cut off after {} bytes: get it again", bytes.len());
    is_short.then_some(LoadError(what))
}

/// Includes the causes; parsers show their input on lines of its own.
fn one_line(error: &impl std::fmt::Display) -> String {
    let text = format!("{error:#}");
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn componentise(module: &[u8]) -> Result<Vec<u8>, LoadError> {
    let typed = wasmparser::Parser::new(0).parse_all(module).any(|payload| {
        matches!(payload, Ok(wasmparser::Payload::CustomSection(section)) if section.name().starts_with("component-type"))
    });
    if let Some(error) = cut_off(module) {
        return Err(error);
    }
    if !typed {
        return Err(LoadError(
            "a core module without wit-bindgen's type section (`component-type`); build it with wit-bindgen, or give a component".to_owned(),
        ));
    }
    wit_component::ComponentEncoder::default()
        .module(module)
        .and_then(|encoder| encoder.validate(true).encode())
        .map_err(|error| LoadError(format!("a core module that is no component: {}", one_line(&error))))
}
