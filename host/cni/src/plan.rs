//! Maps the caller's input to the work: in the order command, environment, JSON, version, other members.
//!
//! Pure.

use std::net::Ipv4Addr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::configuration::{Input, Settings, filled, members, or_default};
use crate::environment::{Attachment, Variables, What};
use crate::error::{CniError, INVALID_CONFIGURATION, INVALID_ENVIRONMENT};
use crate::version::Version;

/// One question to the host, with all that its answer needs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Ask {
    /// The caller's.
    pub(crate) version: Version,
    /// The caller's.
    pub(crate) settings: Settings,
    /// What is asked.
    pub(crate) what: What,
    /// `namespace/name` of the pod; `None` if the caller did not name it.
    pub(crate) pod: Option<String>,
}

impl Ask {
    /// The subject, for people: the key of the allocation, or the network.
    pub(crate) fn subject(&self) -> String {
        let network = &self.settings.network;
        match &self.what {
            What::Add(attachment) | What::Del(attachment) | What::Check(attachment, _) => {
                format!("{network}/{}/{}", attachment.container_id, attachment.if_name)
            }
            What::Status | What::Gc(_) => network.clone(),
        }
    }
}

/// Decides what to ask the host. `None`: print the versions spoken.
///
/// # Errors
/// The first of: 4 (command, environment), 6 or 5 (stdin), 1 (version), 4 (command of a later version), 7 (members).
pub(crate) fn plan(variables: &Variables, input: Input) -> Result<Option<Ask>, CniError> {
    let (configuration, mut what) = match (input, What::parse(variables)?) {
        (Input::Object(configuration), Some(what)) => (configuration, what),
        // VERSION needs no member, so an empty input is enough.
        (Input::Object(_) | Input::Nothing(_), None) => return Ok(None),
        (Input::Nothing(error) | Input::Unusable(error), _) => return Err(error),
    };
    let version = Version::parse(configuration.get("cniVersion"))?;
    if matches!(what, What::Status | What::Gc(_)) && version < Version::V1_1_0 {
        let command = what.command();
        let version = version.text();
        let msg =
            format!("`CNI_COMMAND`: {command} exists from `cniVersion` 1.1.0 on; this configuration's is {version}");
        return Err(CniError::new(INVALID_ENVIRONMENT, msg));
    }
    let settings = Settings::read(&configuration, version)?;
    match &mut what {
        What::Check(_, addresses) => *addresses = expected(&configuration)?,
        What::Gc(valid) => *valid = valid_attachments(&configuration)?,
        What::Add(_) | What::Del(_) | What::Status => {}
    }
    Ok(Some(Ask {
        version,
        settings,
        what,
        pod: variables.pod(),
    }))
}

/// The IPv4 addresses of `prevResult.ips`; IPv6 ones belong to another plugin.
fn expected(configuration: &Value) -> Result<Vec<Ipv4Addr>, CniError> {
    #[derive(Deserialize)]
    struct Network {
        #[serde(rename = "prevResult")]
        previous: Previous,
    }
    #[derive(Deserialize)]
    struct Previous {
        #[serde(default, deserialize_with = "or_default")]
        ips: Vec<Ip>,
    }
    #[derive(Deserialize)]
    struct Ip {
        /// `10.0.0.5/24`, or the address alone.
        address: String,
    }
    let Network { previous } = members(configuration)?;
    let addresses = previous.ips.iter().filter_map(|ip| ip.address.split('/').next());
    Ok(addresses.filter_map(|address| address.parse().ok()).collect())
}

/// The attachments that GC leaves. The list is required, by its name or by the one that an early text of CNI 1.1.0 gave
/// it: null would free the addresses of all pods.
fn valid_attachments(configuration: &Value) -> Result<Vec<Attachment>, CniError> {
    #[derive(Deserialize)]
    struct Network {
        #[serde(rename = "cni.dev/valid-attachments", default, deserialize_with = "given")]
        valid: Option<Vec<Listed>>,
        #[serde(rename = "cni.dev/attachments", default, deserialize_with = "given")]
        early: Option<Vec<Listed>>,
    }
    #[derive(Deserialize)]
    struct Listed {
        #[serde(rename = "containerID", deserialize_with = "filled")]
        container_id: String,
        #[serde(rename = "ifname", deserialize_with = "filled")]
        if_name: String,
    }
    fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Listed>>, D::Error> {
        Vec::deserialize(from).map(Some)
    }
    let Network { valid, early } = members(configuration)?;
    let missing = || CniError::new(INVALID_CONFIGURATION, "`cni.dev/valid-attachments` is missing");
    let listed = valid.or(early).ok_or_else(missing)?.into_iter();
    let attachment = |Listed { container_id, if_name }| Attachment { container_id, if_name };
    Ok(listed.map(attachment).collect())
}

