//! The image for sandboxes: one static program that waits, in an OCI layout packed as a tar file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The image's name in the runtime, which does not look for it elsewhere.
pub(crate) const IMAGE: &str = "localhost/trueup/pause:1";

/// Builds the image below this folder and returns the path of its tar file.
pub(crate) fn build(folder: &Path) -> PathBuf {
    let (root, layout) = (folder.join("pause-root"), folder.join("pause-layout"));
    fs::create_dir_all(&root).unwrap();
    compile(folder, &root.join("pause"));
    let layer_tar = folder.join("pause-layer.tar");
    pack(&root, &layer_tar);

    let layer = blob(&layout, "tar", &fs::read(&layer_tar).unwrap());
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        // The layer is not compressed, so its name is that of its content.
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = blob(&layout, "config", config.to_string().as_bytes());
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let mut manifest = blob(&layout, "manifest", manifest.to_string().as_bytes());
    manifest["annotations"] = json!({"io.containerd.image.name": IMAGE});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    fs::write(
        layout.join("oci-layout"),
        json!({"imageLayoutVersion": "1.0.0"}).to_string(),
    )
    .unwrap();

    let image = folder.join("pause.tar");
    pack(&layout, &image);
    image
}

/// Compiles a program that needs no library in its image.
fn compile(folder: &Path, program: &Path) {
    let source = folder.join("pause.rs");
    fs::write(&source, "fn main() { loop { std::thread::park(); } }\n").unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    super::containerd::ran(
        Command::new(rustc)
            .args(["--edition=2024", "-Cpanic=abort", "-Ctarget-feature=+crt-static", "-o"])
            .args([program, &source]),
    );
}

fn pack(folder: &Path, tar: &Path) {
    let mut packing = Command::new("tar");
    packing
        .arg("-C")
        .arg(folder)
        .args(["--owner=0", "--group=0", "-cf"])
        .arg(tar)
        .arg(".");
    super::containerd::ran(&mut packing);
}

/// Adds a blob to the layout and returns its descriptor.
fn blob(layout: &Path, kind: &str, bytes: &[u8]) -> Value {
    let media_type = match kind {
        "tar" => "application/vnd.oci.image.layer.v1.tar".to_owned(),
        kind => format!("application/vnd.oci.image.{kind}.v1+json"),
    };
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(&digest), bytes).unwrap();
    json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()})
}

/// This machine's architecture, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
