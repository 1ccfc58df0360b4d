//! NEGs of a cluster: the tests' API server in place of manifests.

use std::fs;

use serde_json::{Value, json};

use super::cluster::{Cluster, Stack};
use super::compute::{Compute, Does};
use super::stage::{OPERATION_MS, WAIT_MS, sections};
use support::api_server::{ADMIN, ApiServer};
use support::{Site, Started, wait_until};

/// A short lease, which still outlasts what its holder has started: operations, and the pause after them.
const ELECTION: &str = "\n[election]\nlease_duration_ms = 3000\nrenew_deadline_ms = 1800\nretry_period_ms = 200\n";

/// An API server with the objects of a [`Cluster`].
struct Served {
    server: ApiServer,
    cluster: Cluster,
    objects: Vec<Value>,
}

impl Served {
    fn new(cluster: Cluster) -> Self {
        let server = ApiServer::start();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        server.apply(namespace).unwrap();
        let mut served = Self {
            server,
            cluster: Cluster::default(),
            objects: Vec::new(),
        };
        served.change(|now| *now = cluster);
        served
    }

    /// Changes the cluster: one object after another, like controllers.
    fn change(&mut self, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster);
        let objects = self.cluster.objects();
        for object in objects.iter().filter(|object| !self.objects.contains(object)) {
            let mut object = object.clone();
            // The server sets it.
            object["metadata"].as_object_mut().unwrap().remove("uid");
            self.server.apply(object).unwrap();
        }
        let name = |object: &Value| {
            let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
            (
                text(&object["kind"]).to_lowercase() + "s",
                text(&object["metadata"]["namespace"]),
                text(&object["metadata"]["name"]),
            )
        };
        let there: Vec<_> = objects.iter().map(name).collect();
        for (resource, namespace, name) in self.objects.iter().map(name).filter(|named| !there.contains(named)) {
            self.server.delete(&resource, &namespace, &name).unwrap();
        }
        self.objects = objects;
    }

    fn site(&self, compute: &Compute, user: &str, election: &str) -> Site {
        let sections = sections(compute, WAIT_MS);
        let site = Site::of(&format!(
            "[source]\nkubernetes = {{ kubeconfig = \"kubeconfig\" }}\n\n[run]\nbackoff_initial_ms = 10\n{election}{sections}"
        ));
        fs::write(site.path("token"), support::TOKEN).unwrap();
        fs::write(site.path("kubeconfig"), self.server.kubeconfig(user, user)).unwrap();
        site
    }

    #[track_caller]
    fn comes_true(&self, compute: &Compute, hosts: &mut [&mut Started]) {
        wait_until("the NEGs to be as they should be", || {
            for host in &mut *hosts {
                assert!(host.ended().is_none(), "{}{}", host.stdout(), host.stderr());
            }
            compute.at_rest() == Some(self.cluster.contents())
        });
    }
}

#[test]
fn pods_whose_addresses_come_one_after_the_other_are_attached_with_both() {
    let mut served = Served::new(Cluster::of(0, Stack::Dual));
    let compute = Compute::start(OPERATION_MS, &[]);
    let site = served.site(&compute, ADMIN, "");
    let mut host = site.start("run", &[]);
    wait_until("the watch", || served.server.watches() >= 3);
    served.change(|cluster| cluster.add("web", 2, Stack::Dual));
    served.comes_true(&compute, &mut [&mut host]);
    let detachments = compute.detachments();
    assert!(detachments.is_empty(), "{detachments:#?}");

    // The existing pods get their second address, and then the Service goes.
    served.change(|cluster| cluster.add("api", 1, Stack::Single));
    served.comes_true(&compute, &mut [&mut host]);
    served.change(|cluster| cluster.set_stack(Stack::Dual));
    served.comes_true(&compute, &mut [&mut host]);
    served.server.cut_watches();
    served.server.expire();
    served.change(|cluster| {
        cluster.remove("web");
        cluster.remove("api");
    });
    served.comes_true(&compute, &mut [&mut host]);
    host.terminate().0.exits(0);
}

#[test]
fn another_host_goes_on_where_the_one_that_is_killed_was() {
    let mut served = Served::new(Cluster::of(2, Stack::Single));
    let compute = Compute::start(OPERATION_MS, &[]);
    let mut hosts = ["one", "two"].map(|user| {
        let site = served.site(&compute, user, ELECTION);
        let host = site.start("run", &[]);
        (site, Some(host))
    });
    let leader = |served: &Served| {
        let mut changes = served.server.lease_changes("default", "trueup");
        changes.pop().map(|change| change.user).unwrap_or_default()
    };
    served.comes_true(&compute, &mut []);
    served.change(|cluster| cluster.set_stack(Stack::Dual));
    for steps in [1, 3, 5] {
        wait_until("a step of the move", || {
            let detachments = compute.detachments();
            detachments.len() >= steps && compute.at_rest().is_some()
        });
        let name = leader(&served);
        let (site, host) = &mut hosts[usize::from(name == "two")];
        host.take().unwrap().kill();
        wait_until("the other host to lead", || leader(&served) != name);
        *host = Some(site.start("run", &[]));
    }
    served.comes_true(&compute, &mut []);
    let ledger = compute.changes();
    let detached: usize = ledger
        .iter()
        .filter(|change| change.does == Does::Detach)
        .map(|change| change.endpoints.len())
        .sum();
    assert_eq!(detached, 6, "{ledger:#?}");
    super::judge::judge(
        &compute.operations(),
        super::judge::Rules::new(served.cluster.pods(), WAIT_MS),
    );
    for (_, host) in hosts {
        host.unwrap().terminate().0.exits(0);
    }
}
