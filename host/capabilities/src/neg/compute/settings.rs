//! How to reach Compute Engine: settings and their limits.
//!
//! Opens no connection and reads no file.

use std::time::Duration;

use url::Url;

use trueup_base::http::client::base_url;

use crate::remote::{CONCURRENT_REQUESTS_MAX, SettingsError, TIMEOUT_MAX_MS, check_numbers};

/// Far above any quota of the API.
const REQUESTS_PER_SECOND_MAX: u64 = 1_000;
/// A week: no operation on a NEG takes a day.
const OPERATION_TIMEOUT_MAX_MS: u64 = 7 * 24 * 3_600_000;

/// The default URL of the API.
pub const ENDPOINT_DEFAULT: &str = "https://compute.googleapis.com/compute/v1/";
/// The API's path for an endpoint without one.
const PATH_DEFAULT: &str = "/compute/v1";

/// The type of endpoints in NEGs that the host creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointType {
    /// With ports.
    #[default]
    VmIpPort,
    /// Without ports.
    VmIp,
}

impl EndpointType {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::VmIpPort => "GCE_VM_IP_PORT",
            Self::VmIp => "GCE_VM_IP",
        }
    }
}

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
    /// The type of new NEGs; an existing one must have it. Default: `GCE_VM_IP_PORT`.
    pub endpoint_type: EndpointType,
    /// Base URL, `http` or `https`, with the path before `projects/`; without a path `/compute/v1`. Default
    /// [`ENDPOINT_DEFAULT`].
    pub endpoint: String,
    /// Whether the token may be sent over plain `http` to another machine. Default false.
    pub allow_http: bool,
    /// The maximum number of requests that the whole host sends in any second, 1 to 1000. Default 10.
    pub requests_per_second: u32,
    /// The maximum number of concurrent requests of the whole host, 1 to 1000. At most half of them wait for an
    /// operation. Default 4.
    pub max_concurrent_requests: u16,
    /// Timeout in milliseconds for one request with its whole answer, 1 to 3600000. Default 30000.
    pub request_timeout_ms: u64,
    /// Timeout in milliseconds for connecting, 1 to 3600000. Default 10000.
    pub connect_timeout_ms: u64,
    /// Timeout in milliseconds for one request that waits for an operation, 1 to 3600000: Compute Engine answers it
    /// after about two minutes. Default 150000.
    pub wait_timeout_ms: u64,
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
            endpoint_type: EndpointType::default(),
            endpoint: ENDPOINT_DEFAULT.to_owned(),
            allow_http: false,
            requests_per_second: 10,
            max_concurrent_requests: 4,
            request_timeout_ms: 30_000,
            connect_timeout_ms: 10_000,
            wait_timeout_ms: 150_000,
            ensure_timeout_ms: 120_000,
            operation_timeout_ms: 3_600_000,
            poll_min_ms: 1_000,
            poll_max_ms: 10_000,
            retry_pause_ms: 500,
        }
    }

    /// The checked base URL, its path without a trailing slash, or an error for the first invalid setting.
    pub(super) fn check(&self) -> Result<Url, SettingsError> {
        let names = [
            ("project", Some(&self.project)),
            ("network_project", self.network_project.as_ref()),
            ("network", self.network.as_ref()),
        ];
        for (setting, name) in names {
            if let Some(name) = name.filter(|name| !is_name(name)) {
                return Err(SettingsError(format!(
                    "{setting}: was {name:?}, must be a name of letters, digits, `-`, `_`, `.` and `:`"
                )));
            }
        }
        check_numbers(&[
            (
                "requests_per_second",
                u64::from(self.requests_per_second),
                REQUESTS_PER_SECOND_MAX,
            ),
            (
                "max_concurrent_requests",
                u64::from(self.max_concurrent_requests),
                CONCURRENT_REQUESTS_MAX,
            ),
            ("request_timeout_ms", self.request_timeout_ms, TIMEOUT_MAX_MS),
            ("connect_timeout_ms", self.connect_timeout_ms, TIMEOUT_MAX_MS),
            ("wait_timeout_ms", self.wait_timeout_ms, TIMEOUT_MAX_MS),
            ("ensure_timeout_ms", self.ensure_timeout_ms, TIMEOUT_MAX_MS),
            (
                "operation_timeout_ms",
                self.operation_timeout_ms,
                OPERATION_TIMEOUT_MAX_MS,
            ),
            ("poll_min_ms", self.poll_min_ms, TIMEOUT_MAX_MS),
            ("poll_max_ms", self.poll_max_ms, TIMEOUT_MAX_MS),
            ("retry_pause_ms", self.retry_pause_ms, TIMEOUT_MAX_MS),
        ])?;
        self.base()
    }

    fn base(&self) -> Result<Url, SettingsError> {
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

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    !name.is_empty() && name.bytes().all(fits)
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
            assert_eq!(settings.check().unwrap().as_str(), base);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let p = || Settings::new("p");
        for (settings, message) in [
            (Settings::new(""), "project: was \"\", must be a name"),
            (
                Settings {
                    network: Some("a/b".to_owned()),
                    ..p()
                },
                "network: was \"a/b\"",
            ),
            (
                Settings {
                    requests_per_second: 0,
                    ..p()
                },
                "requests_per_second: was 0, must be 1 to 1000",
            ),
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
            let error = settings.check().unwrap_err().to_string();
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
