//! Asks a running host for the state of its instance: the client side of the socket, for `trueup ipam show`.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::protocol::{PROTOCOL, Refusal, Shown};
use crate::ipam::guest::IpamKey;

/// The host may be busy with requests of pods.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// An address is about 150 bytes, and a node has some thousand. The guest's own answer may be this long.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Deserialize)]
struct Line<T> {
    ok: Option<T>,
    error: Option<Refusal>,
}

/// Asks the host that listens on `socket` for the state of its instance. With `instance` `None`, of its only one.
///
/// # Errors
/// One line: no host listens there, or the error that it returned.
pub async fn show(socket: &Path, instance: Option<&str>) -> Result<Shown, String> {
    let request = json!({ "v": PROTOCOL, "command": "SHOW", "instance": instance });
    ask(socket, &request).await
}

/// Frees the address of a key, as its container's DEL does. Succeeds too if it has none.
///
/// # Errors
/// As [`show`].
pub async fn release(socket: &Path, instance: &str, key: &IpamKey) -> Result<(), String> {
    let request = json!({
        "v": PROTOCOL, "command": "DEL", "instance": instance,
        "network": key.network_name, "containerId": key.container_id, "ifName": key.if_name,
    });
    ask::<Value>(socket, &request).await.map(drop)
}

/// The host's answer.
async fn ask<T: DeserializeOwned>(socket: &Path, request: &Value) -> Result<T, String> {
    let failed = |what: &dyn std::fmt::Display| format!("asking the host at `{}`: {what}", socket.display());
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("{request}\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(ANSWER_MAX, exchange).await;
    let answer = answer.map_err(|_| failed(&format!("no answer within {} s", ANSWER_MAX.as_secs())))?;
    let answer = answer.map_err(|error| failed(&format!("{error}; does `trueup run` serve there?")))?;
    match serde_json::from_slice(&answer) {
        Ok(Line { ok: Some(done), .. }) => Ok(done),
        Ok(Line {
            error: Some(refusal), ..
        }) => Err(failed(&refusal.msg)),
        Ok(_) => Err(failed(&"its answer holds neither `ok` nor `error`")),
        Err(error) => Err(failed(&format!("its answer is not understood: {error}"))),
    }
}
