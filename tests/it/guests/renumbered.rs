//! A built-in guest with another number: its bytes differ, its decisions do not.

/// The built-in `name@version`, which calls itself `name@number` in its metadata.
pub(crate) fn renumbered(name: &str, version: &str, number: &str) -> Vec<u8> {
    let shipped = trueup_guests_builtin::find(name, version)
        .expect("a guest that ships")
        .bytes;
    let mut metadata = wasm_metadata::AddMetadata::default();
    metadata.version = wasm_metadata::AddMetadataField::Set(wasm_metadata::Version::new(number.to_owned()));
    metadata.to_wasm(shipped).expect("a component with metadata")
}
