//! The output of ADD and VERSION: an IPAM plugin's abbreviated result, and the supported versions.
//!
//! Pure.

use std::net::Ipv4Addr;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::answer::Allocation;
use crate::configuration::{Route, Settings};
use crate::error::{CniError, IO};
use crate::version::Version;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AddResult<'a> {
    cni_version: Version,
    ips: [Ip; 1],
    routes: &'a [Route],
    dns: &'a Map<String, Value>,
    /// For a main plugin that knows trueup: which ENI's routes to use.
    trueup: Value,
}

#[derive(Serialize)]
struct Ip {
    /// The family; only 0.4.0 has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<Ipv4Addr>,
}

/// The result of ADD.
///
/// # Errors
/// Code 5 if it can't be written as JSON.
pub(crate) fn of_add(
    version: Version,
    Settings { plugin, dns, .. }: &Settings,
    allocation: Allocation,
) -> Result<String, CniError> {
    print(&AddResult {
        cni_version: version,
        ips: [Ip {
            version: (version == Version::V0_4_0).then_some("4"),
            address: format!("{}/{}", allocation.ip, plugin.prefix_length),
            gateway: plugin.gateway,
        }],
        routes: &plugin.routes,
        dns,
        trueup: json!({ "deviceNumber": allocation.device_number }),
    })
}

/// The answer to VERSION.
///
/// # Errors
/// Code 5 if it can't be written as JSON.
pub(crate) fn of_version() -> Result<String, CniError> {
    print(&json!({ "cniVersion": Version::NEWEST, "supportedVersions": Version::ALL }))
}

fn print(result: &impl Serialize) -> Result<String, CniError> {
    serde_json::to_string(result)
        .map_err(|error| CniError::new(IO, format!("the result could not be written as JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn add(version: Version, ipam: Value, dns: Value) -> String {
        let mut configuration = json!({"name": "net", "ipam": ipam, "dns": dns});
        configuration["ipam"]["type"] = json!("trueup-cni");
        let settings = Settings::read(&configuration, version).unwrap();
        let allocation = Allocation {
            ip: Ipv4Addr::new(10, 0, 0, 5),
            device_number: 1,
        };
        of_add(version, &settings, allocation).unwrap()
    }

    #[test]
    fn the_result_of_add_is_spelled_as_the_specification_spells_it() {
        let ipam = json!({"gateway": "169.254.1.1", "routes": [{"dst": "0.0.0.0/0"}]});
        assert_eq!(
            add(Version::V1_0_0, ipam.clone(), json!(null)),
            concat!(
                r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/32","gateway":"169.254.1.1"}],"#,
                r#""routes":[{"dst":"0.0.0.0/0"}],"dns":{},"trueup":{"deviceNumber":1}}"#
            )
        );
        assert_eq!(
            add(Version::V0_4_0, ipam, json!(null)),
            concat!(
                r#"{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.5/32","gateway":"169.254.1.1"}],"#,
                r#""routes":[{"dst":"0.0.0.0/0"}],"dns":{},"trueup":{"deviceNumber":1}}"#
            )
        );
        assert_eq!(
            add(Version::V1_1_0, json!({"prefixLength": 24}), json!({"search": ["a"]})),
            concat!(
                r#"{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/24"}],"#,
                r#""routes":[],"dns":{"search":["a"]},"trueup":{"deviceNumber":1}}"#
            )
        );
    }

    #[test]
    fn the_answer_to_version_names_all_three() {
        assert_eq!(
            of_version().unwrap(),
            r#"{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}"#
        );
    }
}
