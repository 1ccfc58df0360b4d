//! The mailbox of the instance: passes requests to it, and returns its answers.

use tokio::sync::{mpsc, oneshot, watch};

use super::actor::Mail;
use super::protocol::{self, Answer, Command, Done, Refusal, Request};

/// The maximum number of requests that wait: as many as there can be connections, so that none is refused.
pub(super) const QUEUE_MAX: usize = super::server::CONNECTIONS_MAX;

/// The mailbox of this host's instance.
#[derive(Debug, Clone)]
pub(super) struct Mailbox {
    /// The name of the instance.
    pub(super) instance: String,
    pub(super) mail: mpsc::Sender<Mail>,
    /// Why the instance serves no pods. `None` if it does.
    pub(super) not_serving: watch::Receiver<Option<String>>,
}

impl Mailbox {
    /// Answers one line.
    pub(super) async fn answer(&self, line: &[u8]) -> Answer {
        let Request { instance, command, pod } = protocol::parse(line)?;
        if let Some(name) = instance.filter(|name| *name != self.instance) {
            let has = &self.instance;
            let refusal = Refusal::later(format!("this host has no instance `{name}`; it has `{has}`"));
            return Err(command.refuse(refusal));
        }
        if command == Command::Status {
            // A client that only asks whether ADD is served does not wait behind ADDs.
            return match &*self.not_serving.borrow() {
                None => Ok(Done::Nothing {}),
                Some(why) => Err(command.refuse(Refusal::later(format!("pods are not served: {why}")))),
            };
        }
        let gone = || Refusal::later("the host ends");
        let asked = command.clone();
        let (reply, answer) = oneshot::channel();
        // A failed send returns the mail, which holds the reply channel: waiting for its answer would block.
        if self.mail.send(Mail { command, pod, reply }).await.is_err() {
            return Err(asked.refuse(gone()));
        }
        let answer = answer.await.unwrap_or_else(|_| Err(gone()));
        answer.map_err(|refusal| asked.refuse(refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mailbox of `a`, and what comes into it.
    fn mailbox() -> (Mailbox, mpsc::Receiver<Mail>) {
        let (mail, received) = mpsc::channel(QUEUE_MAX);
        let mailbox = Mailbox {
            instance: "a".to_owned(),
            mail,
            not_serving: watch::Sender::new(Some("why".to_owned())).subscribe(),
        };
        (mailbox, received)
    }

    async fn ask(mailbox: &Mailbox, command: &str, instance: &str) -> String {
        let line = format!(
            r#"{{"v":1,"command":"{command}","instance":{instance},"network":"n","containerId":"c","ifName":"e"}}"#
        );
        String::from_utf8(protocol::line(&mailbox.answer(line.as_bytes()).await)).unwrap()
    }

    #[tokio::test]
    async fn a_request_reaches_the_instance_that_it_names_or_the_only_one() {
        let (mailbox, mut received) = mailbox();
        tokio::spawn(async move {
            while let Some(mail) = received.recv().await {
                let answer = Ok(Done::Allocation {
                    ip: String::new(),
                    device_number: 1,
                });
                mail.reply.send(answer).unwrap();
            }
        });
        for instance in ["null", r#""a""#] {
            assert_eq!(
                ask(&mailbox, "ADD", instance).await,
                "{\"v\":1,\"ok\":{\"ip\":\"\",\"deviceNumber\":1}}\n"
            );
        }
        assert_eq!(
            ask(&mailbox, "DEL", r#""c""#).await,
            "{\"v\":1,\"error\":{\"code\":11,\"msg\":\"this host has no instance `c`; it has `a`\",\"details\":\"n/c/e\"}}\n"
        );
        let status = ask(&mailbox, "STATUS", r#""c""#).await;
        assert!(status.starts_with(r#"{"v":1,"error":{"code":50,"#), "{status}");
        let status = ask(&mailbox, "STATUS", "null").await;
        assert!(status.contains(r#""code":50,"msg":"pods are not served"#), "{status}");
    }

    #[tokio::test]
    async fn a_request_to_an_instance_that_is_gone_is_to_be_tried_again() {
        let (mailbox, received) = mailbox();
        drop(received);
        let answer = ask(&mailbox, "DEL", "null").await;
        assert!(
            answer.contains(r#""code":11,"msg":"the host ends","details":"n/c/e""#),
            "{answer}"
        );
    }
}
