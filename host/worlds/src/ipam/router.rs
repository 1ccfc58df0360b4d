//! Finds the instance of a request, and returns its answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::actor::{Job, Standing};
use super::protocol::{self, Answer, Command, Done, Refusal, Request, code};

/// The maximum number of requests that wait for one instance: as many as there can be connections, so that none is
/// refused.
pub(super) const QUEUE_MAX: usize = super::server::CONNECTIONS_MAX;

/// Access to an instance.
#[derive(Debug, Clone)]
pub(super) struct Door {
    pub(super) jobs: mpsc::Sender<Job>,
    pub(super) standing: Arc<Standing>,
}

/// All instances of this host, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Router {
    pub(super) doors: BTreeMap<String, Door>,
}

impl Router {
    /// Answers one line.
    pub(super) async fn answer(&self, line: &[u8]) -> Answer {
        let Request { instance, command, pod } = protocol::parse(line)?;
        let door = self
            .door(instance.as_deref())
            .map_err(|refusal| command.refuse(refusal))?;
        if command == Command::Status {
            // A client that only asks whether ADD is served does not wait behind ADDs.
            return match door.standing.why_not() {
                None => Ok(Done::Nothing {}),
                Some(why) => Err(command.refuse(Refusal::later(format!("pods are not served: {why}")))),
            };
        }
        let gone = || Refusal::later("the host ends");
        let asked = command.clone();
        let (reply, answer) = oneshot::channel();
        // A failed send returns the job, which holds the reply channel: waiting for its answer would block.
        if door.jobs.send(Job { command, pod, reply }).await.is_err() {
            return Err(asked.refuse(gone()));
        }
        let answer = answer.await.unwrap_or_else(|_| Err(gone()));
        answer.map_err(|refusal| asked.refuse(refusal))
    }

    fn door(&self, instance: Option<&str>) -> Result<&Door, Refusal> {
        match instance {
            Some(name) => self
                .doors
                .get(name)
                .ok_or_else(|| Refusal::later(format!("this host has no instance `{name}`; it has {}", self.names()))),
            None if self.doors.len() > 1 => Err(Refusal::new(
                code::CONFIGURATION,
                format!("which instance is not said; this host has {}", self.names()),
            )),
            None => self
                .doors
                .values()
                .next()
                .ok_or_else(|| Refusal::later("this host has no instance")),
        }
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.doors.keys().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instances that answer every request with their place in the list.
    fn router(names: &[&str]) -> Router {
        let mut router = Router::default();
        for (place, name) in (0..).zip(names) {
            let (jobs, mut asked) = mpsc::channel::<Job>(QUEUE_MAX);
            tokio::spawn(async move {
                while let Some(job) = asked.recv().await {
                    let answer = Ok(Done::Allocation {
                        ip: String::new(),
                        device_number: place,
                    });
                    job.reply.send(answer).unwrap();
                }
            });
            let standing = Arc::new(Standing::new());
            router.doors.insert((*name).to_owned(), Door { jobs, standing });
        }
        router
    }

    async fn ask(router: &Router, command: &str, instance: &str) -> String {
        let line = format!(
            r#"{{"v":1,"command":"{command}","instance":{instance},"network":"n","containerId":"c","ifName":"e"}}"#
        );
        String::from_utf8(protocol::line(&router.answer(line.as_bytes()).await)).unwrap()
    }

    #[tokio::test]
    async fn a_request_reaches_the_instance_that_it_names() {
        let two = router(&["a", "b"]);
        assert_eq!(
            ask(&two, "ADD", r#""b""#).await,
            "{\"v\":1,\"ok\":{\"ip\":\"\",\"deviceNumber\":1}}\n"
        );
        assert_eq!(
            ask(&two, "ADD", "null").await,
            "{\"v\":1,\"error\":{\"code\":7,\"msg\":\"which instance is not said; this host has `a`, `b`\",\"details\":\"n/c/e\"}}\n"
        );
        assert_eq!(
            ask(&two, "DEL", r#""c""#).await,
            "{\"v\":1,\"error\":{\"code\":11,\"msg\":\"this host has no instance `c`; it has `a`, `b`\",\"details\":\"n/c/e\"}}\n"
        );
        let one = router(&["a"]);
        assert_eq!(
            ask(&one, "ADD", "null").await,
            "{\"v\":1,\"ok\":{\"ip\":\"\",\"deviceNumber\":0}}\n"
        );
        let status = ask(&one, "STATUS", r#""c""#).await;
        assert!(status.starts_with(r#"{"v":1,"error":{"code":50,"#), "{status}");
        let status = ask(&one, "STATUS", "null").await;
        assert!(status.contains(r#""code":50,"msg":"pods are not served"#), "{status}");
    }

    #[tokio::test]
    async fn who_waits_for_an_instance_that_is_gone_is_told_to_try_again() {
        let mut router = router(&["a"]);
        let (jobs, asked) = mpsc::channel::<Job>(1);
        drop(asked);
        router.doors.get_mut("a").unwrap().jobs = jobs;
        let answer = ask(&router, "DEL", "null").await;
        assert!(
            answer.contains(r#""code":11,"msg":"the host ends","details":"n/c/e""#),
            "{answer}"
        );
    }
}
