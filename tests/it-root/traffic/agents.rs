//! The agents of all namespaces: the test gives several of them orders at once.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::agent::{ANSWER, NAME, Order, Released};
use super::dialing::{Attempt, Dial};
use super::topology::{CLIENT, NODES, Node, Pod, pods};
use support::network::Network;

/// The longest time for an order: thousands of connections, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(300);

/// By the names of their namespaces.
pub(crate) struct Agents {
    all: BTreeMap<String, Agent>,
}

impl Agents {
    /// Starts one in each namespace, and waits until all serve.
    #[track_caller]
    pub(crate) fn start(network: &Network) -> Self {
        let pods = pods().into_iter().map(Pod::name);
        let names = pods.chain(NODES.map(Node::name)).chain([CLIENT.to_owned()]);
        let mut all: BTreeMap<String, Agent> = names.map(|name| (name.clone(), Agent::start(network, &name))).collect();
        for agent in all.values_mut() {
            agent.answer::<()>();
        }
        Self { all }
    }

    /// New connections of several clients, all at once; the results are in the order of `dials`.
    #[track_caller]
    pub(crate) fn dial<N: AsRef<str>>(&mut self, dials: &[(N, Dial)]) -> Vec<Vec<Attempt>> {
        for (name, dial) in dials {
            self.order(name.as_ref(), &Order::Dial(dial.clone()));
        }
        let answers = dials.iter().map(|(name, _)| self.agent(name.as_ref()).answer());
        answers.collect()
    }

    /// Gives one an order, and waits until it has started.
    #[track_caller]
    pub(crate) fn begin(&mut self, name: &str, order: &Order) {
        self.order(name, order);
        self.agent(name).answer::<()>();
    }

    /// Ends what was started.
    #[track_caller]
    pub(crate) fn release(&mut self) -> BTreeMap<String, Released> {
        for agent in self.all.values_mut() {
            agent.order(&Order::Release);
        }
        let all = self.all.iter_mut();
        all.map(|(name, agent)| (name.clone(), agent.answer())).collect()
    }

    #[track_caller]
    fn order(&mut self, name: &str, order: &Order) {
        self.agent(name).order(order);
    }

    #[track_caller]
    fn agent(&mut self, name: &str) -> &mut Agent {
        self.all.get_mut(name).unwrap()
    }
}

/// A process that ends with this value.
struct Agent {
    name: String,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Agent {
    fn start(network: &Network, name: &str) -> Self {
        let mut command = network.command("ip");
        command
            .args(["netns", "exec", name])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "traffic::agent::in_a_namespace",
                "--quiet",
                "--nocapture",
            ])
            .env(NAME, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, answers) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            for answer in lines.filter_map(|line| line.strip_prefix(ANSWER).map(str::to_owned)) {
                // The test has ended.
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        Self {
            name: name.to_owned(),
            child,
            orders,
            answers,
        }
    }

    #[track_caller]
    fn order(&mut self, order: &Order) {
        let line = serde_json::to_string(order).unwrap() + "\n";
        self.orders.write_all(line.as_bytes()).unwrap();
    }

    #[track_caller]
    fn answer<T: DeserializeOwned>(&mut self) -> T {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => serde_json::from_str(&line).unwrap(),
            Err(RecvTimeoutError::Timeout) => panic!("{} did not answer in {PATIENCE:?}", self.name),
            Err(RecvTimeoutError::Disconnected) => panic!("{} ended", self.name),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
