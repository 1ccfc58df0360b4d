//! End to end with a real containerd: the backend lists what containerd runs.

use needs::needs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use trueup_capabilities::cri::remote::Remote;
use trueup_capabilities::cri::{Runtime as _, Sandbox};

use super::containerd::{Containerd, NODE, POD, SUBNETS, remove, stop};
use super::grpc::{self, Server};
use super::{LIST, NOT_FOUND, STATUS, remote};

#[needs(cni, containerd, gcc, root)]
#[tokio::test]
async fn containerds_sandboxes_are_listed_with_their_networks_addresses() {
    let containerd = Containerd::start().await;
    let socket = containerd.socket();
    let backend = remote(&socket);
    assert_eq!(listed(&backend).await, []);

    let web = containerd.run("shop", "web-0", POD).await;
    let database = containerd.run("shop", "database-0", POD).await;
    let proxy = containerd.run("kube-system", "proxy", NODE).await;
    let expected = records(&containerd, &[(&web, "web-0"), (&database, "database-0")]);
    // Two addresses each, none for the one in the host's network.
    assert_eq!(expected.len(), 4);
    assert_eq!(listed(&backend).await, expected);

    // One ends after it was listed: it is stopped and removed, so it is not found any more.
    let ending = Ending::before(&socket, &database, true);
    let expected = records(&containerd, &[(&web, "web-0")]);
    assert_eq!(listed(&remote(ending.server.socket())).await, expected);
    assert_eq!(ending.refused(), [(database.clone(), NOT_FOUND)]);
    assert_eq!(listed(&backend).await, expected);

    // A stopped sandbox still has a status, which says so.
    let ending = Ending::before(&socket, &web, false);
    assert_eq!(listed(&remote(ending.server.socket())).await, []);
    assert_eq!(ending.refused(), []);
    assert_eq!(listed(&backend).await, []);

    // The next sandbox gets an address that is free again.
    let web_again = containerd.run("shop", "web-1", POD).await;
    assert_eq!(listed(&backend).await, records(&containerd, &[(&web_again, "web-1")]));

    for id in [&web, &web_again, &proxy] {
        stop(&socket, id).await;
        remove(&socket, id).await;
    }
    assert_eq!(listed(&backend).await, []);
    assert_eq!(containerd.given(), []);
}

async fn listed(backend: &Remote) -> Vec<Sandbox> {
    backend.list_running().await.unwrap()
}

/// The expected records of these sandboxes in the namespace `shop`, with the addresses from the network's plugin.
fn records(containerd: &Containerd, named: &[(&String, &str)]) -> Vec<Sandbox> {
    let mut named = named.to_vec();
    named.sort();
    let given = containerd.given();
    let mut records = Vec::new();
    for (id, name) in named {
        for subnet in SUBNETS {
            let of_subnet = |(holder, ip): &&(String, String)| holder == id && ip.starts_with(subnet);
            let (id, ip) = given.iter().find(of_subnet).expect("an address of each subnet").clone();
            let (namespace, name) = ("shop".to_owned(), name.to_owned());
            records.push(Sandbox {
                id,
                ip,
                namespace,
                name,
            });
        }
    }
    records
}

/// A proxy between the backend and containerd that ends a sandbox after the list and before the request for its status.
struct Ending {
    server: Server,
    refused: Arc<Mutex<Vec<(String, u32)>>>,
}

impl Ending {
    fn before(socket: &Path, id: &str, removed: bool) -> Self {
        let refused: Arc<Mutex<Vec<(String, u32)>>> = Arc::default();
        let kept = Arc::clone(&refused);
        let (socket, id): (PathBuf, String) = (socket.to_owned(), id.to_owned());
        let server = Server::start(move |path, message| {
            let (socket, id, kept) = (socket.clone(), id.clone(), Arc::clone(&kept));
            Box::pin(async move {
                let answer = grpc::call(&socket, &path, &message).await;
                if path == LIST {
                    let listed = answer.as_ref().unwrap();
                    assert!(listed.windows(id.len()).any(|bytes| bytes == id.as_bytes()));
                    stop(&socket, &id).await;
                    if removed {
                        remove(&socket, &id).await;
                    }
                }
                if let Err((code, _)) = &answer {
                    assert_eq!(path, STATUS);
                    // Key, length, id.
                    let asked = String::from_utf8(message[2..].to_vec()).unwrap();
                    kept.lock().unwrap().push((asked, *code));
                }
                answer.into()
            })
        });
        Self { server, refused }
    }

    /// The statuses that containerd refused, with their codes.
    fn refused(&self) -> Vec<(String, u32)> {
        self.refused.lock().unwrap().clone()
    }
}