/// Asks for other modules' tests.
#[cfg(test)]
pub(crate) mod examples {
    use serde_json::json;

    use super::Ask;
    use crate::configuration::Settings;
    use crate::environment::{Attachment, What};
    use crate::version::Version;

    /// Container `c1`, interface `eth0`.
    pub(crate) fn attachment() -> Attachment {
        Attachment {
            container_id: "c1".to_owned(),
            if_name: "eth0".to_owned(),
        }
    }

    /// In network `net`, with the defaults.
    pub(crate) fn ask(what: What) -> Ask {
        let configuration = json!({"name": "net", "ipam": {"type": "trueup-cni"}});
        Ask {
            version: Version::V1_0_0,
            settings: Settings::read(&configuration, Version::V1_0_0).unwrap(),
            what,
            pod: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::examples::attachment;
    use super::*;

    fn variables(command: &str) -> Variables {
        let all = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/ns"),
        ];
        Variables(all.map(|(name, value)| (name, value.into())).into())
    }

    fn configuration(version: &str, more: Value) -> Value {
        let mut all = json!({"cniVersion": version, "name": "net", "ipam": {"type": "trueup-cni"}});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    }

    fn planned(command: &str, configuration: &Value) -> Result<What, CniError> {
        let planned = plan(&variables(command), Input::parse(configuration.to_string().as_bytes()))?;
        let what = planned.expect("it prints no versions").what;
        assert_eq!(what.command(), command);
        Ok(what)
    }

    fn refused(command: &str, configuration: &Value) -> (u32, String) {
        let error = planned(command, configuration).unwrap_err();
        (error.code, error.msg)
    }

    #[test]
    fn the_first_thing_wrong_is_the_one_that_is_said() {
        let code =
            |variables: &Variables, input: &str| plan(variables, Input::parse(input.as_bytes())).unwrap_err().code;
        let mut no_id = variables("ADD");
        no_id.0.remove("CNI_CONTAINERID");
        assert_eq!(code(&variables("PAINT"), "{"), 4, "the command before the JSON");
        assert_eq!(code(&no_id, "{"), 4, "the environment before the JSON");
        assert_eq!(code(&variables("ADD"), "{"), 6, "the JSON before the version");
        assert_eq!(code(&variables("ADD"), ""), 6, "nothing is no JSON");
        assert_eq!(code(&variables("ADD"), "{}"), 1, "the version before the members");
        assert_eq!(
            code(&variables("GC"), r#"{"cniVersion":"0.3.1"}"#),
            1,
            "the version before what it lacks"
        );
        assert_eq!(
            code(&variables("GC"), r#"{"cniVersion":"1.0.0"}"#),
            4,
            "what it lacks before the members"
        );
        assert_eq!(code(&variables("ADD"), r#"{"cniVersion":"1.0.0"}"#), 7);
    }

    #[test]
    fn version_needs_no_member_and_accepts_any_version() {
        for input in ["", "{}", r#"{"cniVersion":"9.9.9"}"#, r#"{"cniVersion":5}"#] {
            let planned = plan(&variables("VERSION"), Input::parse(input.as_bytes()));
            assert_eq!(planned, Ok(None), "{input}");
        }
        let error = plan(&variables("VERSION"), Input::parse(b"{")).unwrap_err();
        assert_eq!(error.code, 6);
    }

    #[test]
    fn status_and_gc_exist_from_1_1_0_on() {
        let list = json!({"cni.dev/valid-attachments": []});
        assert_eq!(planned("STATUS", &configuration("1.1.0", json!({}))), Ok(What::Status));
        assert_eq!(
            planned("GC", &configuration("1.1.0", list.clone())),
            Ok(What::Gc(Vec::new()))
        );
        for older in ["0.4.0", "1.0.0"] {
            for command in ["STATUS", "GC"] {
                let (code, msg) = refused(command, &configuration(older, list.clone()));
                assert_eq!(code, 4);
                assert_eq!(
                    msg,
                    format!(
                        "`CNI_COMMAND`: {command} exists from `cniVersion` 1.1.0 on; this configuration's is {older}"
                    )
                );
            }
        }
    }

    #[test]
    fn add_and_del_need_no_previous_result_and_check_does() {
        for version in ["0.4.0", "1.0.0", "1.1.0"] {
            assert_eq!(
                planned("ADD", &configuration(version, json!({}))),
                Ok(What::Add(attachment()))
            );
            assert_eq!(
                planned("DEL", &configuration(version, json!({}))),
                Ok(What::Del(attachment()))
            );
            let previous = json!({"prevResult": {
                "ips": [{"version": "4", "address": "10.0.0.5/24"}, {"address": "fd00::1/64"}, {"address": "10.0.0.6"}]
            }});
            let addresses = vec![Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 6)];
            assert_eq!(
                planned("CHECK", &configuration(version, previous)),
                Ok(What::Check(attachment(), addresses))
            );
        }
        for (more, expected) in [
            (json!({}), "missing field `prevResult`"),
            (json!({"prevResult": null}), "`prevResult`: invalid type: null"),
            (
                json!({"prevResult": {"ips": "x"}}),
                "`prevResult.ips`: invalid type: string \"x\"",
            ),
            (
                json!({"prevResult": {"ips": [5]}}),
                "`prevResult.ips[0]`: invalid type: integer `5`",
            ),
            (
                json!({"prevResult": {"ips": [{}]}}),
                "`prevResult.ips[0]`: missing field `address`",
            ),
        ] {
            let (code, msg) = refused("CHECK", &configuration("1.0.0", more));
            assert!(code == 7 && msg.starts_with(expected), "{expected}: {msg}");
        }
        let none = configuration("1.0.0", json!({"prevResult": {}}));
        assert_eq!(planned("CHECK", &none), Ok(What::Check(attachment(), Vec::new())));
    }

    #[test]
    fn gc_takes_the_list_by_its_name_or_early_name_and_needs_one() {
        let c2 = json!([{"containerID": "c2", "ifname": "eth0", "more": 1}]);
        let expected = Attachment {
            container_id: "c2".to_owned(),
            if_name: "eth0".to_owned(),
        };
        for more in [
            json!({"cni.dev/valid-attachments": c2}),
            json!({"cni.dev/attachments": c2}),
            json!({"cni.dev/attachments": [], "cni.dev/valid-attachments": c2}),
        ] {
            let planned = planned("GC", &configuration("1.1.0", more));
            assert_eq!(planned, Ok(What::Gc(vec![expected.clone()])));
        }
        for (more, expected) in [
            (json!({}), "`cni.dev/valid-attachments` is missing"),
            (
                json!({"cni.dev/valid-attachments": null}),
                "`cni.dev/valid-attachments`: invalid type: null",
            ),
            (
                json!({"cni.dev/attachments": c2, "cni.dev/valid-attachments": null}),
                "`cni.dev/valid-attachments`: invalid type: null",
            ),
            (
                json!({"cni.dev/attachments": [{"containerID": "", "ifname": "eth0"}]}),
                "`cni.dev/attachments[0].containerID`: must not be empty",
            ),
            (
                json!({"cni.dev/attachments": [{"containerID": "c2"}]}),
                "`cni.dev/attachments[0]`: missing field `ifname`",
            ),
            (
                json!({"cni.dev/attachments": [1]}),
                "`cni.dev/attachments[0]`: invalid type: integer `1`",
            ),
            (
                json!({"cni.dev/valid-attachments": [{"containerID": "c1"}]}),
                "`cni.dev/valid-attachments[0]`: missing field `ifname`",
            ),
        ] {
            let (code, msg) = refused("GC", &configuration("1.1.0", more));
            assert!(code == 7 && msg.starts_with(expected), "{expected}: {msg}");
        }
    }
}
