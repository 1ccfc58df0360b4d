//! `[election]`: several hosts run, and a Lease selects the one that acts. It is on by default if Services come from a
//! Kubernetes API, so that starting a second host is safe.
//!
//! This module does not contact the API server: `run/leading.rs` fills in a missing namespace and identity.

use std::ops::RangeInclusive;
use std::time::Duration;

use trueup_base::fence;
use trueup_election::Times;

use super::section::{Section, is_name};

/// The default Lease that hosts share.
pub const LEASE_NAME_DEFAULT: &str = "trueup";

/// `[election]`. Absent from [`super::Config`] if the source is no Kubernetes API, or with `enabled = false`: then this
/// host acts as if it were alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// `namespace` of the Lease. `None`: that of the pod's service account, or of the kubeconfig's context.
    pub namespace: Option<String>,
    /// `name` of the Lease. Default: `trueup`.
    pub name: String,
    /// `identity` of this host in the Lease, which must be unique. `None`: the host's name and a random UUID.
    pub identity: Option<String>,
    /// `lease_duration_ms` (15,000), `renew_deadline_ms` (10,000) and `retry_period_ms` (2000).
    pub times: Times,
}

impl Election {
    /// `None` if it is off or invalid.
    pub(super) fn read(mut section: Section<'_>, has_kubernetes: bool) -> Option<Self> {
        /// The other times are shorter.
        const SHORTER_MS: RangeInclusive<u64> = 10..=3_600_000;
        let usual = Times::default();

        let enabled = section.truth("enabled", true);
        let must = "be 1 to 63 lower-case letters, digits or `-`, with a letter or digit at both ends";
        let namespace = section.text("namespace", must, |text| is_name(text, 63, false));
        let must = "be 1 to 253 lower-case letters, digits, `-` or `.`, with a letter or digit at both ends";
        let name = section.text("name", must, |text| is_name(text, 253, true));
        let must = "be 1 to 253 characters without blanks, which no other host has";
        let is_visible = |text: &str| !text.contains(|c: char| c.is_whitespace() || c.is_control());
        let is_identity = |text: &str| (1..=253).contains(&text.chars().count()) && is_visible(text);
        let identity = section.text("identity", must, is_identity);
        let times = Times {
            // From what others read as a second to an hour: no host should wait longer for another.
            lease_duration: section.duration("lease_duration_ms", usual.lease_duration, 1_000..=3_600_000),
            renew_deadline: section.duration("renew_deadline_ms", usual.renew_deadline, SHORTER_MS),
            retry_period: section.duration("retry_period_ms", usual.retry_period, SHORTER_MS),
        };
        // How the times relate to each other.
        let renew_deadline_ms = times.renew_deadline.as_millis();
        let acting_ms = times.acting().as_millis();
        if times.renew_deadline >= times.acting() {
            let must = format_args!("must be below nine tenths of `lease_duration_ms`, {acting_ms}");
            let text = format_args!("was {renew_deadline_ms}, {must}: a host stops to lead before its lease is over");
            section.wrong_key("renew_deadline_ms", text);
        }
        // The longest pause between two renewals.
        let pause = times.retry_period * 6 / 5;
        if pause >= times.renew_deadline {
            let pause_ms = times.retry_period.as_millis();
            let most_ms = (times.renew_deadline * 5 / 6).as_millis();
            let must = format_args!("must be below five sixths of `renew_deadline_ms`, {most_ms}");
            let text = format_args!("was {pause_ms}, {must}: a renewal needs time to succeed");
            section.wrong_key("retry_period_ms", text);
        }
        if section.is_present && !has_kubernetes {
            section.wrong("[election] goes with `[source] kubernetes` alone: a host that reads elsewhere is alone");
        }
        (enabled && has_kubernetes).then(|| Self {
            namespace,
            name: name.unwrap_or_else(|| LEASE_NAME_DEFAULT.to_owned()),
            identity,
            times,
        })
    }

    /// One line if a request to a backend may outlast the time that a host has left after a failed renewal. This is no
    /// mistake: while the Lease is renewed, requests may use their full time; otherwise the host cuts them.
    pub fn cuts_requests(&self, key: &str, request_timeout: Duration) -> Option<String> {
        let times = &self.times;
        if fence::fits(times.renew_deadline, request_timeout, times.acting()) {
            return None;
        }
        Some(format!(
            "{key} is {} ms: when the lease can't be renewed, a request is cut {} ms after this host stopped to lead, \
             so that no other host acts at the same time",
            request_timeout.as_millis(),
            times.left_when_given_up().as_millis(),
        ))
    }
}
