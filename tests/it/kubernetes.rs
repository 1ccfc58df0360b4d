//! Kubernetes: the tests' own API server against the real kubectl and on the wire, and trueup against that server.

mod client;
mod deploy;
mod election;
mod kubectl;
mod pods;
mod protocol;
mod source;
mod three_hosts;
mod trouble;
