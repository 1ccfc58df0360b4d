//! The socket: checks which clients may connect, reads and writes one line each, and limits their time.
//!
//! Knows only lines. `mailbox.rs` has them parsed and answered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use trueup_work::socket::{OwnSocket, may_ask};

use super::mailbox::Mailbox;
use super::protocol::{self, Answer, LINE_BYTES_MAX, Refusal, code};

/// The maximum number of connections, including those that wait for their answer. More wait to be accepted. A node
/// runs some hundred pods, and starts fewer at a time.
pub const CONNECTIONS_MAX: usize = 1024;

/// How long a client may take to send its request, and again to take its answer: the plugin's own limit for the whole
/// call.
const CLIENT_MAX: Duration = Duration::from_secs(10);

/// Serves until `closing` is true, then until the connections with a request have their answers.
pub(super) async fn serve(mut listener: OwnSocket, mailbox: Mailbox, mut closing: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let permit = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => break,
            Some(_) = connections.join_next() => continue,
            permit = Arc::clone(&permits).acquire_owned() => permit,
        };
        // The semaphore is never closed.
        let Ok(permit) = permit else { break };
        let stream = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => break,
            (stream, _) = listener.accept() => stream,
        };
        let (mailbox, closing) = (mailbox.clone(), closing.clone());
        connections.spawn(async move {
            connection(stream, &mailbox, closing).await;
            drop(permit);
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
                Ok(Ok(None)) => Err(Refusal::new(
                    code::DECODING,
                    format!("the request is longer than {LINE_BYTES_MAX} bytes"),
                )),
                // The client is gone.
                Ok(Err(_)) => return,
                Err(_) => Err(Refusal::new(
                    code::IO,
                    format!("no request came within {} s", CLIENT_MAX.as_secs()),
                )),
            }
        }
    };
    give(&mut stream, &answer).await;
}

async fn give(stream: &mut BufReader<UnixStream>, answer: &Answer) {
    let line = protocol::line(answer);
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
