//! What etcd's errors and a connection's failures mean: whether the request arrived, and what the guest gets.
//!
//! ```text
//! NotSent  nothing was sent, or etcd said that it did nothing: always repeat
//! Lost     it may have been done: repeat only reads
//! Refused  etcd's answer
//! ```

use std::error::Error as _;

use tonic::{Code, ConnectError, Status};
use trueup_base::text;

use crate::etcd::{Error, rules};

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Failure {
    /// Nothing was done.
    NotSent(String),
    /// It is unknown whether it was done.
    Lost(String),
    /// It was not done, and never will be.
    Refused(Error),
    /// The requested revision is compacted, or has never existed.
    Compacted,
    /// The answer exceeds the size limit.
    TooLong,
}

impl Failure {
    /// Whether the connection or its member is at fault, so that another one may answer.
    pub(super) fn is_connection(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::Lost(_))
    }

    /// Classifies a client's error.
    pub(super) fn of(error: &etcd_client::Error) -> Self {
        match error {
            etcd_client::Error::GRpcStatus(status) => of_status(status),
            // A connection that could not be made ready.
            etcd_client::Error::TransportError(error) => Self::NotSent(text::causes(error)),
            other => Self::NotSent(other.to_string()),
        }
    }

    /// The guest's error for a request that only read.
    pub(super) fn of_read(self, endpoint: &str) -> Error {
        match self {
            Self::NotSent(text) | Self::Lost(text) => Error::Unavailable(format!("etcd at `{endpoint}`: {text}")),
            Self::Refused(error) => error,
            Self::Compacted => Error::Unavailable(format!("etcd at `{endpoint}` was compacted meanwhile; ask again")),
            Self::TooLong => Error::Unavailable(format!("etcd at `{endpoint}`: the answer is longer than is read")),
        }
    }

    /// The guest's error for a request that was to change something.
    pub(super) fn of_write(self, endpoint: &str) -> Error {
        match self {
            Self::Lost(text) => Error::Unavailable(format!(
                "etcd at `{endpoint}`: no answer to a change ({text}): whether it was made is not known; read what is \
                 stored before you try again"
            )),
            other => other.of_read(endpoint),
        }
    }
}

fn of_status(status: &Status) -> Failure {
    let mut causes = std::iter::successors(status.source(), |&error| error.source());
    // A connection that was never made carried nothing.
    if causes.any(|error| error.is::<ConnectError>()) {
        return Failure::NotSent(status_text(status));
    }
    let says = |text: &str| status.message().contains(text);
    let text = || status.message().to_owned();
    match status.code() {
        Code::InvalidArgument if says("too many operations") => {
            // etcd does not report its own limit: assume the default, which an operator may have changed.
            Failure::Refused(rules::too_many_operations())
        }
        Code::InvalidArgument if says("authentication failed") || says("user name is empty") => {
            Failure::Refused(Error::AccessDenied(text()))
        }
        // Users or roles changed since authentication, and etcd did nothing. A new connection authenticates again.
        Code::InvalidArgument if says("revision of auth store is old") => Failure::NotSent(text()),
        Code::Unauthenticated => Failure::NotSent(text()),
        Code::InvalidArgument => Failure::Refused(Error::Invalid(text())),
        // gRPC's own limit, a little above that of etcd.
        Code::ResourceExhausted if says("larger than max") => Failure::Refused(Error::Invalid(text())),
        Code::ResourceExhausted if says("too many requests") => Failure::NotSent(text()),
        Code::ResourceExhausted => Failure::Refused(Error::Unavailable(text())),
        Code::PermissionDenied => Failure::Refused(Error::AccessDenied(text())),
        Code::FailedPrecondition if says("authentication is not enabled") => Failure::Refused(Error::AccessDenied(
            text() + "; leave the user out, or enable it in etcd",
        )),
        Code::OutOfRange if says("compacted") || says("future revision") => Failure::Compacted,
        Code::OutOfRange => Failure::TooLong,
        // etcd says so before it does anything, to clients that require a leader.
        Code::Unavailable if says("no leader") => Failure::NotSent(text()),
        _ => Failure::Lost(status_text(status)),
    }
}

fn status_text(status: &Status) -> String {
    let text = match status.source() {
        Some(source) => text::causes(source),
        None if status.message().is_empty() => format!("{:?}", status.code()),
        // The library suspects a proxy, but a member that stops ends its streams like this.
        None if status.message().contains("missing grpc-status") => "the connection ended before the answer".to_owned(),
        None => status.message().to_owned(),
    };
    // Keep it on one line, whatever a server wrote.
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Code, message: &str) -> Failure {
        Failure::of(&etcd_client::Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn what_etcd_refuses_is_told_as_the_contract_says() {
        let kind = |code, message| match of(code, message) {
            Failure::Refused(error) => error.kind(),
            other => panic!("{message}: {other:?}"),
        };
        let denied = "access-denied";
        for (code, message, expected) in [
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                "too-many-operations",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: duplicate key given in txn request",
                "invalid",
            ),
            (Code::InvalidArgument, "etcdserver: key is not provided", "invalid"),
            (Code::InvalidArgument, "etcdserver: request is too large", "invalid"),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (3000000 vs. 2097152)",
                "invalid",
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                "unavailable",
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", denied),
            (Code::InvalidArgument, "etcdserver: user name is empty", denied),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                denied,
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: authentication is not enabled",
                denied,
            ),
        ] {
            assert_eq!(kind(code, message), expected, "{message}");
        }
    }

    #[test]
    fn only_what_was_surely_not_done_may_be_asked_again() {
        let not_sent = |code, message| matches!(of(code, message), Failure::NotSent(_));
        assert!(not_sent(Code::Unavailable, "etcdserver: no leader"));
        assert!(not_sent(Code::Unauthenticated, "etcdserver: invalid auth token"));
        assert!(not_sent(
            Code::InvalidArgument,
            "etcdserver: revision of auth store is old"
        ));
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unknown, "transport error"),
            (Code::Cancelled, ""),
        ] {
            assert!(matches!(of(code, message), Failure::Lost(_)), "{message}");
        }
        let stopped = of(
            Code::Unknown,
            "protocol error: missing grpc-status trailer, stream was terminated without a final status (possible \
             truncation by a proxy or load balancer)",
        );
        assert_eq!(
            stopped.of_read("http://e:2379"),
            Error::Unavailable("etcd at `http://e:2379`: the connection ended before the answer".to_owned())
        );
        let lost = of(Code::Unavailable, "etcdserver: leader\nchanged");
        assert_eq!(
            lost.clone().of_write("http://e:2379"),
            Error::Unavailable(
                "etcd at `http://e:2379`: no answer to a change (etcdserver: leader changed): whether it was made is not \
                 known; read what is stored before you try again"
                    .to_owned()
            )
        );
        assert_eq!(
            lost.of_read("http://e:2379"),
            Error::Unavailable("etcd at `http://e:2379`: etcdserver: leader changed".to_owned())
        );
    }
}
