//! The request to the host: one line of JSON.
//!
//! Pure. `docs/cni.md` describes it for authors of the other end.

use serde::Serialize;

use crate::environment::{Attachment, What};
use crate::error::{CniError, INVALID_CONFIGURATION, IO};
use crate::plan::Ask;

/// The protocol's version.
pub(crate) const PROTOCOL: u64 = 1;
/// The longest line that the host reads, with its newline.
const REQUEST_BYTES_MAX: usize = 1 << 20;

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    v: u64,
    command: &'static str,
    /// Null means the host's only instance.
    instance: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    if_name: Option<&'a str>,
    /// Pairs of container id and interface name.
    #[serde(skip_serializing_if = "Option::is_none")]
    valid: Option<Vec<[&'a str; 2]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gc_migrated: Option<bool>,
    /// `namespace/name` of the pod, for people who look at the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a str>,
}

/// The request with its newline.
///
/// # Errors
/// Code 7 if it is longer than the host reads.
pub(crate) fn line(ask: &Ask) -> Result<Vec<u8>, CniError> {
    let unprintable = |error| CniError::new(IO, format!("the request could not be written as JSON: {error}"));
    let mut line = serde_json::to_vec(&request(ask)).map_err(unprintable)?;
    line.push(b'\n');
    if line.len() > REQUEST_BYTES_MAX {
        let msg = format!("the network configuration makes a request of more than {REQUEST_BYTES_MAX} bytes");
        return Err(CniError::new(INVALID_CONFIGURATION, msg));
    }
    Ok(line)
}

fn request(ask: &Ask) -> Request<'_> {
    let bare = Request {
        v: PROTOCOL,
        command: ask.what.command(),
        instance: ask.settings.plugin.instance.as_deref(),
        pod: ask.pod.as_deref(),
        ..Request::default()
    };
    let network = Some(ask.settings.network.as_str());
    match &ask.what {
        What::Status => bare,
        What::Gc(valid) => Request {
            network,
            valid: Some(valid.iter().map(pair).collect()),
            gc_migrated: Some(ask.settings.plugin.gc_migrated),
            ..bare
        },
        What::Add(attachment) | What::Del(attachment) | What::Check(attachment, _) => Request {
            network,
            container_id: Some(&attachment.container_id),
            if_name: Some(&attachment.if_name),
            ..bare
        },
    }
}

fn pair(attachment: &Attachment) -> [&str; 2] {
    [&attachment.container_id, &attachment.if_name]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::examples::{ask, attachment};

    fn check(ask: &Ask, expected: &str) {
        assert_eq!(String::from_utf8(line(ask).unwrap()).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn requests_are_spelled_as_the_specification_spells_them() {
        check(
            &ask(What::Add(attachment())),
            r#"{"v":1,"command":"ADD","instance":null,"network":"net","containerId":"c1","ifName":"eth0"}"#,
        );
        check(
            &ask(What::Del(attachment())),
            r#"{"v":1,"command":"DEL","instance":null,"network":"net","containerId":"c1","ifName":"eth0"}"#,
        );
        check(
            &ask(What::Check(attachment(), Vec::new())),
            r#"{"v":1,"command":"CHECK","instance":null,"network":"net","containerId":"c1","ifName":"eth0"}"#,
        );
        check(
            &ask(What::Gc(vec![attachment()])),
            r#"{"v":1,"command":"GC","instance":null,"network":"net","valid":[["c1","eth0"]],"gcMigrated":false}"#,
        );
        let mut of_pod = ask(What::Del(attachment()));
        of_pod.pod = Some("default/web-0".to_owned());
        check(
            &of_pod,
            r#"{"v":1,"command":"DEL","instance":null,"network":"net","containerId":"c1","ifName":"eth0","pod":"default/web-0"}"#,
        );
        let mut named = ask(What::Status);
        named.settings.plugin.instance = Some("pods".to_owned());
        check(&named, r#"{"v":1,"command":"STATUS","instance":"pods"}"#);
        let mut migrated = ask(What::Gc(Vec::new()));
        migrated.settings.plugin.gc_migrated = true;
        check(
            &migrated,
            r#"{"v":1,"command":"GC","instance":null,"network":"net","valid":[],"gcMigrated":true}"#,
        );
    }

    #[test]
    fn a_request_is_one_line_of_at_most_a_mebibyte() {
        let mut long = ask(What::Add(attachment()));
        long.settings.network = "a\nb".to_owned();
        let line_of = |ask: &Ask| line(ask).unwrap();
        assert_eq!(line_of(&long).iter().filter(|byte| **byte == b'\n').count(), 1);
        long.settings.network = String::new();
        let room = REQUEST_BYTES_MAX - line_of(&long).len();
        long.settings.network = "n".repeat(room);
        assert_eq!(line_of(&long).len(), REQUEST_BYTES_MAX);
        long.settings.network.push('n');
        assert_eq!(line(&long).unwrap_err().code, 7);
    }
}
