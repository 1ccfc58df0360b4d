//! Kubernetes: the tests' own API server against the real kubectl and on the wire, and trueup against that server.
#![cfg(test)]

#[expect(dead_code, reason = "each file of tests uses some of what it offers")]
mod api_server;
#[expect(dead_code, reason = "each file of tests uses some of what they share")]
mod support;

#[path = "kubernetes/client.rs"]
mod client;
#[path = "kubernetes/deploy.rs"]
mod deploy;
#[path = "kubernetes/election.rs"]
mod election;
#[path = "kubernetes/kubectl.rs"]
mod kubectl;
#[path = "kubernetes/pods.rs"]
mod pods;
#[path = "kubernetes/protocol.rs"]
mod protocol;
#[path = "kubernetes/source.rs"]
mod source;
#[path = "kubernetes/three_hosts.rs"]
mod three_hosts;
#[path = "kubernetes/trouble.rs"]
mod trouble;
