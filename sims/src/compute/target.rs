//! Which resource a path names.
//!
//! Knows paths alone. Any prefix may come before `projects/`: `/compute/v1/` for most clients.

use axum::http::Method;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

/// The start of resource URLs in answers, whatever the server's address.
pub(super) const URL_PREFIX: &str = "https://www.googleapis.com/compute/v1/";

/// A zone of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Zone {
    pub(super) project: String,
    pub(super) zone: String,
}

impl Zone {
    pub(super) fn path(&self) -> String {
        format!("projects/{}/zones/{}", self.project, self.zone)
    }

    pub(super) fn neg_path(&self, name: &str) -> String {
        format!("{}/networkEndpointGroups/{name}", self.path())
    }

    pub(super) fn operation_path(&self, name: &str) -> String {
        format!("{}/operations/{name}", self.path())
    }
}

/// A method of the API on a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApiMethod {
    ListNegs,
    InsertNeg,
    GetNeg(String),
    ListEndpoints(String),
    Attach(String),
    Detach(String),
    GetOperation(String),
    Wait(String),
}

/// A zone, and a method of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) zone: Zone,
    pub(super) method: ApiMethod,
}

impl Target {
    /// `None` if the API has no such method and path.
    pub(super) fn parse(method: &Method, path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').collect();
        // An operator's prefix may hold the word too: the last one before `zones` counts.
        let start = segments
            .windows(3)
            .rposition(|three| matches!(three, ["projects", _, "zones"]))?;
        let names = segments.get(start + 1..)?;
        let text = |segment: &str| {
            let decoded = percent_decode_str(segment).decode_utf8().ok()?;
            (!decoded.is_empty()).then(|| decoded.into_owned())
        };
        let [project, "zones", zone, rest @ ..] = names else {
            return None;
        };
        let zone = Zone {
            project: text(project)?,
            zone: text(zone)?,
        };
        let method = match (method.as_str(), rest) {
            ("GET", ["networkEndpointGroups"]) => ApiMethod::ListNegs,
            ("POST", ["networkEndpointGroups"]) => ApiMethod::InsertNeg,
            ("GET", ["networkEndpointGroups", name]) => ApiMethod::GetNeg(text(name)?),
            ("POST", ["networkEndpointGroups", name, "listNetworkEndpoints"]) => ApiMethod::ListEndpoints(text(name)?),
            ("POST", ["networkEndpointGroups", name, "attachNetworkEndpoints"]) => ApiMethod::Attach(text(name)?),
            ("POST", ["networkEndpointGroups", name, "detachNetworkEndpoints"]) => ApiMethod::Detach(text(name)?),
            ("GET", ["operations", name]) => ApiMethod::GetOperation(text(name)?),
            ("POST", ["operations", name, "wait"]) => ApiMethod::Wait(text(name)?),
            _ => return None,
        };
        Some(Self { zone, method })
    }

    /// The name under which requests are counted.
    pub(super) fn label(&self) -> &'static str {
        match self.method {
            ApiMethod::ListNegs => "networkEndpointGroups.list",
            ApiMethod::InsertNeg => "networkEndpointGroups.insert",
            ApiMethod::GetNeg(_) => "networkEndpointGroups.get",
            ApiMethod::ListEndpoints(_) => "networkEndpointGroups.listNetworkEndpoints",
            ApiMethod::Attach(_) => "networkEndpointGroups.attachNetworkEndpoints",
            ApiMethod::Detach(_) => "networkEndpointGroups.detachNetworkEndpoints",
            ApiMethod::GetOperation(_) => "zoneOperations.get",
            ApiMethod::Wait(_) => "zoneOperations.wait",
        }
    }
}

/// The full URL of a network or subnetwork. A client sends that, the path from `projects/` on, or the path within
/// `project`; otherwise `None`.
pub(super) fn full_url(project: &str, sent: &str) -> Option<String> {
    let path = match sent.find("projects/") {
        Some(start) => sent.get(start..)?.to_owned(),
        None if sent.starts_with("regions/") || sent.starts_with("global/") => format!("projects/{project}/{sent}"),
        None => return None,
    };
    let parts: Vec<&str> = path.split('/').collect();
    let named = matches!(
        parts.as_slice(),
        [_, _, "regions", _, "subnetworks", _] | [_, _, "global", "networks", _]
    );
    (named && !parts.contains(&"")).then(|| format!("{URL_PREFIX}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_whatever_its_prefix() {
        for prefix in ["", "/compute/v1", "/behind/projects/compute/v1"] {
            let path = format!("{prefix}/projects/p/zones/z/networkEndpointGroups/n%2D1/attachNetworkEndpoints");
            let target = Target::parse(&Method::POST, &path).unwrap();
            assert_eq!(target.zone.path(), "projects/p/zones/z");
            assert_eq!(target.method, ApiMethod::Attach("n-1".to_owned()));
        }
    }

    #[test]
    fn unknown_paths_and_methods_are_no_target() {
        for (method, path) in [
            (Method::GET, "/"),
            (Method::GET, "/compute/v1/projects/p/zones/z"),
            (Method::GET, "/compute/v1/projects/p/zones//networkEndpointGroups/n"),
            (Method::DELETE, "/compute/v1/projects/p/zones/z/networkEndpointGroups/n"),
            (Method::GET, "/compute/v1/projects/p/zones/z/operations/1/wait"),
            (Method::GET, "/compute/v1/projects/p/regions/r/networkEndpointGroups/n"),
        ] {
            assert_eq!(Target::parse(&method, path), None, "{method} {path}");
        }
    }

    #[test]
    fn urls_come_back_in_full() {
        let full = "https://www.googleapis.com/compute/v1/projects/p/regions/r/subnetworks/s";
        for sent in [
            full,
            "https://compute.googleapis.com/compute/v1/projects/p/regions/r/subnetworks/s",
            "projects/p/regions/r/subnetworks/s",
            "regions/r/subnetworks/s",
        ] {
            assert_eq!(full_url("p", sent).as_deref(), Some(full), "{sent}");
        }
        for sent in [
            "",
            "s",
            "regions/r",
            "projects/p/regions//subnetworks/s",
            "projects/p/zones/z/subnetworks/s",
        ] {
            assert_eq!(full_url("p", sent), None, "{sent}");
        }
    }
}
