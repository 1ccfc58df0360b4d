//! The socket: checks which clients may connect, reads and writes one line each, and limits their time. Knows only
//! lines; the [`Mailbox`] has them parsed and answered. Also the side of `trueup ipam`, which asks a running host.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use trueup_work::socket::{OwnSocket, may_ask};

use super::actor::Mail;
use super::protocol::{self, Answer, Command, Done, LINE_BYTES_MAX, PROTOCOL, Refusal, Request, Shown, code};
use crate::ipam::guest::IpamKey;

/// The maximum number of connections, including those that wait for their answer. More wait to be accepted. A node
/// runs some hundred pods, and starts fewer at a time.
pub const CONNECTIONS_MAX: usize = 1024;

/// How long a client may take to send its request, and again to take its answer: the plugin's own limit for the whole
/// call.
const CLIENT_MAX: Duration = Duration::from_secs(10);

/// The maximum number of requests that wait: as many as there can be connections, so that none is refused.
pub(super) const QUEUE_MAX: usize = CONNECTIONS_MAX;

/// The mailbox of this host's instance: passes requests to it, and returns its answers.
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
        let request = protocol::parse(line)?;
        let command = request.command.clone();
        self.asked(request).await.map_err(|refusal| command.refuse(refusal))
    }

    async fn asked(&self, Request { instance, command, pod }: Request) -> Answer {
        if let Some(name) = instance.filter(|name| *name != self.instance) {
            let has = &self.instance;
            return Err(Refusal::later(format!(
                "this host has no instance `{name}`; it has `{has}`"
            )));
        }
        if command == Command::Status {
            // A client that only asks whether ADD is served does not wait behind ADDs.
            return match &*self.not_serving.borrow() {
                None => Ok(Done::Nothing {}),
                Some(why) => Err(Refusal::later(format!("pods are not served: {why}"))),
            };
        }
        let (reply, answer) = oneshot::channel();
        // A failed send returns the mail with the reply channel: waiting for its answer would block.
        let sent = self.mail.send(Mail { command, pod, reply }).await.is_ok();
        let answer = if sent { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| Err(Refusal::later("the host ends")))
    }
}

/// Serves until `closing` is true, then until the connections with a request have their answers.
pub(super) async fn serve(mut listener: OwnSocket, mailbox: Mailbox, mut closing: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => break,
            Some(_) = connections.join_next() => continue,
            (stream, _) = listener.accept(), if connections.len() < CONNECTIONS_MAX => stream,
        };
        let mailbox = mailbox.clone();
        let closing = closing.clone();
        connections.spawn(async move {
            connection(stream, &mailbox, closing).await;
        });
    }
    drop(listener);
    drop(mailbox);
    while connections.join_next().await.is_some() {}
}

async fn connection(stream: UnixStream, mailbox: &Mailbox, mut closing: watch::Receiver<bool>) {
    let mut stream = BufReader::new(stream);
    let answer = match may_ask(stream.get_ref()) {
        Err(why) => Err(Refusal::new(code::IO, why)),
        Ok(()) => {
            let line = tokio::select! {
                biased;
                line = timeout(CLIENT_MAX, request(&mut stream)) => line,
                _ = closing.wait_for(|closing| *closing) => return,
            };
            match line {
                Ok(Ok(Some(line))) => mailbox.answer(&line).await,
                Ok(Ok(None)) => {
                    let why = format!("the request is longer than {LINE_BYTES_MAX} bytes");
                    Err(Refusal::new(code::DECODING, why))
                }
                // The client is gone.
                Ok(Err(_)) => return,
                Err(_) => {
                    let why = format!("no request came within {} s", CLIENT_MAX.as_secs());
                    Err(Refusal::new(code::IO, why))
                }
            }
        }
    };
    let line = protocol::line(&answer);
    let given = timeout(CLIENT_MAX, async {
        stream.write_all(&line).await?;
        stream.shutdown().await
    });
    // Ignore the error: a client that disconnected asks again, or does not need the answer.
    let _ = given.await;
}

/// The line without its end. `None` if it is too long.
async fn request(stream: &mut BufReader<UnixStream>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    stream.take(most).read_until(b'\n', &mut line).await?;
    if line.pop_if(|end| *end == b'\n').is_some() {
        return Ok(Some(line));
    }
    match line.len() {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length if length < LINE_BYTES_MAX => Ok(Some(line)),
        _ => Ok(None),
    }
}

/// The host may be busy with requests of pods.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// An address is about 150 bytes, and a node has some thousand. The guest's own answer may be this long.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Deserialize)]
struct Line {
    ok: Option<Value>,
    error: Option<Refusal>,
}

/// Asks the host that listens on `socket` for the state of its instance. With `instance` `None`, of its only one.
///
/// # Errors
/// One line: no host listens there, or the error that it returned.
pub async fn show(socket: &Path, instance: Option<&str>) -> Result<Shown, String> {
    let request = json!({ "v": PROTOCOL, "command": "SHOW", "instance": instance });
    let shown = ask(socket, &request).await?;
    serde_json::from_value(shown).map_err(|error| not_understood(socket, &error))
}

/// Frees the address of a key, as its container's DEL does. Succeeds too if it has none.
///
/// # Errors
/// As [`show`].
pub async fn release(socket: &Path, instance: &str, key: &IpamKey) -> Result<(), String> {
    let request = json!({
        "v": PROTOCOL, "command": "DEL", "instance": instance,
        "network": key.network_name, "containerId": key.container_id, "ifName": key.if_name,
    });
    ask(socket, &request).await.map(drop)
}

/// The host's answer.
async fn ask(socket: &Path, request: &Value) -> Result<Value, String> {
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("{request}\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = timeout(ANSWER_MAX, exchange).await;
    let answer = answer.map_err(|_| failed(socket, &format!("no answer within {} s", ANSWER_MAX.as_secs())))?;
    let answer = answer.map_err(|error| failed(socket, &format!("{error}; does `trueup run` serve there?")))?;
    match serde_json::from_slice(&answer) {
        Ok(Line { ok: Some(done), .. }) => Ok(done),
        Ok(Line {
            error: Some(refusal), ..
        }) => Err(failed(socket, &refusal.msg)),
        Ok(_) => Err(failed(socket, "its answer holds neither `ok` nor `error`")),
        Err(error) => Err(not_understood(socket, &error)),
    }
}

fn not_understood(socket: &Path, error: &serde_json::Error) -> String {
    failed(socket, &format!("its answer is not understood: {error}"))
}

fn failed(socket: &Path, what: &str) -> String {
    format!("asking the host at `{}`: {what}", socket.display())
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
