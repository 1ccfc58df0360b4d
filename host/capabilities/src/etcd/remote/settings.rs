//! How to reach an etcd.

use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

/// The timeout for connecting to one endpoint. Within a data center connecting takes milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of probes on a silent connection in use. etcd rejects less than 5 s (`--grpc-keepalive-min-time`).
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The client gives the connection up if a probe has no answer for this long.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The default timeout of a request, including all retries. etcd itself gives up after 7 s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// Everything needed to talk to an etcd cluster. Not `Debug`: a password is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The members' client URLs, `http://HOST:PORT` or `https://HOST:PORT`. The client tries them in this order on
    /// failure. At least one.
    pub endpoints: Vec<String>,
    /// Name and password; `None`: no authentication, or that of the certificate's name.
    pub user: Option<(String, String)>,
    /// How we trust an `https` endpoint, and how it trusts us.
    pub tls: Tls,
    /// The timeout of a request, including all retries.
    pub request_timeout: Duration,
}

/// Certificates, as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CA that signs the members' certificates; `None` for the system's CAs.
    pub ca: Option<Vec<u8>>,
    /// Our own certificate and its key; `None` if we show none.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the members' certificates must have; `None` for the endpoint's host.
    pub server_name: Option<String>,
}

impl Settings {
    /// Settings with these endpoints and defaults otherwise.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            user: None,
            tls: Tls::default(),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// The options for the client of one endpoint.
    pub(super) fn options(&self, endpoint: &str) -> ConnectOptions {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
            // etcd rejects those, too.
            .with_keep_alive_while_idle(false)
            // A member that is cut off from the others reports it, and the client asks another one.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &self.user {
            options = options.with_user(name, password);
        }
        if endpoint.starts_with("https://") {
            options = options.with_tls(self.tls.options());
        }
        options
    }
}

impl Tls {
    fn options(&self) -> TlsOptions {
        let mut options = TlsOptions::new();
        options = match &self.ca {
            Some(pem) => options.ca_certificate(Certificate::from_pem(pem)),
            None => options.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.own {
            options = options.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            options = options.domain_name(name);
        }
        options
    }
}
