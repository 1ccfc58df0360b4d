//! The Lease of a host's campaign, its identity, and the times on which all hosts of that Lease agree.
//!
//! Reads no configuration and checks no ranges.

use std::path::Path;
use std::time::Duration;

use trueup_base::regular;

/// The fraction of its lease that a host does not use: one of ten. It covers the drift between hosts' clocks in one
/// lease (one part in ten thousand if time is disciplined, one in a hundred on a bad virtual machine) and the time
/// that a request needs from this host's socket to its target.
const MARGIN_PARTS: u32 = 10;

/// The timeout of a request for the Lease, in fifths of the renew deadline. Two requests can time out before a host
/// gives up, and none takes as long as half of the deadline.
const REQUEST_FIFTHS: u32 = 2;

/// The Lease, and this host's name in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease. All hosts that do the same work share it.
    pub name: String,
    /// This host's name. No other host may have it at the same time: [`super::identity_of_this_process`] makes one.
    pub identity: String,
    /// The times.
    pub times: Times,
}

impl Settings {
    /// `namespace/name`, as operators write it.
    pub fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The times of an election. All hosts of one Lease should have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// After this long without a renewal by the holder, by the observer's own clock, another host takes over.
    pub lease_duration: Duration,
    /// A holder that could not renew for this long stops leading.
    pub renew_deadline: Duration,
    /// The pause between two renewals, or two looks. Up to a fifth longer, so that hosts do not synchronise.
    pub retry_period: Duration,
}

impl Default for Times {
    /// The defaults of client-go: 15 s, 10 s and 2 s.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Times {
    /// The part of its lease that a host does not use.
    pub fn margin(&self) -> Duration {
        self.lease_duration / MARGIN_PARTS
    }

    /// How long after a renewal was sent the host may act.
    pub fn acting(&self) -> Duration {
        self.lease_duration.saturating_sub(self.margin())
    }

    /// How long a request that began before the host gave up may still take. After that the fence cuts it.
    pub fn left_when_given_up(&self) -> Duration {
        self.acting().saturating_sub(self.renew_deadline)
    }

    /// The timeout of one request for the Lease.
    pub fn request_timeout(&self) -> Duration {
        self.renew_deadline * REQUEST_FIFTHS / 5
    }

    /// The lease duration that others read, in whole seconds. Rounded up, so that no host waits for less time than
    /// this host acts.
    pub fn lease_duration_seconds(&self) -> i32 {
        let whole = self.lease_duration.as_secs();
        let seconds = whole.saturating_add(u64::from(self.lease_duration.subsec_nanos() > 0));
        i32::try_from(seconds).unwrap_or(i32::MAX)
    }
}

/// The kernel's host name; in a pod, the pod's name.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// A new random UUID at each read.
const RANDOM_UUID: &str = "/proc/sys/kernel/random/uuid";

/// A name that no other process has: `<hostname>_<uuid>`, as users of client-go name themselves. The host's name tells
/// an operator where to look. The random part distinguishes two processes of one host, and a process from the one
/// before it.
///
/// # Errors
/// One line if the kernel does not give them.
pub fn identity_of_this_process() -> Result<String, String> {
    Ok(format!("{}_{}", said(HOST_NAME)?, said(RANDOM_UUID)?))
}

fn said(file: &str) -> Result<String, String> {
    let text = regular::read_text(Path::new(file), regular::SMALL);
    let text = text.map_err(|error| format!("can't read `{file}`: {error}; set `election.identity`"))?;
    match text.trim() {
        "" => Err(format!("`{file}` is empty; set `election.identity`")),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_defaults_leave_a_request_three_and_a_half_seconds() {
        let times = Times::default();
        assert_eq!(times.acting(), Duration::from_millis(13_500));
        assert_eq!(times.left_when_given_up(), Duration::from_millis(3_500));
        assert_eq!(times.request_timeout(), Duration::from_secs(4));
        assert!(times.request_timeout() < times.renew_deadline / 2);
    }

    #[test]
    fn others_read_whole_seconds_and_never_less() {
        let seconds = |ms| {
            let lease_duration = Duration::from_millis(ms);
            Times {
                lease_duration,
                ..Times::default()
            }
            .lease_duration_seconds()
        };
        assert_eq!(
            [seconds(1000), seconds(1001), seconds(1999), seconds(15_000)],
            [1, 2, 2, 15]
        );
    }

    #[test]
    fn no_two_are_alike_and_each_begins_with_the_hosts_name() {
        let host = fs::read_to_string(HOST_NAME).unwrap();
        let one = identity_of_this_process().unwrap();
        let other = identity_of_this_process().unwrap();
        assert_ne!(one, other);
        let uuid = one.strip_prefix(&format!("{}_", host.trim())).unwrap();
        assert_eq!(uuid.len(), 36, "{one}");
    }

    #[test]
    fn a_kernel_that_does_not_say_leaves_it_to_the_operator() {
        let error = said("/proc/nothing").unwrap_err();
        assert_eq!(
            error,
            "can't read `/proc/nothing`: No such file or directory (os error 2); set `election.identity`"
        );
    }
}
