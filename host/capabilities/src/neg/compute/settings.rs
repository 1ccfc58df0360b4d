//! How to reach Compute Engine. The configuration checks the numbers and names.
//!
//! Opens no connection and reads no file.

use std::time::Duration;

use url::Url;

use trueup_base::http::client::base_url;

use crate::remote::SettingsError;

/// The default URL of the API.
pub const ENDPOINT_DEFAULT: &str = "https://compute.googleapis.com/compute/v1/";
/// The API's path for an endpoint without one.
const PATH_DEFAULT: &str = "/compute/v1";

/// How to reach Compute Engine, and how much load to put on it. [`Settings::new`] has the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The project of the NEGs.
    pub project: String,
    /// The project of network and subnets, if it is another one (a Shared VPC). Default: `project`.
    pub network_project: Option<String>,
    /// The network's name. Default: not sent when a NEG is created (Compute Engine takes that of the subnet), and not
    /// compared.
    pub network: Option<String>,
    /// Base URL, `http` or `https`, with the path before `projects/`; without a path `/compute/v1`. Default
    /// [`ENDPOINT_DEFAULT`].
    pub endpoint: String,
    /// Whether the token may be sent over plain `http` to another machine. Default false.
    pub allow_http: bool,
    /// The maximum number of requests that the whole host sends in any second, 1 to 1000. Default 10.
    pub requests_per_second: u32,
    /// The maximum number of concurrent requests of the whole host, 1 to 1000. Default 4.
    pub max_concurrent_requests: u16,
    /// Timeout in milliseconds for one request with its whole answer, 1 to 3600000. Default 30000.
    pub request_timeout_ms: u64,
    /// Timeout in milliseconds for connecting, 1 to 3600000. Default 10000.
    pub connect_timeout_ms: u64,
    /// How many milliseconds `ensure` waits for a NEG that it creates, 1 to 3600000. Default 120000.
    pub ensure_timeout_ms: u64,
    /// After this many milliseconds an operation counts as failed (`timed out`), 1 to a week. Default 3600000, an hour.
    pub operation_timeout_ms: u64,
    /// Milliseconds before an unfinished operation is polled again, 1 to 3600000; doubles up to `poll_max_ms`. Default
    /// 1000.
    pub poll_min_ms: u64,
    /// See `poll_min_ms`. Default 10000.
    pub poll_max_ms: u64,
    /// Milliseconds before the second try of a lost request; doubled before the third. Default 500.
    pub retry_pause_ms: u64,
}

impl Settings {
    /// The defaults, for a project.
    pub fn new(project: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            network_project: None,
            network: None,
            endpoint: ENDPOINT_DEFAULT.to_owned(),
            allow_http: false,
            requests_per_second: 10,
            max_concurrent_requests: 4,
            request_timeout_ms: 30_000,
            connect_timeout_ms: 10_000,
            ensure_timeout_ms: 120_000,
            operation_timeout_ms: 3_600_000,
            poll_min_ms: 1_000,
            poll_max_ms: 10_000,
            retry_pause_ms: 500,
        }
    }

    /// The checked base URL, its path without a trailing slash.
    pub(super) fn base(&self) -> Result<Url, SettingsError> {
        let base = base_url(&self.endpoint, self.allow_http, "credentials have their own settings");
        let mut url = base.map_err(|reason| SettingsError(format!("endpoint: {reason}")))?;
        let path = match url.path().trim_end_matches('/') {
            "" => PATH_DEFAULT.to_owned(),
            path => path.to_owned(),
        };
        url.set_path(&path);
        Ok(url)
    }

    /// The subnet's path from `projects/` on. `subnet` may be such a path already.
    pub(super) fn subnetwork(&self, zone: &str, subnet: &str) -> String {
        if let Some(start) = subnet.find("projects/") {
            return subnet.get(start..).unwrap_or_default().to_owned();
        }
        let project = self.network_project.as_ref().unwrap_or(&self.project);
        // A zone is its region and a letter: `europe-west1-b`.
        let region = zone.rsplit_once('-').map_or(zone, |(region, _)| region);
        format!("projects/{project}/regions/{region}/subnetworks/{subnet}")
    }

    /// The network's path from `projects/` on, if it is set.
    pub(super) fn network_path(&self) -> Option<String> {
        let project = self.network_project.as_ref().unwrap_or(&self.project);
        let network = self.network.as_ref()?;
        Some(format!("projects/{project}/global/networks/{network}"))
    }

    /// The pause before the poll after this many unfinished ones.
    pub(super) fn poll_pause(&self, looks: u32) -> Duration {
        let factor = 1_u64.checked_shl(looks).unwrap_or(u64::MAX);
        Duration::from_millis(self.poll_min_ms.saturating_mul(factor).min(self.poll_max_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_stands_for_the_whole_base() {
        for (endpoint, base) in [
            (ENDPOINT_DEFAULT, "https://compute.googleapis.com/compute/v1"),
            ("http://127.0.0.1:9481", "http://127.0.0.1:9481/compute/v1"),
            ("http://127.0.0.1:9481/", "http://127.0.0.1:9481/compute/v1"),
            (
                "http://[::1]:9481/behind/compute/v1/",
                "http://[::1]:9481/behind/compute/v1",
            ),
        ] {
            let settings = Settings {
                endpoint: endpoint.to_owned(),
                ..Settings::new("p")
            };
            assert_eq!(settings.base().unwrap().as_str(), base);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let p = || Settings::new("p");
        for (settings, message) in [
            (
                Settings {
                    endpoint: "ftp://x".to_owned(),
                    ..p()
                },
                "endpoint: must begin with",
            ),
            (
                Settings {
                    endpoint: "http://u:p@x".to_owned(),
                    ..p()
                },
                "endpoint: must hold no user name",
            ),
            (
                Settings {
                    endpoint: "http://x/?a".to_owned(),
                    ..p()
                },
                "endpoint: must hold no query",
            ),
        ] {
            let error = settings.base().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_subnet_is_of_the_zones_region_and_may_be_of_another_project() {
        let shared = Settings {
            network_project: Some("shared".to_owned()),
            network: Some("vpc".to_owned()),
            ..Settings::new("p")
        };
        assert_eq!(
            shared.subnetwork("europe-west1-b", "s"),
            "projects/shared/regions/europe-west1/subnetworks/s"
        );
        assert_eq!(shared.network_path().unwrap(), "projects/shared/global/networks/vpc");
        let own = Settings::new("p");
        assert_eq!(own.subnetwork("z-b", "s"), "projects/p/regions/z/subnetworks/s");
        let path = "projects/q/regions/r/subnetworks/s";
        assert_eq!(own.subnetwork("z-b", path), path);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let settings = Settings::new("p");
        let pauses: Vec<_> = [0, 1, 2, 3, 4, 70]
            .map(|looks| settings.poll_pause(looks).as_secs())
            .into();
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
    }
}
