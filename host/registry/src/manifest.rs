//! The layout of a guest in a registry: the manifest, and the configuration it names.
//!
//! This module reads and writes JSON and sends nothing. It ignores parts that do not matter here.

use std::collections::BTreeMap;

use serde::Deserialize;

use trueup_base::component::{Digest, GUEST_BYTES_MAX};

use super::store::is_digest;

/// The relevant parts of a guest's manifest.
pub(super) struct Manifest {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: String,
    /// The digest of the guest.
    pub(super) layer: String,
}

/// What a manifest says about a guest.
#[derive(Debug, Clone)]
pub struct About {
    /// The name in its metadata.
    pub name: String,
    /// The version in its metadata.
    pub version: String,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The imported interfaces, ascending.
    pub imports: Vec<String>,
    /// The exported interfaces, ascending.
    pub exports: Vec<String>,
}

/// The layer of a component (CNCF's layout of WebAssembly in OCI).
pub(super) const LAYER: &str = "application/wasm";

/// The earlier media type of the layer.
const LAYER_BEFORE: &str = "application/vnd.module.wasm.content.layer.v1+wasm";

/// The configuration that marks a manifest as WebAssembly.
pub(super) const CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// The relevant parts of a manifest.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Parts {
    pub(super) layers: Vec<Layer>,
    pub(super) manifests: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Layer {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

/// The digest of the only layer in a guest's manifest. The error says what the manifest is instead.
pub(super) fn layer_of(manifest: &[u8]) -> Result<String, String> {
    let parts: Parts = serde_json::from_slice(manifest).map_err(|error| format!("can't read its manifest: {error}"))?;
    if !parts.manifests.is_empty() {
        let what = "is an index of several manifests, must be the manifest of one guest: name that by its digest";
        return Err(what.to_owned());
    }
    let count = parts.layers.len();
    let Ok([layer]) = <[Layer; 1]>::try_from(parts.layers) else {
        return Err(format!("its manifest has {count} layers, a guest's has one"));
    };
    let kind = layer.media_type;
    let size = layer.size;
    let digest = layer.digest;
    if ![LAYER, LAYER_BEFORE].contains(&kind.as_str()) {
        return Err(format!("is of the media type {kind:?}, a guest is `{LAYER}`"));
    }
    if size > GUEST_BYTES_MAX as u64 {
        return Err(format!("has {size} bytes, a guest has at most {GUEST_BYTES_MAX}"));
    }
    if !is_digest(&digest) {
        return Err(format!("its layer's digest is {digest:?}, must be one of SHA-256"));
    }
    Ok(digest)
}

/// The layout's configuration of a component. It contains no time, so that the same guest has the same manifest.
pub(super) fn config_json(guest: &About) -> Vec<u8> {
    let config = serde_json::json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [guest.digest],
        "component": {"exports": guest.exports, "imports": guest.imports, "target": null},
    });
    config.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guests_manifest_has_one_layer_of_webassembly() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let layer = |kind: &str, size: u64| json!({"mediaType": kind, "digest": digest, "size": size});
        let of = |manifest: serde_json::Value| layer_of(manifest.to_string().as_bytes());
        for kind in [LAYER, LAYER_BEFORE] {
            assert_eq!(of(json!({"layers": [layer(kind, 8)]})).unwrap(), digest);
        }
        for (manifest, said) in [
            (json!({"manifests": [{}]}), "index of several"),
            (json!({"layers": []}), "has 0 layers"),
            (json!({"layers": [layer(LAYER, 8), layer(LAYER, 8)]}), "has 2 layers"),
            (
                json!({"layers": [layer("application/vnd.oci.image.layer.v1.tar+gzip", 8)]}),
                "is of the media type",
            ),
            (json!({"layers": [layer(LAYER, 1 << 40)]}), "a guest has at most"),
            (
                json!({"layers": [{"mediaType": LAYER, "digest": "md5:1", "size": 8}]}),
                "must be one of SHA-256",
            ),
            (json!("text"), "can't read its manifest"),
        ] {
            let error = of(manifest.clone()).unwrap_err();
            assert!(error.contains(said), "{manifest}: {error}");
        }
    }
}
